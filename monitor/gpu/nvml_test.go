//go:build linux && cgo

package gpu

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"oomguard/monitor/gpu/fakenvml"
)

// nvidia-smi's total of an H100 80GB HBM3; a reserve of 551 MiB was seen with the newest driver
const h100Total = 81559 * mib

// twoGPUs is a machine with one H100 that is idle and one that is half full: a process of ours, and a stranger whose
// memory is not told.
func twoGPUs() fakenvml.Scenario {
	return fakenvml.Scenario{Driver: "580.95.05", CUDA: 12080, Devices: []fakenvml.Device{
		{Name: "NVIDIA H100 80GB HBM3", UUID: "GPU-aaaa0000-1111-2222-3333-444455556666", PCIBusID: "00000000:04:00.0",
			TotalBytes: h100Total, ReservedBytes: 551 * mib, Major: 9},
		{Name: "NVIDIA H100 80GB HBM3", UUID: "GPU-bbbb0000-1111-2222-3333-444455556666", PCIBusID: "00000000:05:00.0",
			TotalBytes: h100Total, ReservedBytes: 551 * mib, Major: 9,
			UsedBytes: 40000 * mib, ComputeMode: 3,
			Processes: []fakenvml.Process{
				{PID: os.Getpid(), UsedBytes: 39000 * mib},
				{PID: os.Getpid(), UsedBytes: 39500 * mib, Kind: "graphics"},
				{PID: pidLimit - 1, Unknown: true},
				{PID: os.Getpid(), UsedBytes: 1, Kind: "mps"},
			}},
	}}
}

// snapshot asks a helper on the machine once.
func (m machine) snapshot() Snapshot {
	m.tb.Helper()
	snapshot, err := m.open(HelperOptions{}).Snapshot(m.tb.Context())
	if err != nil {
		m.tb.Fatal(err)
	}
	return snapshot
}

func TestTwoGPUs(t *testing.T) {
	got := newMachine(t, twoGPUs()).snapshot()
	if got.Driver != "580.95.05" || got.CUDA != "12.8" || got.Time.IsZero() || len(got.Devices) != 2 {
		t.Fatalf("snapshot %+v", got)
	}
	idle, busy := got.Devices[0], got.Devices[1]
	want := Device{
		Index: 0, UUID: "GPU-aaaa0000-1111-2222-3333-444455556666", Name: "NVIDIA H100 80GB HBM3",
		PCIBusID:          "00000000:04:00.0",
		ComputeCapability: "9.0", ComputeMode: "default", TotalBytes: h100Total, FreeBytes: h100Total - 551*mib,
		ReservedBytes: 551 * mib,
		MemoryKnown:   true, ProcessesKnown: true,
	}
	want.Note = idle.Note // depends on the PID namespace of the test
	if !reflect.DeepEqual(idle, want) {
		t.Errorf("idle GPU\n%+v, want\n%+v", idle, want)
	}
	if busy.Index != 1 || busy.UsedBytes != 40000*mib || busy.FreeBytes != h100Total-40551*mib ||
		busy.ComputeMode != "exclusive-process" {
		t.Errorf("busy GPU %+v", busy)
	}
	wantProcesses := []Process{{PID: os.Getpid(), UsedBytes: 39500 * mib, Known: true}, {PID: pidLimit - 1}}
	if inHostPIDNamespace() {
		wantProcesses[0].Name = processName(os.Getpid())
	} else if !strings.Contains(busy.Note, "the host's PIDs") {
		t.Errorf("in a container the note is %q", busy.Note)
	}
	if !reflect.DeepEqual(busy.Processes, wantProcesses) {
		t.Errorf("processes %+v, want %+v", busy.Processes, wantProcesses)
	}
}

func TestOldLibrary(t *testing.T) {
	got := newMachine(t, twoGPUs(), "NO_nvmlDeviceGetMemoryInfo_v2",
		"NO_nvmlDeviceGetComputeRunningProcesses_v3").snapshot().Devices[1]
	if !got.MemoryKnown || got.UsedBytes != 40551*mib || got.ReservedBytes != 0 ||
		got.FreeBytes != h100Total-40551*mib {
		t.Errorf("version 1 counts the reserve as used, but: %+v", got)
	}
	if got.ProcessesKnown || !strings.Contains(got.Note, "the driver's reserve is not known") ||
		!strings.Contains(got.Note, "NVML code 13") {
		t.Errorf("processes known %v, note %q", got.ProcessesKnown, got.Note)
	}
}

func TestWideProcessList(t *testing.T) {
	got := newMachine(t, twoGPUs(), "WIDE_PROCESS_INFO").snapshot().Devices[1]
	if got.ProcessesKnown || !got.MemoryKnown || !strings.Contains(got.Note, "cannot be read safely") {
		t.Errorf("%+v", got)
	}
}

