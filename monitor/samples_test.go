package monitor

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"testing/quick"
	"time"
)

func tick(at int, used int64) sample {
	return sample{T: float64(at), N: 1,
		Devices: []deviceSample{{Index: 0, Name: "X", Total: 1000, Used: used, Free: 1000 - used}}}
}

// TestSamplesStayBounded: ten times the ticks must not give ten times the lines, and neither the highest use nor the
// lowest free memory may be lost in thinning.
func TestSamplesStayBounded(t *testing.T) {
	var out bytes.Buffer
	w := newSampleWriter(&out)
	const ticks = 40 * linesPerDecade
	for i := range ticks {
		used := int64(500)
		if i == ticks/3 {
			used = 503 // below the step that is written at once
		}
		w.add(tick(i, used))
	}
	w.flush()
	if w.lines > 6*linesPerDecade {
		t.Errorf("%d ticks made %d lines", ticks, w.lines)
	}
	store := &Store{Dir: t.TempDir()}
	if err := os.WriteFile(filepath.Join(store.Dir, samplesFile), out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	rec, err := Load(store)
	if err != nil {
		t.Fatal(err)
	}
	d := rec.Devices[0]
	if d.PeakUsedBytes != 503 || d.MinFreeBytes != 497 || d.Samples != ticks || d.Name != "X" {
		t.Errorf("record %+v, want peak 503, free 497, %d samples", d, ticks)
	}
}

func TestSamplesNewPeakIsWrittenAtOnce(t *testing.T) {
	var out bytes.Buffer
	w := newSampleWriter(&out)
	w.span = 1 << 20
	w.add(tick(1, 100))
	w.add(tick(2, 101))
	before := out.Len()
	w.add(tick(3, 900))
	if out.Len() == before {
		t.Error("a peak far above the last one waits for its line")
	}
}

// TestMergeKeepsExtremes: in whatever order ticks are folded, the extremes are those of all of them.
func TestMergeKeepsExtremes(t *testing.T) {
	err := quick.Check(func(used []uint16) bool {
		var s sample
		var high, low int64 = 0, 1 << 20
		for i, u := range used {
			s = merge(s, tick(i, int64(u)))
			high, low = max(high, int64(u)), min(low, 1000-int64(u))
		}
		return len(used) == 0 || s.Devices[0].Used == high && s.Devices[0].Free == low && s.N == len(used)
	}, nil)
	if err != nil {
		t.Error(err)
	}
}

func TestLoadPassesOverTornLines(t *testing.T) {
	store := &Store{Dir: t.TempDir()}
	line, err := json.Marshal(tick(7, 300))
	if err != nil {
		t.Fatal(err)
	}
	data := append(append(append([]byte("garbage\n"), line...), '\n'), line[:len(line)/2]...)
	if err := os.WriteFile(filepath.Join(store.Dir, samplesFile), data, 0o644); err != nil {
		t.Fatal(err)
	}
	rec, err := Load(store)
	if err != nil {
		t.Fatal(err)
	}
	if len(rec.Devices) != 1 || rec.Devices[0].PeakUsedBytes != 300 || !rec.LastSeen.Equal(time.Unix(7, 0)) {
		t.Errorf("recording %+v", rec)
	}
}
