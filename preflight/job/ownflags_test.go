package job

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

// A flagCase is a value for one of oomguard's own flags, with the settings that must show it: setting -> a part of its
// JSON.
type flagCase struct {
	text  string
	shows map[string]string
}

// flagCases has values for every key that no test job has, so that a setting shows them for no other reason.
func flagCases() map[string][]flagCase {
	number := func(key string, values ...string) []flagCase {
		var cases []flagCase
		for _, v := range values {
			cases = append(cases, flagCase{v, map[string]string{key: v}})
		}
		return cases
	}
	word := func(key string, values ...string) []flagCase {
		cases := number(key, values...)
		for i := range cases {
			cases[i].shows[key] = `"` + cases[i].text + `"`
		}
		return cases
	}
	return map[string][]flagCase{
		"model":                   word("model", "microsoft/phi-2"),
		"params":                  {{"123456789", map[string]string{"model_params": "123456789"}}},
		"versions":                {{"transformers=4.41.7", nil}},
		"micro_batch":             number("micro_batch", "13"),
		"grad_accum":              number("grad_accum", "17"),
		"seq_len":                 number("seq_len", "777"),
		"compile":                 number("compile", "true", "false"),
		"packing":                 number("packing", "true", "false"),
		"optimizer":               word("optimizer", "lion_8bit", "adafactor"),
		"checkpointing":           word("checkpointing", "selective:7", "none", "full"),
		"checkpointing_reentrant": number("checkpointing_reentrant", "true", "false"),
		"attention":               word("attention", "flex_attention", "eager"),
		"fused_loss":              word("fused_loss", "triton-ce", "none"),
		"layer_kernels":           word("layer_kernels", "liger:rope+rms_norm+glu", "none"),
		"method":                  word("method", "full", "lora", "qlora"),
		"lora_r":                  {{"113", map[string]string{"lora": `"r":113`}}},
		"lora_alpha":              {{"117", map[string]string{"lora": `"alpha":117`}}},
		"lora_dropout":            {{"0.37", map[string]string{"lora": `"dropout":0.37`}}},
		"lora_targets":            {{"o_proj,w_proj", map[string]string{"lora": `"targets":["o_proj","w_proj"]`}}},
		"quant": {{"fp4", map[string]string{"quant": `"type":"fp4"`}},
			{"int8", map[string]string{"quant": `"bits":8`}}},
		"precision": {
			{"fp16-true", map[string]string{"param_dtype": `"fp16"`, "precision": `"fp16"`, "master_fp32": "false"}},
			{"fp32", map[string]string{"param_dtype": `"fp32"`, "precision": `"fp32"`, "master_fp32": "false"}},
			{"fp16-master", map[string]string{"param_dtype": `"fp16"`, "precision": `"fp16"`, "master_fp32": "true"}},
		},
		"sharding":     word("sharding", "zero1", "fsdp-grad", "none", "dist-optim"),
		"fsdp_version": number("fsdp_version", "1", "2"),
		"offload": {{"optimizer", map[string]string{"offload": `{"optimizer":"cpu","params":"none"}`}},
			{"params", map[string]string{"offload": `{"optimizer":"none","params":"cpu"}`}}},
		"tp":    number("tp", "3"),
		"pp":    number("pp", "5"),
		"cp":    number("cp", "7"),
		"ep":    number("ep", "9"),
		"nproc": number("nproc", "11"),

		"grad_dtype":              word("grad_dtype", "fp16", "fp32"),
		"optimizer_in_backward":   number("optimizer_in_backward", "true", "false"),
		"projection_rank":         number("projection_rank", "23"),
		"evaluation":              number("evaluation", "true", "false"),
		"eval_batch":              number("eval_batch", "29"),
		"eval_generates":          number("eval_generates", "true", "false"),
		"state_dict":              word("state_dict", "full", "sharded"),
		"gradient_as_bucket_view": number("gradient_as_bucket_view", "true", "false"),
		"etp":                     number("etp", "31"),
		"sequence_parallel":       number("sequence_parallel", "true", "false"),
		"virtual_stages":          number("virtual_stages", "37"),
		"nnodes":                  number("nnodes", "19"),
	}
}

// Whatever a command, its files and its script say, what oomguard's own flag says is what explain shows, with the flag
// as its origin, and what the estimate is given.
func TestOwnFlagsWinOverEverything(t *testing.T) {
	folders, err := filepath.Glob(filepath.Join("testdata", "jobs", "*"))
	if err != nil || len(folders) == 0 {
		t.Fatalf("no jobs: %v", err)
	}
	cases := flagCases()
	for _, key := range Keys() {
		if len(cases[key.Name]) == 0 {
			t.Errorf("%s has no case", key.Name)
		}
		for i, c := range cases[key.Name] { // each job meets one value of a key
			t.Run(key.Flag+"="+c.text, func(t *testing.T) {
				for at := i; at < len(folders); at += len(cases[key.Name]) {
					src := jobSources(t, folders[at])
					src.Flags = map[string]string{key.Flag: c.text}
					checkFlag(t, filepath.Base(folders[at]), key.Flag, Read(src), c.shows)
				}
			})
		}
	}
}

