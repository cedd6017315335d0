package oom

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"oomguard/preflight/remedy"
)

func frames(files ...string) string {
	text := "Traceback (most recent call last):\n"
	for _, f := range files {
		text += fmt.Sprintf("  File %q, line 10, in run\n    step()\n", f)
	}
	return text + full
}

const packages = "/usr/lib/python3.11/site-packages/"

// TestFrameworks: the framework is read out of a traceback's files or the lines that it prints; the outermost wins, as
// its settings are those that a user edits. Each answer names an exact flag or key; what a framework has no setting for
// ("") is not offered.
func TestFrameworks(t *testing.T) {
	for _, c := range []struct {
		name, text, framework string
		how                   map[string]string
	}{
		{"HF Trainer", frames(packages+"transformers/trainer.py", packages+"accelerate/accelerator.py"), "hf-trainer",
			map[string]string{
				"checkpointing":  "Hugging Face Trainer: --gradient_checkpointing True",
				"optimizer-8bit": "--optim adamw_bnb_8bit",
			}},
		{"TRL", frames("/x/train.py", packages+"trl/trainer/sft_trainer.py", packages+"transformers/trainer.py"), "trl",
			map[string]string{
				"shorter-seq": "TRL: --max_length N", "grad-accum": "--per_device_train_batch_size 1",
				"lora": "--use_peft True",
			}},
		{"axolotl", frames("/workspace/axolotl/src/axolotl/cli/train.py", packages+"transformers/trainer.py"),
			"axolotl", map[string]string{
				"grad-accum": "axolotl: micro_batch_size: 1", "shorter-seq": "sequence_len",
				"optimizer-8bit": "optimizer: adamw_bnb_8bit",
			}},
		{"LLaMA-Factory", frames("/app/LLaMA-Factory/src/llamafactory/train/sft/workflow.py",
			packages+"transformers/trainer.py"), "llamafactory", map[string]string{"shorter-seq": "cutoff_len: N"}},
		{"torchtune", frames(packages+"recipes/full_finetune_distributed.py",
			packages+"torchtune/modules/transformer.py"), "torchtune",
			map[string]string{"checkpointing": "enable_activation_checkpointing=True"}},
		{"torchtitan", frames("/app/torchtitan/torchtitan/train.py"), "torchtitan", map[string]string{
			"checkpointing": "--activation_checkpoint.mode full", "optimizer-8bit": "", "lora": "",
		}},
		{"Megatron", frames("/workspace/megatron-lm/megatron/training/training.py"), "megatron",
			map[string]string{"sharding": "--use-distributed-optimizer",
				"model-parallel": "--tensor-model-parallel-size 2", "lora": ""}},
		{"LitGPT", frames(packages+"litgpt/finetune/lora.py", packages+"lightning/fabric/fabric.py"), "litgpt",
			map[string]string{"grad-accum": "--train.micro_batch_size 1"}},
		{"Lightning", frames(packages + "pytorch_lightning/trainer/trainer.py"), "lightning",
			map[string]string{"amp": `precision="bf16-mixed"`, "grad-accum": "accumulate_grad_batches"}},
		{"Accelerate", frames("/x/loop.py", packages+"accelerate/accelerator.py"), "accelerate",
			map[string]string{"amp": "accelerate launch --mixed_precision bf16"}},
		{"DeepSpeed", frames(packages + "deepspeed/runtime/engine.py"), "deepspeed",
			map[string]string{"sharding": `"zero_optimization": {"stage": 2}`}},
		{"FSDP", frames("/usr/lib/python3.11/site-packages/torch/distributed/fsdp/fully_sharded_data_parallel.py"),
			"fsdp", map[string]string{
				"grad-accum": "without no_sync()", "optimizer-8bit": "torchao.optim.AdamW8bit",
			}},
		{"HF Trainer over DeepSpeed", frames(packages+"transformers/trainer.py",
			packages+"deepspeed/runtime/engine.py"), "hf-trainer", map[string]string{
			"sharding":   `DeepSpeed: "zero_optimization"`,
			"grad-accum": `DeepSpeed: "train_micro_batch_size_per_gpu": 1`,
		}},
		{"none", full, "", map[string]string{"amp": "plain PyTorch: run forward and loss under torch.autocast",
			"checkpointing": "Hugging Face Trainer: "}},
	} {
		d := Diagnose(scanText(t, c.text), NoFacts())
		if d.Framework != c.framework {
			t.Errorf("%s: framework %q, want %q", c.name, d.Framework, c.framework)
		}
		f := NoFacts() // the remedies of a full card, whatever stage the frames name
		f.Stage = "optimizer-step"
		for id, want := range c.how {
			list := Diagnose(scanText(t, c.text), f).Remedies
			i := slices.IndexFunc(list, func(r Remedy) bool { return r.ID == id })
			if want == "" && i >= 0 || want != "" && (i < 0 || !strings.Contains(list[i].How, want)) {
				t.Errorf("%s, %s: %+v, want %q", c.name, id, list, want)
			}
		}
	}
	f := NoFacts()
	f.Run = &RunFacts{Job: JobFacts{Framework: "trl", Sharding: "zero2"}}
	d := Diagnose(scanText(t, full), f)
	i := slices.IndexFunc(d.Remedies, func(r Remedy) bool { return r.ID == "sharding" })
	if d.Framework != "trl" || i < 0 || !strings.Contains(d.Remedies[i].How, "Hugging Face Trainer: ") ||
		!strings.Contains(d.Remedies[i].How, "DeepSpeed: ") {
		t.Errorf("the job's framework and engine: %q, %+v", d.Framework, d.Remedies)
	}
}

