package shell

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// tr with sets of single characters: tr ',' '\n', tr -d ' ', tr a-z A-Z.
func tr(_ *evaluator, args []string, in *output) (string, bool) {
	text, ok := all(in)
	if len(args) != 2 || !ok {
		return "", false
	}
	if args[0] == "-d" {
		from, known := characters(args[1])
		return strings.Map(func(c rune) rune {
			if slices.Contains(from, c) {
				return -1
			}
			return c
		}, text), known
	}
	from, knownFrom := characters(args[0])
	to, knownTo := characters(args[1])
	if !knownFrom || !knownTo || len(to) == 0 || strings.HasPrefix(args[0], "-") {
		return "", false
	}
	return strings.Map(func(c rune) rune {
		if i := slices.Index(from, c); i >= 0 {
			return to[min(i, len(to)-1)]
		}
		return c
	}, text), true
}

// characters lists a set of tr.
func characters(set string) ([]rune, bool) {
	set = strings.NewReplacer("[:upper:]", "A-Z", "[:lower:]", "a-z", "[:digit:]", "0-9", "[:space:]",
		" \t\n").Replace(escaped(set))
	if strings.ContainsAny(set, `[]\`) {
		return nil, false
	}
	var list []rune
	runes := []rune(set)
	for i := 0; i < len(runes); i++ {
		if i+2 < len(runes) && runes[i+1] == '-' {
			if runes[i+2]-runes[i] > 1000 {
				return nil, false
			}
			for c := runes[i]; c <= runes[i+2]; c++ {
				list = append(list, c)
			}
			i += 2
			continue
		}
		list = append(list, runes[i])
	}
	return list, true
}

// short splits options that stand with their value in one word or in two: -d, -d ','; ok is false for others than those
// named.
func short(args []string, names string) (options map[byte]string, rest []string, ok bool) {
	options = map[byte]string{}
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		name, value := args[0][1], args[0][2:]
		args = args[1:]
		if value == "" && len(args) > 0 {
			value, args = args[0], args[1:]
		}
		if strings.IndexByte(names, name) < 0 {
			return nil, nil, false
		}
		options[name] = value
	}
	return options, args, true
}

func cut(_ *evaluator, args []string, in *output) (string, bool) {
	options, rest, ok := short(args, "df")
	delimiter, given := options['d']
	if !given {
		delimiter = "\t"
	}
	from, to, ranged := strings.Cut(options['f'], "-")
	if !ranged {
		to = from
	}
	first, errFirst := strconv.Atoi(from)
	last, errLast := strconv.Atoi(to)
	if to == "" && ranged {
		last, errLast = maxText, nil
	}
	if !ok || len(rest) > 0 || errFirst != nil || errLast != nil || first < 1 || last < first || delimiter == "" {
		return "", false
	}
	return onLines(in, func(line string) string {
		fields := strings.Split(line, delimiter)
		if len(fields) == 1 {
			return line
		}
		return strings.Join(fields[min(first-1, len(fields)):min(last, len(fields))], delimiter)
	})
}

func head(_ *evaluator, args []string, in *output) (string, bool) { return ends(args, in, false) }

func tail(_ *evaluator, args []string, in *output) (string, bool) { return ends(args, in, true) }

// ends are the first or last lines: -n 1, -n1, -1.
func ends(args []string, in *output, last bool) (string, bool) {
	n := 10
	if len(args) > 0 {
		text := strings.TrimPrefix(strings.Join(args, ""), "-")
		count, err := strconv.Atoi(strings.TrimPrefix(text, "n"))
		if err != nil || count < 0 || strings.Contains(text, "+") {
			return "", false
		}
		n = count
	}
	list, ok := lines(in)
	if n = min(n, len(list)); last {
		list = list[len(list)-n:]
	}
	return unlines(list[:n]), ok
}

var awkPrint = regexp.MustCompile(`^\s*\{\s*print\s+(NF|\$NF|\$[0-9]+)\s*;?\s*\}\s*$`)

// awk prints one field, or how many there are.
func awk(_ *evaluator, args []string, in *output) (string, bool) {
	options, rest, ok := short(args, "F")
	if !ok || len(rest) != 1 || len(options['F']) > 1 {
		return "", false
	}
	match := awkPrint.FindStringSubmatch(rest[0])
	if match == nil {
		return "", false
	}
	return onLines(in, func(line string) string {
		fields := strings.Fields(line)
		if separator := options['F']; separator != "" && separator != " " {
			if fields = strings.Split(line, separator); line == "" {
				fields = nil
			}
		}
		switch match[1] {
		case "NF":
			return strconv.Itoa(len(fields))
		case "$0":
			return line
		case "$NF":
			return strings.Join(fields[max(0, len(fields)-1):], "")
		}
		i, err := strconv.Atoi(match[1][1:])
		if err != nil || i > len(fields) {
			return ""
		}
		return fields[i-1]
	})
}

// sed replaces one text by another: s/a/b/, s/a/b/g. Patterns are not followed.
func sed(_ *evaluator, args []string, in *output) (string, bool) {
	if len(args) == 2 && args[0] == "-e" {
		args = args[1:]
	}
	if len(args) != 1 || len(args[0]) < 4 || args[0][0] != 's' {
		return "", false
	}
	const hidden = "\x01" // an escaped delimiter
	delimiter := args[0][1:2]
	parts := strings.Split(strings.ReplaceAll(args[0][2:], `\`+delimiter, hidden), delimiter)
	if len(parts) != 3 || parts[2] != "" && parts[2] != "g" || strings.ContainsAny(parts[0], `.*[]^$\`) ||
		strings.ContainsAny(parts[1], `&\`) || parts[0] == "" {
		return "", false
	}
	from, to := strings.ReplaceAll(parts[0], hidden, delimiter), strings.ReplaceAll(parts[1], hidden, delimiter)
	count := 1
	if parts[2] == "g" {
		count = -1
	}
	return onLines(in, func(line string) string { return strings.Replace(line, from, to, count) })
}
