package gpu

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestReplay(t *testing.T) {
	first := Snapshot{Time: time.Unix(1, 0), Devices: []Device{{Name: "a", Processes: []Process{{PID: 1}}}}}
	second := Snapshot{Time: time.Unix(2, 0), Devices: []Device{{Name: "b"}}}
	source := Replay(first, second)
	for i, want := range []Snapshot{first, second, second} {
		got, err := source.Snapshot(t.Context())
		if err != nil || !got.Time.Equal(want.Time) || got.Devices[0].Name != want.Devices[0].Name {
			t.Errorf("snapshot %d is %+v, %v; want %+v", i, got, err, want)
		}
		got.Devices[0].Name = "changed by the caller"
		if len(got.Devices[0].Processes) > 0 {
			got.Devices[0].Processes[0].PID = 99
		}
	}
	if first.Devices[0].Name != "a" || first.Devices[0].Processes[0].PID != 1 {
		t.Errorf("the recording changed: %+v", first)
	}
	if _, err := Replay().Snapshot(t.Context()); err == nil {
		t.Error("nothing recorded, but no error")
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := source.Snapshot(cancelled); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := source.Close(); err != nil {
		t.Error(err)
	}
}

func TestAbsent(t *testing.T) {
	reason := errors.New("the build has no cgo")
	for _, source := range []Source{Absent{}, Absent{reason}} {
		_, err := source.Snapshot(t.Context())
		if !errors.Is(err, ErrNoDriver) {
			t.Errorf("%v is not ErrNoDriver", err)
		}
	}
	if _, err := (Absent{reason}).Snapshot(t.Context()); !errors.Is(err, reason) ||
		!strings.Contains(err.Error(), reason.Error()) {
		t.Errorf("%v does not say why", err)
	}
	if err := (Absent{}).Close(); err != nil {
		t.Error(err)
	}
}

func TestReadFile(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       Device
		err        []string
	}{
		{"free given", `{"devices":[{"name":"x","total_bytes":100,"reserved_bytes":10,"free_bytes":60}]}`,
			Device{Name: "x", TotalBytes: 100, ReservedBytes: 10, FreeBytes: 60, UsedBytes: 30, MemoryKnown: true},
			nil},
		{"used given", `{"schema":"other/v1","devices":[{"total_bytes":100,"used_bytes":60}]}`,
			Device{TotalBytes: 100, FreeBytes: 40, UsedBytes: 60, MemoryKnown: true}, nil},
		{"unknown memory", `{"devices":[{"name":"x","memory_known":false}]}`, Device{Name: "x"}, nil},
		{"no total", `{"devices":[{"name":"x"}]}`, Device{Name: "x"}, nil},
		{"neither", `{"devices":[{"name":"x","total_bytes":100}]}`, Device{},
			[]string{`device number 0 of the list ("x")`, "neither free_bytes nor used_bytes"}},
		{"more free than there is", `{"devices":[{"total_bytes":100,"free_bytes":101}]}`, Device{},
			[]string{"cannot be"}},
		{"negative", `{"devices":[{"total_bytes":100,"free_bytes":10,"reserved_bytes":-1}]}`, Device{},
			[]string{"cannot be"}},
		{"known without total", `{"devices":[{"memory_known":true,"free_bytes":0,"used_bytes":0}]}`, Device{},
			[]string{"positive total"}},
		{"broken", "{\n  \"devices\": [,]\n}", Device{}, []string{"line 2, column 15", "expected is"}},
		{"wrong type", "{\"devices\": [\n{\"total_bytes\": \"80GB\"}]}", Device{}, []string{"line 2", "total_bytes"}},
		{"no list", `{}`, Device{}, []string{`no list "devices"`}},
		{"empty", ``, Device{}, []string{"unexpected end", "expected is"}},
		{"not UTF-8", "\xff\xfe", Device{}, []string{"line 1", "expected is"}},
		{"huge", strings.Repeat(" ", maxFileBytes+1), Device{}, []string{"more than 8 MiB"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "devices.json")
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := ReadFile(path)
			if tt.err == nil {
				if err != nil || !reflect.DeepEqual(got.Devices, []Device{tt.want}) {
					t.Errorf("%+v, %v; want %+v", got, err, tt.want)
				}
				return
			}
			for _, text := range append(tt.err, path) {
				if err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("error %v lacks %q", err, text)
				}
			}
		})
	}
	for _, path := range []string{t.TempDir(), filepath.Join(t.TempDir(), "missing")} {
		if _, err := ReadFile(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("error %v does not name %s", err, path)
		}
	}
}

func FuzzParseSnapshot(f *testing.F) {
	f.Add([]byte(`{"devices":[{"name":"x","total_bytes":100,"free_bytes":60}]}`))
	f.Add([]byte(`{"devices":[{"total_bytes":9223372036854775807,"reserved_bytes":-9223372036854775808,"used_bytes":1}]}`))
	f.Add([]byte(`{"devices":null}`))
	f.Add([]byte("[1,"))
	f.Fuzz(func(t *testing.T, data []byte) {
		snapshot, err := parseSnapshot(data)
		if err != nil {
			return
		}
		for _, d := range snapshot.Devices {
			if d.MemoryKnown && (d.TotalBytes <= 0 || d.FreeBytes < 0 || d.UsedBytes < 0 ||
				d.FreeBytes > d.TotalBytes) {
				t.Errorf("%s: accepted %+v", data, d)
			}
		}
	})
}
