package job

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// nanotronConfig is the configuration of the public job.
func nanotronConfig(t testing.TB) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "jobs", "28-nanotron-llama-yaml", "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Fields and defaults: nanotron/config/config.py, parallelism_config.py and models_config.py (0.4).
func TestNanotron(t *testing.T) {
	config := nanotronConfig(t)
	change := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(config) }
	for _, row := range []struct {
		name, config string
		want         map[string]string
		fails        string
	}{
		{"no fp32 accumulation", change("accumulate_grad_in_fp32: true", "accumulate_grad_in_fp32: false"),
			map[string]string{"master_fp32": "false", "param_dtype": "bf16"}, ""},
		{"fp32", change("dtype: bfloat16", "dtype: float32"),
			map[string]string{"param_dtype": "fp32", "precision": "fp32", "master_fp32": "false"}, ""},
		{"no dtype", change("  dtype: bfloat16\n", ""), map[string]string{"param_dtype": "bf16 @ default of nanotron"},
			""},
		{"no ZeRO", change("zero_stage: 1", "zero_stage: 0"), map[string]string{"sharding": "ddp"}, ""},
		{"one replica", change("  dp: 2\n", "  dp: 1\n", "  tp: 2\n", "  tp: 4\n"),
			map[string]string{"sharding": "none", "tp": "4", "global_batch": "6"}, ""},
		{"sgd", change("name: adamW", "name: sgd"), map[string]string{"optimizer": "sgd"}, ""},
		{"another optimizer", change("name: adamW", "name: lion"), nil, "Optimizer lion is not supported"},
		{"no recomputation", change("  recompute_layer: true\n", ""),
			map[string]string{"checkpointing": "none @ default"}, ""},
		{"attention", change("    vocab_size", "    _attn_implementation: sdpa\n    vocab_size"),
			map[string]string{"attention": "sdpa"}, ""},
		{"too few processes", change("  dp: 2\n", "  dp: 4\n"), nil, "but 8 processes are started"},
		{"no tp", change("  tp: 2\n", ""), map[string]string{"tp": "unknown: parallelism.tp is missing"},
			"parallelism.tp is missing"},
		{"a longer stage", config + "data_stages:\n- name: long\n  start_training_step: 1\n  sequence_length: 8192\n",
			map[string]string{"seq_len": "8192"}, ""},
		{"instructions", config + "data_stages:\n- name: s\n  start_training_step: 1\n  data:\n    dataset:\n      " +
			"sft_dataloader: true\n", map[string]string{"task": "sft"}, ""},
		// 2420754432 + (130000 - 128256) x 2048: rounded up to a multiple of 1000 x tp 2
		{"padded vocabulary", change("make_vocab_size_divisible_by: 1", "make_vocab_size_divisible_by: 1000"),
			map[string]string{"model_params": "2424326144"}, ""},
		{"experts", change("    vocab_size", "    moe_config:\n      num_experts: 8\n    vocab_size"),
			map[string]string{"model_params": "unknown: --params N gives a lower bound"}, ""},
		{"broken", "parallelism: [\n", map[string]string{"framework": "unknown: not a program that oomguard knows"},
			""},
		{"another tool's", "a: 1\n", map[string]string{"framework": "unknown: not a program that oomguard knows",
			"tp": "unknown: "}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			j := scriptJob(t, map[string]string{"c.yaml": row.config}, 8, "nanotron=0.4",
				"torchrun --nproc_per_node=8 run_train.py --config-file=c.yaml")
			if got := j.WillFail.Value; !strings.Contains(got, row.fails) || row.fails == "" && got != "" {
				t.Errorf("will_fail %q, want %q", got, row.fails)
			}
			checkSettings(t, j, row.want)
		})
	}
}
