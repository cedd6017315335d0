package job

import (
	"slices"
	"strings"
	"testing"
)

// The three keys that --precision sets (design, section 3).
func TestPrecision(t *testing.T) {
	tests := map[string]string{
		"fp32":        "param_dtype=fp32 precision=fp32 master_fp32=false",
		"bf16-mixed":  "param_dtype=fp32 precision=bf16 master_fp32=false",
		"fp16-mixed":  "param_dtype=fp32 precision=fp16 master_fp32=false",
		"bf16-master": "param_dtype=bf16 precision=bf16 master_fp32=true",
		"bf16":        "param_dtype=bf16 precision=bf16 master_fp32=true",
		"fp16-master": "param_dtype=fp16 precision=fp16 master_fp32=true",
		"fp16":        "param_dtype=fp16 precision=fp16 master_fp32=true",
		"bf16-true":   "param_dtype=bf16 precision=bf16 master_fp32=false",
		"fp16-true":   "param_dtype=fp16 precision=fp16 master_fp32=false",
	}
	for text, want := range tests {
		j := Read(Sources{Argv: words("torchrun run_clm.py --bf16"), Flags: map[string]string{"precision": text},
			GPUs: 1})
		if len(j.Problems) > 0 {
			t.Errorf("%s: %v", text, j.Problems)
		}
		check(t, j, want)
	}
	if got := len(precisionNames()); got != len(tests) {
		t.Errorf("%d precisions, %d tested", got, len(tests))
	}
}

func TestFlags(t *testing.T) {
	tests := []struct{ flag, text, want string }{
		{"micro-batch", "4", "micro_batch=4"},
		{"packing", "true", "packing=true"},
		{"checkpointing", "selective:2", "checkpointing=selective:2"},
		{"offload", "none", "offload=none"},
		{"fsdp-version", "2", "fsdp_version=2"},
		{"sharding", "dist-optim", "sharding=dist-optim"},
		{"tp", "1", "tp=1"},
		{"attention", "flash_attention_3", "attention=flash_attention_3"},
		{"fused-loss", "cut-ce", "fused_loss=cut-ce"},
		{"layer-kernels", "liger", "layer_kernels=liger"},
		{"method", "qlora", "method=qlora"},
		{"nproc", "4", "nproc=4 world_size=4 sharding=ddp"},
	}
	for _, tt := range tests {
		j := Read(Sources{Flags: map[string]string{tt.flag: tt.text}})
		if len(j.Problems) > 0 {
			t.Errorf("--%s %s: %v", tt.flag, tt.text, j.Problems)
		}
		check(t, j, tt.want)
	}
	offload := map[string]Offload{"optimizer": {Optimizer: "cpu", Params: "none"},
		"params": {Optimizer: "none", Params: "cpu"}, "all": {Optimizer: "cpu", Params: "cpu"}}
	for text, want := range offload {
		if j := Read(Sources{Flags: map[string]string{"offload": text}}); j.Offload.Value != want {
			t.Errorf("--offload %s: %+v", text, j.Offload)
		}
	}
	j := Read(Sources{Flags: map[string]string{"quant": "nf4-dq", "lora-r": "64", "lora-targets": "all-linear",
		"lora-dropout": "0.1", "lora-alpha": "16", "precision": "bf16-true"}})
	if q := j.Quant.Value; q == nil ||
		*q != (Quant{Method: "bnb", Bits: 4, Type: "nf4", Double: true, ComputeDtype: "bf16", Storage: "uint8"}) {
		t.Errorf("quant %+v", q)
	}
	if l := j.LoRA.Value; l == nil || l.R != 64 || l.Alpha != 16 || l.Dropout != 0.1 ||
		!slices.Equal(l.Targets, []string{"all-linear"}) {
		t.Errorf("lora %+v", l)
	}
	check(t, j, "method=qlora base_dtype=bf16 param_dtype=bf16")
}

// A sharded estimate without a command uses every GPU that is there.
func TestShardingWithoutCommand(t *testing.T) {
	j := Read(Sources{Flags: map[string]string{"sharding": "zero3", "micro-batch": "2", "grad-accum": "1"}, GPUs: 8})
	check(t, j, "nproc=8 world_size=8 global_batch=16")
	if d := j.DeepSpeed.Value; d == nil || d.Stage != 3 || d.ReduceBucketSize != 5e8 {
		t.Errorf("ds_resolved %+v", d)
	}
}

func TestBadFlags(t *testing.T) {
	tests := []struct {
		flags map[string]string
		want  string
	}{
		{map[string]string{"precision": "int8"}, `--precision: "int8" is not one of fp32, bf16-mixed`},
		{map[string]string{"precision": "int8"}, "use --quant int8"},
		{map[string]string{"sharding": "zero4"},
			`--sharding: "zero4" is not one of none, ddp, dp, zero1, zero2, zero3, fsdp-full, fsdp-grad, fsdp-hybrid, dist-optim`},
		{map[string]string{"micro-batch": "-1"}, `--micro-batch: "-1": need a whole number from 1`},
		{map[string]string{"seq-len": "4k"}, `--seq-len: "4k"`},
		{map[string]string{"packing": "maybe"}, "true, false"},
		{map[string]string{"checkpointing": "selective:none"}, "selective:2"},
		{map[string]string{"lora-dropout": "2"}, "0.05"},
		{map[string]string{"lora-targets": ","}, "q_proj,v_proj"},
		{map[string]string{"versions": "torch"}, "torch=2.6.0"},
		{map[string]string{"batch": "1"}, "--batch is not a job setting; known: model, params"},
		{map[string]string{"model": ""}, "need a value"},
		{map[string]string{"tp": "4294967296", "pp": "4294967296", "micro-batch": "1", "grad-accum": "1"},
			"does not divide the 1 processes"},
		{map[string]string{"tp": "3", "nproc": "4", "micro-batch": "1", "grad-accum": "1"},
			"tp 3 x pp 1 x cp 1 does not divide the 4 processes"},
	}
	for _, tt := range tests {
		j := Read(Sources{Flags: tt.flags})
		if len(j.Problems) != 1 || !strings.Contains(j.Problems[0].Error(), tt.want) {
			t.Errorf("%v: %v, want %q", tt.flags, j.Problems, tt.want)
		}
	}
}

// The table serves flags, oomguard.yaml and the documentation: names are unique and every row is complete.
func TestKeys(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range Keys() {
		if k.Usage == "" || k.set == nil || k.Flag != strings.ReplaceAll(k.Name, "_", "-") || seen[k.Name] {
			t.Errorf("incomplete or repeated: %+v", k)
		}
		seen[k.Name] = true
	}
	// The contract's list (design, section 3).
	for name := range strings.FieldsSeq(`model params micro-batch grad-accum seq-len optimizer checkpointing method
		lora-r lora-alpha lora-dropout lora-targets quant
		attention fused-loss sharding fsdp-version offload tp pp cp ep nproc nnodes packing precision versions`) {
		if !seen[strings.ReplaceAll(name, "-", "_")] {
			t.Errorf("--%s is missing", name)
		}
	}
}
