// Package report turns what oomguard knows into something to read: each document builds a Page of headings, paragraphs
// and tables once, and each format renders pages; JSON is the document itself. It is the only user of fatih/color.
//
// Rules of everything that is printed: numbers carry their unit, one unit per table; unknown is written "unknown"; a
// line about memory says whose memory it is; no colour where the output is not a terminal.
package report

// Tone says how a cell or paragraph is meant; text colours it, Markdown may set it bold.
type Tone int

// The tones.
const (
	Plain Tone = iota
	Good
	Caution
	Bad
	Faint
	Strong
)

// Cell is one cell of a table.
type Cell struct {
	Text string
	Tone Tone
}

// Column is the head of a column.
type Column struct {
	Title string
	Right bool // numbers
}

// Block is a Heading, Paragraph, Table or Code.
type Block interface{ block() }

// Heading opens a section.
type Heading string

// Paragraph is a line of text, and the lines that belong below it.
type Paragraph struct {
	Text  string
	Tone  Tone
	Below []string
}

// lines are all lines of a paragraph.
func (p Paragraph) lines() []string { return append([]string{p.Text}, p.Below...) }

// Table has a head and rows of as many cells.
type Table struct {
	Columns []Column
	Rows    [][]Cell
}

// List is a sequence of items.
type List []Paragraph

// Code is text that is shown as it is.
type Code string

func (Heading) block()   {}
func (Paragraph) block() {}
func (Table) block()     {}
func (List) block()      {}
func (Code) block()      {}

// Page is a document ready to be rendered.
type Page []Block

// mapped is the page with every text replaced: those of one line by line's answer, those of several by lines'.
func (p Page) mapped(line, lines func(string) string) Page {
	out := make(Page, len(p))
	for i, b := range p {
		switch b := b.(type) {
		case Heading:
			out[i] = Heading(line(string(b)))
		case Paragraph:
			out[i] = b.mapped(line)
		case Code:
			out[i] = Code(lines(string(b)))
		case List:
			items := make(List, len(b))
			for j, item := range b {
				items[j] = item.mapped(line)
			}
			out[i] = items
		case Table:
			out[i] = b.mapped(line)
		case Picture:
			out[i] = Picture{SVG: svgText().ReplaceAllStringFunc(b.SVG, lines), Text: lines(b.Text)}
		}
	}
	return out
}

func (p Paragraph) mapped(line func(string) string) Paragraph {
	below := make([]string, len(p.Below))
	for i, text := range p.Below {
		below[i] = line(text)
	}
	return Paragraph{Text: line(p.Text), Tone: p.Tone, Below: below}
}

func (t Table) mapped(line func(string) string) Table {
	out := Table{Columns: make([]Column, len(t.Columns)), Rows: make([][]Cell, len(t.Rows))}
	for i, c := range t.Columns {
		out.Columns[i] = Column{line(c.Title), c.Right}
	}
	for i, row := range t.Rows {
		out.Rows[i] = make([]Cell, len(row))
		for j, c := range row {
			out.Rows[i][j] = Cell{line(c.Text), c.Tone}
		}
	}
	return out
}

// Document is anything that can be printed: as a Page for people, as itself in JSON.
type Document interface {
	Page(u Units) Page
}

// cells makes plain cells.
func cells(texts ...string) []Cell {
	row := make([]Cell, len(texts))
	for i, t := range texts {
		row[i] = Cell{Text: t}
	}
	return row
}

// toned sets one tone for a whole row.
func toned(row []Cell, tone Tone) []Cell {
	for i := range row {
		row[i].Tone = tone
	}
	return row
}
