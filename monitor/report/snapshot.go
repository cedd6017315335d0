package report

import (
	"fmt"
	"slices"
	"strings"

	"oomguard/monitor/oom/snapshot"
)

// Snapshot is what a memory snapshot of PyTorch shows (schema oomguard.snapshot/v1).
type Snapshot struct {
	snapshot.Report
}

// Page shows each device: totals, what is in use and by which lines, how the segments are filled, and what lived when
// an allocation failed.
func (d Snapshot) Page(u Units) Page {
	page := Page{Heading("Memory snapshot " + d.File)}
	for _, device := range d.Devices {
		page = append(page, snapshotDevice(device, u)...)
	}
	if len(d.Devices) == 0 {
		page = append(page, Paragraph{Text: "It is empty: no segment was reserved when it was taken."})
	}
	return page
}

func snapshotDevice(d snapshot.Device, u Units) Page {
	unit := u.For(max(d.ReservedBytes, d.PeakBytes))
	page := Page{Heading(fmt.Sprintf("GPU %d of the process", d.Index)), snapshotTotals(d, unit)}
	if free := snapshotFragments(d, u); free != "" {
		page = append(page, Paragraph{Text: free})
	}
	if len(d.Components) > 0 {
		page = append(page, Heading("In use, by component"), componentUses(d.Components, d.AllocatedBytes, u),
			Heading("In use, by place in the code"), places(d.Sites, u))
	}
	if len(d.OOMs) > 0 {
		page = append(page, oomMoments(d.OOMs, u)...)
	}
	if len(d.Timeline) > 1 {
		page = append(page, Heading("In use over the recorded events"), timelinePicture(d, u))
	}
	if len(d.Maps) > 0 {
		page = append(page, Heading("Segments, the largest first"), mapPicture(d, u))
	}
	return page
}

func snapshotTotals(d snapshot.Device, unit Unit) Table {
	t := Table{Columns: []Column{{"what", false}, {unit.Name, true}, {"", false}}}
	row := func(what string, bytes int64, note string) {
		t.Rows = append(t.Rows, cells(what, unit.Format(bytes), note))
	}
	row("reserved", d.ReservedBytes, fmt.Sprintf("%d segments (torch.cuda.memory_reserved)", d.Segments))
	row("allocated", d.AllocatedBytes, fmt.Sprintf("%d blocks (torch.cuda.memory_allocated)", d.Blocks))
	if waiting := d.ActiveBytes - d.AllocatedBytes; waiting > 0 {
		row("awaiting a free", waiting, "freed, but another stream still uses it")
	}
	row("rounding", d.AllocatedBytes-d.RequestedBytes, "allocated beyond what tensors asked for")
	row("free, can be given back", d.ReturnableBytes, "in segments without a block in use")
	row("free, cannot be given back", d.StuckBytes,
		fmt.Sprintf("beside blocks in use, in %d segments", d.StuckSegments))
	if d.PrivatePoolBytes > 0 {
		row("in private pools", d.PrivatePoolBytes,
			"of what is reserved: CUDA graphs and memory pools, closed to other allocations")
	}
	if d.PeakBytes > 0 {
		row("peak of the trace", d.PeakBytes, fmt.Sprintf("allocated, over %d recorded events", d.TraceEvents))
	}
	return t
}

// snapshotFragments says what the free memory is good for.
func snapshotFragments(d snapshot.Device, u Units) string {
	if d.StuckBytes == 0 {
		return ""
	}
	return fmt.Sprintf("The largest free piece beside blocks in use is %s: an allocation larger than that cannot be "+
		"served from these %s, however much it is in sum.",
		u.Size(d.LargestFreeBytes), u.Size(d.StuckBytes))
}

func componentUses(uses []snapshot.ComponentUse, whole int64, u Units) Table {
	unit := u.For(whole)
	t := Table{Columns: []Column{{"component", false}, {unit.Name, true}, {"share", true}, {"blocks", true},
		{"", false}}}
	for _, c := range uses {
		t.Rows = append(t.Rows, cells(c.Component, unit.Format(c.Bytes), percent(c.Bytes, whole), fmt.Sprint(c.Blocks),
			u.bar(c.Bytes, whole)))
	}
	return t
}

func places(sites []snapshot.Site, u Units) Table {
	var largest int64
	for _, s := range sites {
		largest = max(largest, s.Bytes)
	}
	unit := u.For(largest)
	t := Table{Columns: []Column{{unit.Name, true}, {"blocks", true}, {"component", false}, {"place", false},
		{"called from", false}}}
	for _, s := range sites {
		var callers []string
		for _, f := range s.Frames {
			if name := f.String(); name != s.Where && len(callers) < 2 && len(s.Frames) > 1 &&
				slices.Index(frameNames(s.Frames), name) > slices.Index(frameNames(s.Frames), s.Where) {
				callers = append(callers, name)
			}
		}
		t.Rows = append(t.Rows, cells(unit.Format(s.Bytes), fmt.Sprint(s.Blocks), s.Component, s.Where,
			strings.Join(callers, " < ")))
	}
	return t
}

func frameNames(frames []snapshot.Frame) []string {
	names := make([]string, len(frames))
	for i, f := range frames {
		names[i] = f.String()
	}
	return names
}

// oomMoments shows the last failed allocation in full, those before it as a line each.
func oomMoments(moments []snapshot.OOMMoment, u Units) Page {
	page := Page{Heading("When memory ran out")}
	line := func(o snapshot.OOMMoment) string {
		return fmt.Sprintf("An allocation of %s failed at %s: %s were allocated, and CUDA had %s left.",
			u.Size(o.TriedBytes), o.Where, u.Size(o.AllocatedBytes), u.Size(o.FreeBytes))
	}
	last := moments[len(moments)-1]
	if before := moments[:len(moments)-1]; len(before) > 0 {
		items := make(List, len(before))
		for i, o := range before {
			items[i].Text = line(o)
		}
		page = append(page, Paragraph{Text: "Failures before the last one in the trace:"}, items)
	}
	page = append(page, Paragraph{Text: line(last), Tone: Bad})
	if len(last.Components) > 0 {
		page = append(page, Paragraph{Text: "In use at that moment:"},
			componentUses(last.Components, last.AllocatedBytes, u), places(last.Sites[:min(len(last.Sites), 8)], u))
	}
	return page
}
