package probe

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// bothWays runs a Python script without and with the probe, as the only rank. The modules of testdata/site can be
// imported.
func bothWays(t *testing.T, args ...string) pair {
	t.Helper()
	dir := newRun(t)
	base := rankEnv("PYTHONPATH="+testSite(t), "PYTHONDONTWRITEBYTECODE=1", "PYTHONHASHSEED=0", "CUDA_VISIBLE_DEVICES=")
	command := append([]string{testPython(t)}, args...)
	both := pair{without: python(t, base, command...), with: python(t, Env(base, dir), command...)}
	if events := ofKind(onlyFile(t, dir), "note"); len(events) != 0 {
		t.Errorf("the probe complains: %+v", events)
	}
	return both
}

// TestFrames: no traceback, log line, warning or stack depth that a script can print tells of the probe.
func TestFrames(t *testing.T) {
	t.Parallel()
	both := bothWays(t, filepath.Join("testdata", "frames.py"), t.TempDir())
	wantSame(t, both)
	if !strings.Contains(both.with.stderr, "backward fails") || strings.Count(both.with.stdout, "ERROR") < 20 {
		t.Errorf("the script did not do what it should:\n%s%s", both.with.stdout, both.with.stderr)
	}
}

// TestOtherProcesses: what is watched can be handed to other processes.
func TestOtherProcesses(t *testing.T) {
	t.Parallel()
	both := bothWays(t, filepath.Join("testdata", "pickles.py"), t.TempDir())
	wantSame(t, both)
	if both.without.code != 0 {
		t.Errorf("the script fails by itself: %s", both.without.stderr)
	}
}

// TestCompiled: torch.compile makes the same graphs of what calls the functions that are watched.
func TestCompiled(t *testing.T) {
	t.Parallel()
	both := bothWays(t, filepath.Join("testdata", "compiled.py"), t.TempDir())
	wantSame(t, both)
	if both.without.code != 0 {
		t.Errorf("the script fails by itself: %s", both.without.stderr)
	}
}

// replaced are the only names that stand for another object when the probe is there, all private: C functions of the
// allocator whose peaks it resets, the autograd engine, and, where resident memory is measured, the reader of its peak.
var replaced = []string{
	"resource:getrusage", "torch._C:_accelerator_getDeviceStats", "torch._C:_accelerator_resetPeakStats",
	"torch._C:_cuda_memoryStats",
	"torch._C:_cuda_resetPeakMemoryStats", "torch.autograd.variable:Variable._execution_engine",
}

// TestEverythingStaysWhatItIs compares all names of all modules, finds those that the probe has changed, and asks
// pickle, inspect, copy, typing, multiprocessing and others about each of them, without and with the probe.
func TestEverythingStaysWhatItIs(t *testing.T) {
	t.Parallel()
	script := filepath.Join("testdata", "identity.py")
	both := bothWays(t, script, "names")
	if both.with.code != 0 || both.without.code != 0 {
		t.Fatalf("%+v", both)
	}
	watched := []string{"judge"}
	for _, line := range differing(both.without.stdout, both.with.stdout) {
		name := strings.Fields(line)[1]
		if !slices.Contains(replaced, name) && !slices.Contains(watched, name) {
			watched = append(watched, name)
		}
	}
	for _, name := range []string{"torch:load", "torch:save", "safetensors.torch:save_file",
		"torch.nn.modules.module:Module.eval"} {
		if !slices.Contains(watched, name) {
			t.Errorf("%s is not watched; found %v", name, watched)
		}
	}
	if len(watched) > 40 {
		t.Fatalf("%d names differ: %v", len(watched), watched[:40])
	}
	wantSame(t, bothWays(t, append([]string{script}, watched...)...))
}
