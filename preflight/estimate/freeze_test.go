package estimate

import (
	"testing"

	"oomguard/preflight/job"
)

// Frozen layers in front of the trained ones keep nothing, and only trained ones have gradients and states: each
// further trained layer adds.
func TestFreezeGrowsWithTrainedLayers(t *testing.T) {
	var before *Estimate
	for _, n := range []int{1, 2, 8, 16} {
		in := small(t, func(j *job.Job) {
			j.Method, j.TrainableLayers, j.BaseDtype = known("freeze"), known(n),
				known("bf16")
		})
		e := run(t, in)
		// a layer of Llama-3.2-1B: q and o 2048 x 2048, k and v 512 x 2048, three of 8192 x 2048, two norms
		layer := int64(2*2048*2048 + 2*512*2048 + 3*8192*2048 + 2*2048)
		if e.Model.TrainableParameters != int64(n)*layer {
			t.Errorf("%d layers: %d trainable parameters, want %d", n, e.Model.TrainableParameters, int64(n)*layer)
		}
		if before != nil {
			for _, c := range []Component{Gradients, Optimizer} {
				was, is := stageOf(t, before, OptimizerStep).Components[c], stageOf(t, e, OptimizerStep).Components[c]
				if is <= was {
					t.Errorf("%d layers: %s is %d bytes, was %d with fewer", n, c, is, was)
				}
			}
			if was, is := stageOf(t, before, Forward).Components[Activations],
				stageOf(t, e, Forward).Components[Activations]; is <= was {
				t.Errorf("%d layers: activations of %d bytes, %d with fewer", n, is, was)
			}
		}
		before = e
	}
}

// torch.compile never keeps more than eager code, and the interval is wider for it.
func TestCompiledKeepsLess(t *testing.T) {
	eager := run(t, small(t, func(*job.Job) {}))
	compiled := run(t, small(t, func(j *job.Job) { j.Compile = known(true) }))
	for _, c := range []Component{Activations, Logits} {
		if is, was := stageOf(t, compiled, Forward).Components[c], stageOf(t, eager, Forward).Components[c]; is >= was {
			t.Errorf("%s: %d bytes compiled, %d eager", c, is, was)
		}
	}
}

// The worst pipeline stage says why it is.
func TestWorstRankSaysWhy(t *testing.T) {
	e := run(t, small(t, func(j *job.Job) {
		j.PP, j.WorldSize, j.NProc, j.GradAccum = known(2), known(2), known(2),
			known(8)
	}))
	var named int
	for _, r := range e.Ranks {
		if r.Why != "" {
			named++
		}
	}
	if len(e.Ranks) != 2 || named != 1 {
		t.Errorf("ranks %+v: want two, one of them with a reason", e.Ranks)
	}
}
