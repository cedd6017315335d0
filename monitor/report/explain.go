package report

import (
	"fmt"

	"oomguard/preflight/estimate"
	"oomguard/preflight/job"
)

// Explain is what was understood of a command, each setting with its origin (schema oomguard.explain/v1).
type Explain struct {
	Schema   string            `json:"schema"`
	Command  []string          `json:"command"`
	Job      *job.Job          `json:"job"`
	Versions map[string]string `json:"versions"`
	// Hardware is what the job is judged for; null: not known.
	Hardware *estimate.GPUSize `json:"hardware"`
	Problems []string          `json:"problems"`
	// Unreadable is what could not be read, or is not on this machine.
	Unreadable []string `json:"unreadable"`
}

// Page lists the settings in the order of the job.
func (d Explain) Page(u Units) Page {
	t := Table{Columns: []Column{{"setting", false}, {"value", false}, {"where it comes from", false}}}
	for _, s := range d.Job.Settings() {
		row := cells(s.Key, s.Value, s.Origin)
		if !s.Known {
			row = toned(row, Caution)
		}
		t.Rows = append(t.Rows, row)
	}
	page := Page{Heading("What was understood"), t}
	if h := d.Hardware; h != nil {
		text := fmt.Sprintf("hardware: %s with %s (%s)", h.Name, u.Size(h.TotalBytes), h.Origin)
		if h.Count > 1 {
			text = fmt.Sprintf("hardware: %d x %s with %s each (%s)", h.Count, h.Name, u.Size(h.TotalBytes), h.Origin)
		}
		page = append(page, Paragraph{Text: text})
	}
	if a := d.Job.Architecture; a != nil && len(a.Assumptions) > 0 {
		items := make(List, len(a.Assumptions))
		for i, text := range a.Assumptions {
			items[i].Text = text
		}
		page = append(page, Heading("Taken for granted about the model"), items)
	}
	page = append(page, listed("Problems", d.Problems, Bad)...)
	page = append(page, listed("Not read", d.Unreadable, Caution)...)
	if w := d.Job.WillFail; w.Known && w.Value != "" {
		page = append(page, Paragraph{Text: fmt.Sprintf("the run would die at start: %s", w.Value), Tone: Bad})
	}
	return page
}

// listed is a heading with its list, where there is something in it.
func listed(heading string, texts []string, tone Tone) Page {
	if len(texts) == 0 {
		return nil
	}
	items := make(List, len(texts))
	for i, text := range texts {
		items[i] = Paragraph{Text: text, Tone: tone}
	}
	return Page{Heading(heading), items}
}
