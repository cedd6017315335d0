package report

import (
	"fmt"

	"oomguard/monitor/oom"
)

// Postmortem is why a run died, read from a log (schema oomguard.postmortem/v1).
type Postmortem struct {
	oom.Diagnosis
}

// Page shows cause, evidence and remedies.
func (d Postmortem) Page(u Units) Page { return postmortem(d.Diagnosis, u) }

func postmortem(d oom.Diagnosis, u Units) Page {
	title := "Why it died"
	if d.Simulated {
		title += " (simulated: the error was raised on purpose, no GPU ran out of memory)"
	}
	page := Page{Heading(title), Paragraph{Text: d.Summary, Tone: Strong}}
	where := fmt.Sprintf("cause: %s (confidence %s)", d.Cause, d.Confidence)
	if d.Stage != "" {
		where += ", stage " + d.Stage
	}
	if d.Rank >= 0 {
		where += fmt.Sprintf(", rank %d", d.Rank)
	}
	if d.GPU >= 0 {
		where += fmt.Sprintf(", GPU %d of the process", d.GPU)
	}
	page = append(page, Paragraph{Text: where})
	if len(d.Evidence) > 0 {
		items := make(List, len(d.Evidence))
		for i, e := range d.Evidence {
			items[i].Text = e
		}
		page = append(page, items)
	}
	if len(d.OOMs) > 0 {
		page = append(page, oomTable(d.OOMs, u))
	}
	if len(d.Remedies) > 0 {
		page = append(page, Heading("Remedies, cheapest first"), remedyTable(d.Remedies, u))
		how := make(List, len(d.Remedies))
		for i, r := range d.Remedies {
			how[i].Text = r.ID + ": " + r.How
		}
		page = append(page, how)
	}
	return page
}

func oomTable(messages []oom.Message, u Units) Table {
	var largest int64
	for _, m := range messages {
		largest = max(largest, m.TotalBytes, m.TriedBytes, m.AllocatedBytes)
	}
	unit := u.For(largest)
	size := func(n int64) string {
		if n < 0 {
			return "unknown"
		}
		return unit.Format(n)
	}
	t := Table{Columns: []Column{
		{"GPU", true}, {"tried " + unit.Name, true}, {"total", true}, {"free", true}, {"allocated", true}, {"reserved, not allocated", true}, {"this process", true},
	}}
	for _, m := range messages {
		gpu := "unknown"
		if m.GPU >= 0 {
			gpu = fmt.Sprint(m.GPU)
		}
		t.Rows = append(t.Rows, cells(gpu, size(m.TriedBytes), size(m.TotalBytes), size(m.FreeBytes), size(m.AllocatedBytes),
			size(m.ReservedUnallocatedBytes), size(m.ProcessBytes)))
	}
	return t
}

func remedyTable(remedies []oom.Remedy, u Units) Table {
	var largest int64
	for _, r := range remedies {
		largest = max(largest, orZero(r.SavesBytes))
	}
	unit := u.For(largest)
	t := Table{Columns: []Column{{"remedy", false}, {"would save " + unit.Name, true}, {"why", false}}}
	for _, r := range remedies {
		saves := "-"
		if r.SavesBytes != nil {
			saves = unit.Format(*r.SavesBytes)
		}
		t.Rows = append(t.Rows, cells(r.ID, saves, r.Why))
	}
	return t
}
