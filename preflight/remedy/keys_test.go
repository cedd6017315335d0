package remedy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"oomguard/preflight/job"
)

// keyRow is one key of a remedy: use stands in the ways of the remedy word for word (but for its placeholders N and
// FILE) and is given to a job of that framework; want is what our own reader must then find, and did not find without
// it.
type keyRow struct {
	remedy, use string
	with        string // what else the framework asks for; with {use} in it, the place where the key goes
	want        string // key=value of the job's JSON
	instead     string // what a job says that does not follow the remedy; "": nothing
}

// keyedFramework is how a job of a framework is made that takes a key: files by name and the command; {use} and {with}
// are where those go.
type keyedFramework struct {
	files   map[string]string
	command string
	rows    []keyRow
	// none are remedies whose text names no key, and what it names.
	none map[string]string
}

const (
	zero2File    = `{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": "auto"}`
	zero3File    = `{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": "auto"}`
	offload2File = `{"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}, "train_micro_batch_size_per_gpu": "auto"}`
	offloadFile  = `{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}, "train_micro_batch_size_per_gpu": "auto"}`
)

func keyedFrameworks() map[string]keyedFramework {
	return map[string]keyedFramework{
		"axolotl": {
			files: map[string]string{
				"c.yml":                        "base_model: meta-llama/Llama-3.1-8B\n{use}\n{with}\n",
				"deepspeed_configs/zero2.json": zero2File,
				"deepspeed_configs/zero3_bf16_cpuoffload_all.json": offloadFile,
			},
			command: "axolotl train c.yml",
			rows: []keyRow{
				{"amp", "bf16: auto", "", "precision=bf16", "bf16: false"},
				{"grad-accum", "micro_batch_size: 1", "", "micro_batch=1", "micro_batch_size: 2"},
				{"grad-accum", "gradient_accumulation_steps: N", "", "grad_accum=4", ""},
				{"checkpointing", "gradient_checkpointing: true", "", "checkpointing=full", ""},
				{"fused-loss", "cut_cross_entropy: true",
					"plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]", "fused_loss=cut-ce",
					"cut_cross_entropy: false"},
				{"sharding", "deepspeed: deepspeed_configs/zero2.json", "", "sharding=zero2", ""},
				{"sharding", "fsdp_version: 2", "fsdp_config: {reshard_after_forward: true}", "fsdp_version=2", ""},
				{"optimizer-8bit", "optimizer: adamw_bnb_8bit", "", "optimizer=adamw_8bit", ""},
				{"lora", "adapter: lora", "lora_r: 16\nlora_alpha: 32\nlora_target_linear: true", "method=lora", ""},
				{"lora", "load_in_4bit: true", "adapter: qlora", "method=qlora", ""},
				{"offload", "deepspeed: deepspeed_configs/zero3_bf16_cpuoffload_all.json", "",
					`offload={"optimizer":"cpu","params":"cpu"}`, ""},
				{"offload", "offload_params: true", "fsdp_version: 2\nfsdp_config: {{use}}",
					`offload={"optimizer":"cpu","params":"cpu"}`, ""},
				{"model-parallel", "tensor_parallel_size: 2", "", "tp=2", ""},
				{"shorter-seq", "sequence_len: N", "", "seq_len=4", ""},
			},
		},
		"llamafactory": {
			files: map[string]string{
				"c.yaml": "model_name_or_path: meta-llama/Llama-3.1-8B\nstage: " +
					"sft\ndo_train: true\ndataset: d\ntemplate: llama3\noutput_dir: o\n{use}\n{with}\n",
				"examples/deepspeed/ds_z2_config.json":         zero2File,
				"examples/deepspeed/ds_z2_offload_config.json": offload2File,
				"examples/deepspeed/ds_z3_offload_config.json": offloadFile,
			},
			command: "llamafactory-cli train c.yaml",
			rows: []keyRow{
				{"amp", "bf16: true", "", "precision=bf16", "fp16: true"},
				{"grad-accum", "per_device_train_batch_size: 1", "", "micro_batch=1", ""},
				{"grad-accum", "gradient_accumulation_steps: N", "", "grad_accum=4", ""},
				{"checkpointing", "disable_gradient_checkpointing: true", "", "checkpointing=none", ""},
				{"fused-loss", "enable_liger_kernel: true", "", "fused_loss=liger-flce", ""},
				{"sharding", "deepspeed: examples/deepspeed/ds_z2_config.json", "", "sharding=zero2", ""},
				{"optimizer-8bit", "optim: adamw_bnb_8bit", "", "optimizer=adamw_8bit", ""},
				{"lora", "finetuning_type: lora", "lora_rank: 16\nlora_target: all", "method=lora",
					"finetuning_type: full"},
				{"lora", "quantization_bit: 4", "finetuning_type: lora", "method=qlora", ""},
				{"offload", "deepspeed: examples/deepspeed/ds_z3_offload_config.json", "",
					`offload={"optimizer":"cpu","params":"cpu"}`, ""},
				{"offload", "deepspeed: examples/deepspeed/ds_z2_offload_config.json", "",
					`offload={"optimizer":"cpu","params":"none"}`, ""},
				{"shorter-seq", "cutoff_len: N", "", "seq_len=4", ""},
			},
		},
		"torchtune": {
			files: map[string]string{"c.yaml": "model:\n  _component_: " +
				"torchtune.models.llama3_1.llama3_1_8b\ntokenizer:\n  _component_: " +
				"torchtune.models.llama3.llama3_tokenizer\n  path: /t\n  max_seq_len: null\noptimizer:\n  " +
				"_component_: torch.optim.AdamW\n  lr: 2e-5\nloss:\n  _component_: " +
				"torch.nn.CrossEntropyLoss\nbatch_size: 2\ngradient_accumulation_steps: 1\ndtype: " +
				"fp32\nenable_activation_checkpointing: False\n"},
			command: "tune run --nproc_per_node 2 {with} --config c.yaml {use}",
			rows: []keyRow{
				{"amp", "dtype=bf16", "full_finetune_distributed", "precision=bf16", ""},
				{"grad-accum", "batch_size=1", "full_finetune_distributed", "micro_batch=1", ""},
				{"grad-accum", "gradient_accumulation_steps=N", "full_finetune_distributed", "grad_accum=4", ""},
				{"checkpointing", "enable_activation_checkpointing=True", "full_finetune_distributed",
					"checkpointing=full", ""},
				{"fused-loss", "loss=torchtune.modules.loss.LinearCrossEntropyLoss", "full_finetune_distributed",
					"fused_loss=chunked", ""},
				{"sharding", "fsdp_reshard_after_forward=True", "full_finetune_distributed", "sharding=fsdp-full",
					"fsdp_reshard_after_forward=False"},
				{"optimizer-8bit", "optimizer._component_=bitsandbytes.optim.PagedAdamW8bit",
					"full_finetune_single_device", "optimizer=paged_adamw_8bit", ""},
				{"optimizer-8bit", "optimizer_in_bwd=True", "full_finetune_distributed", "optimizer_in_backward=true",
					""},
				{"offload", "fsdp_cpu_offload=True", "full_finetune_distributed",
					`offload={"optimizer":"cpu","params":"cpu"}`, ""},
				{"model-parallel", "tensor_parallel_dim=2", "full_finetune_distributed", "tp=2", ""},
				{"shorter-seq", "tokenizer.max_seq_len=N", "full_finetune_distributed", "seq_len=4", ""},
			},
			none: map[string]string{"lora": "another recipe"},
		},
		"trl": {
			files: map[string]string{"ds.json": zero2File},
			command: "torchrun --nproc-per-node 2 trl/scripts/sft.py --model_name_or_path meta-llama/Llama-3.1-8B " +
				"--dataset_name d {use} {with}",
			rows: []keyRow{
				{"amp", "--bf16 True", "", "precision=bf16", "--bf16 False"},
				{"grad-accum", "--per_device_train_batch_size 1", "", "micro_batch=1", ""},
				{"grad-accum", "--gradient_accumulation_steps N", "", "grad_accum=4", ""},
				{"checkpointing", "--gradient_checkpointing True", "", "checkpointing=full",
					"--gradient_checkpointing False"},
				{"fused-loss", "--use_liger_kernel True", "", "fused_loss=liger-flce", ""},
				{"fused-loss", "--loss_type chunked_nll", "", "fused_loss=chunked", "--loss_type nll"},
				{"sharding", "--deepspeed FILE", "", "sharding=zero2", ""},
				{"sharding", `--fsdp "full_shard auto_wrap"`, "", "sharding=fsdp-full", ""},
				{"optimizer-8bit", "--optim adamw_bnb_8bit", "", "optimizer=adamw_8bit", ""},
				{"lora", "--use_peft True --lora_r 16", "", "method=lora", ""},
				{"lora", "--load_in_4bit True", "--use_peft True", "method=qlora", ""},
				{"offload", `--fsdp "full_shard auto_wrap offload"`, "", `offload={"optimizer":"cpu","params":"cpu"}`,
					""},
				{"shorter-seq", "--max_length N", "", "seq_len=4", ""},
			},
			none: map[string]string{"model-parallel": "a word in from_pretrained"},
		},
		"lightning": {
			files: map[string]string{"train.py": "import lightning as L\nimport torch\nfrom " +
				"lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy\n\nclass " +
				"M(L.LightningModule):\n    def configure_optimizers(self):\n        return " +
				"torch.optim.AdamW(self.parameters())\n\ntrainer = L.Trainer(devices=2, " +
				"{use}{with})\ntrainer.fit(M())\n"},
			command: "python train.py",
			rows: []keyRow{
				{"amp", `precision="bf16-mixed"`, "", "precision=bf16", ""},
				{"grad-accum", "accumulate_grad_batches=N", "", "grad_accum=4", ""},
				{"checkpointing", "FSDPStrategy(activation_checkpointing_policy={Block})", "strategy={use}",
					"checkpointing=full", ""},
				{"sharding", `strategy="fsdp"`, "", "sharding=fsdp-full", ""},
				{"sharding", `strategy="deepspeed_stage_2"`, "", "sharding=zero2", ""},
				{"offload", `strategy="deepspeed_stage_2_offload"`, "", `offload={"optimizer":"cpu","params":"none"}`,
					""},
				{"offload", "FSDPStrategy(cpu_offload=True)", "strategy={use}",
					`offload={"optimizer":"cpu","params":"cpu"}`, ""},
				{"model-parallel", "ModelParallelStrategy(tensor_parallel_size=2)", "strategy={use}", "tp=2", ""},
			},
			none: map[string]string{"optimizer-8bit": "a line of the user's own module"},
		},
	}
}

