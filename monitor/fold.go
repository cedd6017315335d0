package monitor

import (
	"fmt"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"oomguard/monitor/probe"
)

// stageOrder is the order in which a run meets the stages.
func stageOrder() []string {
	return []string{
		"start", "model-load", "optimizer-init", "forward", "backward", "optimizer-step", "eval", "checkpoint-save",
		"other",
	}
}

func stageIndex(stage string) int {
	for i, s := range stageOrder() {
		if s == stage {
			return i
		}
	}
	return len(stageOrder())
}

// Load rebuilds the recording of a run from its folder; it works for a run that goes on, ended, or was cut off.
func Load(store *Store) (*Recording, error) {
	rec := &Recording{}
	for _, name := range store.stageFiles() {
		events, lost, err := probe.ReadFile(filepath.Join(store.Dir, stagesDir, name))
		if err != nil {
			rec.Missing = append(rec.Missing, fmt.Sprintf("stage records of %s: %v", name, err))
			continue
		}
		if r, seen, ok := foldRank(events); ok {
			r.LostEvents += lost
			rec.Ranks = append(rec.Ranks, r)
			rec.LastSeen = later(rec.LastSeen, seen)
		}
	}
	devices := newDeviceFold()
	if err := readSamples(store.Dir, devices.add); err != nil {
		rec.Missing = append(rec.Missing, err.Error())
	}
	rec.Devices = devices.records
	rec.LastSeen = later(rec.LastSeen, devices.last)
	rec.Missing = append(rec.Missing, devices.notes...)
	rec.addUnprobed(devices.procs)
	rec.finish()
	return rec, nil
}

// stageFiles are the names of the ranks' files.
func (s *Store) stageFiles() []string {
	f, err := s.folder(stagesDir)
	if err != nil {
		return nil // nothing was recorded
	}
	defer f.Close()
	return probeFiles(f)
}

// addUnprobed adds the ranks of which only the resident memory was seen from outside.
func (rec *Recording) addUnprobed(procs []procSample) {
	probed := map[int]bool{}
	for _, r := range rec.Ranks {
		probed[r.PID] = true
	}
	for _, p := range procs {
		if !probed[p.PID] {
			rec.Ranks = append(rec.Ranks, Rank{
				Rank: p.Rank, PID: p.PID, Memory: "rss", Device: -1,
				Notes:  []string{"no probe in this rank: only its highest resident memory was seen, from outside"},
				Stages: []StagePeak{{Stage: "whole-run", AllocatedBytes: p.RSS, Rank: p.Rank}},
			})
		}
	}
}

// finish sorts the ranks and sums up: the last attempt's worst rank of each stage.
func (rec *Recording) finish() {
	// An empty list is written as one.
	rec.Ranks, rec.Devices = append([]Rank{}, rec.Ranks...), append([]DeviceRecord{}, rec.Devices...)
	rec.Stages, rec.Missing = append([]StagePeak{}, rec.Stages...), append([]string{}, rec.Missing...)
	sort.SliceStable(rec.Ranks, func(i, j int) bool {
		a, b := rec.Ranks[i], rec.Ranks[j]
		if a.Attempt != b.Attempt {
			return a.Attempt < b.Attempt
		}
		return a.Rank < b.Rank
	})
	worst := map[string]StagePeak{}
	for _, r := range rec.Ranks {
		if rec.Memory == "" || r.Memory == "cuda" {
			rec.Memory = r.Memory
		}
		for _, s := range r.Stages {
			if w, ok := worst[s.Stage]; !ok || s.AllocatedBytes > w.AllocatedBytes {
				worst[s.Stage] = s
			}
		}
	}
	for _, s := range worst {
		rec.Stages = append(rec.Stages, s)
	}
	sortStages(rec.Stages)
}

func sortStages(stages []StagePeak) {
	sort.SliceStable(stages, func(i, j int) bool { return stageIndex(stages[i].Stage) < stageIndex(stages[j].Stage) })
}

// foldRank turns one file's events into a Rank; ok is false when the file does not begin with a hello.
func foldRank(events []probe.Event) (r Rank, seen time.Time, ok bool) {
	if len(events) == 0 || events[0].E != "hello" {
		return Rank{}, time.Time{}, false
	}
	hello := events[0]
	r = Rank{
		Rank: hello.Rank, LocalRank: hello.LocalRank, Attempt: hello.Attempt, PID: hello.PID,
		Torch: hello.Torch, Memory: hello.Mem, Device: -1,
	}
	fold := rankFold{rank: &r, hello: hello, peaks: map[string]*StagePeak{}}
	for _, e := range events {
		fold.add(e)
	}
	for _, p := range fold.peaks {
		r.Stages = append(r.Stages, *p)
	}
	fold.steps.flush()
	if r.Course = fold.steps.steps; len(r.Course) > 0 {
		r.Turnover = &fold.steps.turn
	}
	sortStages(r.Stages)
	return r, fold.at(events[len(events)-1]), true
}

type rankFold struct {
	rank  *Rank
	hello probe.Event
	peaks map[string]*StagePeak
	steps stepFold
}

// at is the wall-clock time of an event.
func (f *rankFold) at(e probe.Event) time.Time {
	return fromUnix(f.hello.Wall + float64(e.T)/1e9)
}

