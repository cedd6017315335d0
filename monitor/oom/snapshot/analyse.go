package snapshot

import (
	"cmp"
	"maps"
	"slices"
)

// Report is what a snapshot shows (schema oomguard.snapshot/v1). Sizes are bytes.
type Report struct {
	Schema   string            `json:"schema"`
	File     string            `json:"file"`
	Settings map[string]string `json:"allocator_settings,omitempty"`
	Devices  []Device          `json:"devices"`
}

// Schema names the JSON form of a Report.
const Schema = "oomguard.snapshot/v1"

// Device is one GPU of the snapshot, at the moment it was taken.
type Device struct {
	Index int `json:"device"`
	// ReservedBytes is the sum of the segments (torch.cuda.memory_reserved), ActiveBytes what lies in blocks in use or
	// awaiting their free, AllocatedBytes what lies in blocks in use (memory_allocated), RequestedBytes what tensors
	// asked for of these.
	ReservedBytes  int64 `json:"reserved_bytes"`
	ActiveBytes    int64 `json:"active_bytes"`
	AllocatedBytes int64 `json:"allocated_bytes"`
	RequestedBytes int64 `json:"requested_bytes"`
	// FreeBytes is cached and unused. ReturnableBytes of it lie in segments without any block in use, which empty_cache
	// and a failing allocation give back; StuckBytes lie beside blocks in use and cannot be given back;
	// LargestFreeBytes is the largest piece of those, and so the largest allocation that they can serve. StuckSegments
	// is how many segments hold them.
	FreeBytes        int64 `json:"free_bytes"`
	ReturnableBytes  int64 `json:"returnable_bytes"`
	StuckBytes       int64 `json:"stuck_bytes"`
	StuckSegments    int   `json:"stuck_segments"`
	LargestFreeBytes int64 `json:"largest_free_bytes"`
	PrivatePoolBytes int64 `json:"private_pool_bytes"`
	Segments         int   `json:"segments"`
	Blocks           int   `json:"blocks"` // in use

	Components []ComponentUse `json:"components"` // of what is in use, largest first
	Sites      []Site         `json:"sites"`      // of what is in use, largest first
	Largest    []LiveBlock    `json:"largest_blocks"`
	OOMs       []OOMMoment    `json:"ooms"`
	// PeakBytes is the largest sum of allocations within the trace; 0 without a trace.
	PeakBytes   int64    `json:"peak_bytes"`
	TraceEvents int      `json:"trace_events"`
	Timeline    []Moment `json:"timeline"`
	// Maps are the largest segments.
	Maps []SegmentMap `json:"segment_maps"`
}

// ComponentUse is how much of the memory in use belongs to a component, judged by the frames of its stacks.
type ComponentUse struct {
	Component string `json:"component"`
	Bytes     int64  `json:"bytes"`
	Blocks    int    `json:"blocks"`
}

// Site is one place in the code and what it holds.
type Site struct {
	Component string  `json:"component"`
	Bytes     int64   `json:"bytes"`
	Blocks    int     `json:"blocks"`
	Where     string  `json:"where"` // the innermost frame outside of PyTorch
	Frames    []Frame `json:"frames"`
}

// LiveBlock is one block in use.
type LiveBlock struct {
	Bytes     int64  `json:"bytes"`
	Component string `json:"component"`
	Where     string `json:"where"`
}

// OOMMoment is an allocation that failed, and what lived then.
type OOMMoment struct {
	TriedBytes int64 `json:"tried_bytes"`
	FreeBytes  int64 `json:"device_free_bytes"` // what CUDA still had
	// AllocatedBytes was in use then, reconstructed backwards from the snapshot.
	AllocatedBytes int64          `json:"allocated_bytes"`
	Where          string         `json:"where"`
	Components     []ComponentUse `json:"components"`
	Sites          []Site         `json:"sites"`
}

