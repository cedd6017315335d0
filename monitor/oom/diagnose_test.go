package oom

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const (
	gib = int64(1) << 30
	// full is a card filled by this process alone: no holes, nobody else.
	full = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 132.00 MiB. GPU 0 has a total capacity of " +
		"79.10 GiB of which 98.00 MiB is free. Including non-PyTorch memory, this process has 78.89 GiB memory in " +
		"use. Of the allocated memory 77.12 GiB is allocated by PyTorch, and 165.81 MiB is reserved by PyTorch " +
		"but unallocated.\n"
	// shared is a card of which another process holds half.
	shared = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 132.00 MiB. GPU 0 has a total capacity " +
		"of 79.10 GiB of which 98.00 MiB is free. Process 4242 has 40.00 GiB memory in use. Including non-PyTorch " +
		"memory, this process has 38.89 GiB memory in use. Of the allocated memory 37.12 GiB is allocated by " +
		"PyTorch, and 165.81 MiB is reserved by PyTorch but unallocated.\n"
	// holed is a card with ten times the request in holes.
	holed = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total " +
		"capacity of 79.10 GiB of which 98.00 MiB is free. Including non-PyTorch memory, this process has 78.89 GiB " +
		"memory in use. Of the allocated memory 67.12 GiB is allocated by PyTorch, and 10.20 GiB is reserved by " +
		"PyTorch but unallocated.\n"
	agentKilled = "E0325 20:57:27.620000 2606 torch/distributed/elastic/multiprocessing/api.py:869] failed " +
		"(exitcode: -9) local_rank: 5 (pid: 2630) of binary: /usr/bin/python\n"
	logitsFrame = "Traceback (most recent call last):\n  File \"/app/train.py\", line 9, in step\n    loss = " +
		"F.cross_entropy(logits, labels)\n"
)

// TestDiagnose: what facts of the run do to the same text; the expected causes are those of the contract's section 6.
func TestDiagnose(t *testing.T) {
	facts := func(change func(*Facts)) Facts {
		f := NoFacts()
		f.ExitCode = 1
		change(&f)
		return f
	}
	stage := func(s string) Facts { return facts(func(f *Facts) { f.Stage = s }) }
	none := func(*Facts) {}
	for _, c := range []struct {
		name, text string
		facts      Facts
		cause      Cause
		confidence string
	}{
		{"full card", full, facts(none), Capacity, high},
		{"shared card", shared, facts(none), OtherProcess, high},
		{"shared card, stage known", shared, stage("backward"), OtherProcess, high},
		{"holes", holed, facts(none), FragmentationCause, high},
		{"model load", full, stage("model-load"), ModelLoad, high},
		{"first step", full, stage("optimizer-init"), OptimizerInit, high},
		{"forward", full, stage("forward"), Activation, high},
		{"backward", full, stage("backward"), Activation, high},
		{"loss", logitsFrame + full, stage("forward"), LogitsLoss, high},
		{"later step", full, stage("optimizer-step"), Capacity, high},
		{"evaluation", full, stage("eval"), EvalGenerate, high},
		{"the probe beats the traceback", logitsFrame + full, stage("optimizer-init"), OptimizerInit, high},
		{"killed, counted", agentKilled, facts(func(f *Facts) { f.CgroupOOMKills = 1 }), HostOOMKill, high},
		{"killed, not known", agentKilled, facts(none), HostOOMKill, medium},
		{"killed, not counted", agentKilled, facts(func(f *Facts) { f.CgroupOOMKills = 0 }), HostOOMKill, low},
		{"killed, told by the launcher alone", "",
			facts(func(f *Facts) { f.Deaths = []RankDeath{{Rank: 2, ExitCode: -9}}; f.CgroupOOMKills = 3 }),
			HostOOMKill, high},
		{"exception", "ValueError: bad sample\n", facts(none), NotOOM, medium},
		{"caught", full, facts(func(f *Facts) { f.ExitCode = 0 }), NotOOM, medium},
		{"logged and caught, then another exception", "WARNING skipping batch: " + full + "ValueError: bad sample\n",
			facts(none), NotOOM, medium},
		{"allocator", "RuntimeError: CachingAllocator option max_split_size_mb too small, must be >= 20\n", facts(none),
			AllocatorConfigError, high},
	} {
		d := Diagnose(scanText(t, c.text), c.facts)
		if d.Cause != c.cause || d.Confidence != c.confidence {
			t.Errorf("%s: %s (%s), want %s (%s); %s", c.name, d.Cause, d.Confidence, c.cause, c.confidence, d.Summary)
		}
		if d.Schema != Schema || d.Summary == "" || d.Evidence == nil || d.OOMs == nil || d.Remedies == nil {
			t.Errorf("%s: incomplete: %+v", c.name, d)
		}
	}
}

