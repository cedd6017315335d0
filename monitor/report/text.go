package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/fatih/color"
)

// palette is colour as a value: decided per stream, not by a global.
type palette map[Tone]*color.Color

func newPalette(on bool) palette {
	p := palette{
		Good:    color.New(color.FgGreen),
		Caution: color.New(color.FgYellow),
		Bad:     color.New(color.FgRed, color.Bold),
		Faint:   color.New(color.Faint),
		Strong:  color.New(color.Bold),
	}
	for _, c := range p {
		if on {
			c.EnableColor()
		} else {
			c.DisableColor()
		}
	}
	return p
}

func (p palette) paint(text string, tone Tone) string {
	c, ok := p[tone]
	if !ok || text == "" {
		return text
	}
	return c.Sprint(text)
}

func writeText(w io.Writer, page shown, p palette) error {
	out := bufio.NewWriter(w)
	for i, b := range page.blocks {
		switch b := b.(type) {
		case Heading:
			if i > 0 {
				fmt.Fprintln(out)
			}
			fmt.Fprintln(out, p.paint(string(b), Strong))
		case Paragraph:
			for _, line := range b.lines() {
				fmt.Fprintln(out, p.paint(line, b.Tone))
			}
		case List:
			for _, item := range b {
				fmt.Fprintln(out, p.paint("- "+strings.Join(item.lines(), "\n  "), item.Tone))
			}
		case Code:
			for line := range strings.Lines(string(b)) {
				fmt.Fprintln(out, "  | "+strings.TrimRight(line, "\n"))
			}
		case Picture:
			for line := range strings.Lines(b.Text) {
				fmt.Fprint(out, "    ", line)
			}
		case Table:
			textTable(out, b, p)
		}
	}
	return out.Flush()
}

func textTable(out *bufio.Writer, t Table, p palette) {
	widths := make([]int, len(t.Columns))
	for i, c := range t.Columns {
		widths[i] = utf8.RuneCountInString(c.Title)
	}
	for _, row := range t.Rows {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c.Text))
		}
	}
	head := make([]Cell, len(t.Columns))
	for i, c := range t.Columns {
		head[i] = Cell{Text: c.Title, Tone: Faint}
	}
	for _, row := range append([][]Cell{head}, t.Rows...) {
		var line strings.Builder
		blank := 0 // padding that is written only when something follows
		for i, c := range row {
			pad := widths[i] - utf8.RuneCountInString(c.Text)
			blank += 2
			if t.Columns[i].Right {
				blank += pad
			}
			if c.Text != "" {
				line.WriteString(strings.Repeat(" ", blank))
				line.WriteString(p.paint(c.Text, c.Tone))
				blank = 0
			}
			if !t.Columns[i].Right {
				blank += pad
			}
		}
		fmt.Fprintln(out, line.String())
	}
}
