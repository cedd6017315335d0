package estimate

import (
	"slices"
	"testing"

	"oomguard/preflight/job"
)

// The rank that gradients are projected to is Trainer's rank=N, and is named as an assumption where nothing sets it.
func TestProjectionRank(t *testing.T) {
	at := func(args ...string) *Estimate {
		return run(t, small(t, func(j *job.Job) {
			j.Optimizer, j.ScriptArgs, j.ParamDtype, j.Precision = known("galore_adamw"), args, known("bf16"), known("bf16")
		}))
	}
	states := func(e *Estimate) int64 { return stageOf(t, e, OptimizerStep).Components[Optimizer] }
	low, usual, high := at("--optim_args", "rank=64,update_proj_gap=200"), at(), at("--optim_args=scale=0.25,rank=512")
	if states(low) >= states(usual) || states(usual) >= states(high) {
		t.Errorf("states of rank 64, default and 512: %d, %d, %d", states(low), states(usual), states(high))
	}
	noted := func(e *Estimate) bool {
		return slices.ContainsFunc(e.Assumptions, func(a Assumption) bool { return a.What == "gradients projected to rank 128" && a.Widens })
	}
	if !noted(usual) || noted(low) {
		t.Errorf("rank 128 noted: %v, with a rank given: %v", noted(usual), noted(low))
	}
}

// Updates during backward hold one or two gradients instead of all.
func TestUpdatesInBackward(t *testing.T) {
	at := func(name string, accum int) Components {
		return stageOf(t, run(t, small(t, func(j *job.Job) {
			j.OptimizerInBackward = known(name == "galore_adamw") // its layerwise form
			j.Optimizer, j.GradAccum, j.ParamDtype, j.Precision, j.MasterFP32 = known(name), known(accum), known("bf16"), known("bf16"), known(false)
		})), OptimizerStep).Components
	}
	const largest = 128256 * 2048 // Llama-3.2-1B's embedding
	if got := at("lomo", 1)[Gradients]; got != 2*2*largest {
		t.Errorf("LOMO: %d bytes of gradients, want two of the embedding's, %d", got, 2*2*largest)
	}
	if got := at("galore_adamw", 1)[Gradients]; got != 2*largest {
		t.Errorf("layerwise GaLore: %d bytes of gradients, want one of the embedding's, %d", got, 2*largest)
	}
	if all := at("lomo", 4)[Gradients]; all != 2*1235814400 {
		t.Errorf("LOMO with accumulation: %d bytes of gradients, want all", all)
	}
}
