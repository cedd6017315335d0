package estimate

import (
	"math"
	"testing"

	"oomguard/preflight/job"
)

// Public max_memory_allocated of full fine-tuning on A100 80 GB (foundation-model-stack/fms-acceleration,
// scripts/benchmarks/refs/a100_80gb.csv and a100_80gb_liger.csv): Hugging Face Trainer, sequences of 4096, full
// checkpointing, foreach AdamW. The optimizer's step is the peak in all of them.
func TestPublicA100Runs(t *testing.T) {
	tests := []struct {
		row, model, sharding, dtype, loss string
		batch, gpus                       int
		want                              int64
	}{
		{"a100_80gb row 8", "mistralai/Mistral-7B-v0.1", "none", "bf16", "none", 4, 1, 72_434_837_504},
		{"a100_80gb row 9", "mistralai/Mistral-7B-v0.1", "fsdp-full", "bf16", "none", 2, 2, 36_225_939_968},
		{"a100_80gb row 10", "mistralai/Mistral-7B-v0.1", "none", "bf16", "none", 8, 1, 72_435_230_720},
		{"a100_80gb_liger row 32", "meta-llama/Meta-Llama-3-8B", "fsdp-full", "fp32", "triton-ce", 4, 2,
			80_320_219_648},
		{"a100_80gb_liger row 37", "meta-llama/Meta-Llama-3-8B", "fsdp-full", "fp32", "liger-flce", 8, 2,
			80_320_612_864},
	}
	for _, tt := range tests {
		in := paramsOnly(1, func(j *job.Job) {
			j.Framework, j.Sharding, j.WorldSize, j.NProc = known("hf-trainer"), known(tt.sharding), known(tt.gpus),
				known(tt.gpus)
			j.ParamDtype, j.MasterFP32, j.FusedLoss = known(tt.dtype), known(false), known(tt.loss)
			j.MicroBatch, j.SeqLen, j.Checkpointing, j.Attention = known(tt.batch), known(4096), known("full"),
				known("flash_attention_2")
		})
		in.Model = loadModel(t, tt.model)
		in.Hardware.ComputeCapability = "8.0"
		e := run(t, in)
		if p := percent(e.PerGPU.AllocatedBytes, tt.want); math.Abs(p) > 0.1 || e.PerGPU.PeakStage != OptimizerInit {
			t.Errorf("%s: %d bytes at %s, %+.2f %% from the measured %d", tt.row, e.PerGPU.AllocatedBytes,
				e.PerGPU.PeakStage, p, tt.want)
		}
	}
}