func TestLibraryWithoutInit(t *testing.T) {
	_, err := newMachine(t, twoGPUs(), "NO_nvmlInit_v2").open(HelperOptions{}).Snapshot(t.Context())
	wantText(t, err, "has no nvmlInit")
}

func TestStartErrors(t *testing.T) {
	m := newMachine(t, twoGPUs())
	for _, tt := range []struct {
		code     int
		noDriver bool
		want     []string
	}{
		{9, true, []string{"the NVIDIA driver is not loaded (NVML code 9)", "modprobe nvidia"}},
		{18, false, []string{"different versions", "NVML code 18", "reboot"}},
		{4, false, []string{"no permission", "/dev/nvidia*"}},
		{999, false, []string{"container has lost its access", "start the container again"}},
		{77, false, []string{"does not know (NVML code 77)"}},
	} {
		s := twoGPUs()
		s.Faults = []fakenvml.Fault{{Function: "nvmlInit_v2", Device: fakenvml.All, Code: tt.code}}
		m.becomes(s)
		h := m.open(HelperOptions{})
		_, err := h.Snapshot(t.Context())
		wantText(t, err, append(tt.want, "start NVML")...)
		if errors.Is(err, ErrNoDriver) != tt.noDriver {
			t.Errorf("code %d: ErrNoDriver is %v, want %v", tt.code, !tt.noDriver, tt.noDriver)
		}
		m.becomes(twoGPUs()) // the driver is loaded meanwhile: the same helper finds it
		if _, err := h.Snapshot(t.Context()); err != nil {
			t.Errorf("after code %d is gone: %v", tt.code, err)
		}
	}
}

func TestOneGPUFails(t *testing.T) {
	for function, what := range map[string]string{
		"nvmlDeviceGetHandleByIndex_v2": "open the GPU",
		"nvmlDeviceGetMemoryInfo_v2":    "read its memory",
	} {
		t.Run(function, func(t *testing.T) {
			lost := twoGPUs()
			lost.Faults = []fakenvml.Fault{{Function: function, Device: 0, Code: 15}}
			m := newMachine(t, lost)
			h := m.open(HelperOptions{})
			snapshot, err := h.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			first, second := snapshot.Devices[0], snapshot.Devices[1]
			if first.MemoryKnown || first.TotalBytes != 0 || first.ProcessesKnown ||
				!strings.Contains(first.Note, what+": the GPU has fallen off the bus") {
				t.Errorf("lost GPU %+v", first)
			}
			if !second.MemoryKnown || second.UsedBytes != 40000*mib || !second.ProcessesKnown {
				t.Errorf("the other GPU %+v", second)
			}
			m.becomes(twoGPUs())
			if snapshot, err = h.Snapshot(t.Context()); err != nil || !snapshot.Devices[0].MemoryKnown ||
				snapshot.Devices[0].UUID == "" {
				t.Errorf("after it came back: %+v, %v", snapshot, err)
			}
		})
	}
}

func TestImpossibleFigures(t *testing.T) {
	s := twoGPUs()
	s.Devices[0].Processes = []fakenvml.Process{{PID: 1 << 22, UsedBytes: 1}}
	s.Devices[1].Processes = []fakenvml.Process{{PID: 5, UsedBytes: h100Total + 1}}
	s.Devices = append(s.Devices, fakenvml.Device{Name: "NVIDIA H100 80GB HBM3"},
		fakenvml.Device{Name: "x", TotalBytes: 5, UsedBytes: 6})
	devices := newMachine(t, s).snapshot().Devices
	for _, d := range devices[:2] {
		if d.ProcessesKnown || len(d.Processes) > 0 || !d.MemoryKnown || !strings.Contains(d.Note, "dropped") {
			t.Errorf("an impossible process: %+v", d)
		}
	}
	for _, d := range devices[2:] {
		if d.MemoryKnown || !strings.Contains(d.Note, "figures that cannot be") {
			t.Errorf("impossible memory: %+v", d)
		}
	}
}

func TestUnifiedMemory(t *testing.T) {
	s := fakenvml.Scenario{Devices: []fakenvml.Device{{Name: "NVIDIA GB10", Major: 12, Minor: 1},
		{Name: "NVIDIA H100 PCIe"}}}
	s.Faults = []fakenvml.Fault{{Function: "nvmlDeviceGetMemoryInfo_v2", Device: fakenvml.All, Code: 3},
		{Function: "nvmlDeviceGetMemoryInfo", Device: fakenvml.All, Code: 3}}
	devices := newMachine(t, s).snapshot().Devices
	total, _, err := hostMemory()
	if err != nil {
		t.Fatal(err)
	}
	if d := devices[0]; !d.Unified || !d.MemoryKnown || d.TotalBytes != total || d.FreeBytes <= 0 ||
		d.UsedBytes != total-d.FreeBytes {
		t.Errorf("GB10 %+v", d)
	}
	if d := devices[1]; d.Unified || d.MemoryKnown || !strings.Contains(d.Note, "does not support") {
		t.Errorf("a card with memory of its own must not take the host's: %+v", d)
	}
}

