package report

import (
	"fmt"
	"strconv"

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
	// HeadroomPercent of each GPU stays free in Max.WithHeadroom.
	HeadroomPercent float64 `json:"headroom_percent"`
}

// maxTitles say what the largest of is shown, and in which unit.
var maxTitles = map[string]struct{ title, column string }{
	"params": {"The largest model that fits", "parameters"},
	"batch":  {"The largest micro-batch that fits", "sequences"},
	"seq":    {"The longest sequence that fits", "tokens"},
}

// Page shows the answer by how sure it is, for parameters beside the rule of thumb.
func (d Max) Page(u Units) Page {
	titles := maxTitles[d.Max.Quantity]
	count := func(n int64) string { return strconv.FormatInt(n, 10) }
	t := Table{Columns: []Column{{"by", false}, {titles.column, true}, {"", false}}}
	device, what := fmt.Sprintf("%s: %s each", d.GPU, u.Size(d.GPUBytes)),
		"the whole prediction, with context, buffers, step temporaries and fragmentation"
	if d.Max.Quantity == "params" {
		count, device = Count, device+fmt.Sprintf(", %s of it reserved", u.Size(d.ReserveBytes))
		what = "with context, buffers, step temporaries and fragmentation, and the reserve as activations"
		t.Rows = append(t.Rows, cells("rule of thumb", count(d.Max.RuleOfThumb),
			"(GPU memory - reserve) / bytes of model states a parameter and GPU"))
	}
	t.Rows = append(t.Rows,
		cells("estimate", count(d.Max.Estimate), what),
		cells("with headroom", count(d.Max.WithHeadroom),
			fmt.Sprintf("the same, and %g %% of the GPU stays free", d.HeadroomPercent)),
		cells("certain", count(d.Max.Certain), "even the upper end of the prediction's interval fits"))
	page := Page{Heading(titles.title), Paragraph{Text: device}, t}
	for _, n := range d.Max.NotCounted {
		page = append(page, Paragraph{Text: fmt.Sprintf("no more than this fits, and perhaps less: %s %s; give %s",
			n.What, n.Why, n.Give), Tone: Caution})
	}
	if d.Max.Estimate == 0 {
		page = append(page, Paragraph{Text: "nothing fits: the rest of the job alone needs more; oomguard plan " +
			"without --max says what would help", Tone: Bad})
	}
	if d.Max.Limit > 0 {
		page = append(page, Paragraph{Text: fmt.Sprintf("the model's %d positions end it, and not the memory",
			d.Max.Limit)})
	}
	return append(page, assumptions(d.Max.Assumptions)...)
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
	t := Table{Columns: []Column{{"remedy", false}, {"saves " + unit.Name, true}, {"then needs", true}, {"fits", false},
		{"why", false}}}
	for _, r := range d.Remedies {
		fits, tone := "unknown", Plain
		switch {
		case r.Fits != nil && *r.Fits:
			fits, tone = "yes", Good
		case r.Fits != nil:
			fits = "no"
		}
		row := cells(r.ID, sizeOrUnknown(r.SavesBytes, unit), sizeOrUnknown(r.NewDeviceBytes, unit), fits, r.Why)
		row[3].Tone = tone
		t.Rows = append(t.Rows, row)
	}
	page = append(page, t)
	switch {
	case d.Estimate.Partial:
		page = append(page, Paragraph{Text: "what these save is of what is counted; remedies for the rest cannot be " +
			"weighed", Tone: Caution})
	case d.Estimate.Open():
		page = append(page, Paragraph{Text: "what these save holds for the settings that oomguard estimate assumes",
			Tone: Caution})
	}
	var how List
	for _, r := range d.Remedies {
		how = append(how, Paragraph{Text: r.ID, Below: belowOf(r.How, r.Cost)})
	}
	return append(page, Heading("How"), how)
}

func sizeOrUnknown(n *int64, unit Unit) string {
	if n == nil {
		return "unknown"
	}
	return unit.Format(*n)
}
