// Package snapshot reads the memory snapshots of PyTorch's caching allocator (torch.cuda.memory._dump_snapshot, and the
// list that torch.cuda.memory_snapshot returns) and says what they show: what was allocated and by which lines, how the
// segments are filled, what lived when an allocation failed, and what could not be given back. It never runs Python:
// the pickle is read as data.
//
// The schema is the one documented at torch.cuda.memory._snapshot (torch/cuda/memory.py), with what older versions
// wrote in its place: 1.11 to 1.13 a bare list of segments, 1.13 to 2.0 "history" in the blocks.
package snapshot

import (
	"errors"
	"fmt"
	"io"

	"oomguard/monitor/oom/pickle"
)

// State is what the allocator does with a block.
type State uint8

// The states of a block.
const (
	Inactive     State = iota // cached, free for reuse
	Allocated                 // used by a tensor
	AwaitingFree              // freed, but another stream still uses it
)

// A Frame is one line of a stack.
type Frame struct {
	File string `json:"file"`
	Line int    `json:"line"`
	Name string `json:"name"`
}

// A Block is a piece of a segment. Sizes are bytes.
type Block struct {
	Address        int64
	SizeBytes      int64
	RequestedBytes int64 // what was asked for, before rounding; SizeBytes where the snapshot does not say
	State          State
	Stack          int // index into Snapshot.Stacks; 0 is the empty stack
}

// A Segment is memory that the allocator got from CUDA at once.
type Segment struct {
	Device     int
	Address    int64
	TotalBytes int64
	Stream     int64
	Expandable bool
	// PrivatePool is true for segments of a pool of their own (CUDA graphs, MemPool), which other allocations cannot
	// use.
	PrivatePool bool
	Blocks      []Block
}

// Action is what an Event records.
type Action uint8

// The actions of the allocator's trace that matter here.
const (
	OtherAction Action = iota
	Alloc
	Free // the tensor is gone; another stream may still use its memory
	SegmentAlloc
	SegmentFree
	OOM
)

// An Event is one entry of a device's trace.
type Event struct {
	Action    Action
	Address   int64
	SizeBytes int64
	// FreeBytes is what CUDA still had, of an OOM.
	FreeBytes int64
	Stack     int
}

// A Snapshot is a whole file.
type Snapshot struct {
	Segments []Segment
	Traces   [][]Event // by device; oldest first; the allocator keeps only the newest (max_entries)
	Frames   []Frame
	Stacks   [][]int32 // frames of each stack, innermost first; stack 0 has none
	// Settings are the allocator's, as the snapshot names them; nil where it does not.
	Settings map[string]string
}

// Read reads one snapshot. An error says what the file is instead.
func Read(r io.Reader) (*Snapshot, error) {
	doc, err := pickle.Load(r)
	if err != nil {
		return nil, err
	}
	d := &decoder{doc: doc, snapshot: &Snapshot{Stacks: [][]int32{nil}}, frames: map[pickle.Value]int32{},
		stacks: map[string]int{"": 0},
		lists:  map[pickle.Value]int{}, left: 2 * doc.Entries()}
	if err := d.decode(); err != nil {
		return nil, err
	}
	return d.snapshot, nil
}

type decoder struct {
	doc      *pickle.Document
	snapshot *Snapshot
	frames   map[pickle.Value]int32 // the pickle shares the frames of equal lines
	stacks   map[string]int         // by the numbers of their frames
	lists    map[pickle.Value]int   // the stacks, by their lists in the pickle
	// entries that may still be read: twice what the pickle has at first, as its reader shares what is equal
	left int
}

// errRepeats is the error of a pickle that a few references make many times its size. The allocator's segments, blocks
// and events are each written once.
var errRepeats = errors.New("this pickle lists the same entries again and again, which no memory snapshot of " +
	"PyTorch does")

// once counts the entries of what is read, and fails when many more were read than the pickle has.
func (d *decoder) once(v pickle.Value) error {
	if d.left -= d.doc.Len(v); d.left < 0 {
		return errRepeats
	}
	return nil
}

func (d *decoder) decode() error {
	root := d.doc.Root()
	segments := root
	if root.Kind() == pickle.Dict {
		segments = d.doc.Get(root, "segments")
	}
	if segments.Kind() != pickle.List {
		return errors.New("this pickle is not a memory snapshot of PyTorch: it has no list of segments; " +
			"torch.cuda.memory._dump_snapshot writes one")
	}
	for i, item := range d.doc.Items(segments) {
		s, err := d.segment(item)
		if err != nil {
			return fmt.Errorf("segment %d: %w", i, err)
		}
		d.snapshot.Segments = append(d.snapshot.Segments, s)
	}
	for _, trace := range d.doc.Items(d.doc.Get(root, "device_traces")) {
		events, err := d.events(trace)
		if err != nil {
			return err
		}
		d.snapshot.Traces = append(d.snapshot.Traces, events)
	}
	settings := d.doc.Get(root, "allocator_settings")
	keys := d.doc.Keys(settings)
	for _, key := range keys[:min(len(keys), maxSettings)] {
		if d.snapshot.Settings == nil {
			d.snapshot.Settings = map[string]string{}
		}
		d.snapshot.Settings[key] = d.doc.Show(d.doc.Get(settings, key))
	}
	return nil
}

// maxSettings is more than the allocator has.
const maxSettings = 100