func TestMIG(t *testing.T) {
	s := twoGPUs()
	s.Devices[0].MIG = []fakenvml.Device{
		{Name: "NVIDIA H100 80GB HBM3 MIG 3g.40gb", UUID: "MIG-1", TotalBytes: 40448 * mib, UsedBytes: 100 * mib},
		{Name: "NVIDIA H100 80GB HBM3 MIG 1g.10gb", UUID: "MIG-2", TotalBytes: 9984 * mib},
	}
	devices := newMachine(t, s).snapshot().Devices
	if len(devices) != 3 {
		t.Fatalf("%d devices, want two MIG devices in place of the first GPU, and the second: %+v", len(devices),
			devices)
	}
	for i, uuid := range []string{"MIG-1", "MIG-2"} {
		if d := devices[i]; !d.MIG || d.UUID != uuid || d.Index != 0 || !d.MemoryKnown ||
			d.ComputeCapability != "9.0" || d.PCIBusID != "00000000:04:00.0" {
			t.Errorf("MIG device %+v", d)
		}
	}
	if d := devices[2]; d.MIG || d.Index != 1 {
		t.Errorf("full GPU %+v", d)
	}
}

// The list of processes is asked for again when memory has changed, or after a while.
func TestProcessListIsKept(t *testing.T) {
	calls := 0
	handle := &countingDevice{asked: &calls}
	c := &clock{time.Unix(1e9, 0)}
	s := &nvmlSource{symbols: map[string]bool{
		"nvmlDeviceGetConfComputeMemSizeInfo": false, "nvmlDeviceGetComputeRunningProcesses_v3": true,
		"nvmlDeviceGetGraphicsRunningProcesses_v3": false, "nvmlDeviceGetGraphicsRunningProcesses_v2": false,
		"nvmlDeviceGetGraphicsRunningProcesses":      false,
		"nvmlDeviceGetMPSComputeRunningProcesses_v3": false, "nvmlDeviceGetMPSComputeRunningProcesses_v2": false,
		"nvmlDeviceGetMPSComputeRunningProcesses": false,
	}, now: c.now}
	u := &unit{handle: handle}
	for _, step := range []struct {
		usedBytes int64
		later     time.Duration
		calls     int
	}{{0, 0, 1}, {0, listInterval - 1, 1}, {5, 0, 2}, {5, listInterval - 1, 2}, {5, 1, 3}} {
		c.time = c.time.Add(step.later)
		d := Device{UsedBytes: step.usedBytes}
		s.readProcesses(u, &d)
		if calls != step.calls || !d.ProcessesKnown {
			t.Errorf("%+v: asked %d times, known %v", step, calls, d.ProcessesKnown)
		}
	}
}

// countingDevice answers one question only.
type countingDevice struct {
	nvml.Device
	asked *int
}

func (d *countingDevice) GetComputeRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	*d.asked++
	return nil, nvml.SUCCESS
}

func TestMeanings(t *testing.T) {
	for code, m := range meanings() {
		if m.found == "" || m.remedy == "" && code != nvml.ERROR_NOT_SUPPORTED {
			t.Errorf("code %d: %+v lacks what was found or what to do", code, m)
		}
	}
}

func TestParseMeminfo(t *testing.T) {
	for _, tt := range []struct {
		text             string
		total, available int64
	}{
		{"MemTotal:       128 kB\nMemFree: 1 kB\nMemAvailable:   64 kB\n", 128 << 10, 64 << 10},
		{"MemTotal: 128 kB\n", 0, 0},
		{"MemTotal: 1 kB\nMemAvailable: 2 kB\n", 0, 0},
		{"MemTotal: 99999999999999999999 kB\nMemAvailable: x\nMemTotal:", 0, 0},
		{"", 0, 0},
	} {
		total, available, err := parseMeminfo([]byte(tt.text))
		if total != tt.total || available != tt.available || (err == nil) != (tt.total > 0) {
			t.Errorf("%q: %d, %d, %v", tt.text, total, available, err)
		}
	}
}

// BenchmarkSnapshot is the price of one sample of 8 GPUs: both processes, the pipe and the JSON, without the driver's
// own work.
func BenchmarkSnapshot(b *testing.B) {
	s := twoGPUs()
	for len(s.Devices) < 8 {
		s.Devices = append(s.Devices, s.Devices[1])
	}
	h := newMachine(b, s).open(HelperOptions{})
	for b.Loop() {
		if _, err := h.Snapshot(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
