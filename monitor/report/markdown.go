package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

func writeMarkdown(w io.Writer, page Page) error {
	out := bufio.NewWriter(w)
	for i, b := range page {
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
			fmt.Fprintln(out, emphasise(escape(b.Text), b.Tone))
		case List:
			for _, item := range b {
				fmt.Fprintln(out, "-", strings.ReplaceAll(emphasise(escape(item.Text), item.Tone), "\n", "  \n  ")) // two blanks: a line break
			}
		case Code:
			fence := "```"
			for strings.Contains(string(b), fence) {
				fence += "`"
			}
			fmt.Fprintf(out, "%s\n%s\n%s\n", fence, strings.TrimRight(string(b), "\n"), fence)
		case Table:
			markdownTable(out, b)
		case Picture:
			if b.Text != "" {
				fmt.Fprintf(out, "```\n%s```\n", b.Text)
			}
		}
	}
	return out.Flush()
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
	return strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "<", "&lt;", "[", `\[`).Replace(text)
}

func escapeCell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(escape(text))
}