// How much a report shows.
const (
	maxSites  = 20
	maxBlocks = 10
	maxOOMs   = 5 // a loop that catches its OOMs can have thousands; the last ones count
)

// Analyse judges a snapshot. file is its name, for the report.
func Analyse(s *Snapshot, file string) Report {
	r := Report{Schema: Schema, File: file, Settings: s.Settings}
	devices := map[int][]Segment{}
	for _, segment := range s.Segments {
		devices[segment.Device] = append(devices[segment.Device], segment)
	}
	for i, trace := range s.Traces {
		if len(trace) > 0 && devices[i] == nil {
			devices[i] = []Segment{}
		}
	}
	a := &analysis{snapshot: s, judged: map[int]judgement{}, signs: map[int32]int{}}
	for _, index := range slices.Sorted(maps.Keys(devices)) {
		r.Devices = append(r.Devices, a.device(index, devices[index]))
	}
	return r
}

type analysis struct {
	snapshot *Snapshot
	judged   map[int]judgement // by stack, as far as they were asked for
	signs    map[int32]int     // by frame: the first sign that it shows
}

type judgement struct {
	component, where string
	frames           []Frame
}

func (a *analysis) device(index int, segments []Segment) Device {
	d := Device{Index: index}
	live := map[int64]use{}
	for _, s := range segments {
		d.add(s)
		for _, b := range s.Blocks {
			if b.State == Allocated {
				live[b.Address] = use{b.SizeBytes, b.Stack}
			}
		}
	}
	d.Components, d.Sites = a.group(live)
	d.Largest = a.largest(live)
	d.Maps = a.segmentMaps(segments)
	if index >= 0 && index < len(a.snapshot.Traces) {
		a.replay(&d, live, a.snapshot.Traces[index])
	}
	return d
}

// add counts a segment.
func (d *Device) add(s Segment) {
	d.Segments++
	d.ReservedBytes += s.TotalBytes
	if s.PrivatePool {
		d.PrivatePoolBytes += s.TotalBytes
	}
	var active, free, largest int64
	for _, b := range s.Blocks {
		switch b.State {
		case Allocated:
			d.Blocks++
			d.AllocatedBytes += b.SizeBytes
			d.RequestedBytes += b.RequestedBytes
			active += b.SizeBytes
		case AwaitingFree:
			active += b.SizeBytes
		case Inactive:
			free += b.SizeBytes
			largest = max(largest, b.SizeBytes)
		}
	}
	d.ActiveBytes += active
	d.FreeBytes += free
	switch {
	case active == 0:
		d.ReturnableBytes += free
	case free > 0:
		d.StuckBytes += free
		d.StuckSegments++
		d.LargestFreeBytes = max(d.LargestFreeBytes, largest)
	}
}

// use is one block in use.
type use struct {
	bytes int64
	stack int
}

func (a *analysis) judge(stack int) judgement {
	if j, ok := a.judged[stack]; ok {
		return j
	}
	frames := a.snapshot.Stack(stack)
	j := judgement{component: a.component(a.snapshot.Stacks[stack]), where: where(frames), frames: readable(frames)}
	a.judged[stack] = j
	return j
}

