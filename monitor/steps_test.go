package monitor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// course loads a run of one rank from the lines of its stage records.
func course(t *testing.T, lines string) Rank {
	t.Helper()
	store := newStore(t)
	if err := os.WriteFile(filepath.Join(store.Dir, stagesDir, "rank-0.0.5.jsonl"), []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	rec, err := Load(store)
	if err != nil || len(rec.Ranks) != 1 {
		t.Fatalf("%v %+v", err, rec)
	}
	return rec.Ranks[0]
}

// TestRecordedGradients: real runs of testdata/courses/train.py, in which zero_grad is called, not called, or fills
// with zeros. The model has 12 x (2048 x 2048 + 2048) parameters of 4 bytes: 192 MiB of gradients.
func TestRecordedGradients(t *testing.T) {
	const mib, gradients = 1 << 20, 12 * (2048*2048 + 2048) * 4
	for name, want := range map[string]struct{ cleared, kept bool }{"clear": {true, false}, "never": {false, true},
		"zeros": {true, true}} {
		text, err := os.ReadFile(filepath.Join("testdata", "courses", "gradients-"+name+".jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		r := course(t, string(text))
		if r.GradBytes < gradients || r.GradBytes > gradients+mib || len(r.Course) != 14 || r.Turnover == nil {
			t.Fatalf("%s: %+v", name, r)
		}
		if last := r.Course[13]; last.Step != 13 || last.HeldBytes != -1 || last.PeakBytes <= 0 {
			t.Errorf("%s: the step in which it died: %+v", name, last)
		}
		v := r.Turnover
		extra := v.LaterForwardBytes - v.FirstForwardBytes - r.OptimizerBytes
		if v.Steps != 13 || (v.Cleared > 0) != want.cleared || (extra > gradients*7/10) != want.kept {
			t.Errorf("%s: %+v, %d MiB beside the optimizer's state", name, v, extra/mib)
		}
		if freed := v.AfterStepBytes-v.AfterClearBytes > gradients*7/10; want.cleared && freed == want.kept {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// TestCourseIsBounded: of a run of any length few steps are kept, in order, and neither the highest peak nor the last
// step is lost.
func TestCourseIsBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"e":"hello","q":1,"rank":0,"pid":5,"mem":"cuda"}` + "\n")
	for i := range 5000 {
		peak := 100
		if i == 3210 {
			peak = 999
		}
		fmt.Fprintf(&b, `{"e":"w","q":%d,"t":%d,"s":"forward","st":%d,"a":50,"pa":%d}`+"\n", 3*i+2, i*1000, i, peak)
		fmt.Fprintf(&b, `{"e":"w","q":%d,"t":%d,"s":"optimizer-step","st":%d,"mb":1,"a":%d,"pa":60}`+"\n", 3*i+3,
			i*1000+500, i, i)
	}
	r := course(t, b.String())
	if len(r.Course) > keepSteps {
		t.Fatalf("%d steps", len(r.Course))
	}
	var highest int64
	for i, s := range r.Course {
		highest = max(highest, s.PeakBytes)
		if i > 0 && (s.Step <= r.Course[i-1].Step || s.HeldBytes < r.Course[i-1].HeldBytes ||
			s.Time.Before(r.Course[i-1].Time)) {
			t.Fatalf("out of order: %+v %+v", r.Course[i-1], s)
		}
	}
	if last := r.Course[len(r.Course)-1]; highest != 999 || last.Step != 4999 || last.HeldBytes != 4999 {
		t.Errorf("highest %d, last %+v", highest, last)
	}
}

// TestPointsAreBounded: the samples of a device for its picture.
func TestPointsAreBounded(t *testing.T) {
	var points []DevicePoint
	for i := range 10000 {
		used := int64(1)
		if i == 5555 {
			used = 77
		}
		points = thinPoints(append(points, DevicePoint{Time: fromUnix(float64(i)), UsedBytes: used}))
	}
	var highest int64
	for _, p := range points {
		highest = max(highest, p.UsedBytes)
	}
	if len(points) >= 2*keepPoints || highest != 77 {
		t.Errorf("%d points, highest %d", len(points), highest)
	}
}
