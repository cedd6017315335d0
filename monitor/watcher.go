package monitor

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"oomguard/launcher/fence"
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

// Watcher records a run until it is stopped. Nothing that goes wrong in it reaches the run: it is noted in the recording.
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
		w.copier = &copier{from: cfg.ProbeDir, store: cfg.Store, scrub: cfg.Scrub, read: map[string]int64{}}
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
		w.notes = append(w.notes, w.copier.notes()...)
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
	for _, d := range snap.Devices {
		if d.MemoryKnown {
			s.Devices = append(s.Devices, sampleDevice(d, w.cfg.Owns))
		} else if d.Note != "" {
			s.Note = fmt.Sprintf("GPU %d: %s", d.Index, d.Note)
		}
	}
	return s
}

func sampleDevice(d gpu.Device, owns func(int) bool) deviceSample {
	out := deviceSample{Index: d.Index, UUID: d.UUID, Name: d.Name, Total: d.TotalBytes, Used: d.UsedBytes, Free: d.FreeBytes}
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
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
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

// copier carries what the ranks' probes append into the run folder, whole lines only.
type copier struct {
	from  string
	store *Store
	scrub *Scrubber
	read  map[string]int64 // bytes taken so far, by file name
	err   error
}

// maxCopy bounds what one poll takes from one file; the rest comes with the next poll.
const maxCopy = 8 << 20

func (c *copier) poll() {
	entries, err := os.ReadDir(c.from)
	if err != nil {
		c.err = err
		return
	}
	for _, e := range entries {
		if e.Type().IsRegular() && strings.HasSuffix(e.Name(), ".jsonl") {
			if err := c.take(e.Name()); err != nil {
				c.err = err
			}
		}
	}
}

func (c *copier) take(name string) error {
	f, err := os.Open(filepath.Join(c.from, name))
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		data, err := io.ReadAll(io.NewSectionReader(f, c.read[name], maxCopy))
		if err != nil {
			return err
		}
		end := bytes.LastIndexByte(data, '\n') + 1
		if end == 0 {
			return nil
		}
		out, err := c.store.appendFile(stagesDir, name)
		if err != nil {
			return err
		}
		_, err = out.Write(c.scrub.jsonLines(data[:end]))
		if closeErr := out.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			return err
		}
		c.read[name] += int64(end)
		if len(data) < maxCopy {
			return nil
		}
	}
}

func (c *copier) notes() []string {
	if c.err == nil {
		return nil
	}
	return []string{fmt.Sprintf("stage records may be incomplete: %v", c.err)}
}

// Adopt copies what a probe left in its own folder after oomguard was killed, so that a report made later has all of it. It does
// nothing when the folder is gone.
func Adopt(store *Store, probeDir string, scrub *Scrubber) error {
	if _, err := os.Stat(probeDir); probeDir == "" || err != nil {
		return nil
	}
	c := &copier{from: probeDir, store: store, scrub: scrub, read: map[string]int64{}}
	entries, err := os.ReadDir(probeDir)
	if err != nil {
		return fmt.Errorf("adopt the probe's records: %w", err)
	}
	for _, e := range entries {
		// what was copied before is a scrubbed prefix, so the sizes differ: take the file anew as a whole
		if strings.HasSuffix(e.Name(), ".jsonl") {
			if err := os.RemoveAll(filepath.Join(store.Dir, stagesDir, e.Name())); err != nil {
				return fmt.Errorf("adopt the probe's records: %w", err)
			}
		}
	}
	c.poll()
	return c.err
}