// TestRemedyOrder: the general remedies of a full card, cheapest first, and what stands before them.
func TestRemedyOrder(t *testing.T) {
	ids := func(text string, f Facts) []string {
		var list []string
		for _, r := range Diagnose(scanText(t, text), f).Remedies {
			if r.Why == "" || r.How == "" {
				t.Errorf("%s: no why or no how", r.ID)
			}
			list = append(list, r.ID)
		}
		return list
	}
	general := []string{"amp", "fused-loss", "grad-accum", "checkpointing", "sharding", "optimizer-8bit", "offload",
		"model-parallel", "lora", "shorter-seq"}
	if got := ids(full, NoFacts()); !slices.Equal(got, general) {
		t.Errorf("full card: %v", got)
	}
	if got := ids(holed, NoFacts()); got[0] != "alloc-conf" {
		t.Errorf("holes: %v", got)
	}
	on := NoFacts()
	on.AllocConf = "expandable_segments:True"
	if got := ids(holed, on); slices.Contains(got, "alloc-conf") {
		t.Errorf("holes, already on: %v", got)
	}
	if got := ids(shared, NoFacts()); got[0] != "free-gpu" {
		t.Errorf("shared card: %v", got)
	}
	if got := ids(agentKilled, NoFacts()); !slices.Equal(got,
		[]string{"more-host-memory", "fewer-loader-workers", "low-cpu-mem"}) {
		t.Errorf("killed: %v", got)
	}
}

func TestFreeGPUNamesProcesses(t *testing.T) {
	why := Diagnose(scanText(t, shared), NoFacts()).Remedies[0].Why
	if !strings.Contains(why, "4242") || !strings.Contains(why, "40.00 GiB") {
		t.Errorf("got %q", why)
	}
}

// TestOldTorchIsNotToldToUseNewOptions: expandable segments end a torch before 2.1 at start.
func TestOldTorchIsNotToldToUseNewOptions(t *testing.T) {
	f := NoFacts()
	for version, want := range map[string]string{"2.0.1": "max_split_size_mb",
		"2.6.0": "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
		"2.9.1": "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"} {
		f.TorchVersion = version
		how := Diagnose(scanText(t, holed), f).Remedies[0].How
		if !strings.HasPrefix(how, "export ") || !strings.Contains(how, want) {
			t.Errorf("%s: %q", version, how)
		}
	}
}

func TestSimulatedIsSaid(t *testing.T) {
	f := NoFacts()
	f.Simulated = true
	if d := Diagnose(scanText(t, full), f); !d.Simulated || !strings.HasPrefix(d.Summary, "simulated: ") {
		t.Errorf("got %+v", d.Summary)
	}
}

// TestGrowth: a rise to the end is growth, one that levels off or is within the scatter is none.
func TestGrowth(t *testing.T) {
	for _, c := range []struct {
		name string
		at   func(i int) float64
		want Cause
	}{
		{"rising", func(i int) float64 { return 20 + float64(i)/10 }, LeakGrowth},
		{"level", func(i int) float64 { return min(60, 20+float64(i)) }, Capacity},
		{"flat", func(i int) float64 { return 60 + float64(i%3) }, Capacity},
	} {
		var b strings.Builder
		for i := range 1000 {
			fmt.Fprintf(&b, "step %d gpu_mem %.2fGB\n", i, c.at(i))
		}
		if d := Diagnose(scanText(t, b.String()+full), NoFacts()); d.Cause != c.want {
			t.Errorf("%s: %s, want %s", c.name, d.Cause, c.want)
		}
	}
}

