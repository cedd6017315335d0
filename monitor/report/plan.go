package report

import (
	"fmt"

	"oomguard/preflight/estimate"
	"oomguard/preflight/plan"
)

// PlanSchema names the documents of plan.
const PlanSchema = "oomguard.plan/v1"

// Max is the most that fits.
type Max struct {
	Schema       string   `json:"schema"`
	Max          plan.Max `json:"max"`
	GPU          string   `json:"gpu"`
	GPUBytes     int64    `json:"gpu_total_bytes"`
	ReserveBytes int64    `json:"reserve_bytes"`
}

// Page sets the rule of thumb beside our own answer.
func (d Max) Page(u Units) Page {
	t := Table{Columns: []Column{{"by", false}, {"parameters", true}, {"", false}}, Rows: [][]Cell{
		cells("rule of thumb", Count(d.Max.RuleOfThumb), "(GPU memory - reserve) / bytes of model states a parameter and GPU"),
		cells("estimate", Count(d.Max.Estimate), "with context, buffers, step temporaries and fragmentation, and the reserve as activations"),
	}}
	return Page{
		Heading("The largest model that fits"),
		Paragraph{Text: fmt.Sprintf("%s: %s each, %s of it reserved", d.GPU, u.Size(d.GPUBytes), u.Size(d.ReserveBytes))},
		t,
	}
}

// Plan is what would make a job fit, cheapest first.
type Plan struct {
	Schema   string             `json:"schema"`
	Estimate *estimate.Estimate `json:"estimate"`
	Remedies []plan.Remedy      `json:"remedies"`
}

// Page lists the remedies with what each alone would save.
func (d Plan) Page(u Units) Page {
	page := Page{Heading("What would make it fit, cheapest first"), verdict(d.Estimate, u)}
	largest := d.Estimate.PerGPU.DeviceBytes
	unit := u.For(largest)
	t := Table{Columns: []Column{{"remedy", false}, {"saves " + unit.Name, true}, {"then needs", true}, {"fits", false}, {"why", false}}}
	for _, r := range d.Remedies {
		fits, tone := "unknown", Plain
		switch {
		case r.Fits != nil && *r.Fits:
			fits, tone = "yes", Good
		case r.Fits != nil:
			fits = "no"
		}
		row := cells(r.ID, unit.Format(r.SavesBytes), unit.Format(r.NewDeviceBytes), fits, r.Why)
		row[3].Tone = tone
		t.Rows = append(t.Rows, row)
	}
	page = append(page, t)
	var how List
	for _, r := range d.Remedies {
		how = append(how, Paragraph{Text: r.ID + ": " + r.How})
	}
	return append(page, Heading("How"), how)
}
