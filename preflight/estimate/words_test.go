package estimate

import (
	"regexp"
	"strings"
	"testing"

	"oomguard/preflight/job"
	"oomguard/preflight/model"
)

// TestWordsOfAFramework: an assumption speaks of a framework's options and defaults only where the job has that
// framework, and there is a stage of evaluation only where there may be one.
func TestWordsOfAFramework(t *testing.T) {
	huggingFace := regexp.MustCompile(`compute_metrics|per_device_|Trainer|accelerate|--optim_args|fsdp_state_dict|transformers|predict_with_generate`)
	arch, err := model.Parse([]byte(`{"model_type":"llama","hidden_size":1024,"num_hidden_layers":4,"num_attention_heads":16,"intermediate_size":4096,"vocab_size":32000}`), "config.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, framework := range []string{"hf-trainer", "trl", "axolotl", "llamafactory", "unsloth", "megatron",
		"torchtitan", "torchtune", "litgpt", "lightning", "nanotron", "verl", "openrlhf", "deepspeed", "custom", ""} {
		for _, flags := range []map[string]string{
			{}, {"sharding": "fsdp-full", "nproc": "4", "grad-accum": "4", "fsdp-version": "1"},
			{"sharding": "fsdp-full", "nproc": "4", "fsdp-version": "2", "grad-accum": "2"},
			{"tp": "2", "nproc": "4"}, {"optimizer": "galore_adamw"},
			{"sharding": "zero3", "nproc": "8", "precision": "bf16"},
			{"method": "lora", "lora-r": "8", "lora-targets": "q_proj"},
			{"layer-kernels": "liger", "fused-loss": "liger-flce"},
		} {
			for _, rows := range []int{-1, 0, 4} {
				j := job.Read(job.Sources{Flags: flags, GPUs: -1})
				j.Framework = job.Setting[string]{Value: framework, Known: framework != "", Origin: "test"}
				if rows >= 0 {
					j.EvalBatch = job.Setting[int]{Value: rows, Known: true, Origin: "test"}
				}
				e, err := Run(Input{Job: j, Model: arch,
					Hardware: Hardware{Kind: "cuda", TotalBytes: 80 << 30, ContextBytes: -1, NCCLBytes: -1},
					Options:  DefaultOptions()})
				if err != nil {
					t.Errorf("%s %v: %v", framework, flags, err)
					continue
				}
				for _, a := range e.Assumptions {
					said := a.What + " (" + a.Origin + ")"
					if !j.Traits().Trainer && huggingFace.MatchString(said) {
						t.Errorf("of %q is said: %s", framework, said)
					}
					if rows == 0 && strings.Contains(said, "evaluation") {
						t.Errorf("nothing is evaluated, and it is said: %s", said)
					}
				}
				evaluates := false
				for _, stage := range e.Stages {
					evaluates = evaluates || stage.Stage == Eval
				}
				if evaluates == (rows == 0) {
					t.Errorf("%s: an evaluation batch of %d, and a stage of evaluation: %v", framework, rows, evaluates)
				}
			}
		}
	}
}
