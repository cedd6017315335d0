package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"oomguard/launcher"
	"oomguard/monitor"
	"oomguard/monitor/gpu"
	"oomguard/monitor/oom"
	"oomguard/monitor/report"
	"oomguard/preflight"
	"oomguard/preflight/estimate"
	"oomguard/preflight/job"
	"oomguard/preflight/model"
)

// anInput is a Llama of 0.3 B parameters on one GPU.
func anInput(t *testing.T, total int64, flags map[string]string) *estimate.Input {
	t.Helper()
	arch, err := model.Parse([]byte(`{"model_type":"llama","hidden_size":1024,"num_hidden_layers":16,"num_attention_heads":16,"intermediate_size":4096,"vocab_size":32000}`), "config.json")
	if err != nil {
		t.Fatal(err)
	}
	given := map[string]string{
		"precision": "fp32", "optimizer": "adamw", "micro-batch": "32", "seq-len": "2048", "nproc": "1",
		"checkpointing": "none", "attention": "sdpa", "grad-accum": "1",
	}
	maps.Copy(given, flags)
	j := job.Read(job.Sources{Flags: given, Getenv: func(string) string { return "" }, GPUs: -1})
	return &estimate.Input{Job: j, Model: arch,
		Hardware: estimate.Hardware{Kind: "cuda", TotalBytes: total, ContextBytes: -1, NCCLBytes: -1},
		Options:  estimate.DefaultOptions()}
}

// diedInBackward is a run of that job that ran out of memory in its first backward pass.
func diedInBackward(t *testing.T, in *estimate.Input) report.Run {
	t.Helper()
	e, err := estimate.Run(*in)
	if err != nil {
		t.Fatal(err)
	}
	doc := aRun(1, monitor.Rank{
		Rank: 0, Memory: "cuda", Device: 0, UUID: "aaaa",
		Exception: &monitor.Exception{OOM: true, Stage: "backward", Type: "torch.OutOfMemoryError",
			Traceback: "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n    " +
				"loss.backward()\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has " +
				"a total capacity of 24.00 GiB of which 98.00 MiB is free. Including non-PyTorch memory, this " +
				"process has 23.89 GiB memory in use. Of the allocated memory 22.12 GiB is allocated by " +
				"PyTorch, and 165.81 MiB is reserved by PyTorch but unallocated.\n"},
	})
	doc.Exit.Ranks = []launcher.RankExit{{Rank: 0, Known: true, Code: 1}}
	doc.Estimate, doc.EstimateInput, doc.Job = e, in, in.Job
	return doc
}

// TestPricedPostmortem: with the job at hand every remedy that makes it smaller has its price, a set of them fits, and
// the reasons name what the estimate says of the stage of death.
func TestPricedPostmortem(t *testing.T) {
	doc := diedInBackward(t, anInput(t, 24*gib, nil))
	explainDeath(&doc, doc.Recording.Output())
	d := doc.Postmortem
	if d == nil || d.Cause != oom.Activation || d.Combination == nil || !d.Combination.Fits ||
		d.Combination.DeviceBytes > d.Combination.TotalBytes {
		t.Fatalf("%+v", d)
	}
	for _, r := range d.Remedies {
		if priced := r.SavesBytes != nil; priced != (r.NewDeviceBytes != nil) || !priced {
			t.Errorf("%s has no price", r.ID)
		}
	}
	i := slices.IndexFunc(d.Remedies, func(r oom.Remedy) bool { return r.ID == "grad-accum" })
	if i < 0 || !strings.Contains(d.Remedies[i].Why, "in backward") ||
		!strings.Contains(d.Remedies[i].How, "instead of 32 and 1") {
		t.Errorf("%+v", d.Remedies)
	}
	if !slices.ContainsFunc(d.Situations, func(s oom.Situation) bool { return s.ID == "try-small-first" }) {
		t.Errorf("a first batch of 32 that was never tried smaller: %+v", d.Situations)
	}
	page := report.Postmortem{Diagnosis: *d}
	var text strings.Builder
	if err := report.Write(&text, "text", page, report.Style{}); err != nil {
		t.Fatal(err)
	}
	if want := "alone makes it fit: "; !strings.Contains(text.String(), want) {
		t.Errorf("lacks %q:\n%s", want, text.String())
	}
}

