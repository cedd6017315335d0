package estimate

import (
	"testing"

	"oomguard/preflight/job"
)

// llamaUnderZeRO is Llama-3.2-1B on eight ranks, with DeepSpeed's default buckets.
func llamaUnderZeRO(t *testing.T, stage, version string, edit func(*job.Job)) *rank {
	t.Helper()
	s, err := newScenario(small(t, func(j *job.Job) {
		j.Sharding, j.WorldSize, j.NProc, j.Optimizer = known(stage), known(8), known(8), known("adamw")
		j.Precision, j.ParamDtype, j.MasterFP32 = known("bf16"), known("bf16"), known(true)
		j.Versions = map[string]string{"deepspeed": version}
		edit(j)
	}))
	if err != nil {
		t.Fatal(err)
	}
	return s.rankOf(0)
}

func asItIs(*job.Job) {}

// A part of 154476800 elements: the first rank's is a piece of the embedding of 128256 x 2048, whose gradient it keeps
// whole; the norm has that piece in fp64. The second rank's is the rest of the embedding and of the first layer the
// weights up to down_proj.
func TestWeightsThatAPartTouches(t *testing.T) {
	const part, embedding, firstLayer = llama1B / 8, 128256 * 2048, 2*2048*2048 + 2*512*2048 + 3*8192*2048
	whole, norm := llamaUnderZeRO(t, "zero2", "0.19.8", asItIs).touched(part)
	if whole != embedding+firstLayer {
		t.Errorf("gradients of %d elements, want %d", whole, embedding+firstLayer)
	}
	// measured: testdata/measured_gpu.json, the first rank's step
	if want := int64(2*embedding + 8*part); norm != want {
		t.Errorf("the norm takes %d bytes, want %d", norm, want)
	}
}

// When the bucket is there, and what gathers weights, by release (pull requests 7665, in 0.18.3, and 4705, in 0.12.4).
func TestZeROBuffersByRelease(t *testing.T) {
	const bucket = 2 * 5e8
	accumulate := func(j *job.Job) { j.GradAccum = known(4) }
	for _, tt := range []struct {
		stage, version           string
		edit                     func(*job.Job)
		forward, loss, end, step int64
	}{
		{"zero2", "0.19.8", asItIs, 0, 0, bucket, 0},
		{"zero2", "0.18.3", asItIs, 0, 0, bucket, 0},
		{"zero2", "0.18.2", asItIs, 0, bucket, bucket, 0},
		{"zero2", "0.12.3", asItIs, 0, bucket, bucket, bucket},
		{"zero1", "0.19.8", asItIs, 0, 0, bucket, 0},
		{"zero1", "0.19.8", accumulate, bucket, bucket, bucket, 0},
	} {
		l := llamaUnderZeRO(t, tt.stage, tt.version, tt.edit).layout()
		if l.forward != tt.forward || l.backwardStart != tt.loss || l.backwardEnd != tt.end || l.step != tt.step {
			t.Errorf("%s of %s: %d, %d, %d, %d bytes in forward, at the loss, at the end of backward and in the "+
				"step; want %d, %d, %d, %d",
				tt.stage, tt.version, l.forward, l.backwardStart, l.backwardEnd, l.step, tt.forward, tt.loss, tt.end,
				tt.step)
		}
	}
}

// The most that an update holds beside weights and states: fp32 gradients and AdamW's denominator, 8 bytes an element
// of the part, and in stage 3 the flat 16-bit gradients, which stay. Stages 1 and 2: the norm (see above).
func TestZeROSteps(t *testing.T) {
	const part, embedding = llama1B / 8, 128256 * 2048
	for stage, want := range map[string]int64{"zero1": 2*embedding + 8*part, "zero2": 2*embedding + 8*part,
		"zero3": 2*part + 8*part} {
		var most int64
		for _, s := range llamaUnderZeRO(t, stage, "0.19.8", asItIs).layout().steps {
			most = max(most, s.gradients+s.temporaries)
		}
		if most != want {
			t.Errorf("%s: the step holds %d bytes, want %d", stage, most, want)
		}
	}
}
