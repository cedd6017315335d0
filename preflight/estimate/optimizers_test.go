package estimate

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"oomguard/preflight/job"
	"oomguard/preflight/optim"
)

// smallLlama is LLAMA of lab/optimizers.py, of 1,377,216 parameters.
const smallLlama = `{"model_type": "llama", "hidden_size": 192, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2,
	"intermediate_size": 512, "vocab_size": 1536, "tie_word_embeddings": false, "max_position_embeddings": 128}`

// llamaStates is the bytes of state that real optimizers made for that model, by optimizer and dtype, and those of the
// few that no CPU can run: torchdistx' and DeepSpeed's moments are Adam's, and GrokAdamW keeps its states on the host.
func llamaStates(t *testing.T) map[string]map[string]int64 {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "optim", "testdata", "simulated.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Llama map[string]map[string]int64 `json:"llama"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	states := file.Llama
	states["adamw_anyprecision"] = map[string]int64{"fp32": states["adamw"]["fp32"], "bf16": states["adamw"]["fp32"]}
	states["lamb"], states["cpu_adam"], states["adamw_foreach"] = states["adamw"], states["adamw"], states["adamw"]
	// bitsandbytes' blocks of the projected moments and of all else, and galore_adamw's projectors
	states["galore_adamw_8bit"] = map[string]int64{"fp32": 3844096, "bf16": 2828288}
	states["grokadamw"] = map[string]int64{"fp32": 0, "bf16": 0}
	for paged, same := range map[string]string{"paged_adamw": "adamw_bnb", "paged_adamw_8bit": "adamw_8bit",
		"paged_lion":      "lion",
		"paged_lion_8bit": "lion_8bit", "paged_ademamix": "ademamix", "paged_ademamix_8bit": "ademamix_8bit"} {
		states[paged] = states[same]
	}
	return states
}

// Every optimizer that there is, asked for by flag, has the states of the real one to the byte, on the GPU, in managed
// memory or on the host.
func TestStatesOfEveryOptimizer(t *testing.T) {
	want := llamaStates(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(smallLlama), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range optim.Words(optim.Ours) {
		for dtype, precision := range map[string]string{"fp32": "fp32", "bf16": "bf16-true"} {
			bytes, known := want[name][dtype]
			if !known {
				t.Errorf("%s: how many bytes of state it has for a small Llama in %s is not written down "+
					"(lab/optimizers.py)", name, dtype)
				continue
			}
			j := job.Read(job.Sources{GPUs: 1,
				Flags: map[string]string{"model": dir, "optimizer": name, "precision": precision, "micro-batch": "1",
					"seq-len": "8", "nproc": "1"}})
			e := run(t, Input{Job: j, Model: j.Architecture, Hardware: h100(), Options: DefaultOptions()})
			got := stageOf(t, e, OptimizerStep).Components[Optimizer]
			for _, part := range e.Host.Parts {
				if part.What == "offloaded optimizer states" ||
					part.What == "paged optimizer states, as far as the GPU has no room" {
					got += part.Bytes
				}
			}
			if got != bytes {
				t.Errorf("%s in %s: %d bytes of state, want %d", name, dtype, got, bytes)
			}
		}
	}
}

// The rank that gradients are projected to is Trainer's rank=N, and is named as an assumption where nothing sets it.
func TestProjectionRank(t *testing.T) {
	at := func(args ...string) *Estimate {
		return run(t, small(t, func(j *job.Job) {
			command := append([]string{"python", "run_clm.py", "--output_dir=out", "--optim=galore_adamw"}, args...)
			read := job.Read(job.Sources{Argv: command, GPUs: 1})
			j.Optimizer, j.ProjectionRank, j.ParamDtype, j.Precision = read.Optimizer, read.ProjectionRank,
				known("bf16"), known("bf16")
		}))
	}
	states := func(e *Estimate) int64 { return stageOf(t, e, OptimizerStep).Components[Optimizer] }
	low, usual, high := at("--optim_args", "rank=64,update_proj_gap=200"), at(), at("--optim_args=scale=0.25,rank=512")
	if states(low) >= states(usual) || states(usual) >= states(high) {
		t.Errorf("states of rank 64, default and 512: %d, %d, %d", states(low), states(usual), states(high))
	}
	noted := func(e *Estimate) bool {
		return slices.ContainsFunc(e.Assumptions,
			func(a Assumption) bool { return a.What == "gradients projected to rank 128" && a.Widens })
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
			j.Optimizer, j.GradAccum, j.ParamDtype, j.Precision, j.MasterFP32 = known(name), known(accum),
				known("bf16"), known("bf16"), known(false)
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
