package oom

import (
	"bytes"
	"iter"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// text is a piece of a line without colours and without what launchers and loggers put before it.
type text struct {
	string
	rank   int  // from the prefix, -1 unknown
	logged bool // the prefix names a level below error
}

// decorations are the patterns of text.go, compiled at the first use.
type decorations struct {
	colour, bar, prefix, rank, level *regexp.Regexp
}

var decoration = sync.OnceValue(func() decorations {
	return decorations{
		colour: regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`),
		// A tqdm bar up to its closing bracket: the message may follow on the same line.
		bar: regexp.MustCompile(`^.{0,400}?(?:\d+%\|[^\[]*\[[^\]]*\]|\d+/\d+ \[[^\]]*(?:it/s|s/it)[^\]]*\])`),
		prefix: regexp.MustCompile(`^\s*(?:` + strings.Join([]string{
			`\[[^\[\]'"]{1,100}\](?:<\w+>)?:?`,                                   // [rank3]: [default3]: [1,3]<stderr>: [2024-04-20 18:56:38,931]
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
			`\d{1,5}: `,               // srun --label
			`[-|>❱│┃*'"` + "`" + `]+`, // separators, boxes, quotes, markdown
		}, "|") + `)`),
		rank:  regexp.MustCompile(`\[rank(\d+)\]|\[Rank (\d+)\]|\[(?:default|trainer|worker)(\d+)\]|\[\d+,(\d+)\]<std|^\s*(\d{1,5}): |\brank[ =:]+(\d+)\b`),
		level: regexp.MustCompile(`\b(?:WARNING|WARN|INFO|DEBUG)\b|^\s*\[?W\d{4} `),
	}
})

// clean strips colours, a progress bar and prefixes.
func clean(raw []byte) text {
	d := decoration()
	s := strings.ToValidUTF8(string(raw), "\uFFFD")
	if strings.Contains(s, "\x1b") {
		s = d.colour.ReplaceAllString(s, "")
	}
	if strings.Contains(s, `\"`) { // quotes inside JSON
		s = strings.ReplaceAll(s, `\"`, `"`)
	}
	whole := s
	if strings.Contains(s, "%|") || strings.Contains(s, "/it]") || strings.Contains(s, "it/s]") {
		s = s[len(d.bar.FindString(s)):]
	}
	for range 8 { // no launcher stacks more prefixes
		n := len(d.prefix.FindString(s))
		if n == 0 {
			break
		}
		s = s[n:]
	}
	prefix := whole[:len(whole)-len(s)]
	t := text{string: strings.TrimSpace(s), rank: -1, logged: d.level.MatchString(prefix)}
	if m := d.rank.FindStringSubmatch(prefix); m != nil {
		t.rank = firstInt(m[1:])
	}
	return t
}

// firstInt returns the first number among texts, or -1.
func firstInt(texts []string) int {
	for _, t := range texts {
		if n, err := strconv.Atoi(t); err == nil {
			return n
		}
	}
	return -1
}

// linesBack yields the lines of raw from the last to the first; they are cleaned only as far as they are asked for.
func linesBack(raw []byte) iter.Seq[text] {
	return func(yield func(text) bool) {
		for raw = bytes.TrimRight(raw, "\r\n"); len(raw) > 0; {
			i := bytes.LastIndexAny(raw, "\r\n")
			if !yield(clean(clip(raw[i+1:]))) {
				return
			}
			raw = raw[:max(i, 0)]
		}
	}
}

// firstLines returns the first n lines of raw.
func firstLines(raw []byte, n int) []text {
	var lines []text
	for len(raw) > 0 && len(lines) < n {
		i := bytes.IndexAny(raw, "\r\n")
		if i < 0 {
			i = len(raw)
		}
		if i > 0 {
			lines = append(lines, clean(clip(raw[:i])))
		}
		raw = raw[min(i+1, len(raw)):]
	}
	return lines
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

// squeezed is text without anything that a terminal, a log viewer or markdown may have put into it: white space, line breaks, box
// characters, emphasis, quotes, colours. Hard wraps split words and numbers ("4" / "0.30 GiB"); without white space they are whole again.
type squeezed struct {
	text string
	at   []int32 // offset in the source of each byte
}

func squeeze(raw []byte) squeezed {
	d := decoration()
	out := make([]byte, 0, len(raw))
	at := make([]int32, 0, len(raw))
	for i := 0; i < len(raw); {
		b := raw[i]
		switch {
		case b == '\x1b':
			i += max(1, len(d.colour.Find(raw[i:min(len(raw), i+20)])))
			continue
		case b == '\n' || b == '\r':
			i += 1 + len(wrapPrefix(raw[i+1:]))
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

// wrapPrefix is the launcher's prefix of a continued line.
func wrapPrefix(rest []byte) []byte {
	for i, b := range rest[:min(len(rest), 100)] {
		switch b {
		case ' ', '\t':
		case '[', '(':
			head := rest[:min(len(rest), i+100)]
			if m := continuation().Find(head); m != nil {
				return m
			}
			return nil
		default:
			return nil
		}
	}
	return nil
}

var continuation = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^\s*(?:(?:\[(?:rank|default)\d+\]|\[\d+,\d+\]<\w+>):?\s*|\((?:[A-Za-z_]\w* )?(?:pid|rank)=[^)\n]{1,80}\)\s*)+`)
})
