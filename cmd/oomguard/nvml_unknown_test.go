//go:build linux && cgo

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"oomguard/checklists"
	"oomguard/monitor/gpu"
	"oomguard/monitor/gpu/fakenvml"
	"oomguard/preflight"
	"oomguard/preflight/estimate"
	"oomguard/preflight/job"
)

// quantity is what one NVML function tells, and the checks that rest on it.
type quantity struct {
	functions []string
	checks    []string
	optional  bool // without it nothing is unknown
}

// TestUnknownQuantities: each question to NVML fails in each way on each GPU. A lost GPU fails nvml-available and
// nothing else refuses; no check passes that rests on what was not read, and each says why.
func TestUnknownQuantities(t *testing.T) {
	quantities := []quantity{
		{functions: []string{"nvmlDeviceGetHandleByIndex_v2"},
			checks: []string{"nvml-available", "gpu-memory-free", "headroom", "other-processes", "compute-mode"}},
		{functions: []string{"nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo"},
			checks: []string{"gpu-memory-free", "headroom", "other-processes"}},
		{functions: []string{"nvmlDeviceGetComputeMode"}, checks: []string{"compute-mode"}},
		{functions: []string{"nvmlDeviceGetComputeRunningProcesses_v3"}, checks: []string{"other-processes"}},
		{functions: []string{"nvmlDeviceGetGraphicsRunningProcesses_v3"}, optional: true},
		{functions: []string{"nvmlDeviceGetMigMode"}, optional: true},
		{functions: []string{"nvmlDeviceGetUUID"}, optional: true},
		{functions: []string{"nvmlDeviceGetName"}, optional: true},
		{functions: []string{"nvmlDeviceGetPciInfo_v3"}, optional: true},
	}
	m := newFakeMachine(t)
	const used = 5000 * mib // more than other-processes tolerates
	for _, q := range quantities {
		for _, code := range []int{2, 3, 4, 15, 16, 77, 999} {
			for device := range 2 {
				s := fakenvml.Scenario{Driver: "580.95.05", CUDA: 13000,
					Devices: []fakenvml.Device{h100(0, used), h100(1, used)}}
				for _, function := range q.functions {
					s.Faults = append(s.Faults, fakenvml.Fault{Function: function, Device: device, Code: code})
				}
				judged := m.judge(t, s)
				name, reason := fmt.Sprintf("%s code %d on GPU %d", q.functions[0], code, device),
					fmt.Sprintf("NVML code %d", code)
				if code == 15 || code == 16 {
					if v := judged["nvml-available"]; v.Status != checklists.Fail ||
						!strings.Contains(v.Detail, reason) ||
						!strings.Contains(v.Detail, fmt.Sprintf("GPU %d", device)) {
						t.Errorf("%s: nvml-available is %+v", name, v)
					}
					continue
				}
				for id, v := range judged {
					switch rests := slices.Contains(q.checks, id); {
					case v.Status == checklists.Fail:
						t.Errorf("%s: %s refuses: %s", name, id, v.Detail)
					case rests && (v.Status == checklists.Pass || !strings.Contains(v.Detail, reason)):
						t.Errorf("%s: %s is %s without the reason: %s", name, id, v.Status, v.Detail)
					}
				}
			}
		}
	}
}

// TestImpossibleMemory: figures that cannot be are unknown, and the words hold them.
func TestImpossibleMemory(t *testing.T) {
	m := newFakeMachine(t)
	for _, d := range []fakenvml.Device{
		{TotalBytes: 5, UsedBytes: 6}, {TotalBytes: 0}, {TotalBytes: -1}, {TotalBytes: 5, ReservedBytes: 6},
		{TotalBytes: 80 << 30, UsedBytes: -7}, {TotalBytes: 80 << 30, UsedBytes: 1 << 62},
	} {
		whole := h100(1, 0)
		whole.TotalBytes, whole.UsedBytes, whole.ReservedBytes = d.TotalBytes, d.UsedBytes, d.ReservedBytes
		judged := m.judge(t, fakenvml.Scenario{Devices: []fakenvml.Device{h100(0, 0), whole}})
		for _, id := range []string{"gpu-memory-free", "headroom", "other-processes"} {
			if v := judged[id]; v.Status == checklists.Pass || v.Status == checklists.Fail ||
				!strings.Contains(v.Detail, fmt.Sprintf("total %d,", uint64(d.TotalBytes))) {
				t.Errorf("%+v: %s is %+v", d, id, v)
			}
		}
	}
}

// TestProcessListAlone: when nothing but the list of processes hangs or crashes the helper, memory is known and nothing
// refuses.
func TestProcessListAlone(t *testing.T) {
	for _, fault := range []fakenvml.Fault{{Hang: true}, {Crash: true}} {
		fault.Function, fault.Device = "nvmlDeviceGetComputeRunningProcesses_v3", 1
		b := onFakeMachine(t, fakenvml.Scenario{Driver: "580.95.05", CUDA: 13000,
			Devices: []fakenvml.Device{h100(0, 10*mib), h100(1, 10*mib)}, Faults: []fakenvml.Fault{fault}})
		r := b.theJob()
		if r.status != 0 || r.stdout != "done\n" || strings.Contains(r.stderr, "FAIL") {
			t.Errorf("%+v: status %d, stdout %q\n%s", fault, r.status, r.stdout, r.stderr)
		}
	}
}

// fakeMachine is a machine whose GPUs only NVML's helper sees.
type fakeMachine struct {
	exe, scenario string
	env           []string
}

func newFakeMachine(t *testing.T) fakeMachine {
	t.Helper()
	m := fakeMachine{exe: program(t), scenario: filepath.Join(t.TempDir(), "scenario")}
	m.env = append(os.Environ(), "LD_LIBRARY_PATH="+fakenvml.Build(t), fakenvml.ScenarioVariable+"="+m.scenario,
		"GORACE=atexit_sleep_ms=0")
	return m
}

// judge asks NVML as run does, and judges every check about GPUs for a job of two ranks.
func (m fakeMachine) judge(t *testing.T, s fakenvml.Scenario) map[string]checklists.Verdict {
	t.Helper()
	if err := s.WriteFile(m.scenario); err != nil {
		t.Fatal(err)
	}
	source, err := gpu.OpenHelper([]string{m.exe, nvmlWord}, gpu.HelperOptions{Env: m.env})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	snap, err := source.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	high := int64(9 << 30)
	facts := preflight.Facts{
		Mode: preflight.ModeRun, Units: preflight.IEC, Devices: plainDevices(snap.Devices), Env: map[string]string{},
		Job: &job.Job{NProc: job.Setting[int]{Value: 2, Known: true}},
		Estimate: &estimate.Estimate{GPU: estimateGPU(snap),
			PerGPU: estimate.PerGPU{DeviceBytes: 8 << 30, HighBytes: &high}},
	}
	judged := map[string]checklists.Verdict{}
	for _, c := range preflight.Checks() {
		if slices.Contains([]string{"nvml-available", "gpu-memory-free", "headroom", "other-processes", "compute-mode",
			"gpu-count"}, c.ID) {
			judged[c.ID] = c.Judge(facts, c.Defaults)
		}
	}
	return judged
}

func estimateGPU(snap gpu.Snapshot) estimate.GPUSize {
	h := deviceHardware(snap.Devices, 2)
	return estimate.GPUSize{Name: h.Name, Kind: h.Kind, Count: h.Count, TotalBytes: h.TotalBytes}
}
