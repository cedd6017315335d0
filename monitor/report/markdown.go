package report

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
)

func writeMarkdown(w io.Writer, page shown) error {
	out := bufio.NewWriter(w)
	for i, b := range page.blocks {
		if i > 0 {
			fmt.Fprintln(out)
		}
		switch b := b.(type) {
		case Heading:
			level := "##"
			if i == 0 {
				level = "#"
			}
			fmt.Fprintln(out, level, escape(string(b)))
		case Paragraph:
			fmt.Fprintln(out, markdownLines(b, "  \n"))
		case List:
			for _, item := range b {
				fmt.Fprintln(out, "-", markdownLines(item, "  \n  "))
			}
		case Code:
			fenced(out, string(b))
		case Table:
			markdownTable(out, b)
		case Picture:
			if b.Text != "" {
				fenced(out, b.Text)
			}
		}
	}
	return out.Flush()
}

// markdownLines are the lines of a paragraph with line breaks between: two blanks at the end make one.
func markdownLines(p Paragraph, between string) string {
	lines := p.lines()
	for i, line := range lines {
		lines[i] = emphasise(startOfLine(escape(line)), p.Tone)
	}
	return strings.Join(lines, between)
}

// fenced writes text as it is, between fences that it cannot close.
func fenced(out *bufio.Writer, text string) {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	fmt.Fprintf(out, "%s\n%s\n%s\n", fence, strings.TrimRight(text, "\n"), fence)
}

func markdownTable(out *bufio.Writer, t Table) {
	head, rule := "|", "|"
	for _, c := range t.Columns {
		head += " " + escapeCell(c.Title) + " |"
		if c.Right {
			rule += " ---: |"
		} else {
			rule += " --- |"
		}
	}
	fmt.Fprintln(out, head)
	fmt.Fprintln(out, rule)
	for _, row := range t.Rows {
		var line strings.Builder
		line.WriteString("|")
		for _, c := range row {
			line.WriteString(" " + emphasise(escapeCell(c.Text), c.Tone) + " |")
		}
		fmt.Fprintln(out, line.String())
	}
}

func emphasise(text string, tone Tone) string {
	if text == "" || tone != Bad && tone != Strong {
		return text
	}
	return "**" + text + "**"
}

// escape keeps text from being read as markup: what comes from logs, paths and commands must show as it is.
func escape(text string) string {
	return strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "<", "&lt;", "&", "&amp;", "[", `\[`, "~~",
		`\~\~`, "$", `\$`).Replace(text)
}

// startOfLine keeps the beginning of a line from making it a heading, a list, a quotation, a rule or a block of code.
func startOfLine(line string) string {
	line = strings.TrimLeft(line, " \t")
	return blockStart().ReplaceAllString(line, `$1\$2`)
}

var blockStart = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(\d{0,9})(#{1,6}(?:\s|$)|>|[-+](?:\s|$)|[-=]+\s*$|[-:|\s]+$|[.)](?:\s|$))`)
})

func escapeCell(text string) string {
	return strings.ReplaceAll(escape(text), "|", `\|`)
}