// TestRulesEnd: every cause of the table has a sentence, and the last rule always holds.
func TestRulesEnd(t *testing.T) {
	all := rules()
	for _, r := range all {
		if sentences[r.cause] == "" || !isOneOf(r.confidence, []string{high, medium, low}) {
			t.Errorf("rule %q is incomplete", r.name)
		}
	}
	if !all[len(all)-1].holds(newInquest(&Log{}, NoFacts())) {
		t.Error("the last rule does not hold for an empty log")
	}
	if size(3*gib/2) != "1.50 GiB" || size(1<<20) != "1024.00 KiB" || size(Unknown) != "an unknown amount" {
		t.Error("sizes are not printed as PyTorch prints them")
	}
}

// TestSummaries: what is not known is not claimed.
func TestSummaries(t *testing.T) {
	for _, c := range []struct{ text, has, hasNot string }{
		{"", "the log is empty", ""},
		{"RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED\n", "could not be started", "found no room"},
		{"RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED\n", "found no room", ""},
		{"max mem: 9210\nmax mem: 12731\nmax mem: 16299\nmax mem: 19822\nmax mem: 23310\n",
			"how the run ended is not in it", "until the GPU was full"},
	} {
		if d := Diagnose(scanText(t, c.text), NoFacts()); !strings.Contains(d.Summary, c.has) ||
			c.hasNot != "" && strings.Contains(d.Summary, c.hasNot) {
			t.Errorf("%q: %s", c.text, d.Summary)
		}
	}
	d := Diagnose(scanText(t, "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0.\nsrun: error: node3: "+
		"task 1: Out Of Memory\n"), NoFacts())
	for _, line := range d.Evidence {
		if strings.Contains(line, "whether the kernel did it") {
			t.Errorf("the log says who did it: %v", d.Evidence)
		}
	}
}

// TestNoEvidence: that no memory ran out is said only where another cause shows; where nothing does, the cause is
// unknown and nothing is sure.
func TestNoEvidence(t *testing.T) {
	table := "failed (exitcode: %s) local_rank: 0 (pid: 14346) of binary: /usr/bin/python\n"
	code := func(n string) string { return strings.ReplaceAll(table, "%s", n) }
	for _, tt := range []struct {
		name, text string
		exit       int
		deaths     []int
		want       Cause
	}{
		{"nothing", "", -1, nil, NoCause},
		{"blank lines", "\n\n", -1, nil, NoCause},
		{"a script", "#!/bin/sh\ntorchrun train.py\n", -1, nil, NoCause},
		{"steps", "step 1 loss 2\nstep 2 loss 1\n", -1, nil, NoCause},
		{"the command's status alone", "", 1, nil, NoCause},
		{"another status alone", "", 77, nil, NoCause},
		{"a rank's status alone", "", 1, []int{1}, NoCause},
		{"ABRT alone, which C++ gives to any exception", "", 134, []int{-6}, NoCause},
		{"status 1 in the launcher's table", code("1"), -1, nil, NoCause},
		{"an exception", "ValueError: bad\n", -1, nil, NotOOM},
		{"a segmentation fault", code("-11"), -1, nil, NotOOM},
		{"a segmentation fault, seen", "", 139, []int{-11}, NotOOM},
		{"a command that is not there", "", 127, []int{127}, NotOOM},
		{"a request to end", code("-15"), -1, nil, NotOOM},
		{"a good end", "", 0, nil, NotOOM},
	} {
		f := NoFacts()
		f.ExitCode = tt.exit
		for i, c := range tt.deaths {
			f.Deaths = append(f.Deaths, RankDeath{Rank: i, ExitCode: c})
		}
		d := Diagnose(scanText(t, tt.text), f)
		if d.Cause != tt.want || d.Cause == NoCause &&
			(d.Confidence != low || strings.Contains(d.Summary, "did not run out")) {
			t.Errorf("%s: %s (%s): %s", tt.name, d.Cause, d.Confidence, d.Summary)
		}
	}
}
