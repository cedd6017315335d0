package monitor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"oomguard/launcher/patience"
	"oomguard/monitor/gpu"
)

// devices is a source that plays a script, one reply a call, and tells when it is through.
type devices struct {
	replies []func() (gpu.Snapshot, error)
	done    chan struct{}
}

func (d *devices) Snapshot(ctx context.Context) (gpu.Snapshot, error) {
	if len(d.replies) == 0 {
		select {
		case <-d.done:
		default:
			close(d.done)
		}
		<-ctx.Done()
		return gpu.Snapshot{}, ctx.Err()
	}
	next := d.replies[0]
	d.replies = d.replies[1:]
	return next()
}

func (d *devices) Close() error { return nil }

func oneGPU(used int64, processes ...gpu.Process) func() (gpu.Snapshot, error) {
	return func() (gpu.Snapshot, error) {
		return gpu.Snapshot{Devices: []gpu.Device{{
			Index: 0, Name: "X", TotalBytes: 1000, UsedBytes: used, FreeBytes: 1000 - used, MemoryKnown: true,
			Processes: processes, ProcessesKnown: true,
		}}}, nil
	}
}

func newStore(t *testing.T) *Store {
	t.Helper()
	store, err := CreateRun(t.TempDir(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// watchAll records until the script of devices is through.
func watchAll(t *testing.T, store *Store, d *devices) []string {
	t.Helper()
	d.done = make(chan struct{})
	w := Watch(Config{
		Store: store, Devices: d, Interval: time.Millisecond,
		Owns: func(pid int) bool { return pid == 7 }, Ranks: func() []RankPID { return nil },
	})
	select {
	case <-d.done:
	case <-patience.Over(t):
		t.Fatal("the watcher does not ask")
	}
	return w.Stop()
}

func TestWatcherRecordsDevices(t *testing.T) {
	store := newStore(t)
	notes := watchAll(t, store, &devices{replies: []func() (gpu.Snapshot, error){
		oneGPU(100),
		oneGPU(700, gpu.Process{PID: 7, UsedBytes: 500, Known: true},
			gpu.Process{PID: 8, Name: "other", UsedBytes: 200, Known: true}),
		func() (gpu.Snapshot, error) { return gpu.Snapshot{}, errors.New("the driver hangs") },
		oneGPU(300),
	}})
	rec, err := Load(store)
	if err != nil || len(notes) != 0 {
		t.Fatal(err, notes)
	}
	d := rec.Devices[0]
	if d.StartBytes != 100 || d.PeakUsedBytes != 700 || d.MinFreeBytes != 300 || d.OwnPeakBytes != 500 ||
		len(d.Others) != 1 || d.Others[0].PID != 8 {
		t.Errorf("device %+v", d)
	}
	if text := strings.Join(rec.Missing, "\n"); !strings.Contains(text, "the driver hangs") {
		t.Errorf("missing %q", text)
	}
}

// TestWatcherSurvivesItsOwnFaults: a panic while sampling ends the samples, not the program, and is told.
func TestWatcherSurvivesItsOwnFaults(t *testing.T) {
	store := newStore(t)
	asked := make(chan struct{})
	w := Watch(Config{Store: store,
		Devices: &devices{replies: []func() (gpu.Snapshot, error){func() (gpu.Snapshot, error) {
			close(asked)
			panic("index out of range")
		}}}})
	<-asked
	if notes := strings.Join(w.Stop(), "\n"); !strings.Contains(notes, "index out of range") {
		t.Errorf("notes %q", notes)
	}
}

// TestCopierTakesWholeLines: what a rank is writing just now waits for its end; secrets do not get into the run folder.
func TestCopierTakesWholeLines(t *testing.T) {
	store, probes := newStore(t), t.TempDir()
	file := filepath.Join(probes, "rank-0.0.5.jsonl")
	scrub := NewScrubber([]string{"HF_TOKEN=topsecretvalue"}, nil)
	write := func(text string) {
		t.Helper()
		f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	copied := func() string {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(store.Dir, stagesDir, "rank-0.0.5.jsonl"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return string(data)
	}
	c := newCopier(probes, store, scrub)
	write(`{"e":"hello","q":1,"rank":0,"pid":5,"mem":"rss","a":1000}` + "\n" + `{"e":"w",`)
	c.poll()
	if got := copied(); strings.Count(got, "\n") != 1 || strings.Contains(got, `"w"`) {
		t.Errorf("copied %q", got)
	}
	write(`"q":2,"s":"forward","pa":3000}` + "\n" + `{"e":"exc","q":3,"type":"KeyError","msg":"topsecretvalue"}` + "\n")
	c.poll()
	if got := copied(); strings.Count(got, "\n") != 3 || strings.Contains(got, "topsecretvalue") {
		t.Errorf("copied %q", got)
	}
	write(`{"e":"bye","q":4,"st":9}` + "\n")
	c.poll()
	if notes := c.close(); len(notes) > 0 {
		t.Errorf("notes %q", notes)
	}
	rec, err := Load(store)
	if err != nil || len(rec.Ranks) != 1 {
		t.Fatalf("%v %+v", err, rec)
	}
	r := rec.Ranks[0]
	if !r.Ended || r.Steps != 9 || r.Exception == nil || r.Exception.Message != Redacted || r.LostEvents != 0 ||
		r.Stages[0].AllocatedBytes != 2000 {
		t.Errorf("rank %+v", r)
	}
}

// TestLoadFollowsCUDA: a rank begins on the host and its numbers become the allocator's when CUDA starts; attempts stay
// apart.
func TestLoadFollowsCUDA(t *testing.T) {
	store := newStore(t)
	for name, text := range map[string]string{
		"rank-1.0.8.jsonl": `{"e":"hello","q":1,"rank":1,"pid":8,"mem":"rss","a":1000}
{"e":"w","q":2,"s":"model-load","pa":9000}
{"e":"mem","q":3,"mem":"cuda","d":1}
{"e":"w","q":4,"s":"forward","st":0,"a":50,"pa":70,"pr":90,"d":1,"n":2}
{"e":"w","q":7,"s":"forward","st":3,"a":50,"pa":60,"pr":95,"rt":2,"d":1}
{"e":"oom","q":8,"s":"forward","st":3,"want":5,"total":100,"free":1,"a":60,"r":95,"d":1}
{"e":"state","q":9,"params":10,"grads":11,"optim":12}
{"e":"note","q":10,"msg":"a hook is missing"}
not a line
`,
		"rank-0.1.9.jsonl": `{"e":"hello","q":1,"rank":0,"attempt":1,"pid":9,"mem":"cuda"}` + "\n" +
			`{"e":"w","q":2,"s":"forward","pa":80}` + "\n",
		"rank-2.0.7.jsonl": `{"e":"w","q":2,"s":"forward","pa":80}` + "\n", // no hello: nothing is known of it
	} {
		if err := os.WriteFile(filepath.Join(store.Dir, stagesDir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rec, err := Load(store)
	if err != nil || len(rec.Ranks) != 2 {
		t.Fatalf("%v %+v", err, rec)
	}
	r := rec.Ranks[0]
	if r.Rank != 1 || r.Memory != "cuda" || r.Device != 1 || len(r.Stages) != 1 || r.LostEvents != 3 ||
		r.AllocatorRetries != 2 {
		t.Errorf("rank %+v", r)
	}
	if s := r.Stages[0]; s.AllocatedBytes != 70 || s.ReservedBytes != 95 || s.Windows != 3 || s.PeakStep != 0 {
		t.Errorf("stage %+v", s)
	}
	if len(r.OOMs) != 1 || r.OOMs[0].WantBytes != 5 || r.OptimizerBytes != 12 || len(r.Notes) != 1 {
		t.Errorf("rank %+v", r)
	}
	if rec.Memory != "cuda" || rec.Stages[0].AllocatedBytes != 80 || rec.Ranks[1].Attempt != 1 {
		t.Errorf("recording %+v", rec)
	}
}

func TestOpenFindsRuns(t *testing.T) {
	root := t.TempDir()
	if _, err := Open(root, ""); !errors.Is(err, ErrNoRun) {
		t.Errorf("an empty folder: %v", err)
	}
	var ids []string
	for i := range 3 {
		s, err := CreateRun(root, time.Unix(int64(1e9+i), 0))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.WriteMeta(map[string]int{"n": i}); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, s.ID())
	}
	for name, want := range map[string]string{
		"": ids[2], "last": ids[2], ids[0]: ids[0], ids[1][len(ids[1])-6:]: ids[1], filepath.Join(root, ids[1]): ids[1],
	} {
		if s, err := Open(root, name); err != nil || s.ID() != want {
			t.Errorf("Open(%q) = %v, %v, want %s", name, s, err, want)
		}
	}
	for _, name := range []string{"nothing", filepath.Join(root, "nothing")} {
		if _, err := Open(root, name); !errors.Is(err, ErrNoRun) {
			t.Errorf("Open(%q): %v", name, err)
		}
	}
}
