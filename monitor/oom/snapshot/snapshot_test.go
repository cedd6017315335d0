package snapshot

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// expected is what make_snapshot.py computed while it wrote the snapshot.
type expected struct {
	Reserved, Active, Allocated, Requested, Free, Returnable, Stuck, Largest, Peak int64
	Blocks                                                                         int
	Components                                                                     map[string]int64
	OOMs                                                                           []struct {
		Tried, Allocated int64
		Components       map[string]int64
	}
}

func makeSnapshot(t testing.TB, protocol int, schema string) ([]byte, expected) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatalf("the snapshots of this test are written by Python: %v", err)
	}
	cmd := exec.Command(python, filepath.Join("testdata", "make_snapshot.py"), fmt.Sprint(protocol), schema)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	data, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	var want expected
	if err := json.Unmarshal(stderr.Bytes(), &want); err != nil {
		t.Fatal(err)
	}
	return data, want
}

func TestTotals(t *testing.T) {
	for _, schema := range []string{"today", "history", "list"} {
		for protocol := range 6 {
			t.Run(fmt.Sprintf("%s protocol %d", schema, protocol), func(t *testing.T) {
				data, want := makeSnapshot(t, protocol, schema)
				s, err := Read(bytes.NewReader(data))
				if err != nil {
					t.Fatal(err)
				}
				report := Analyse(s, "snapshot.pickle")
				if len(report.Devices) != 1 {
					t.Fatalf("%d devices", len(report.Devices))
				}
				d := report.Devices[0]
				check := func(what string, got, want int64) {
					if got != want {
						t.Errorf("%s: got %d, want %d", what, got, want)
					}
				}
				check("reserved", d.ReservedBytes, want.Reserved)
				check("active", d.ActiveBytes, want.Active)
				check("allocated", d.AllocatedBytes, want.Allocated)
				check("free", d.FreeBytes, want.Free)
				check("returnable", d.ReturnableBytes, want.Returnable)
				check("stuck", d.StuckBytes, want.Stuck)
				check("largest free", d.LargestFreeBytes, want.Largest)
				check("blocks", int64(d.Blocks), int64(want.Blocks))
				if schema == "list" { // neither requested sizes nor stacks nor a trace
					return
				}
				check("requested", d.RequestedBytes, want.Requested)
				check("peak", d.PeakBytes, want.Peak)
				sameComponents(t, "now", d.Components, want.Components)
				if len(want.OOMs) < maxOOMs || len(d.OOMs) != maxOOMs {
					t.Fatalf("%d failed allocations, want the last %d of %d", len(d.OOMs), maxOOMs, len(want.OOMs))
				}
				for i, m := range d.OOMs {
					w := want.OOMs[len(want.OOMs)-maxOOMs+i]
					check("tried", m.TriedBytes, w.Tried)
					check("allocated at the failure", m.AllocatedBytes, w.Allocated)
					sameComponents(t, "at the failure", m.Components, w.Components)
				}
				if len(d.Sites) == 0 || !strings.Contains(d.Sites[0].Where, ".py:") ||
					strings.Contains(d.Sites[0].Where, "linear.py") {
					t.Errorf("the largest place is %+v", d.Sites[:min(1, len(d.Sites))])
				}
			})
		}
	}
}

// TestRealSnapshots reads what torch.cuda.memory._dump_snapshot wrote on an H200 (torch 2.11.0): a small training
// between two steps, and the same at an allocation that failed. PyTorch said the totals at the same moment.
func TestRealSnapshots(t *testing.T) {
	for name, tried := range map[string]int64{"h200-steady": 0, "h200-oom": 64 << 20} {
		t.Run(name, func(t *testing.T) {
			var want struct {
				Allocated, Reserved, Allocations, Segments int64
				InactiveSplit                              int64 `json:"inactive_split"`
			}
			text, err := os.ReadFile(filepath.Join("testdata", name+".json"))
			if err == nil {
				err = json.Unmarshal(text, &want)
			}
			if err != nil {
				t.Fatal(err)
			}
			file, err := os.Open(filepath.Join("testdata", name+".pickle.gz"))
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			unzipped, err := gzip.NewReader(file)
			if err != nil {
				t.Fatal(err)
			}
			s, err := Read(unzipped)
			if err != nil {
				t.Fatal(err)
			}
			d := Analyse(s, name).Devices[0]
			got := []int64{d.AllocatedBytes, d.ReservedBytes, int64(d.Blocks), int64(d.Segments), d.StuckBytes}
			if !slices.Equal(got, []int64{want.Allocated, want.Reserved, want.Allocations, want.Segments,
				want.InactiveSplit}) {
				t.Errorf("allocated, reserved, blocks, segments, stuck: got %v, want %+v", got, want)
			}
			switch {
			case tried == 0 && len(d.OOMs) != 0,
				tried > 0 && (len(d.OOMs) == 0 || d.OOMs[len(d.OOMs)-1].TriedBytes != tried):
				t.Errorf("failed allocations: %+v", d.OOMs)
			case tried > 0 && d.OOMs[0].Where != "backward pass, sum_dim_IntList":
				t.Errorf("it failed at %q", d.OOMs[0].Where)
			}
		})
	}
}

func sameComponents(t *testing.T, when string, got []ComponentUse, want map[string]int64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: components %+v, want %v", when, got, want)
	}
	for _, c := range got {
		if c.Bytes != want[c.Component] {
			t.Errorf("%s: %s holds %d, want %d", when, c.Component, c.Bytes, want[c.Component])
		}
	}
}

func TestNotASnapshot(t *testing.T) {
	tests := []struct{ name, data, want string }{
		{"a state dict", "(dVweight\nI1\ns.", "no list of segments"},
		{"a list of numbers", "(lI1\na.", "no total_size"},
		{"negative size", "(l(dVtotal_size\nI-1\nsa.", "no total_size"},
		{"block without size", "(l(dVtotal_size\nI1\nsVblocks\n(l(dasa.", "no size"},
		{"text", "Traceback (most recent call last):", "pickle"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := Read(strings.NewReader(tt.data)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func FuzzRead(f *testing.F) {
	for _, schema := range []string{"today", "history", "list"} {
		data, _ := makeSnapshot(f, 2, schema)
		f.Add(data[:min(len(data), 4000)])
	}
	f.Add([]byte("(dVsegments\n(l(dVtotal_size\nI5\nsVblocks\n(l(dVsize\nI5\nsVstate\nVactive_allocated\nsassasVdevice_traces\n(l(l(dVaction\nVoom\nsaas."))
	f.Fuzz(func(t *testing.T, data []byte) {
		if s, err := Read(bytes.NewReader(data)); err == nil {
			Analyse(s, "fuzz")
		}
	})
}
