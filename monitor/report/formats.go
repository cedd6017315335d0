package report

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Style is how one stream is written to.
type Style struct {
	Units Units
	Color bool
}

// format renders a document; a new one is one row in formats.
type format struct {
	name  string
	write func(io.Writer, Document, Style) error
}

func formats() []format {
	return []format{
		{"text", func(w io.Writer, d Document, s Style) error {
			return writeText(w, show(d.Page(s.Units)), newPalette(s.Color))
		}},
		{"json", func(w io.Writer, d Document, _ Style) error { return writeJSON(w, d) }},
		{"markdown", func(w io.Writer, d Document, s Style) error { return writeMarkdown(w, show(d.Page(s.Units))) }},
		{"html", func(w io.Writer, d Document, s Style) error { return writeHTML(w, show(d.Page(s.Units))) }},
		{"junit", func(w io.Writer, d Document, _ Style) error { return writeVerdicts(w, d, writeJUnit) }},
		{"github", func(w io.Writer, d Document, _ Style) error { return writeVerdicts(w, d, writeGitHub) }},
	}
}

// Formats lists the names of the formats.
func Formats() []string {
	var names []string
	for _, f := range formats() {
		names = append(names, f.name)
	}
	return names
}

// FormatsOf lists the names of the formats that a document can be written in.
func FormatsOf(d Document) []string {
	return slices.DeleteFunc(Formats(), func(name string) bool { return !supported(name, d) })
}

// Write renders a document. The error of an unknown format lists the known ones.
func Write(w io.Writer, name string, d Document, s Style) error {
	if err := Supports(name, d); err != nil {
		return err
	}
	for _, f := range formats() {
		if f.name == name {
			return f.write(w, d, s)
		}
	}
	return fmt.Errorf("unknown format %q; known: %s", name, strings.Join(Formats(), ", "))
}

func writeJSON(w io.Writer, d Document) error {
	enc := json.NewEncoder(jsonWriter{w})
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(d)
}

func writeVerdicts(w io.Writer, d Document, write func(io.Writer, shownSuite) error) error {
	return write(w, showSuite(d.(Judged).Suite()))
}
