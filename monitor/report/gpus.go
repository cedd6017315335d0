package report

import (
	"fmt"

	"oomguard/monitor/gpu"
)

// Devices is the GPUs of this machine (schema oomguard.devices/v1); its JSON is what --devices reads.
type Devices struct {
	Schema string `json:"schema"`
	gpu.Snapshot
}

// Page is one line a GPU.
func (d Devices) Page(u Units) Page {
	var largest int64
	for _, g := range d.Devices {
		largest = max(largest, g.TotalBytes)
	}
	unit := u.For(largest)
	t := Table{Columns: []Column{{"GPU", true}, {"name", false}, {"total " + unit.Name, true}, {"used", true},
		{"free", true}, {"processes", true}, {"note", false}}}
	for _, g := range d.Devices {
		row := cells(fmt.Sprint(g.Index), g.Name, "unknown", "unknown", "unknown", "unknown", g.Note)
		if g.MemoryKnown {
			row[2].Text, row[3].Text, row[4].Text = unit.Format(g.TotalBytes), unit.Format(g.UsedBytes),
				unit.Format(g.FreeBytes)
		}
		if g.ProcessesKnown {
			row[5].Text = fmt.Sprint(len(g.Processes))
		}
		t.Rows = append(t.Rows, row)
	}
	return Page{Paragraph{Text: fmt.Sprintf("driver %s, CUDA %s", orUnknown(d.Driver), orUnknown(d.CUDA))}, t}
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// Catalogue is the known GPUs (schema oomguard.gpus/v1).
type Catalogue struct {
	Schema string     `json:"schema"`
	GPUs   []gpu.Spec `json:"gpus"`
}

// Page is one line a GPU.
func (d Catalogue) Page(u Units) Page {
	unit := u.For(1 << 40)
	t := Table{Columns: []Column{{"id", false}, {"name", false}, {"usable " + unit.Name, true},
		{"compute capability", true}}}
	for _, s := range d.GPUs {
		t.Rows = append(t.Rows, cells(s.ID, s.Name, unit.Format(s.TotalBytes), s.ComputeCapability))
	}
	return Page{Paragraph{Text: "usable: what CUDA can give out, the smallest total that was seen"}, t}
}
