package monitor

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"oomguard/launcher/files"
	"oomguard/monitor/gpu"
)

// sample is one line of samples.jsonl: the extremes of N ticks that ended at T.
type sample struct {
	T       float64        `json:"t"` // Unix seconds
	N       int            `json:"n"`
	Devices []deviceSample `json:"d,omitempty"`
	Procs   []procSample   `json:"p,omitempty"`
	Note    string         `json:"note,omitempty"` // devices could not be read: why
}

type deviceSample struct {
	Index  int           `json:"i"`
	UUID   string        `json:"uuid,omitempty"` // on the first line only
	Name   string        `json:"name,omitempty"`
	Total  int64         `json:"total,omitempty"`
	Used   int64         `json:"u"` // highest
	Free   int64         `json:"f"` // lowest
	Own    int64         `json:"o,omitempty"`
	Others []gpu.Process `json:"x,omitempty"`
}

// procSample is the resident memory of one rank, for machines without a GPU.
type procSample struct {
	PID  int   `json:"pid"`
	Rank int   `json:"rank"`
	RSS  int64 `json:"rss"` // highest so far
}

// linesPerDecade bounds the samples of a run of any length: after so many lines each line covers twice as many ticks,
// so a run needs linesPerDecade lines for every doubling of its length. At 1 Hz the first 10,000 lines are 2.8 hours,
// 100,000 lines four months.
const linesPerDecade = 10000

// sampleWriter folds ticks into lines. A new peak is written at once (in steps of peakStep of the device's total), so
// that a crash loses no more than that.
type sampleWriter struct {
	w       io.Writer
	span    int // ticks a line
	lines   int
	pending sample
	peak    map[int]int64 // highest used written so far, by device
	err     error
}

const peakStep = 200 // a two-hundredth of the device's total

func newSampleWriter(w io.Writer) *sampleWriter {
	return &sampleWriter{w: w, span: 1, peak: map[int]int64{}}
}

// add folds one tick in and writes a line when it is due.
func (s *sampleWriter) add(tick sample) {
	newPeak := tick.Note != "" && s.pending.Note != tick.Note
	for _, d := range tick.Devices {
		if d.Used > s.peak[d.Index]+d.Total/peakStep {
			newPeak = true
		}
	}
	s.pending = merge(s.pending, tick)
	if s.pending.N >= s.span || newPeak {
		s.flush()
	}
}

// flush writes what is pending.
func (s *sampleWriter) flush() {
	if s.pending.N == 0 || s.err != nil {
		return
	}
	for i := range s.pending.Devices {
		d := &s.pending.Devices[i]
		s.peak[d.Index] = max(s.peak[d.Index], d.Used)
		if s.lines > 0 {
			d.UUID, d.Name = "", ""
		}
	}
	data, err := json.Marshal(s.pending)
	if err == nil {
		_, err = s.w.Write(append(data, '\n'))
	}
	s.err = err
	s.pending = sample{}
	if s.lines++; s.lines%linesPerDecade == 0 {
		s.span *= 2
	}
}

// merge folds b into a: the highest used, the lowest free, the latest time.
func merge(a, b sample) sample {
	if a.N == 0 {
		b.N = max(b.N, 1)
		return b
	}
	a.T, a.N = b.T, a.N+max(b.N, 1)
	if b.Note != "" {
		a.Note = b.Note
	}
	for _, d := range b.Devices {
		i := indexOf(a.Devices, d.Index)
		if i < 0 {
			a.Devices = append(a.Devices, d)
			continue
		}
		at := &a.Devices[i]
		at.Used, at.Free, at.Own = max(at.Used, d.Used), min(at.Free, d.Free), max(at.Own, d.Own)
		at.Total = max(at.Total, d.Total)
		at.Others = mergeProcesses(at.Others, d.Others)
	}
	a.Procs = mergeProcs(a.Procs, b.Procs)
	return a
}

func indexOf(devices []deviceSample, index int) int {
	for i, d := range devices {
		if d.Index == index {
			return i
		}
	}
	return -1
}

func mergeProcesses(a, b []gpu.Process) []gpu.Process {
next:
	for _, p := range b {
		for i := range a {
			if a[i].PID == p.PID {
				a[i].UsedBytes = max(a[i].UsedBytes, p.UsedBytes)
				a[i].Known = a[i].Known || p.Known
				continue next
			}
		}
		a = append(a, p)
	}
	return a
}

func mergeProcs(a, b []procSample) []procSample {
next:
	for _, p := range b {
		for i := range a {
			if a[i].PID == p.PID {
				a[i].RSS = max(a[i].RSS, p.RSS)
				continue next
			}
		}
		a = append(a, p)
	}
	return a
}

// What is read at most: thinning keeps a run of any length far below, and a line for 16 GPUs with 100 processes each is
// below 200 KiB.
const (
	maxSamples    = 256 << 20
	maxSampleLine = 1 << 20
)

// readSamples calls each for every whole line of samples.jsonl; a torn last line (the machine lost power) is passed
// over.
func readSamples(dir string, each func(sample)) error {
	f, err := files.OpenOwn(filepath.Join(dir, samplesFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the samples: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(io.LimitReader(f, maxSamples))
	lines.Buffer(nil, maxSampleLine)
	for lines.Scan() {
		var s sample
		if json.Unmarshal(lines.Bytes(), &s) == nil {
			each(s)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the samples: %w", err)
	}
	return nil
}

func unixSeconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }

func fromUnix(seconds float64) time.Time {
	return time.Unix(0, int64(seconds*1e9)).UTC()
}
