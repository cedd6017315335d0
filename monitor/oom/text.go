package oom

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// text is a piece of a line without colours and without what launchers and loggers put before it.
type text struct {
	string
	rank   int  // from the prefix, -1 unknown
	logged bool // the prefix names a level below error
	failed bool // it names the level of errors, or a worse one
}

// hostPattern is a host before its line: a name with a digit in it, or an address. A name without a digit could be any
// word.
const hostPattern = `(?:\d{1,3}(?:\.\d{1,3}){3}|localhost|[A-Za-z][\w-]{0,60}\d[\w-]{0,60}(?:\.[a-z0-9-]{1,60}){0,6}): `

// colourPattern: a colour whose escape character was lost, as in text that was pasted into a thread, ends with m;
// rsyslog writes the character as #033.
const colourPattern = `(?:\x1b|#033)\[[0-9;?]*[A-Za-z]|\[\d{1,3}(?:;\d{1,3})*m`

// decorations are the patterns of text.go, compiled at the first use.
type decorations struct {
	colour, colourHere, bar, rank, level, worse *regexp.Regexp
	prefixes                                    beginnings
}

var decoration = sync.OnceValue(func() decorations {
	return decorations{
		colour:     regexp.MustCompile(colourPattern),
		colourHere: regexp.MustCompile(`^(?:` + colourPattern + `)`),
		// A tqdm bar up to its closing bracket: the message may follow on the same line.
		bar: regexp.MustCompile(`\d+%\|[^\[]*\[[^\]]*\]|\d+/\d+ \[[^\]]*(?:it/s|s/it)[^\]]*\]`),
		prefixes: newBeginnings(
			// [rank3]: [default3]: [1,3]<stderr>: [2024-04-20 18:56:38,931]
			`\[[^\[\]'"]{1,100}\](?:<\w+>)?:?`,
			`\((?:[A-Za-z_]\w* )?(?:pid|rank|ip)=[^)]{1,80}\)`,                   // Ray, vLLM
			`\d{4}[-/]\d\d[-/]\d\d(?:[T ]\d\d:\d\d:\d\d\S*)?`,                    // timestamps
			`\d\d[-/]\d\d(?:[-/]\d\d)?\s+\d\d:\d\d:\d\d\S*`, `\d\d:\d\d:\d\d\S*`, // shorter ones
			`(?:ERROR|WARNING|WARN|INFO|DEBUG|CRITICAL|FATAL)\b:?`, // levels
			`[EWI]\d{4} \d\d:\d\d:\d\d\.\d+ [^\]]{0,120}\]`,        // glog, as torch.distributed prints it
			`rank:?\s+\d{1,5}\s*\|`,                                // ParlAI
			`E\s{2,}`,                                              // pytest
			`std(?:err|out) [FP] `,                                 // containerd's files
			`\{"log":"`,                                            // docker's json-file driver
			`[\w.-]{1,60}\s+\| `,                                   // docker compose
			`[A-Z][a-z]{2}\s+\d{1,2} \d\d:\d\d:\d\d \S+ [\w.@-]+(?:\[\d+\])?: `, // syslog, journald
			`SUBPROCESS:`, `##\[\w+\]`, // GitHub Actions
			`\d{1,5}: `,           // srun --label
			hostPattern,           // pdsh
			`[-|>❱│┃*'"`+"`"+`]+`, // separators, boxes, quotes, markdown
		),
		rank:  regexp.MustCompile(`\[rank(\d+)\]|\[Rank (\d+)\]|\[(?:default|trainer|worker)(\d+)\]|\[\d+,(\d+)\]<std|^\s*(\d{1,5}): |\brank[ =:]+(\d+)\b`),
		level: regexp.MustCompile(`\b(?:WARNING|WARN|INFO|DEBUG)\b|^\s*\[?W\d{4} `),
		worse: regexp.MustCompile(`\b(?:ERROR|CRITICAL|FATAL)\b`),
	}
})