// TestRunFactsOfTheGPU: the rank's GPU is found by its UUID where CUDA numbers the GPUs in another order than NVML.
func TestRunFactsOfTheGPU(t *testing.T) {
	doc := diedInBackward(t, anInput(t, 24*gib, nil))
	doc.Recording.Devices = []monitor.DeviceRecord{
		{Index: 0, UUID: "GPU-bbbb", TotalBytes: 24 * gib,
			Others: []gpu.Process{{PID: 5, UsedBytes: gib, Known: true}}},
		{Index: 1, UUID: "GPU-aaaa", TotalBytes: 24 * gib, StartBytes: gib,
			Others: []gpu.Process{{PID: 6, Name: "jupyter", UsedBytes: 3 * gib, Known: true}, {PID: 7}}},
	}
	f := runFacts(&doc, &doc.Recording.Ranks[0])
	want := []oom.Stranger{{PID: 6, Name: "jupyter", Bytes: 3 * gib}, {PID: 7, Bytes: oom.Unknown}}
	if !slices.Equal(f.Strangers, want) || f.HeldBeforeBytes != gib {
		t.Errorf("%+v", f)
	}
	if f.PartsStage != "backward" || f.Parts["activations"] <= 0 || f.Predicted["backward"] <= 0 {
		t.Errorf("%+v", f)
	}
}

// TestAMPFacts: what mixed precision should give is the estimate's difference between the job and the same in fp32.
func TestAMPFacts(t *testing.T) {
	in := anInput(t, 80*gib, map[string]string{"precision": "bf16-mixed"})
	doc := diedInBackward(t, in)
	doc.Recording.Ranks[0].Stages = []monitor.StagePeak{{Stage: "forward", AllocatedBytes: 70 * gib},
		{Stage: "backward", AllocatedBytes: 60 * gib}}
	a := ampFacts(&doc, &doc.Recording.Ranks[0])
	if a == nil || a.Stage != "forward" || a.MeasuredBytes != 70*gib || a.WithBytes <= 0 ||
		a.WithoutBytes <= a.WithBytes || a.TouchedBytes <= 0 {
		t.Fatalf("%+v", a)
	}
	if in.Job.Precision.Value != "bf16" {
		t.Errorf("the job was changed to %s", in.Job.Precision.Value)
	}
	plain := diedInBackward(t, anInput(t, 80*gib, nil))
	if a := ampFacts(&plain, &plain.Recording.Ranks[0]); a != nil {
		t.Errorf("fp32: %+v", a)
	}
}

// TestSmallerRun: the largest smaller run of the same model and means that ended well.
func TestSmallerRun(t *testing.T) {
	in := anInput(t, 24*gib, map[string]string{"model": "org/m"})
	doc := report.Run{Job: in.Job, RemedyKey: "k"}
	earlier := preflight.Earlier{Run: "a", RemedyKey: "k", Model: "org/m", Outcome: preflight.OutcomeOK, Tokens: 2048,
		PeakBytes: 5 * gib}
	list := []preflight.Earlier{earlier}
	for _, edit := range []func(*preflight.Earlier){
		func(e *preflight.Earlier) { e.Run, e.Tokens = "b", 8192 },
		func(e *preflight.Earlier) { e.Run, e.Tokens, e.Outcome = "died", 16384, "capacity" },
		func(e *preflight.Earlier) { e.Run, e.Tokens, e.Model = "other model", 16384, "org/x" },
		func(e *preflight.Earlier) { e.Run, e.Tokens, e.RemedyKey = "other means", 16384, "x" },
		func(e *preflight.Earlier) { e.Run, e.Tokens = "as large", 65536 },
	} {
		e := earlier
		edit(&e)
		list = append(list, e)
	}
	if s := smallerRun(&doc, list); s == nil || s.ID != "b" || s.Here != 65536 {
		t.Errorf("%+v", s)
	}
	if s := smallerRun(&doc, nil); s != nil {
		t.Errorf("%+v", s)
	}
}

// TestNoExpandable: slices of GPUs and shared tensors are no place for expandable segments.
func TestNoExpandable(t *testing.T) {
	mig := report.Run{Devices: &gpu.Snapshot{Devices: []gpu.Device{{MIG: true}}}}
	if noExpandable(&mig) == "" {
		t.Error("MIG")
	}
	if reason := noExpandable(&report.Run{Host: "elsewhere.invalid"}); reason != "" {
		t.Error(reason)
	}
}