// TestRemedyKeys: every key that a remedy names for the frameworks with configuration files of their own is one that
// our reader of jobs understands, so that what oomguard advises and what it reads cannot drift apart.
func TestRemedyKeys(t *testing.T) {
	for name, f := range keyedFrameworks() {
		for _, row := range jobRows() {
			covered := slices.ContainsFunc(f.rows, func(r keyRow) bool { return r.remedy == row.ID })
			if row.writtenIn(name) && !covered && f.none[row.ID] == "" {
				t.Errorf("%s: no key of the remedy %s is tried", name, row.ID)
			}
		}
		for _, r := range f.rows {
			if text := listed(t, r.remedy, name); !strings.Contains(text, r.use) {
				t.Errorf("%s: the remedy %s does not say %q: %s", name, r.remedy, r.use, text)
			}
			key, want, _ := strings.Cut(r.want, "=")
			if got := f.read(t, r, r.use)[key]; got != want {
				t.Errorf("%s: %s of the remedy %s gives %s %s, want %s", name, r.use, r.remedy, key, got, want)
			}
			if got := f.read(t, r, r.instead)[key]; got == want {
				t.Errorf("%s: %s is %s without %s too", name, key, got, r.use)
			}
		}
	}
}

// listed is how a remedy is written in a framework.
func listed(t *testing.T, id, framework string) string {
	t.Helper()
	i := slices.IndexFunc(jobRows(), func(r Row) bool { return r.ID == id })
	if i < 0 {
		t.Fatalf("no remedy %s", id)
	}
	text, _ := jobRows()[i].Listing(Case{Framework: framework})
	return text
}