// group sums what is in use by component and by place.
func (a *analysis) group(live map[int64]use) ([]ComponentUse, []Site) {
	type key struct{ component, where string }
	components := map[string]*ComponentUse{}
	sites := map[key]*Site{}
	largest := map[key]int64{} // of the stacks of a place, the one that holds the most is shown
	byStack := map[int]use{}
	counts := map[int]int{}
	for _, u := range live {
		byStack[u.stack] = use{byStack[u.stack].bytes + u.bytes, u.stack}
		counts[u.stack]++
	}
	for _, stack := range slices.Sorted(maps.Keys(byStack)) {
		u, j := byStack[stack], a.judge(stack)
		c := components[j.component]
		if c == nil {
			c = &ComponentUse{Component: j.component}
			components[j.component] = c
		}
		c.Bytes += u.bytes
		c.Blocks += counts[stack]
		k := key{j.component, j.where}
		s := sites[k]
		if s == nil {
			s = &Site{Component: j.component, Where: j.where}
			sites[k] = s
		}
		s.Bytes += u.bytes
		s.Blocks += counts[stack]
		if u.bytes > largest[k] {
			largest[k], s.Frames = u.bytes, j.frames
		}
	}
	var parts []ComponentUse
	for _, c := range components {
		parts = append(parts, *c)
	}
	slices.SortFunc(parts, func(x, y ComponentUse) int {
		return cmp.Or(cmp.Compare(y.Bytes, x.Bytes), cmp.Compare(x.Component, y.Component))
	})
	var places []Site
	for _, s := range sites {
		places = append(places, *s)
	}
	slices.SortFunc(places, func(x, y Site) int {
		return cmp.Or(cmp.Compare(y.Bytes, x.Bytes), cmp.Compare(x.Where, y.Where),
			cmp.Compare(x.Component, y.Component))
	})
	return parts, places[:min(len(places), maxSites)]
}

func (a *analysis) largest(live map[int64]use) []LiveBlock {
	addresses := slices.SortedFunc(maps.Keys(live), func(x, y int64) int {
		return cmp.Or(cmp.Compare(live[y].bytes, live[x].bytes), cmp.Compare(x, y))
	})
	var blocks []LiveBlock
	for _, address := range addresses[:min(len(addresses), maxBlocks)] {
		j := a.judge(live[address].stack)
		blocks = append(blocks, LiveBlock{Bytes: live[address].bytes, Component: j.component, Where: j.where})
	}
	return blocks
}

// replay walks the trace backwards from the snapshot, so that what lived at each failed allocation is known although
// the trace does not reach back to the start of the program. live is changed.
func (a *analysis) replay(d *Device, live map[int64]use, trace []Event) {
	d.TraceEvents = len(trace)
	freed := allocatedBy(trace)
	line := newTimeline(len(trace), d.Components)
	current := d.AllocatedBytes
	change := func(address int64, now use) {
		before := live[address]
		line.sums[a.judge(before.stack).component] -= before.bytes
		line.sums[a.judge(now.stack).component] += now.bytes
		current += now.bytes - before.bytes
		if live[address] = now; now.bytes == 0 {
			delete(live, address)
		}
	}
	for i, e := range slices.Backward(trace) {
		d.PeakBytes = max(d.PeakBytes, current)
		line.see(i, current, e.Action == OOM)
		switch e.Action {
		case Alloc:
			change(e.Address, use{})
		case Free:
			change(e.Address, use{e.SizeBytes, freed[i]})
		case OOM:
			if len(d.OOMs) < maxOOMs {
				m := OOMMoment{TriedBytes: e.SizeBytes, FreeBytes: e.FreeBytes, AllocatedBytes: current,
					Where: a.judge(e.Stack).where}
				m.Components, m.Sites = a.group(live)
				d.OOMs = append(d.OOMs, m)
			}
		case OtherAction, SegmentAlloc, SegmentFree:
		}
	}
	if len(trace) > 0 {
		d.PeakBytes = max(d.PeakBytes, current)
	}
	slices.Reverse(d.OOMs)
	slices.Reverse(line.moments)
	d.Timeline = line.moments
}

// allocatedBy finds for each Free the stack of the allocation that it ends; 0 where the trace does not reach back to
// it.
func allocatedBy(trace []Event) map[int]int {
	last := map[int64]int{}
	by := map[int]int{}
	for i, e := range trace {
		switch e.Action {
		case Alloc:
			last[e.Address] = e.Stack
		case Free:
			by[i] = last[e.Address]
			delete(last, e.Address)
		case OtherAction, SegmentAlloc, SegmentFree, OOM:
		}
	}
	return by
}