// TestPostmortemOfAPartialEstimate: where the estimate is a lower bound, remedies for what it does not count are not
// taken for useless, and it is neither priced nor said to be far off.
func TestPostmortemOfAPartialEstimate(t *testing.T) {
	in := anInput(t, 24*gib, nil)
	in.Model = model.FromParams(in.Model.Parameters())
	doc := diedInBackward(t, in)
	partial := doc.Estimate.Partial
	explainDeath(&doc, doc.Recording.Output())
	d := doc.Postmortem
	if d == nil || !partial || d.Combination != nil {
		t.Fatalf("partial %v, %+v", partial, d)
	}
	offered := map[string]bool{}
	for _, r := range d.Remedies {
		offered[r.ID] = true
		if r.SavesBytes != nil || r.Fits != nil || strings.Contains(r.Why, "are predicted to take") {
			t.Errorf("%s is priced: %+v", r.ID, r)
		}
	}
	if !offered["checkpointing"] || !offered["grad-accum"] {
		t.Errorf("remedies for activations are gone: %v", offered)
	}
	if f := runFacts(&doc, &doc.Recording.Ranks[0]); f.Predicted != nil || f.PartsStage != "" {
		t.Errorf("predicted %v, parts of %q", f.Predicted, f.PartsStage)
	}
}

// TestFitsWhereItDied: a remedy is said to fit only where its sum is below the memory of the device that ran out, with
// headroom, and not at all where the estimate had said that the job fits there: it was wrong by what is not known.
func TestFitsWhereItDied(t *testing.T) {
	for _, tt := range []struct {
		name        string
		total, died int64 // of the estimate's hardware, of the message
		kind        string
		fits        []string // the answers that are allowed
		combined    bool
	}{
		{"the same GPU", 24 * gib, 24 * gib, "cuda", []string{"yes", "no"}, true},
		{"a smaller GPU than was declared", 1000 * gib, 24 * gib, "cuda", []string{"yes", "no"}, true},
		{"host memory, and a message about a GPU", 1000 * gib, 24 * gib, "cpu", []string{"yes", "no"}, true},
		{"a GPU on which it was said to fit", 1000 * gib, 1000 * gib, "cuda", []string{"unknown"}, false},
		{"a larger GPU than was declared", 24 * gib, 1000 * gib, "cuda", []string{"yes", "no"}, true},
		{"nothing fits", 24 * gib, gib, "cuda", []string{"no"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := anInput(t, tt.total, nil)
			in.Hardware.Kind = tt.kind
			doc := diedInBackward(t, in)
			e := doc.Recording.Ranks[0].Exception
			whole, below := fmt.Sprintf("%d.00", tt.died/gib), tt.died/gib-1
			e.Traceback = strings.NewReplacer("24.00", whole, "23.89", fmt.Sprintf("%d.89", below), "22.12",
				fmt.Sprintf("%d.12", below)).Replace(e.Traceback)
			explainDeath(&doc, doc.Recording.Output())
			limit := float64(min(tt.total, tt.died)) * (1 - in.Options.HeadroomPercent/100)
			priced := 0
			for _, r := range doc.Postmortem.Remedies {
				if r.NewDeviceBytes == nil {
					continue
				}
				priced++
				said := "unknown"
				if r.Fits != nil {
					said = map[bool]string{true: "yes", false: "no"}[*r.Fits]
				}
				if !slices.Contains(tt.fits, said) || said == "yes" && float64(*r.NewDeviceBytes) > limit {
					t.Errorf("%s needs %d of %d: fits %s", r.ID, *r.NewDeviceBytes, min(tt.total, tt.died), said)
				}
				if *r.NewDeviceBytes > doc.Estimate.PerGPU.DeviceBytes {
					t.Errorf("%s is offered and makes %d of %d", r.ID, *r.NewDeviceBytes,
						doc.Estimate.PerGPU.DeviceBytes)
				}
			}
			if c := doc.Postmortem.Combination; priced == 0 || (c != nil) != tt.combined ||
				c != nil && c.Fits && float64(c.DeviceBytes) > limit {
				t.Errorf("%d priced, together %+v", priced, c)
			}
		})
	}
}