// number is a whole number of a dictionary; 0 where it is absent or none.
func (d *decoder) number(v pickle.Value, key string) int64 {
	n, _ := d.doc.Int(d.doc.Get(v, key))
	return n
}

func (d *decoder) segment(v pickle.Value) (Segment, error) {
	if err := errors.Join(d.once(v), d.once(d.doc.Get(v, "segment_pool_id"))); err != nil {
		return Segment{}, err
	}
	total, ok := d.doc.Int(d.doc.Get(v, "total_size"))
	if !ok || total < 0 {
		return Segment{}, errors.New("has no total_size; this is not a memory snapshot of PyTorch, or a version " +
			"that is not known here")
	}
	s := Segment{Device: int(d.number(v, "device")), Address: d.number(v, "address"), TotalBytes: total,
		Stream: d.number(v, "stream")}
	s.Expandable = d.number(v, "is_expandable") != 0
	for _, part := range d.doc.Items(d.doc.Get(v, "segment_pool_id")) {
		if n, _ := d.doc.Int(part); n != 0 {
			s.PrivatePool = true
		}
	}
	at := s.Address
	for i, item := range d.doc.Items(d.doc.Get(v, "blocks")) {
		b, err := d.block(item, at)
		if err != nil {
			return Segment{}, fmt.Errorf("block %d: %w", i, err)
		}
		at = b.Address + b.SizeBytes
		s.Blocks = append(s.Blocks, b)
	}
	return s, nil
}

func (d *decoder) block(v pickle.Value, at int64) (Block, error) {
	if err := d.once(v); err != nil {
		return Block{}, err
	}
	size, ok := d.doc.Int(d.doc.Get(v, "size"))
	if !ok || size < 0 {
		return Block{}, errors.New("has no size")
	}
	b := Block{Address: at, SizeBytes: size, RequestedBytes: size}
	if address, ok := d.doc.Int(d.doc.Get(v, "address")); ok {
		b.Address = address
	}
	switch d.doc.Text(d.doc.Get(v, "state")) {
	case "active_allocated":
		b.State = Allocated
	case "active_awaiting_free", "active_pending_free":
		b.State = AwaitingFree
	}
	frames := d.doc.Get(v, "frames")
	// up to 2.0: the newest use of the block first
	if history := d.doc.Items(d.doc.Get(v, "history")); len(history) > 0 {
		frames = d.doc.Get(history[0], "frames")
		if real, ok := d.doc.Int(d.doc.Get(history[0], "real_size")); ok {
			b.RequestedBytes = real
		}
	}
	if requested, ok := d.doc.Int(d.doc.Get(v, "requested_size")); ok {
		b.RequestedBytes = requested
	}
	if b.RequestedBytes < 0 || b.RequestedBytes > b.SizeBytes {
		b.RequestedBytes = b.SizeBytes
	}
	b.Stack = d.stack(frames)
	return b, nil
}

// actions are the words of the trace that count. memory_allocated falls when a free is requested; that it is completed
// later, when other streams are done with the memory, changes only what is active.
var actions = map[string]Action{"alloc": Alloc, "free_requested": Free, "free": Free, "segment_alloc": SegmentAlloc,
	"segment_map": SegmentAlloc, "segment_free": SegmentFree, "segment_unmap": SegmentFree, "oom": OOM}

func (d *decoder) events(trace pickle.Value) ([]Event, error) {
	items := d.doc.Items(trace)
	if err := d.once(trace); err != nil {
		return nil, err
	}
	events := make([]Event, 0, len(items))
	for _, item := range items {
		if err := d.once(item); err != nil {
			return nil, err
		}
		action := actions[d.doc.Text(d.doc.Get(item, "action"))]
		if action == OtherAction {
			continue
		}
		e := Event{Action: action, Address: d.number(item, "addr"), SizeBytes: d.number(item, "size"),
			FreeBytes: d.number(item, "device_free")}
		if action == Alloc || action == OOM {
			e.Stack = d.stack(d.doc.Get(item, "frames"))
		}
		events = append(events, e)
	}
	return events, nil
}

// stack stores a list of frames once.
func (d *decoder) stack(list pickle.Value) int {
	if index, ok := d.lists[list]; ok {
		return index
	}
	items := d.doc.Items(list)
	key := make([]byte, 0, 4*len(items))
	for _, item := range items {
		n := d.frame(item)
		key = append(key, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
	}
	index, ok := d.stacks[string(key)]
	if !ok {
		index = len(d.snapshot.Stacks)
		d.stacks[string(key)] = index
		stack := make([]int32, len(items))
		for i, item := range items {
			stack[i] = d.frame(item)
		}
		d.snapshot.Stacks = append(d.snapshot.Stacks, stack)
	}
	d.lists[list] = index
	return index
}

func (d *decoder) frame(v pickle.Value) int32 {
	n, ok := d.frames[v]
	if !ok {
		n = int32(len(d.snapshot.Frames))
		d.frames[v] = n
		d.snapshot.Frames = append(d.snapshot.Frames,
			Frame{File: d.doc.Text(d.doc.Get(v, "filename")), Line: int(d.number(v, "line")),
				Name: d.doc.Text(d.doc.Get(v, "name"))})
	}
	return n
}

// Stack is a stack as frames, innermost first.
func (s *Snapshot) Stack(index int) []Frame {
	frames := make([]Frame, len(s.Stacks[index]))
	for i, n := range s.Stacks[index] {
		frames[i] = s.Frames[n]
	}
	return frames
}