func (f *rankFold) add(e probe.Event) {
	r := f.rank
	switch e.E {
	case "hello":
		if e.Mem == "rss" {
			r.BaselineBytes = e.A
		}
		r.UUID = e.UUID
	case "mem":
		f.switchMemory(e)
	case "w":
		f.window(e)
	case "state":
		r.ParamBytes, r.GradBytes, r.OptimizerBytes = e.Params, e.Grads, e.Optim
	case "oom":
		r.OOMs = append(r.OOMs, OOMEvent{
			Stage: e.S, Step: e.Step, Device: e.Device, WantBytes: e.Want, TotalBytes: e.Total, FreeBytes: e.Free,
			AllocatedBytes: e.A, ReservedBytes: e.R,
		})
	case "exc":
		r.Exception = &Exception{
			Type: e.Type, Message: e.Msg, Traceback: e.TB, OOM: e.OOM, Stage: e.S, Step: e.Step, Where: e.Where,
			Time: f.at(e),
		}
	case "note":
		r.Notes = append(r.Notes, e.Msg)
	case "bye":
		r.Ended, r.Steps, r.ProbeSeconds = true, max(r.Steps, e.Step), float64(e.CostNS)/1e9
	}
}

// switchMemory follows a rank that began on the host and then started CUDA: from there on its numbers are the
// allocator's.
func (f *rankFold) switchMemory(e probe.Event) {
	if e.UUID != "" {
		f.rank.UUID = e.UUID
	}
	if e.Mem != f.rank.Memory {
		f.rank.Memory, f.rank.BaselineBytes = e.Mem, 0
		f.peaks, f.steps = map[string]*StagePeak{}, stepFold{}
	}
}

func (f *rankFold) window(e probe.Event) {
	r := f.rank
	r.AllocatorRetries = max(r.AllocatorRetries, e.Retries)
	r.Steps = max(r.Steps, e.Step)
	if r.Memory == "cuda" {
		r.Device = e.Device
	}
	stage := e.S
	if stage == "" {
		stage = "other"
	}
	p := f.peaks[stage]
	if p == nil {
		p = &StagePeak{Stage: stage, Rank: r.Rank, FirstStep: e.Step, AllocatedBytes: -1}
		f.peaks[stage] = p
	}
	p.Windows += max(e.N, 1)
	p.ReservedBytes = max(p.ReservedBytes, e.PR)
	peak := max(e.PA-r.BaselineBytes, 0)
	if peak > p.AllocatedBytes {
		p.AllocatedBytes, p.PeakStep = peak, e.Step
	}
	f.steps.add(e, f.at(e), peak, max(e.A-r.BaselineBytes, 0))
}

type deviceFold struct {
	records []DeviceRecord
	procs   []procSample
	notes   []string
	last    time.Time
}

func newDeviceFold() *deviceFold { return &deviceFold{} }

func (f *deviceFold) add(s sample) {
	f.last = later(f.last, fromUnix(s.T))
	if s.Note != "" && (len(f.notes) == 0 || f.notes[len(f.notes)-1] != s.Note) && len(f.notes) < 20 {
		f.notes = append(f.notes, s.Note)
	}
	f.procs = mergeProcs(f.procs, s.Procs)
	for _, d := range s.Devices {
		record := f.device(d)
		record.fold(d, s.N)
		record.Points = thinPoints(append(record.Points,
			DevicePoint{Time: fromUnix(s.T), UsedBytes: d.Used, OwnBytes: d.Own}))
	}
}

func (f *deviceFold) device(d deviceSample) *DeviceRecord {
	for i := range f.records {
		if f.records[i].Index == d.Index {
			return &f.records[i]
		}
	}
	f.records = append(f.records, DeviceRecord{
		Index: d.Index, UUID: d.UUID, Name: d.Name, TotalBytes: d.Total, StartBytes: d.Used, MinFreeBytes: d.Free,
	})
	return &f.records[len(f.records)-1]
}

func (r *DeviceRecord) fold(d deviceSample, ticks int) {
	r.PeakUsedBytes = max(r.PeakUsedBytes, d.Used)
	r.MinFreeBytes = min(r.MinFreeBytes, d.Free)
	r.OwnPeakBytes = max(r.OwnPeakBytes, d.Own)
	r.Samples += int64(ticks)
	r.Others = mergeProcesses(r.Others, d.Others)
	if d.Name != "" {
		r.UUID, r.Name = d.UUID, d.Name
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Output gathers what the ranks themselves reported of their end: tracebacks and messages, in the form in which Python
// prints them, each line with its rank. It is the log that a post-mortem reads when the command's own output went
// elsewhere.
func (rec *Recording) Output() string {
	var b strings.Builder
	for _, r := range rec.Ranks {
		if r.Exception == nil {
			continue
		}
		text := r.Exception.Traceback
		if text == "" {
			text = r.Exception.Type + ": " + r.Exception.Message
		}
		for line := range strings.Lines(text) {
			fmt.Fprintf(&b, "[rank%d]: %s\n", r.Rank, strings.TrimRight(line, "\n"))
		}
	}
	return b.String()
}
