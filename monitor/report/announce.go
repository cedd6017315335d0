package report

import (
	"oomguard/checklists"
	"oomguard/preflight/estimate"
)

// Announcement is what run prints before the start: what the job needs, and the checklist.
type Announcement struct {
	Estimate      *estimate.Estimate
	EstimateError string
	Outcome       checklists.Outcome
}

// Page shows the verdict of the estimate and the checklist.
func (d Announcement) Page(u Units) Page {
	var page Page
	switch {
	case d.Estimate != nil:
		page = Page{Heading("oomguard: " + d.Estimate.Model.Name), Paragraph{Text: modelLine(d.Estimate)},
			verdict(d.Estimate, u)}
	default:
		page = Page{Heading("oomguard"), Paragraph{Text: "memory needed: unknown: " + d.EstimateError, Tone: Caution}}
	}
	page = append(page, Heading("Checklist "+d.Outcome.List), checkTable(d.Outcome.Results))
	return append(page, checkSummary(d.Outcome)...)
}

// Runs lists recorded runs (schema oomguard.runs/v1).
type Runs struct {
	Schema string    `json:"schema"`
	Root   string    `json:"root"`
	Runs   []RunLine `json:"runs"`
}

// RunLine is one run in a list.
type RunLine struct {
	ID      string `json:"id"`
	Started string `json:"started"`
	Model   string `json:"model"`
	Outcome string `json:"outcome"`
	Command string `json:"command"`
}

// Page is the list as a table.
func (d Runs) Page(Units) Page {
	if len(d.Runs) == 0 {
		return Page{Paragraph{Text: "no runs are recorded in " + d.Root}}
	}
	t := Table{Columns: []Column{{"run", false}, {"outcome", false}, {"model", false}, {"command", false}}}
	for _, r := range d.Runs {
		t.Rows = append(t.Rows, cells(r.ID, r.Outcome, r.Model, r.Command))
	}
	return Page{t}
}
