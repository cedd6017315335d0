package oom

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// label is one case of testdata/logs/labels.json: public logs, labelled by reading the threads that they come from.
type label struct {
	ID         string                     `json:"id"`
	File       string                     `json:"file"`
	Provenance string                     `json:"provenance"`
	Class      Cause                      `json:"class"`
	AlsoAccept []Cause                    `json:"also_accept"`
	Fields     map[string]json.RawMessage `json:"fields"`
}

type printedSize struct {
	Value *float64 `json:"value"`
	Unit  *string  `json:"unit"`
}

// bytes is what the log prints, Unknown for garbage.
func (p printedSize) bytes() int64 {
	if p.Value == nil || p.Unit == nil || *p.Unit == "EB" {
		return Unknown
	}
	return parseSize(jsonNumber(*p.Value), *p.Unit)
}

func jsonNumber(v float64) string {
	b, _ := json.Marshal(v)
	return string(b)
}

func readLabels(t testing.TB) []label {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "logs", "labels.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []label `json:"cases"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	return file.Cases
}

func scanFile(t testing.TB, name string) *Log {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "logs", name))
	if err != nil {
		t.Fatal(err)
	}
	log, err := Scan(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// TestFields: every number that a labelled log prints, exact to the printed digits.
func TestFields(t *testing.T) {
	fields := map[string]func(Message) int64{
		"tried_to_alloc":       func(m Message) int64 { return m.TriedBytes },
		"total_capacity":       func(m Message) int64 { return m.TotalBytes },
		"free":                 func(m Message) int64 { return m.FreeBytes },
		"allocated_by_pytorch": func(m Message) int64 { return m.AllocatedBytes },
		"reserved_total":       func(m Message) int64 { return m.ReservedBytes },
		"reserved_unallocated": func(m Message) int64 { return m.ReservedUnallocatedBytes },
		"cached":               func(m Message) int64 { return m.ReservedUnallocatedBytes },
		"private_pools":        func(m Message) int64 { return m.PrivatePoolBytes },
		"allowed":              func(m Message) int64 { return m.AllowedBytes },
		"process_in_use":       func(m Message) int64 { return m.ProcessBytes },
	}
	checked := 0
	for _, l := range readLabels(t) {
		if l.Fields["tried_to_alloc"] == nil {
			continue
		}
		log := scanFile(t, l.File)
		i := slices.IndexFunc(log.Messages, func(m Message) bool { return m.sized() })
		if i < 0 {
			t.Errorf("%s: no message with sizes found", l.ID)
			continue
		}
		m := log.Messages[i]
		for name, get := range fields {
			if l.Fields[name] == nil {
				continue
			}
			var p printedSize
			if err := json.Unmarshal(l.Fields[name], &p); err != nil {
				t.Fatal(l.ID, name, err)
			}
			want := p.bytes()
			if name == "process_in_use" {
				want = unlessZero(want)
			}
			checked++
			if got := get(m); got != want && p.Unit != nil {
				t.Errorf("%s: %s: got %d, printed is %d", l.ID, name, got, want)
			}
		}
		checkProcesses(t, l, m)
	}
	t.Logf("%d fields checked", checked)
}

func checkProcesses(t *testing.T, l label, m Message) {
	t.Helper()
	var own int
	if raw := l.Fields["own_pid_seen_as_other"]; raw != nil {
		if err := json.Unmarshal(raw, &own); err != nil {
			t.Fatal(l.ID, err)
		}
	}
	if own != m.OwnPID {
		t.Errorf("%s: own process %d, want %d", l.ID, m.OwnPID, own)
	}
	if l.Fields["other_processes"] == nil {
		return
	}
	var listed []struct {
		PID int `json:"pid"`
		printedSize
		Used printedSize `json:"used"`
	}
	if err := json.Unmarshal(l.Fields["other_processes"], &listed); err != nil {
		t.Fatal(l.ID, err)
	}
	want, got := map[int]int64{}, map[int]int64{}
	for _, p := range listed {
		if p.Used.Value != nil {
			p.printedSize = p.Used
		}
		if p.PID != own {
			want[p.PID] = unlessZero(p.bytes())
		}
	}
	for _, o := range m.OtherProcesses {
		got[o.PID] = o.Bytes
	}
	if !maps.Equal(want, got) {
		t.Errorf("%s: other processes %v, want %v", l.ID, got, want)
	}
}
