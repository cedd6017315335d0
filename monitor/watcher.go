package monitor

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"oomguard/launcher/fence"
	"oomguard/launcher/files"
	"oomguard/monitor/gpu"
)

// RankPID says which process is which rank.
type RankPID struct {
	PID  int
	Rank int
}

// Config is what a Watcher watches.
type Config struct {
	Store *Store
	// Devices is asked once per tick; nil: there are none, and the resident memory of the ranks is recorded instead.
	Devices gpu.Source
	// Interval between device samples (default one second).
	Interval time.Duration
	// ProbeDir is the folder that the ranks' probes append to; "" when there is no probe.
	ProbeDir string
	// Owns tells whether a process belongs to the run; Ranks lists those that train.
	Owns  func(pid int) bool
	Ranks func() []RankPID
	Scrub *Scrubber
}

// probeInterval is how often the ranks' files are copied into the run folder: what a crash of this machine can lose.
const probeInterval = 200 * time.Millisecond

// Watcher records a run until it is stopped. Nothing that goes wrong in it reaches the run: it is noted in the
// recording.
type Watcher struct {
	cfg     Config
	cancel  context.CancelFunc
	done    sync.WaitGroup
	samples *os.File
	writer  *sampleWriter
	copier  *copier
	notes   []string
	faults  chan string // one from each loop at most
}

// Watch starts recording. It never fails: Stop says what could not be recorded, and the run goes on.
func Watch(cfg Config) *Watcher {
	if cfg.Interval <= 0 {
		cfg.Interval = time.Second
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &Watcher{cfg: cfg, cancel: cancel, faults: make(chan string, 2)}
	if f, err := cfg.Store.appendFile(samplesFile); err != nil {
		w.notes = append(w.notes, err.Error())
	} else {
		w.samples, w.writer = f, newSampleWriter(f)
		w.guard("device samples", func() { w.sampleLoop(ctx) })
	}
	if cfg.ProbeDir != "" {
		w.copier = newCopier(cfg.ProbeDir, cfg.Store, cfg.Scrub)
		w.guard("stage records", func() { w.copyLoop(ctx) })
	}
	return w
}

// guard runs a loop until it ends. A panic in it is a fault of ours: it is noted, and the run that is watched goes on.
func (w *Watcher) guard(what string, loop func()) {
	w.done.Go(func() {
		if fault := fence.Do("recording "+what, loop); fault != nil {
			w.faults <- fault.Error()
		}
	})
}

// Stop takes a last look, writes what is pending and says what could not be recorded.
func (w *Watcher) Stop() []string {
	if w == nil { // nothing could be recorded
		return nil
	}
	w.cancel()
	w.done.Wait()
	close(w.faults)
	for f := range w.faults {
		w.notes = append(w.notes, f)
	}
	if w.copier != nil {
		w.copier.poll()
		w.notes = append(w.notes, w.copier.close()...)
	}
	if w.writer != nil {
		w.writer.flush()
		if w.writer.err != nil {
			w.notes = append(w.notes, fmt.Sprintf("device samples are incomplete: %v", w.writer.err))
		}
		if err := w.samples.Close(); err != nil {
			w.notes = append(w.notes, fmt.Sprintf("device samples may be incomplete: %v", err))
		}
	}
	return w.notes
}

func (w *Watcher) sampleLoop(ctx context.Context) {
	tick := time.NewTicker(w.cfg.Interval)
	defer tick.Stop()
	for {
		w.writer.add(w.look(ctx))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (w *Watcher) copyLoop(ctx context.Context) {
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.copier.poll()
		}
	}
}

// look takes one sample.
func (w *Watcher) look(ctx context.Context) sample {
	s := sample{T: unixSeconds(time.Now()), N: 1}
	if w.cfg.Devices == nil {
		for _, r := range w.cfg.Ranks() {
			if rss := peakResident(r.PID); rss > 0 {
				s.Procs = append(s.Procs, procSample{PID: r.PID, Rank: r.Rank, RSS: rss})
			}
		}
		return s
	}
	snap, err := w.cfg.Devices.Snapshot(ctx)
	if err != nil {
		if ctx.Err() == nil {
			s.Note = err.Error()
		}
		return s
	}
	var notes []string
	for _, d := range snap.Devices {
		if d.MemoryKnown {
			s.Devices = append(s.Devices, sampleDevice(d, w.cfg.Owns))
		}
		if why := unread(d); why != "" {
			notes = append(notes, fmt.Sprintf("GPU %d: %s", d.Index, why))
		}
	}
	s.Note = strings.Join(notes, "; ")
	return s
}

// unread says what of a device is missing in a sample, "" if nothing is.
func unread(d gpu.Device) string {
	switch {
	case d.Lost != "":
		return d.Lost
	case !d.MemoryKnown:
		return cmp.Or(d.Unknown.Memory, d.Note)
	case !d.ProcessesKnown:
		return d.Unknown.Processes
	}
	return ""
}

func sampleDevice(d gpu.Device, owns func(int) bool) deviceSample {
	out := deviceSample{Index: d.Index, UUID: d.UUID, Name: d.Name, Total: d.TotalBytes, Used: d.UsedBytes,
		Free: d.FreeBytes}
	for _, p := range d.Processes {
		if !owns(p.PID) {
			out.Others = append(out.Others, p)
		} else if p.Known {
			out.Own += p.UsedBytes
		}
	}
	return out
}

// peakResident is VmHWM of a process in bytes, 0 when it is gone.
func peakResident(pid int) int64 {
	data, err := files.Read("/proc/"+strconv.Itoa(pid)+"/status", 1<<16)
	if err != nil {
		return 0
	}
	_, rest, found := bytes.Cut(data, []byte("VmHWM:"))
	if !found {
		return 0
	}
	fields := strings.Fields(string(rest[:min(len(rest), 64)]))
	if len(fields) == 0 {
		return 0
	}
	kib, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		return 0
	}
	return kib << 10
}
