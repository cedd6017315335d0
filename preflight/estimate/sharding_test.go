package estimate

import (
	"testing"

	"oomguard/preflight/job"
	"oomguard/preflight/model"
)

// mixture is a model with experts on 16 GPUs, each expert on one of them.
func mixture(t *testing.T, edit func(*job.Job)) Input {
	t.Helper()
	a, err := model.Parse([]byte(`{"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 512, "num_hidden_layers": 8,
		"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 4096, "intermediate_size": 1024, "num_experts": 16,
		"num_experts_per_tok": 2, "moe_intermediate_size": 512}`), "mixture")
	if err != nil {
		t.Fatal(err)
	}
	j := &job.Job{}
	j.Framework, j.Sharding, j.WorldSize, j.NProc = known("megatron"), known("dist-optim"), known(16), known(8)
	j.EP, j.Precision, j.MicroBatch, j.SeqLen, j.GradAccum = known(16), known("bf16"), known(4), known(1024), known(1)
	j.Checkpointing, j.Attention, j.Optimizer = known("none"), known("flash_attention_2"), known("adamw")
	edit(j)
	return Input{Job: j, Model: a, Hardware: Hardware{Kind: "cuda", TotalBytes: 80 * gib, ComputeCapability: "9.0",
		ContextBytes: 0, NCCLBytes: 0},
		Options: DefaultOptions()}
}

// With as many expert-parallel ranks as GPUs nobody else has the same experts, so that their optimizer states cannot be
// shared: 4 + 8 bytes a parameter, against 12/16 for what all ranks hold (megatron/core/parallel_state.py:
// expert_data_parallel_size).
func TestExpertStatesAreSharedAmongTheirOwnRanks(t *testing.T) {
	states := func(edit func(*job.Job)) (states, experts, dense int64) {
		in := mixture(t, edit)
		s, err := newScenario(in)
		if err != nil {
			t.Fatal(err)
		}
		r := s.rankOf(0)
		isExpert := func(w weight) bool { return w.Role == model.Expert }
		experts = count(r.trained, isExpert)
		l := r.layout()
		return l.master + l.optimizer, experts, count(r.trained, nil) - experts
	}
	for _, tt := range []struct {
		name  string
		edit  func(*job.Job)
		ranks int64 // that share an expert's states
	}{
		{"one expert group", func(*job.Job) {}, 1},
		{"four expert-parallel ranks", func(j *job.Job) { j.EP = known(4) }, 4},
		{"experts whole under tensor parallelism", func(j *job.Job) {
			j.TP, j.EP = known(2), known(4)
			j.ETP = pretrained("--tensor-model-parallel-size", "2", "--expert-tensor-parallel-size", "1").ETP
		}, 4},
		{"experts split like the rest", func(j *job.Job) { j.TP, j.EP = known(2), known(4) }, 2},
	} {
		got, experts, dense := states(tt.edit)
		denseRanks := int64(16)
		if in := mixture(t, tt.edit); in.Job.TP.Known {
			denseRanks /= int64(in.Job.TP.Value)
		}
		want := 12*experts/tt.ranks + 12*dense/denseRanks
		if got < want || got > want+64 {
			t.Errorf("%s: %d bytes of optimizer states, want %d", tt.name, got, want)
		}
	}
}

func TestCrowdedExpertsWidenUpwards(t *testing.T) {
	in := mixture(t, func(*job.Job) {})
	e := run(t, in)
	if !assumed(e, "every rank's experts get an equal share of the tokens") {
		t.Errorf("nothing says that the routing is taken for even: %+v", e.Assumptions)
	}
	p, err := predict(in)
	if err != nil {
		t.Fatal(err)
	}
	if p.imbalance() <= 0 {
		t.Errorf("twice the tokens for a rank's experts add %d bytes", p.imbalance())
	}
	alone := run(t, mixture(t, func(j *job.Job) { j.EP = known(1) }))
	if assumed(alone, "every rank's experts get an equal share of the tokens") {
		t.Error("without expert parallelism the routing does not matter to a rank")
	}
}

// DDP: buckets beside the gradients, 8 bytes a parameter; or gradients that are views of them, 4 (torch's own
// docstring, and testdata/simulated_sharded.json).
func TestBucketView(t *testing.T) {
	fp32 := func(j *job.Job) {
		j.Sharding, j.WorldSize, j.NProc = known("ddp"), known(2), known(2)
		j.Precision, j.ParamDtype, j.MasterFP32 = known("fp32"), known("fp32"), known(false)
	}
	in := small(t, fp32)
	step := stageOf(t, run(t, in), OptimizerStep).Components
	if n := 4 * in.Model.Parameters(); step[Gradients] != n || step[Communication] != n {
		t.Errorf("gradients %d and buckets %d, want %d each", step[Gradients], step[Communication], n)
	}
	in.Job.BucketView = flagged("gradient-as-bucket-view", "true").BucketView
	step = stageOf(t, run(t, in), OptimizerStep).Components
	if n := 4 * in.Model.Parameters(); step[Gradients] != n || step[Communication] != 0 {
		t.Errorf("gradients %d and buckets %d, want %d and none", step[Gradients], step[Communication], n)
	}
}

// Batches of unlike lengths leave more unusable cache: the interval's upper end, not its middle.
func TestUnlikeLengthsWiden(t *testing.T) {
	packed := small(t, func(j *job.Job) {
		j.Framework, j.Packing, j.MicroBatch = known("hf-trainer"), known(true),
			known(8)
	})
	padded := packed
	j := *packed.Job
	j.Packing = known(false)
	j.MicroBatch = known(8)
	padded.Job = &j
	a, err := newScenario(packed)
	if err != nil {
		t.Fatal(err)
	}
	b, err := newScenario(padded)
	if err != nil {
		t.Fatal(err)
	}
	c := Components{Parameters: gib, Logits: gib}
	expected, high := a.fragmentation(c, gib)
	unlikeExpected, unlikeHigh := b.fragmentation(c, gib)
	if expected != unlikeExpected || unlikeHigh-high < gib/2 {
		t.Errorf("unusable cache %d to %d packed, %d to %d padded", expected, high, unlikeExpected, unlikeHigh)
	}
}
