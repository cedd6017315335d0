package report

import (
	"fmt"
	"slices"
	"strings"

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
	page = append(page, sentences("", d.Evidence)...)
	page = append(page, sentences("known not to be the cause:", d.NotCauses)...)
	page = append(page, sentences("could not be read, and may hold more:", d.Unread)...)
	if len(d.OOMs) > 0 {
		page = append(page, oomTable(d.OOMs, u))
	}
	page = append(page, situations(d.Situations)...)
	return append(page, remedies(d, u)...)
}

// sentences is a list under a title; without sentences it is nothing.
func sentences(title string, list []string) []Block {
	if len(list) == 0 {
		return nil
	}
	var blocks []Block
	if title != "" {
		blocks = append(blocks, Paragraph{Text: title})
	}
	items := make(List, len(list))
	for i, s := range list {
		items[i].Text = s
	}
	return append(blocks, items)
}

// situations are the patterns that hold beside the cause.
func situations(list []oom.Situation) []Block {
	if len(list) == 0 {
		return nil
	}
	var items List
	for _, s := range list {
		items = append(items, Paragraph{Text: s.Title + ": " + strings.Join(s.Evidence, "; "),
			Below: []string{"-> " + s.Do}})
	}
	return []Block{Heading("What else shows"), items}
}

// remedies lists what to change: the prices where the job is known, then why, how and what each costs.
func remedies(d oom.Diagnosis, u Units) []Block {
	if len(d.Remedies) == 0 {
		return nil
	}
	out := []Block{Heading("Remedies, cheapest first")}
	if slices.ContainsFunc(d.Remedies, func(r oom.Remedy) bool { return r.SavesBytes != nil }) {
		out = append(out, remedyTable(d.Remedies, u))
	}
	if c := d.Combination; c != nil {
		out = append(out, combination(*c, u))
	}
	items := make(List, len(d.Remedies))
	for i, r := range d.Remedies {
		items[i] = Paragraph{Text: r.ID + ": " + r.Why, Below: belowOf(r.How, r.Cost)}
	}
	return append(out, items)
}

// belowOf says how a remedy is applied, and what it costs.
func belowOf(how, cost string) []string {
	var lines []string
	for line := range strings.SplitSeq(how, "\n") {
		lines = append(lines, "-> "+line)
	}
	if cost != "" {
		lines = append(lines, "costs: "+cost)
	}
	return lines
}

func combination(c oom.Combination, u Units) Paragraph {
	unit := u.For(c.TotalBytes)
	sizes := fmt.Sprintf("%s of %s %s for each rank (%s)", unit.Format(c.DeviceBytes), unit.Format(c.TotalBytes),
		unit.Name, strings.Join(c.How, "; "))
	names := strings.Join(c.IDs, " + ")
	switch {
	case !c.Fits:
		return Paragraph{Text: "even with " + names + " it does not fit: " + sizes, Tone: Bad}
	case len(c.IDs) == 1:
		return Paragraph{Text: names + " alone makes it fit: " + sizes, Tone: Good}
	}
	return Paragraph{Text: "with " + names + " it fits: " + sizes, Tone: Good}
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
		{"GPU", true}, {"tried " + unit.Name, true}, {"total", true}, {"free", true}, {"allocated", true},
		{"reserved, not allocated", true}, {"this process", true},
	}}
	for _, m := range messages {
		gpu := "unknown"
		if m.GPU >= 0 {
			gpu = fmt.Sprint(m.GPU)
		}
		t.Rows = append(t.Rows, cells(gpu, size(m.TriedBytes), size(m.TotalBytes), size(m.FreeBytes),
			size(m.AllocatedBytes),
			size(m.ReservedUnallocatedBytes), size(m.ProcessBytes)))
	}
	return t
}

// remedyTable has the remedies that the estimate can price.
func remedyTable(remedies []oom.Remedy, u Units) Table {
	var largest int64
	for _, r := range remedies {
		largest = max(largest, orZero(r.SavesBytes), orZero(r.NewDeviceBytes))
	}
	unit := u.For(largest)
	t := Table{Columns: []Column{{"remedy", false}, {"saves " + unit.Name, true}, {"then needs", true},
		{"fits alone", false}}}
	for _, r := range remedies {
		row := cells(r.ID, optional(r.SavesBytes, unit), optional(r.NewDeviceBytes, unit), "-")
		switch {
		case r.Fits != nil && *r.Fits:
			row[3] = Cell{Text: "yes", Tone: Good}
		case r.Fits != nil:
			row[3].Text = "no"
		case r.NewDeviceBytes != nil:
			row[3].Text = "unknown"
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
