package secrets

import (
	"regexp"
	"strings"
	"sync"
	"unicode"
)

// byName takes the secrets out of a text that stand behind a name: NAME=value, name: value, "name": "value", ['NAME'] =
// 'value'. found, if not nil, is told of each.
func byName(text string, found func(secret string)) string {
	var out strings.Builder
	judged := map[string]suspicion{} // a log repeats its names
	done := 0
	for i := 0; i < len(text); i++ {
		if c := text[i]; c != '=' && c != ':' {
			continue
		}
		name := nameBefore(text[done:i])
		if name == "" {
			continue
		}
		level, known := judged[name]
		if !known {
			level = judgeName(name)
			judged[name] = level
		}
		if level == none {
			continue
		}
		from, to := valueAt(text, i, name)
		value := text[from:to]
		bare := !quoted(text, from)
		secret := judge(name, value) || handedOver(text[done:i], name) && !empty(value)
		if !secret || from == to || bare && (code(name, value) || text[i] == ':' && plainWords(value)) {
			continue
		}
		out.WriteString(text[done:from])
		out.WriteString(Redacted)
		if found != nil {
			found(value)
		}
		done, i = to, to-1
	}
	if done == 0 {
		return text
	}
	out.WriteString(text[done:])
	return out.String()
}

// nameBefore is the name at the end of a text, without the quotes and brackets that close it.
func nameBefore(text string) string {
	const most = 200
	text = text[max(0, len(text)-most):]
	text = strings.TrimRight(text, " \t")
	text = strings.TrimRight(text, ":+") // a := b, a += b
	text = strings.TrimRight(text, `"'\])`)
	start := len(text)
	for start > 0 && named(text[start-1]) {
		start--
	}
	return strings.TrimLeft(text[start:], "-.:")
}

// named tells a letter of names.
func named(c byte) bool {
	return c == '_' || c == '-' || c == '.' || c == ':' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' ||
		c >= 'A' && c <= 'Z'
}

// given is an option with its value behind a blank, as commands are quoted in texts.
var given = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`((?:^|[\s'"\x60(])--?([A-Za-z][\w.-]*) +)("[^"\n]*"|'[^'\n]*'|[^\s'"\x60]+)`)
})

// listed is a name and its value as programs list them: ['--hub_token', 'x'], setdefault("HF_TOKEN", "x").
var listed = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(["'](?:--?([A-Za-z][\w.-]*)|([A-Z][A-Z0-9]*_[A-Z0-9_]+))["']\s*,\s*["'])([^"'\n]+)(["'])`)
})

// byList takes out values behind names in lists.
func byList(text string, found func(secret string)) string {
	if !strings.Contains(text, "',") && !strings.Contains(text, `",`) {
		return text
	}
	return replaceMatches(listed(), text, func(groups []string) string {
		name, value := groups[2]+groups[3], groups[4]
		if !takes(name, value) || !judge(name, value) || value == Redacted {
			return groups[0]
		}
		if found != nil {
			found(value)
		}
		return groups[1] + Redacted + groups[5]
	})
}

// byOption takes out the values of options: --password x.
func byOption(text string) string {
	if !strings.Contains(text, "-") || !given().MatchString(text) {
		return text
	}
	return replaceMatches(given(), text, func(groups []string) string {
		lead, name, value := groups[1], groups[2], groups[3]
		plain := strings.Trim(value, `"'`)
		if judgeName(name) == none || !takes(name, plain) || !judge(name, plain) || len(name) == 1 {
			return groups[0]
		}
		return lead + strings.Replace(value, plain, Redacted, 1)
	})
}

// code tells an expression of a program (key = load(x), token = self.token) from a value.
func code(name, value string) bool {
	return value == name || strings.HasSuffix(value, "."+name) || call().MatchString(value)
}

var call = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][\w.]*\(`) })

// handedOver tells a parameter of an address (https://host/path?token=x) or of a login (login(key=x)), where a name
// that may be a secret's is one.
func handedOver(before, name string) bool {
	before, ok := strings.CutSuffix(strings.TrimRight(before, " "), name)
	if !ok {
		return false
	}
	line := before[strings.LastIndexByte(before, '\n')+1:]
	return (strings.HasSuffix(line, "?") || strings.HasSuffix(line, "&")) && strings.Contains(line, "://") ||
		loginCall().MatchString(line)
}

var loginCall = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)\blogin\([^()]*$`) })

func quoted(text string, from int) bool {
	return from > 0 && (text[from-1] == '"' || text[from-1] == '\'')
}

// plainWords tells prose behind a colon (password: please enter it) from a value.
func plainWords(value string) bool {
	return !strings.ContainsFunc(value,
		func(r rune) bool { return !unicode.IsLower(r) && !strings.ContainsRune("-'`.,!?", r) })
}

// valueAt is where the value behind the sign at i begins and ends.
func valueAt(text string, i int, name string) (from, to int) {
	sign := text[i]
	from = i + 1
	if from < len(text) && (text[from] == '=' || text[from] == '>' ||
		sign == ':' && (text[from] == ':' || text[from] == '/')) {
		if text[from] != '>' {
			return from, from // ==, ::, ://
		}
		from++
	}
	for from < len(text) && (text[from] == ' ' || text[from] == '\t') && (sign == ':' || i > 0 && text[i-1] == ' ') {
		from++
	}
	rest := text[from:]
	if strings.HasPrefix(rest, Redacted) || strings.HasPrefix(rest, "$(") ||
		rest != "" && strings.IndexByte("{[`", rest[0]) >= 0 {
		return from, from // done already, or what has names in itself
	}
	if end := strings.IndexByte(rest, '}'); strings.HasPrefix(rest, "${") && end > 0 {
		return from, from + end + 1
	}
	escaped := from+1 < len(text) && text[from] == '\\' && (text[from+1] == '"' || text[from+1] == '\'')
	if escaped {
		from++
	}
	if from < len(text) && (text[from] == '"' || text[from] == '\'') {
		q := text[from]
		from++
		for to = from; to < len(text) && text[to] != q && text[to] != '\n'; to++ {
			if text[to] == '\\' && to+1 < len(text) && !escaped {
				to++
			}
		}
		if to = min(to, len(text)); escaped && to > from && text[to-1] == '\\' {
			to--
		}
		return from, to
	}
	ends := " \t\r\n;,&|\"'<>)}]"
	if strings.Contains(strings.ToLower(name), "authorization") ||
		strings.Contains(strings.ToLower(name), "cookie") && sign == ':' {
		ends = "\r\n\"'"
	}
	to = from
	for to < len(text) && strings.IndexByte(ends, text[to]) < 0 {
		to++
	}
	if strings.HasPrefix(text[from:to], "<") || to == from && to < len(text) && text[to] == '<' {
		return from, from // a place to fill in
	}
	return from, to
}