// read makes the job with a key and returns its settings as JSON, texts without their quotes.
func (f keyedFramework) read(t *testing.T, r keyRow, use string) map[string]string {
	t.Helper()
	use = strings.NewReplacer(": N", ": 4", "=N", "=4", " N", " 4", "FILE", "ds.json").Replace(use)
	with := r.with
	if strings.Contains(with, "{use}") {
		with, use = strings.ReplaceAll(with, "{use}", use), ""
	}
	fill, dir := strings.NewReplacer("{use}", use, "{with}", with), t.TempDir()
	for name, text := range f.files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(fill.Replace(text)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	versions := map[string]string{"torch": "2.8.0", "transformers": "4.57.0", "trl": "1.6.0", "lightning": "2.5.0"}
	data, err := json.Marshal(job.Read(job.Sources{Argv: argv(fill.Replace(f.command)), Dir: dir, GPUs: 2, CPUs: 4,
		Versions: versions}))
	if err != nil {
		t.Fatal(err)
	}
	var settings map[string]struct {
		Value json.RawMessage `json:"value"`
	}
	if err := json.Unmarshal(data, &settings); err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for key, s := range settings {
		values[key] = strings.Trim(string(s.Value), `"`)
	}
	return values
}

// argv splits a command at its spaces outside double quotes.
func argv(line string) []string {
	var list []string
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 {
			list = append(list, part)
		} else {
			list = append(list, strings.Fields(part)...)
		}
	}
	return list
}
