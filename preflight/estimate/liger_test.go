package estimate

import (
	"testing"

	"oomguard/preflight/job"
	"oomguard/preflight/model"
)

// What stands in for what: MODEL_TYPE_TO_APPLY_LIGER_FN and the defaults of its functions
// (liger_kernel/transformers/monkey_patch.py, 0.8.5).
func TestLigerKernelsByModelType(t *testing.T) {
	tests := []struct {
		kind, kernels, loss string
		want                model.Liger
		wantLoss            string
	}{
		{"llama", "none", "liger-flce", model.Liger{}, "liger-flce"}, // the loss alone
		{"llama", "liger", "liger-flce", *model.FactsOf("llama").Liger, "liger-flce"},
		{"llama", "liger:rms_norm", "none", model.Liger{Norm: true, Loss: true}, "none"},
		{"gemma2", "liger", "liger-flce", *model.FactsOf("gemma2").Liger, "liger-flce"},
		// rope=True is a no-op there
		{"deepseek_v3", "liger:rope+glu", "liger-flce", model.Liger{GLU: true, Loss: true}, "liger-flce"},
		// Granite scales its logits
		{"granite", "liger", "liger-flce", model.Liger{Rope: true, Norm: true, GLU: true}, "none"},
		{"gpt2", "liger", "liger-flce", model.Liger{}, "none"},
		{"llama", "others", "none", model.Liger{}, "none"},
	}
	for _, tt := range tests {
		s := scenario{job: &job.Job{LayerKernels: known(tt.kernels)},
			arch: &model.Architecture{Type: tt.kind, Facts: model.FactsOf(tt.kind)}, loss: tt.loss}
		s.settleLiger()
		if s.liger != tt.want || s.loss != tt.wantLoss {
			t.Errorf("%s of %s with %s: %+v and %s, want %+v and %s", tt.kernels, tt.kind, tt.loss, s.liger, s.loss,
				tt.want, tt.wantLoss)
		}
	}
}

// Every stage of the runs with Liger's kernels on an H200 (testdata/measured_gpu.json).
func TestLigerAsMeasured(t *testing.T) {
	file := measuredCases(t, "measured_gpu.json")
	runs := 0
	for _, c := range file.Cases {
		if c.Loss != "liger" {
			continue
		}
		runs++
		e, err := Run(c.input(t, file))
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range []Stage{Forward, Backward, OptimizerStep} {
			if p := percent(stageOf(t, e, s).AllocatedBytes, c.Steady[i]); p < -0.5 || p > 0.5 {
				t.Errorf("%s: %s %+.2f %%", c.Name, s, p)
			}
		}
	}
	if runs == 0 {
		t.Error("no run has Liger's kernels")
	}
}

// SwiGLU of a fused gate_up_proj, as in Phi-3, copies both halves because they are not contiguous; in place of the
// activation's output, which transformers keeps, the copies are kept, and in backward no gradient of theirs is new.
func TestLigerGLU(t *testing.T) {
	const n, width = 1000, 2
	keeps := func(fused bool) (kept, live int64) {
		b := &block{graph: newGraph(n, width)}
		gate, up := b.add(op{name: "linear", in: []*tensor{b.input}}, n, width),
			b.add(op{name: "linear", in: []*tensor{b.input}}, n, width)
		if fused {
			parts := b.split(b.add(op{name: "linear", in: []*tensor{b.input}}, 2*n, width), n, n)
			gate, up = parts[0], parts[1]
		}
		b.output = b.ligerGLU(gate, up)
		steps := b.steps()
		last := steps[len(steps)-1]
		return saved(steps), last.live
	}
	for _, fused := range []bool{false, true} {
		if kept, live := keeps(fused); kept != 2*n*width || live != n*width {
			t.Errorf("fused %t: keeps %d, %d alive in backward; want gate and up, and the gradient of the output",
				fused, kept, live)
		}
	}
}

// The head's gradient was summed apart between 0.6.2 and 0.8.1 or 0.8.2 (grad_weight += mm(...).float()): a product of
// 2 bytes an element and its fp32 copy.
func TestLigerLossByRelease(t *testing.T) {
	const tokens, vocab, hidden = 4096, 32000, 1024
	const kept, chunk = 2 * hidden * (tokens + vocab), 2 * 128 * vocab // next_pow2(4096 / 32) rows
	tests := []struct {
		version  string
		autocast bool
		want     int64
	}{
		{"0.5.2", false, kept + 2*chunk},
		{"0.6.0", false, kept + chunk},
		{"0.6.4", false, kept + chunk + 6*hidden*vocab},
		{"0.8.2", false, kept + chunk + 6*hidden*vocab},
		{"0.8.5", false, kept + chunk},
		{"", false, kept + chunk},
		{"0.8.0", true, 2*kept + chunk + 6*hidden*vocab},
		{"0.8.2", true, 2*kept + chunk + 2*hidden*vocab},
	}
	for _, tt := range tests {
		s := &scenario{job: &job.Job{Versions: map[string]string{"liger-kernel": tt.version}},
			arch: &model.Architecture{Hidden: hidden}}
		s.precision = precision{param: 2, compute: 2, stream: 2}
		if tt.autocast {
			s.precision = precision{param: 4, compute: 2, stream: 4, autocast: true}
		}
		r := &rank{scenario: s}
		if got := r.ligerLoss(tokens, vocab); got.forward != tt.want {
			t.Errorf("%s autocast %t: %d, want %d", tt.version, tt.autocast, got.forward, tt.want)
		}
	}
}
