package report

import (
	"fmt"
	"strings"

	"oomguard/preflight/job"
)

// Why is what oomguard explain --why writes: everything that was said about one setting, and what counts.
type Why struct {
	Schema string      `json:"schema"`
	Key    string      `json:"key"`
	Value  string      `json:"value"` // what counts; "unknown" when nobody knows
	Claims []job.Claim `json:"claims"`
	// Order is how the sources count, strongest first.
	Order []job.Precedence `json:"order"`
}

// Page lists the claims in the order of reading, and the order in which sources count.
func (d Why) Page(Units) Page {
	said := Table{Columns: []Column{{"source", false}, {"value", false}, {"where it comes from", false},
		{"used", false}}}
	for _, c := range d.Claims {
		used, tone := "", Plain
		if c.Used {
			used = "yes"
			if c.Value == "unknown" {
				tone = Caution
			}
		}
		said.Rows = append(said.Rows, toned(cells(c.Source, c.Value, c.Origin, used), tone))
	}
	sources := make([]string, len(d.Order))
	for i, o := range d.Order {
		sources[i] = o.Source
	}
	order := Paragraph{Text: "Strongest first: " + strings.Join(sources, "; ") + "."}
	return Page{Heading(fmt.Sprintf("Why %s is %s", d.Key, d.Value)), said, order}
}