func checkFlag(t *testing.T, name, flag string, j *Job, shows map[string]string) {
	t.Helper()
	data, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	var settings map[string]struct {
		Value  json.RawMessage `json:"value"`
		Origin string          `json:"origin"`
	}
	if err := json.Unmarshal(data, &settings); err != nil {
		t.Fatal(err)
	}
	for key, want := range shows {
		got := settings[key]
		value := string(got.Value)
		part := strings.Contains(want, ":") && strings.Contains(value, want)
		if value != want && !part {
			t.Errorf("%s: --%s: %s is %s (%s), want %s", name, flag, key, got.Value, got.Origin, want)
		}
		if !strings.Contains(got.Origin, "flag --"+flag) {
			t.Errorf("%s: --%s: origin of %s is %q", name, flag, key, got.Origin)
		}
	}
	if flag == "params" && (j.Architecture == nil || j.Architecture.Parameters() != 123456789) {
		t.Errorf("%s: --params does not reach the estimate", name)
	}
	if flag == "versions" && j.Versions["transformers"] != "4.41.7" {
		t.Errorf("%s: --versions: transformers is %q", name, j.Versions["transformers"])
	}
	world := j.NNodes.Value * j.NProc.Value
	if (flag == "nproc" || flag == "nnodes") && j.WorldSize.Known && j.NNodes.Known && j.NProc.Known &&
		j.WorldSize.Value != world {
		t.Errorf("%s: --%s: world_size is %d (%s), want %d", name, flag, j.WorldSize.Value, j.WorldSize.Origin, world)
	}
}

// Own flags decide together what a script keeps to itself, or has another value for.
func TestOwnFlagsOverScripts(t *testing.T) {
	const withheld = `import sys
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
from peft import LoraConfig, get_peft_model

model = AutoModelForCausalLM.from_pretrained("gpt2")
if len(sys.argv) > 5:
    model = get_peft_model(model, LoraConfig(r=int(sys.argv[5])))
Trainer(model=model, args=TrainingArguments(output_dir="o", optim=sys.argv[1], bf16=bool(sys.argv[2]))).train()
`
	const cast = `import torch
from torch.nn.parallel import DataParallel
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("gpt2").to(torch.float16)
model = torch.nn.DataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in torch.utils.data.DataLoader(rows, batch_size=8):
    model(**batch).loss.backward()
`
	const spawns = `import torch.multiprocessing as mp
from transformers import AutoModelForCausalLM
import torch

def main(rank):
    optimizer = torch.optim.AdamW(AutoModelForCausalLM.from_pretrained("gpt2").parameters())

mp.spawn(main, nprocs=4)
`
	adapter := map[string]string{"method": "lora", "lora-r": "32", "lora-targets": "all-linear", "lora-alpha": "64",
		"lora-dropout": "0.1"}
	lora := map[string]string{"method": "lora @ flag --method",
		"lora": "r 32, alpha 64, dropout 0.1, targets all-linear @ flag --lora-r"}
	for _, c := range []struct {
		name, script, command string
		flags, want           map[string]string
	}{
		{"withheld adapter", withheld, "python train.py a b c d 9", adapter, lora},
		{"withheld adapter, rank alone", withheld, "python train.py a b c d 9", map[string]string{"lora-r": "32"},
			map[string]string{"method": "lora @ flag --lora-r",
				"lora": "r 32, alpha 8, dropout 0, targets c_attn @ flag --lora-r"}},
		{"withheld optimizer", withheld, "python train.py a b c d 9", map[string]string{"optimizer": "lion"},
			map[string]string{"optimizer": "lion @ flag --optimizer"}},
		{"withheld precision", withheld, "python train.py a b c d 9",
			map[string]string{"precision": "bf16-true", "method": "full"},
			map[string]string{"precision": "bf16 @ flag", "param_dtype": "bf16 @ flag", "lora": "none"}},
		{"cast weights", cast, "python train.py", map[string]string{"precision": "fp32", "micro-batch": "3"},
			map[string]string{"param_dtype": "fp32 @ flag", "precision": "fp32 @ flag",
				"micro_batch": "3 @ flag --micro-batch"}},
		{"quantised below own rank", withheld, "python train.py a b c d 9",
			map[string]string{"lora-r": "32", "quant": "nf4"},
			map[string]string{"method": "qlora @ flag --lora-r", "quant": "bnb 4 bits, nf4 @ flag --quant"}},
		{"no adapter after all", withheld, "python train.py a b c d 9",
			map[string]string{"method": "full", "lora-r": "32"},
			map[string]string{"method": "full @ flag --method", "lora": "none"}},
		{"processes", spawns, "python train.py", map[string]string{"nproc": "2", "nnodes": "3"},
			map[string]string{"nproc": "2 @ flag", "nnodes": "3 @ flag", "world_size": "6"}},
		{"ranks of mpirun", spawns, "mpirun -np 16 -H a:8,b:8 python train.py", map[string]string{"nproc": "4"},
			map[string]string{"nproc": "4 @ flag", "world_size": "8"}},
		{"an unknown program", "import slime.train\n", "torchrun --nproc-per-node 4 train.py", adapter, lora},
		{"no text", "", "swift sft --lora_rank 9", adapter, lora},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := write(t, t.TempDir(), "train.py", c.script)
			j := Read(Sources{Argv: strings.Fields(c.command), Dir: dir, GPUs: 2, Flags: c.flags,
				Versions: map[string]string{"torch": "2.6.0", "transformers": "4.51.3", "peft": "0.15.0"}})
			checkSettings(t, j, c.want)
		})
	}
}
