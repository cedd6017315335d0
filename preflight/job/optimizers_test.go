package job

import (
	"fmt"
	"strings"
	"testing"

	"oomguard/preflight/optim"
)

// readers are, for each vocabulary, a job that names an optimizer in its words.
func readers(t *testing.T) map[optim.Vocabulary]func(word string) *Job {
	t.Helper()
	files := func(command string, text map[string]string) *Job {
		return scriptJob(t, text, 1, "torch=2.6.0,transformers=4.51.3,axolotl=0.12.0", command)
	}
	return map[optim.Vocabulary]func(word string) *Job{
		optim.Ours: func(word string) *Job {
			return Read(Sources{Flags: map[string]string{"optimizer": word},
				GPUs: 1})
		},
		optim.Trainer: func(word string) *Job {
			return readWith(t, "{}", strings.TrimSuffix(trainer, "--deepspeed ds.json ")+"--optim "+word)
		},
		optim.Class: func(class string) *Job {
			at := strings.LastIndex(class, ".")
			return files("python train.py",
				map[string]string{"train.py": fmt.Sprintf("import torch\nfrom %s import %s\nmodel = "+
					"torch.nn.Linear(2, 2)\n"+
					"opt = %s(model.parameters(), lr=0.1)\nopt.step()\n", class[:at], class[at+1:], class[at+1:])})
		},
		optim.Axolotl: func(word string) *Job {
			return files("axolotl train c.yml",
				map[string]string{"c.yml": "base_model: m\noptimizer: " + word + "\nmicro_batch_size: 1\n"})
		},
		optim.DeepSpeed: func(word string) *Job {
			return readWith(t, fmt.Sprintf(`{"optimizer": {"type": %q}}`, word),
				trainer)
		},
		optim.Megatron: func(word string) *Job {
			return Read(Sources{Argv: strings.Fields(megatronGPT + "--sgd-momentum 0 --optimizer " + word), GPUs: 8})
		},
		optim.Nanotron: func(word string) *Job {
			config := strings.NewReplacer("name: adamW", "name: "+word, "torch_adam_is_fused: true",
				"").Replace(nanotronConfig(t))
			return files("torchrun --nproc_per_node=8 run_train.py --config-file=c.yaml",
				map[string]string{"c.yaml": config})
		},
		optim.LLaMAFactory: func(word string) *Job {
			return Read(Sources{Argv: strings.Fields("llamafactory-cli train --stage sft --model_name_or_path m " +
				"--output_dir o --" + word + " true"), GPUs: 1})
		},
	}
}

// DeepSpeed builds its fused Adam where nothing else is asked for (readDeepSpeedOptimizer).
var built = map[optim.Vocabulary]map[string]string{optim.DeepSpeed: {"adamw": "adamw_fused"}}

// Every word of every vocabulary is read where it is written, and so every optimizer can be asked for by flag, by its
// names of Trainer and of other frameworks, and by its class. A word that nobody has is unknown and says which.
func TestEveryWordForAnOptimizer(t *testing.T) {
	for v, read := range readers(t) {
		for _, word := range optim.Words(v) {
			o, _ := optim.Find(word, v)
			want := o.Name
			if other := built[v][want]; other != "" {
				want = other
			}
			if got := read(word).Optimizer; got.Value != want {
				t.Errorf("vocabulary %d, %s: %q (%s), want %s", v, word, got.Value, got.Origin, want)
			}
		}
		if v == optim.Class || v == optim.Nanotron || v == optim.LLaMAFactory { // no optimizer, a refusal, no option
			continue
		}
		if got := read("nosuch").Optimizer; got.Known || v != optim.Ours && !strings.Contains(got.Origin, "nosuch") {
			t.Errorf("vocabulary %d, nosuch: %q (%s), want unknown", v, got.Value, got.Origin)
		}
	}
}

// --optimizer understands Trainer's names too, and the layerwise forms step in the backward pass.
func TestNamesOfTrainer(t *testing.T) {
	for _, word := range optim.Words(optim.Trainer) {
		o, _ := optim.Find(word, optim.Trainer)
		if j := Read(Sources{Flags: map[string]string{"optimizer": word}, GPUs: 1}); j.Optimizer.Value != o.Name ||
			len(j.Problems) > 0 {
			t.Errorf("--optimizer %s: %q, %v; want %s", word, j.Optimizer.Value, j.Problems, o.Name)
		}
	}
	if j := readWith(t, "{}", trainer+"--optim galore_adamw_layerwise"); j.Optimizer.Value != "galore_adamw" ||
		!j.OptimizerInBackward.Value {
		t.Errorf("layerwise: %q, in backward %v", j.Optimizer.Value, j.OptimizerInBackward.Value)
	}
}

// DeepSpeed takes a type that is not its own for a class of torch.optim, with its params (deepspeed/runtime/engine.py).
func TestTorchOptimizersOfDeepSpeed(t *testing.T) {
	for text, want := range map[string]string{
		`"NAdam"`: "nadam", `"SGD", "params": {"momentum": 0.9}`: "sgd_momentum", `"SGD"`: "sgd",
		`"Adafactor"`:  "adafactor_torch",
		`"OneBitAdam"`: "", `"Adam", "params": {"torch_adam": true}`: "adamw",
	} {
		if got := readWith(t, `{"optimizer": {"type": `+text+`}}`, trainer).Optimizer; got.Value != want {
			t.Errorf("%s: %q (%s), want %q", text, got.Value, got.Origin, want)
		}
	}
}
