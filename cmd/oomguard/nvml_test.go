package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"oomguard/checklists"
	"oomguard/monitor/gpu/fakenvml"
)

const mib = int64(1) << 20

// h100 is one GPU of the fake machine, with the totals of a real one (nvidia-smi of an H100 80GB HBM3: 81559 MiB, 551
// reserved).
func h100(index int, usedBytes int64, processes ...fakenvml.Process) fakenvml.Device {
	return fakenvml.Device{
		Name: "NVIDIA H100 80GB HBM3", UUID: fmt.Sprintf("GPU-00000000-0000-0000-0000-00000000000%d", index),
		PCIBusID: fmt.Sprintf("00000000:0%d:00.0", index+1), TotalBytes: 81559 * mib, ReservedBytes: 551 * mib,
		UsedBytes: usedBytes,
		Major:     9, Processes: processes,
	}
}

// onFakeMachine makes a bench whose NVML shows the scenario, with a stub named torchrun that leaves a trace when it is
// started.
func onFakeMachine(t *testing.T, s fakenvml.Scenario) *bench {
	t.Helper()
	b := newBench(t)
	scenario := filepath.Join(b.dir, "scenario")
	if err := s.WriteFile(scenario); err != nil {
		t.Fatal(err)
	}
	stub := filepath.Join(b.dir, "bin", "torchrun")
	if err := os.MkdirAll(filepath.Dir(stub), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(stub, []byte("#!/bin/sh\ntouch started\nsleep 1\necho done\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.write("train.py", "")
	for i, kv := range b.env {
		if path, ok := strings.CutPrefix(kv, "PATH="); ok {
			b.env[i] = "PATH=" + filepath.Dir(stub) + ":" + path
		}
	}
	b.env = append(b.env, "LD_LIBRARY_PATH="+fakenvml.Build(t), fakenvml.ScenarioVariable+"="+scenario,
		"GORACE=atexit_sleep_ms=0")
	return b
}

// theJob needs 62 GB and something on each of two GPUs: 3e9 parameters x 16 bytes, 4 of them again in DDP's buckets, 10
// GB pinned.
func (b *bench) theJob(flags ...string) result {
	args := append([]string{b.exe, "run", "--params", "2.5e9", "--precision", "fp32", "--optimizer", "adamw_fused",
		"--method", "full", "--sharding", "ddp", "--activations", "10GB"}, flags...)
	return b.run(append(args, "--", "torchrun", "--nproc-per-node=2", "train.py")...)
}

// TestHalfFullGPU: the whole of run against NVML with two devices, one of them half full: refused with 122, nothing
// started, and a message that names GPU, found, needed and remedy.
func TestHalfFullGPU(t *testing.T) {
	other := fakenvml.Process{PID: 1, UsedBytes: 40000 * mib}
	b := onFakeMachine(t, fakenvml.Scenario{Driver: "580.95.05", CUDA: 13000,
		Devices: []fakenvml.Device{h100(0, 10*mib), h100(1, 40010*mib, other)}})
	r := b.theJob()
	t.Logf("stderr:\n%s", r.stderr)
	if r.status != 122 {
		t.Errorf("status %d, want 122", r.status)
	}
	if _, err := os.Stat(filepath.Join(b.dir, "started")); err == nil {
		t.Error("the command was started")
	}
	for _, want := range []string{
		"GPU 1 (NVIDIA H100 80GB HBM3)", // which
		"40.04 GiB free",                // found: 81559 - 551 - 40010 MiB
		"needed",                        // needed
		"CUDA_VISIBLE_DEVICES",          // remedy
		"--waive gpu-memory-free",
	} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("stderr lacks %q", want)
		}
	}
	doc := b.theRun()
	if !doc.Refused || doc.Outcome != checklists.Fail || doc.Exit != nil {
		t.Errorf("recorded: refused %v, outcome %s, exit %+v", doc.Refused, doc.Outcome, doc.Exit)
	}
}

// TestWaivedAndWatched: the same machine with the check waived: the command runs, and both devices are in the report.
func TestWaivedAndWatched(t *testing.T) {
	b := onFakeMachine(t, fakenvml.Scenario{Driver: "580.95.05", CUDA: 13000,
		Devices: []fakenvml.Device{h100(0, 10*mib), h100(1, 40010*mib)}})
	r := b.theJob("--waive", "gpu-memory-free", "--interval", "100ms")
	if r.status != 0 || r.stdout != "done\n" {
		t.Fatalf("status %d, stdout %q\n%s", r.status, r.stdout, r.stderr)
	}
	doc := b.theRun()
	if len(doc.Recording.Devices) != 2 || doc.Recording.Devices[1].PeakUsedBytes != 40010*mib ||
		doc.Recording.Devices[1].Samples < 2 {
		t.Errorf("devices %+v", doc.Recording.Devices)
	}
	if len(doc.Exit.Survivors) != 0 {
		t.Errorf("our own helper counts as left over: %+v", doc.Exit.Survivors)
	}
	if !strings.Contains(r.stderr, "GPUs as NVML saw them") {
		t.Errorf("the report lacks the devices:\n%s", r.stderr)
	}
}

// TestNVMLTrouble: whatever NVML does, the outcome is a skip or a failed check with its reason, never a death of ours.
func TestNVMLTrouble(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fault fakenvml.Fault
		want  string
	}{
		{"driver newer than the library", fakenvml.Fault{Function: "nvmlInit_v2", Device: fakenvml.All, Code: 18},
			"reboot"},
		{"crash", fakenvml.Fault{Function: "nvmlDeviceGetCount_v2", Device: fakenvml.All, Crash: true},
			"nvmlDeviceGetCount_v2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := onFakeMachine(t, fakenvml.Scenario{Driver: "580.95.05", CUDA: 13000,
				Devices: []fakenvml.Device{h100(0, 0)}, Faults: []fakenvml.Fault{tt.fault}})
			r := b.theJob()
			if r.status != 122 || !strings.Contains(r.stderr, "FAIL  nvml-available") ||
				!strings.Contains(r.stderr, tt.want) {
				t.Errorf("status %d, stderr lacks %q:\n%s", r.status, tt.want, r.stderr)
			}
			r = b.theJob("--waive", "nvml-available")
			if r.status != 0 || r.stdout != "done\n" {
				t.Errorf("waived: status %d, stdout %q\n%s", r.status, r.stdout, r.stderr)
			}
		})
	}
}

// TestHangingNVML: a driver that does not answer costs the helper's patience, not the run: a failed check that says so,
// and with it waived the command runs and ends as always.
func TestHangingNVML(t *testing.T) {
	b := onFakeMachine(t, fakenvml.Scenario{
		Driver: "580.95.05", CUDA: 13000, Devices: []fakenvml.Device{h100(0, 0)},
		Faults: []fakenvml.Fault{{Function: "nvmlDeviceGetMemoryInfo_v2", Device: 0, Hang: true}},
	})
	r := b.theJob("--waive", "nvml-available")
	if r.status != 0 || r.stdout != "done\n" || !strings.Contains(r.stderr, "waived  nvml-available") ||
		!strings.Contains(r.stderr, "did not answer") {
		t.Errorf("status %d, stdout %q\n%s", r.status, r.stdout, r.stderr)
	}
}