// clean strips colours, a progress bar and prefixes.
func clean(raw []byte) text {
	d := decoration()
	s := strings.ToValidUTF8(string(raw), "\uFFFD")
	if strings.Contains(s, "\x1b") || strings.Contains(s, "[0m") || strings.Contains(s, "#033[") {
		s = d.colour.ReplaceAllString(s, "")
	}
	if strings.Contains(s, `\"`) { // quotes inside JSON
		s = strings.ReplaceAll(s, `\"`, `"`)
	}
	whole := s
	if strings.Contains(s, "%|") || strings.Contains(s, "/it]") || strings.Contains(s, "it/s]") {
		if bar := d.bar.FindStringIndex(s); bar != nil && utf8.RuneCountInString(s[:bar[0]]) <= barReach {
			s = s[bar[1]:]
		}
	}
	for range 8 { // no launcher stacks more prefixes
		rest := strings.TrimLeft(s, whiteSpace)
		n := d.prefixes.in(rest)
		if n == 0 {
			break
		}
		s = rest[n:]
	}
	prefix := whole[:len(whole)-len(s)]
	t := text{string: strings.TrimSpace(s), rank: -1, logged: d.level.MatchString(prefix),
		failed: d.worse.MatchString(prefix)}
	if m := d.rank.FindStringSubmatch(prefix); m != nil {
		t.rank = firstInt(m[1:])
	}
	return t
}

// whiteSpace is what \s stands for in a pattern.
const whiteSpace = "\t\n\f\r "

// barReach is how many characters may stand before a progress bar.
const barReach = 400

// firstInt returns the first number among texts, or -1.
func firstInt(texts []string) int {
	for _, t := range texts {
		if n, err := strconv.Atoi(t); err == nil {
			return n
		}
	}
	return -1
}

func clip(raw []byte) []byte { return raw[:min(len(raw), segmentBytes)] }

// excerpt is one line of text for people: white space collapsed, at most 400 bytes.
func excerpt(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	const most = 400
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// squeezed is text without anything that a terminal, a log viewer or markdown may have put into it: white space, line
// breaks, box characters, emphasis, quotes, colours. Hard wraps split words and numbers ("4" / "0.30 GiB"); without
// white space they are whole again.
type squeezed struct {
	text string
	at   []int32 // offset in the source of each byte
}

func squeeze(bytes []byte) squeezed {
	d, raw := decoration(), string(bytes)
	out := make([]byte, 0, len(raw))
	at := make([]int32, 0, len(raw))
	for i, line := 0, 0; i < len(raw); {
		b := raw[i]
		switch {
		case b == '\x1b' || b == '[' && i+1 < len(raw) && '0' <= raw[i+1] && raw[i+1] <= '9':
			if n := len(d.colourHere.FindString(raw[i:min(len(raw), i+20)])); n > 0 || b == '\x1b' {
				i += max(1, n)
				continue
			}
			out, at = append(out, b), append(at, int32(i))
		case b == '\n' || b == '\r':
			n := wrapPrefix(raw[i+1:], raw[line:i])
			line = i + 1
			i += 1 + n
			continue
		case b == '\\' && i+1 < len(raw) && raw[i+1] == 'n': // a newline inside JSON or a Python repr
			i += 2
			continue
		case b > ' ' && b < 0x7f && !strings.ContainsRune("*`'\"", rune(b)):
			out, at = append(out, b), append(at, int32(i))
		}
		i++
	}
	return squeezed{string(out), at}
}

// wrapPrefix is the length of what a launcher, a container's log or a copier of streams puts before a continued line.
// before is the line above it: a bare name, such as pdsh's host, could be any word, so it must stand there too.
func wrapPrefix(rest, before string) int {
	rest, _, _ = strings.Cut(rest[:min(len(rest), wrapReach)], "\n")
	if rest == "" {
		return 0
	}
	n := 0
	if name := continuation().name.FindString(rest); name != "" && !continuation().exception.MatchString(name) &&
		strings.HasPrefix(strings.TrimLeft(before, " \t"), name) {
		n = len(name)
	}
	for {
		inner := strings.TrimLeft(rest[n:], " \t\f")
		found := continuation().prefixes.in(inner)
		if found == 0 {
			return n
		}
		n = len(rest) - len(inner) + found
	}
}

// wrapReach is how long the prefixes of a continued line may be together.
const wrapReach = 400

type continuations struct {
	name, exception *regexp.Regexp
	prefixes        beginnings
}

var continuation = sync.OnceValue(func() continuations {
	return continuations{
		name:      regexp.MustCompile(`^[\w.-]{1,80}: (?:(?:ERROR|WARNING|INFO) )?`),
		exception: regexp.MustCompile(`(?:Error|Exception): `),
		prefixes: newBeginnings(
			`\[[^\[\]'"\n]{1,100}\](?:<\w+>)?:?`,              // [rank3]: [1,3]<stderr>: [pod/name/container]
			`\((?:[A-Za-z_]\w* )?(?:pid|rank)=[^)\n]{1,80}\)`, // Ray, vLLM
			`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,\d]*(?:Z|[+-]\d\d:?\d\d)?`,
			`std(?:err|out) [FP] `,
			`[\w.-]{1,60} *\| `, // docker compose
		),
	}
})
