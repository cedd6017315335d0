package plan

import (
	"slices"
	"strings"
	"testing"

	"oomguard/preflight/estimate"
	"oomguard/preflight/job"
	"oomguard/preflight/remedy"
)

// TestCombineIsCheapest: no single remedy before it in price fits, the combination does, and leaving any member out
// does not.
func TestCombineIsCheapest(t *testing.T) {
	// 6.7e9 parameters take 16 bytes each: 108 GB of states alone, on 80 GB, beside the activations of 32 x 4096 tokens
	in := bf16Master(func(j *job.Job) {
		j.WorldSize, j.NProc, j.MicroBatch, j.SeqLen = set(8), set(8), set(32), set(4096)
	})
	in.Model = load(t, "meta-llama__Llama-2-7b-hf")
	c, err := Combine(in)
	if err != nil || c == nil {
		t.Fatal(c, err)
	}
	if !c.Fits || len(c.IDs) < 2 || len(c.IDs) != len(c.How) || c.DeviceBytes > c.TotalBytes || c.TotalBytes != 80*gb {
		t.Fatalf("%+v", c)
	}
	if !slices.Contains(c.IDs, "sharding") || slices.Contains(c.IDs, "lora") || slices.Contains(c.IDs, "shorter-seq") {
		t.Errorf("%v: sharing states comes before training fewer weights or shorter sequences", c.IDs)
	}
	for _, id := range c.IDs {
		var rest []remedy.Row
		for _, x := range remedy.JobRows() {
			if x.ID != id && slices.Contains(c.IDs, x.ID) {
				rest = append(rest, x)
			}
		}
		if _, ok := strongest(in, rest); ok {
			t.Errorf("%v fits without %s", c.IDs, id)
		}
	}
}

// TestCombineIsAsMildAsItFits: accumulation is not driven to a micro-batch of 1 where a larger one fits.
func TestCombineIsAsMildAsItFits(t *testing.T) {
	in := bf16Master(func(j *job.Job) {
		j.WorldSize, j.NProc, j.Sharding, j.MicroBatch = set(8), set(8), set("zero3"), set(32)
	})
	in.Model = load(t, "meta-llama__Llama-2-7b-hf")
	c, err := Combine(in)
	if err != nil || c == nil || !c.Fits {
		t.Fatal(c, err)
	}
	if how := strings.Join(c.How, "; "); slices.Contains(c.IDs, "grad-accum") &&
		strings.Contains(how, "micro-batch 1 ") {
		t.Errorf("%s", how)
	}
}

// TestCombineWithoutAnswer: a job that fits needs nothing; where all together do not suffice, that is said.
func TestCombineWithoutAnswer(t *testing.T) {
	small := bf16Master(func(j *job.Job) {
		j.Sharding, j.WorldSize, j.NProc, j.MicroBatch = set("zero3"), set(8), set(8), set(1)
	})
	small.Model = load(t, "meta-llama__Llama-2-7b-hf")
	if c, err := Combine(small); err != nil || c != nil {
		t.Errorf("a job that fits: %+v %v", c, err)
	}
	unknown := small
	unknown.Hardware = estimate.Hardware{Kind: "cuda", ContextBytes: -1, NCCLBytes: -1}
	if c, err := Combine(unknown); err != nil || c != nil {
		t.Errorf("an unknown device: %+v %v", c, err)
	}
	tiny := bf16Master(func(j *job.Job) {})
	tiny.Hardware.TotalBytes = 2 * gb
	if c, err := Combine(tiny); err != nil || c == nil || c.Fits || len(c.IDs) == 0 || c.DeviceBytes <= c.TotalBytes {
		t.Errorf("2 GB: %+v %v", c, err)
	}
}

// BenchmarkCombineNothingFits is the slowest question: a run's report has a second in all.
func BenchmarkCombineNothingFits(b *testing.B) {
	in := bf16Master(func(j *job.Job) { j.WorldSize, j.NProc = set(8), set(8) })
	in.Model, in.Hardware.TotalBytes = load(b, "meta-llama__Llama-2-7b-hf"), 2*gb
	for b.Loop() {
		if _, err := Combine(in); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCombineSearched searches among the sets.
func BenchmarkCombineSearched(b *testing.B) {
	in := bf16Master(func(j *job.Job) { j.MicroBatch = set(32) })
	in.Model, in.Hardware.TotalBytes = load(b, "meta-llama__Llama-2-7b-hf"), 30*gb
	for b.Loop() {
		if _, err := Combine(in); err != nil {
			b.Fatal(err)
		}
	}
}

// TestConflictsStayApart: no set of remedies holds two that cannot be used together.
func TestConflictsStayApart(t *testing.T) {
	apart := 0
	for _, set := range bySum(remedy.JobRows()) {
		for i, r := range set {
			if conflicts(r, set[:i]) {
				t.Errorf("%s stands beside what it conflicts with", r.ID)
			}
		}
		if len(set) == 2 {
			apart++
		}
	}
	if all := len(remedy.JobRows()) * (len(remedy.JobRows()) - 1) / 2; apart >= all {
		t.Error("no two rows conflict: this test shows nothing")
	}
}
