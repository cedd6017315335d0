package report

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"strings"
)

// style is the whole look of an HTML report: one file, nothing loaded from anywhere, readable in print and in the dark.
const style = `body{font:15px/1.5 system-ui,sans-serif;max-width:1000px;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}
table{border-collapse:collapse;margin:.5rem 0}th,td{padding:.2rem .7rem;border-bottom:1px solid #ddd;text-align:left;vertical-align:top}
td.r,th.r{text-align:right;font-variant-numeric:tabular-nums}pre{background:#f4f4f4;padding:.7rem;overflow-x:auto}
svg{width:100%;height:auto;font:11px system-ui,sans-serif}.good{color:#0a6b2d}.caution{color:#8a5a00}.bad{color:#b00020;font-weight:600}.faint{color:#777}.strong{font-weight:600}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#1b1b1b}th,td{border-color:#444}pre{background:#262626}svg text{fill:#ddd}.good{color:#6fcf8f}.caution{color:#e5b35c}.bad{color:#ff7b8a}}`

// toneClass is the class of a tone in style.
func toneClass(t Tone) string {
	return map[Tone]string{Good: "good", Caution: "caution", Bad: "bad", Faint: "faint", Strong: "strong"}[t]
}

func writeHTML(w io.Writer, page shown) error {
	out := bufio.NewWriter(w)
	title := "oomguard"
	if h, ok := firstHeading(page.blocks); ok {
		title = h
	}
	fmt.Fprintf(out, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "+
		"content=\"width=device-width\"><title>%s</title>\n<style>%s</style></head><body>\n",
		html.EscapeString(title), style)
	for i, b := range page.blocks {
		switch b := b.(type) {
		case Heading:
			level := 2
			if i == 0 {
				level = 1
			}
			fmt.Fprintf(out, "<h%d>%s</h%d>\n", level, html.EscapeString(string(b)), level)
		case Paragraph:
			fmt.Fprintf(out, "<p>%s</p>\n", span(b.lines(), b.Tone))
		case List:
			fmt.Fprint(out, "<ul>\n")
			for _, item := range b {
				fmt.Fprintf(out, "<li>%s</li>\n", span(item.lines(), item.Tone))
			}
			fmt.Fprint(out, "</ul>\n")
		case Code:
			fmt.Fprintf(out, "<pre>%s</pre>\n", html.EscapeString(string(b)))
		case Table:
			htmlTable(out, b)
		case Picture:
			fmt.Fprint(out, b.SVG+"\n")
		}
	}
	fmt.Fprint(out, "</body></html>\n")
	return out.Flush()
}

func firstHeading(page []Block) (string, bool) {
	for _, b := range page {
		if h, ok := b.(Heading); ok {
			return string(h), true
		}
	}
	return "", false
}

func span(lines []string, tone Tone) string {
	text := strings.ReplaceAll(html.EscapeString(strings.Join(lines, "\n")), "\n", "<br>")
	if class := toneClass(tone); class != "" {
		return fmt.Sprintf(`<span class="%s">%s</span>`, class, text)
	}
	return text
}

func htmlTable(out *bufio.Writer, t Table) {
	side := func(i int) string {
		if i < len(t.Columns) && t.Columns[i].Right {
			return ` class="r"`
		}
		return ""
	}
	fmt.Fprint(out, "<table><thead><tr>")
	for i, c := range t.Columns {
		fmt.Fprintf(out, "<th%s>%s</th>", side(i), html.EscapeString(c.Title))
	}
	fmt.Fprint(out, "</tr></thead><tbody>\n")
	for _, row := range t.Rows {
		fmt.Fprint(out, "<tr>")
		for i, c := range row {
			fmt.Fprintf(out, "<td%s>%s</td>", side(i), span([]string{c.Text}, c.Tone))
		}
		fmt.Fprint(out, "</tr>\n")
	}
	fmt.Fprint(out, "</tbody></table>\n")
}