// TestEveryRemedyIsWhole: whatever the framework, a remedy says why, how and what it costs; each cause that a job's
// memory can have is aimed at, and none that is unknown here.
func TestEveryRemedyIsWhole(t *testing.T) {
	aimed := map[string]bool{}
	for _, r := range remedy.Rows() {
		for _, cause := range r.Causes {
			aimed[cause] = true
		}
	}
	causes := append(deviceCauses(), HostOOMKill, ShmBusError, DriverUnifiedMemory, AllocatorConfigError, MPSXPU, JAXTF)
	for _, c := range causes {
		if !aimed[string(c)] {
			t.Errorf("no remedy aims at %s", c)
		}
		delete(aimed, string(c))
	}
	if len(aimed) > 0 {
		t.Errorf("remedies aim at what is no cause: %v", aimed)
	}
	for _, framework := range append(append(trainers(), engines()...), "", "custom", "nanotron") {
		f := NoFacts()
		f.Run = &RunFacts{Job: JobFacts{Framework: framework}}
		for _, text := range []string{full, shared, holed, agentKilled, logitsFrame + full} {
			for _, r := range Diagnose(scanText(t, text), f).Remedies {
				if r.Why == "" || r.How == "" || r.Cost == "" ||
					strings.Contains(r.How, "{") && strings.Contains(r.How, "_batch}") {
					t.Errorf("%s: %+v", framework, r)
				}
			}
		}
	}
}

// TestExpandableSegmentsWhereTheyWork: they are named only where fragmentation is shown, and never where they are
// refused or break (pytorch issues 192330, 112957, 147851; c10/cuda/CUDAAllocatorConfig.h).
func TestExpandableSegmentsWhereTheyWork(t *testing.T) {
	async := "torch.cuda.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of " +
		"memory)\nCurrently allocated     : 4.00 GiB\nRequested               : 1.00 GiB\nDevice limit            : " +
		"15.77 GiB\nFree (according to CUDA): 9.50 MiB\nPyTorch limit (set by user-supplied memory fraction)\n  " +
		"                      : 17179869184.00 GiB\n"
	for _, c := range []struct {
		name, text string
		edit       func(*Facts)
	}{
		{"WSL in the log", "Linux 5.15.167.4-microsoft-standard-WSL2\n" + holed, nil},
		{"Windows in the log", `File "C:\venv\Lib\site-packages\torch\nn\modules\module.py", line 1` + "\n" + holed,
			nil},
		{"Jetson", "NvMapMemAllocInternalTagged: 1075072515 error 12\n" + holed, nil},
		{"vLLM's sleep mode", "INFO [cumem.py:97] CuMemAllocator: freed\n" + holed, nil},
		{"MIG", holed, func(f *Facts) { f.NoExpandable = "MIG" }},
		{"torch 2.0", holed, func(f *Facts) { f.TorchVersion = "2.0.1" }},
		{"cudaMallocAsync", async, nil},
		{"no fragmentation", full, nil},
	} {
		f := NoFacts()
		if c.edit != nil {
			c.edit(&f)
		}
		for _, r := range Diagnose(scanText(t, c.text), f).Remedies {
			if strings.Contains(r.How, "expandable_segments:True") {
				t.Errorf("%s: %s: %s", c.name, r.ID, r.How)
			}
		}
	}
}

// TestWhyFitsTheCase: with an estimate a reason names the parts, without one the stage.
func TestWhyFitsTheCase(t *testing.T) {
	why := func(f Facts, id string) string {
		list := Diagnose(scanText(t, full), f).Remedies
		i := slices.IndexFunc(list, func(r Remedy) bool { return r.ID == id })
		if i < 0 {
			t.Fatalf("no %s among %+v", id, list)
		}
		return list[i].Why
	}
	f := NoFacts()
	f.Stage = "backward"
	if got := why(f, "checkpointing"); !strings.HasSuffix(got, "; it died in backward, where these are alive") {
		t.Errorf("%q", got)
	}
	f.Run = &RunFacts{PartsStage: "backward",
		Parts: map[string]int64{"activations": 30 * gib, "logits": 10 * gib, "parameters": 20 * gib}}
	if got := why(f, "grad-accum"); !strings.HasSuffix(got,
		"; here activations, logits are predicted to take 40.00 GiB of 60.00 GiB in backward") {
		t.Errorf("%q", got)
	}
}
