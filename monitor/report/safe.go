package report

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text from outside (logs, command lines, names of files and GPUs, YAML, the environment) can hold what acts on whoever
// shows it: a terminal, the log of a CI system, a parser. This file is the one place that makes it safe. The formats
// take a shown page or suite, which only show makes, so that no text reaches them in another way; what is printed
// outside reports goes through Line or Lines.

// Line makes text one line that shows as it is: what is no text (control characters, changes of direction, what has no
// width, broken UTF-8) is written as an escape, and what a CI system would take for a command is not one any more.
func Line(text string) string {
	return disarm(escaped(strings.ReplaceAll(text, "\t", " "), ""))
}

// Lines is Line for each line of a text that may have several; tabs stay.
func Lines(text string) string {
	if !strings.Contains(text, "\n") {
		return disarm(escaped(text, "\t"))
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = disarm(escaped(line, "\t"))
	}
	return strings.Join(lines, "\n")
}

// unprintable tells characters that act instead of showing: controls, and what Unicode calls format and separators of
// lines. Among the latter are those that reverse the direction of what follows, and those that no eye sees.
func unprintable(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Cs, unicode.Noncharacter_Code_Point)
}

// escaped writes what is unprintable, but for the characters in keep, as Go and C write it in a string.
func escaped(text, keep string) string {
	hidden := func(r rune) bool { return unprintable(r) && !strings.ContainsRune(keep, r) }
	if utf8.ValidString(text) && !strings.ContainsFunc(text, hidden) {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], "\ufffd"):
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case hidden(r):
			b.WriteString(asEscape(r))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func asEscape(r rune) string {
	switch {
	case r == '\n':
		return `\n`
	case r == '\r':
		return `\r`
	case r == '\t':
		return `\t`
	case r < utf8.RuneSelf:
		return fmt.Sprintf(`\x%02x`, r)
	case r < 0x10000:
		return fmt.Sprintf(`\u%04x`, r)
	}
	return fmt.Sprintf(`\U%08x`, r)
}

// oldCommands begin a command of Azure Pipelines, TeamCity and older GitHub runners wherever they stand in a line.
var oldCommands = strings.NewReplacer("##[", `#\#[`, "##vso[", `#\#vso[`, "##teamcity[", `#\#teamcity[`)

// disarm puts a backslash into what a CI system would take for a command. A runner of GitHub takes a line that begins
// with two colons, whatever blanks and invisible marks stand before them.
func disarm(line string) string {
	if strings.Contains(line, "##") {
		line = oldCommands.Replace(line)
	}
	bare := strings.TrimLeftFunc(line, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsMark(r) })
	if strings.HasPrefix(bare, "::") {
		return line[:len(line)-len(bare)] + `\` + bare
	}
	return line
}

// shown is a page whose texts are safe to show; show alone makes one.
type shown struct{ blocks []Block }

func show(page Page) shown {
	split := make(Page, len(page))
	for i, b := range page {
		if list, ok := b.(List); ok {
			b = list.split()
		}
		split[i] = b
	}
	return shown{split.mapped(Line, Lines)}
}

// split makes lines below an item of those that its text has: an error may have several, and below an item they are
// taken for nothing else.
func (l List) split() List {
	out := make(List, len(l))
	for i, item := range l {
		lines := strings.Split(strings.TrimRight(item.Text, "\n"), "\n")
		out[i] = Paragraph{Text: lines[0], Tone: item.Tone,
			Below: append(lines[1:len(lines):len(lines)], item.Below...)}
	}
	return out
}

// shownSuite is the same for verdicts.
type shownSuite struct{ Suite }

func showSuite(s Suite) shownSuite {
	cases := make([]Case, len(s.Cases))
	for i, c := range s.Cases {
		c.ID, c.Title, c.Detail, c.Remedy = Line(c.ID), Line(c.Title), Lines(c.Detail), Lines(c.Remedy)
		cases[i] = c
	}
	return shownSuite{Suite{Name: Line(s.Name), Cases: cases}}
}

// jsonWriter hands JSON on and escapes what is unprintable in it, and what a CI system would take for a command. Both
// stand in strings only, where JSON has escapes of its own, so that a reader gets the very text.
type jsonWriter struct{ to io.Writer }

func (w jsonWriter) Write(data []byte) (int, error) {
	text := oldJSONCommands.Replace(string(data))
	if strings.ContainsFunc(text, outsideJSON) {
		var b strings.Builder
		for _, r := range text {
			switch {
			case !outsideJSON(r):
				b.WriteRune(r)
			case r < 0x10000:
				fmt.Fprintf(&b, `\u%04x`, r)
			default:
				fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
			}
		}
		text = b.String()
	}
	if _, err := io.WriteString(w.to, text); err != nil {
		return 0, err
	}
	return len(data), nil
}

func outsideJSON(r rune) bool { return r != '\n' && unprintable(r) }

var oldJSONCommands = strings.NewReplacer("##[", `#\u0023[`, "##vso[", `#\u0023vso[`, "##teamcity[", `#\u0023teamcity[`)
