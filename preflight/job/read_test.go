package job

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"oomguard/preflight/model"
)

// check compares settings, written as key=value in the words of explain.
func check(t *testing.T, j *Job, want string) {
	t.Helper()
	got := map[string]Named{}
	for _, s := range j.Settings() {
		got[s.Key] = s
	}
	for pair := range strings.FieldsSeq(want) {
		key, value, _ := strings.Cut(pair, "=")
		if got[key].Value != value {
			t.Errorf("%s is %s (%s), want %s", key, got[key].Value, got[key].Origin, value)
		}
	}
}

// half is a model whose checkpoint is bf16; one named "single" is fp32, "none" names no dtype.
func half(path string) (*model.Architecture, error) {
	a := &model.Architecture{Name: path, Source: "config.json", Hidden: 64, Params: 1000, Dtype: "bf16"}
	switch filepath.Base(path) {
	case "single":
		a.Dtype = "fp32"
	case "none":
		a.Dtype = ""
	}
	return a, nil
}

// models is a folder with the models of half in it, and an FSDP and a DeepSpeed configuration.
func models(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"half", "single", "none"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, dir, "v2.json", `{"version": 2, "fsdp_reshard_after_forward": true}`)
	write(t, dir, "gathered.json", `{"version": 2, "min_num_params": 1e8, "offload_params": "true"}`)
	write(t, dir, "bf16.json", `{"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 1}}`)
	return write(t, dir, "pure.json", `{"bf16": {"enabled": true, "bf16_master_weights_and_grads": true}}`)
}

// The dtype of loading by version: reference transformers PR 42805 (5.0 loads the checkpoint's dtype). Under DeepSpeed
// weights become half precision with an fp32 master copy; accelerate keeps trained weights in fp32 under FSDP with
// mixed precision (accelerator.py); --bf16 alone is autocast and leaves the weights alone.
func TestTrainerPrecision(t *testing.T) {
	tests := []struct{ version, args, want string }{
		{"4.51.3", "--bf16", "param_dtype=fp32 precision=bf16 master_fp32=false"},
		{"4.51.3", "--fp16 True", "param_dtype=fp32 precision=fp16 master_fp32=false"},
		{"4.51.3", "--bf16 false", "param_dtype=fp32 precision=fp32 master_fp32=false"},
		{"4.51.3", "", "param_dtype=fp32 precision=fp32 master_fp32=false base_dtype=unknown"},
		{"4.51.3", "--bf16 --torch_dtype bfloat16", "param_dtype=bf16 precision=bf16 master_fp32=false"},
		{"4.51.3", "--torch_dtype auto", "param_dtype=bf16 precision=bf16"},
		{"5.2.0", "--bf16", "param_dtype=bf16 precision=bf16 master_fp32=false"},
		{"5.2.0", "--bf16 --dtype=float32", "param_dtype=fp32 precision=bf16"},
		{"5.2.0", "--bf16 --model_name_or_path single", "param_dtype=fp32 precision=bf16"},
		{"5.2.0", "--bf16 --model_name_or_path none", "param_dtype=unknown precision=bf16"},
		{"5.2.0", "--bf16 --model_name_or_path org/name", "param_dtype=unknown precision=bf16"},
		{"", "--bf16", "param_dtype=unknown precision=bf16 master_fp32=false"},
		{"", "--bf16 --model_name_or_path single", "param_dtype=fp32 precision=bf16"},
		{"4.51.3", "--bf16 --deepspeed bf16.json", "param_dtype=bf16 precision=bf16 master_fp32=true sharding=zero1"},
		{"4.51.3", "--deepspeed bf16.json", "param_dtype=fp32 precision=fp32 master_fp32=false"},
		{"4.51.3", "--bf16 --deepspeed pure.json", "param_dtype=bf16 precision=bf16 master_fp32=false sharding=ddp"},
		{"5.2.0", "--bf16 --fsdp full_shard", "param_dtype=fp32 precision=bf16 master_fp32=false"},
		{"5.2.0", "--fsdp full_shard", "param_dtype=bf16 precision=bf16 master_fp32=false"},
	}
	dir := models(t)
	for _, tt := range tests {
		t.Run(tt.version+" "+tt.args, func(t *testing.T) {
			argv := "torchrun --nproc-per-node 2 run_clm.py --output_dir out --model_name_or_path half " + tt.args
			j := Read(Sources{Argv: shellWords(argv), Dir: dir, GPUs: 2, LoadModel: half,
				Versions: map[string]string{"transformers": tt.version}})
			if len(told(j)) > 0 || j.WillFail.Value != "" {
				t.Errorf("problems %v %q", told(j), j.WillFail.Value)
			}
			check(t, j, tt.want)
		})
	}
}

func TestTrainerArguments(t *testing.T) {
	tests := []struct{ name, args, want string }{
		{"defaults", "", "micro_batch=8 grad_accum=1 global_batch=16 checkpointing=none optimizer=adamw " +
			"attention=sdpa fused_loss=none sharding=ddp method=full packing=true task=pretrain"},
		{"both spellings", "--per-device-train-batch-size 2 --gradient_accumulation_steps=4",
			"micro_batch=2 grad_accum=4 global_batch=16"},
		{"last wins", "--per_device_train_batch_size 2 --per-device-train-batch-size 3", "micro_batch=3"},
		// the second has two meanings
		{"abbreviation", "--per_device_train_b 2 --gradient_c", "micro_batch=2 checkpointing=none"},
		{"unique abbreviation", "--gradient_acc 2 --block 128", "grad_accum=2 seq_len=128"},
		{"mixed dashes are no option", "--per-device_train_batch 2", "framework=unknown micro_batch=unknown"},
		{"negated", "--gradient_checkpointing --no-gradient-checkpointing", "checkpointing=none"},
		{"truth words", "--gradient_checkpointing YES --use_liger_kernel t",
			"checkpointing=full fused_loss=liger-flce layer_kernels=liger"},
		{"length", "--block_size 1024", "seq_len=1024"},
		{"attention", "--attn_implementation eager", "attention=eager"},
		{"optimizers", "--optim adamw_bnb_8bit", "optimizer=adamw_8bit"},
		{"old adafactor", "--adafactor", "optimizer=adafactor"},
		{"sgd", "--optim sgd", "optimizer=sgd"},
		{"sgd with momentum", "--optim sgd --optim_args momentum=0.9,nesterov=true", "optimizer=sgd_momentum"},
		{"own optimizer", "--optim galore_adamw", "optimizer=galore_adamw"},
		{"unknown options", "--lr 1 --flash maybe -x --foo=bar baz", "framework=unknown micro_batch=unknown"},
		{"fsdp", "--fsdp full_shard", "sharding=fsdp-full fsdp_version=1 fsdp_wrap=whole offload=none"},
		{"fsdp words", `--fsdp "shard_grad_op auto_wrap offload"`,
			"sharding=fsdp-grad fsdp_version=1 fsdp_wrap=layers"},
		{"inline configuration", `--fsdp full_shard --fsdp_config={'version':2,'activation_checkpointing':true}`,
			"fsdp_version=1 checkpointing=full"},
		{"no sharding", "--fsdp no_shard", "sharding=ddp fsdp_version=unknown"},
		{"fsdp off", "--fsdp=", "sharding=ddp"},
		{"lora", "--lora_r 4 --lora_target_modules q_proj v_proj --bf16",
			"method=lora param_dtype=fp32 base_dtype=fp32"},
		{"qlora", "--use_peft --load_in_4bit --bnb_4bit_quant_type nf4", "method=qlora"},
		{"8 bits", "--use_peft --load_in_8bit", "method=lora8bit"},
		{"quantised without adapters", "--load_in_8bit", "method=unknown"},
		{"adapters refused", "--use_peft false --lora_r 4", "method=full lora=none"},
	}
	dir := models(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			argv := shellWords("torchrun --nproc-per-node 2 run_clm.py --output_dir out --model_name_or_path half " +
				tt.args)
			for i := range argv {
				argv[i] = strings.ReplaceAll(argv[i], "'", `"`)
			}
			j := Read(Sources{Argv: argv, Dir: dir, GPUs: 2, LoadModel: half,
				Versions: map[string]string{"transformers": "4.51.3", "torch": "2.6.0"}})
			if len(told(j)) > 0 || j.WillFail.Value != "" {
				t.Errorf("problems %v %q", told(j), j.WillFail.Value)
			}
			check(t, j, tt.want)
		})
	}
}

func TestTrainerBadArguments(t *testing.T) {
	dir := models(t)
	for args, want := range map[string]string{
		"--per_device_train_batch_size two": `command line --per_device_train_batch_size is "two", need a whole number from 1`,
		"--gradient_accumulation_steps 0":   `"0", need a whole number from 1`,
		"--bf16=maybe":                      `"maybe", need true or false`,
		"--torch_dtype int3":                "bfloat16, float16, float32 or auto",
		"--fsdp half_shard":                 "words from full_shard",
		"--fsdp full_shard --fsdp_config x": "FSDP configuration: x: no such file",
		"--bf16 --fp16":                     "At most one of fp16 and bf16",
		"--model_name_or_path ./nothing": "./nothing: no such file or folder; correct the path (--params N gives " +
			"a lower bound)",
	} {
		argv := "torchrun --nproc-per-node 2 run_clm.py --output_dir out --model_name_or_path half " + args
		j := Read(Sources{Argv: shellWords(argv), Dir: dir, GPUs: 2, LoadModel: half})
		if len(told(j)) != 1 || !strings.Contains(told(j)[0].Error(), want) {
			t.Errorf("%s: %v, want %q", args, told(j), want)
		}
	}
}

// The default optimizer is fused from torch 2.8 with transformers 4.54 on (training_args.py, default_optim).
func TestDefaultOptimizer(t *testing.T) {
	for _, tt := range []struct{ torch, transformers, want string }{
		{"2.6.0", "4.51.3", "adamw"}, {"2.8.0+cu128", "4.53.0", "adamw"}, {"2.8.0", "4.54.0", "adamw_fused"},
		{"2.10.0a0", "5.0.0", "adamw_fused"}, {"2.7.1", "", "adamw"}, {"", "", "adamw"},
	} {
		j := Read(Sources{Argv: words("python run_clm.py --output_dir o"),
			Versions: map[string]string{"torch": tt.torch, "transformers": tt.transformers}})
		if j.Optimizer.Value != tt.want || !j.Optimizer.Known {
			t.Errorf("torch %q transformers %q: %+v, want %s", tt.torch, tt.transformers, j.Optimizer, tt.want)
		}
	}
}

func TestFrameworks(t *testing.T) {
	tests := []struct {
		argv string
		gpus int
		want string
	}{
		{"torchrun run_clm.py", 1, "framework=hf-trainer task=pretrain launcher=torchrun outer=none"},
		{"torchrun run_clm_no_trainer.py --output_dir o --per_device_train_batch_size 2", 1,
			"framework=custom micro_batch=2 grad_accum=1 optimizer=adamw"},
		{"torchrun -m trl.scripts.dpo --per_device_train_batch_size 2", 1,
			"framework=trl task=dpo ref_model=true checkpointing=unknown"},
		{"torchrun --nproc-per-node 4 train.py --output_dir o --per_device_train_batch_size 2", 4,
			"framework=unknown task=unknown packing=unknown sharding=unknown micro_batch=2 optimizer=unknown"},
		{"python train.py --output_dir o", 1,
			"framework=unknown sharding=unknown checkpointing=unknown optimizer=unknown param_dtype=unknown " +
				"nproc=unknown"},
		{"torchrun --nproc-per-node 2 nano.py --batch_size 12 --dtype bfloat16 --max_length many", 2,
			"framework=unknown micro_batch=unknown param_dtype=unknown seq_len=unknown sharding=unknown world_size=2"},
		{"torchrun --nproc-per-node 2 nano.py --fsdp", 2, "framework=unknown sharding=unknown"},
		{"python run_clm.py --output_dir o --per_device_train_batch_size 2", 4,
			"sharding=dp world_size=1 global_batch=8"},
		{"python run_clm.py --output_dir o", -1, "sharding=unknown"},
		{"python run_clm.py --output_dir o", 1, "sharding=none"},
		{"make train", 4, "launcher=unknown outer=unknown script=unknown nproc=unknown"},
		{"", 4, "launcher=unknown nproc=1 nnodes=1 sharding=none method=full"},
	}
	for _, tt := range tests {
		t.Run(tt.argv, func(t *testing.T) {
			j := Read(Sources{Argv: words(tt.argv), Dir: t.TempDir(), GPUs: tt.gpus})
			if len(told(j)) > 0 {
				t.Errorf("problems %v", told(j))
			}
			check(t, j, tt.want)
			for _, s := range j.Settings() {
				if s.Origin == "" {
					t.Errorf("%s has no origin", s.Key)
				}
			}
		})
	}
}

func TestNotReadYetSaysSo(t *testing.T) {
	j := Read(Sources{Argv: words("make train"), Flags: map[string]string{"nproc": "2"}})
	if j.Sharding.Known || !strings.HasPrefix(j.Sharding.Origin, "make is not read yet") {
		t.Errorf("%+v", j.Sharding)
	}
	if j.NProc.Value != 2 {
		t.Errorf("own flag is lost: %+v", j.NProc)
	}
}

// oomguard's flags beat the command line, the command line beats oomguard.yaml, and that beats the framework's
// defaults.
func TestPrecedence(t *testing.T) {
	dir := write(t, models(t), ownFile,
		"micro-batch: 5\nseq_len: 77\noptimizer: lion\ngrad-accum: 9\nlora_targets: [q_proj, v_proj]\nmethod: "+
			"lora\nversions: {transformers: 5.2.0}\n")
	j := Read(Sources{
		Argv: words("torchrun --nproc-per-node 2 run_clm.py --output_dir o --per_device_train_batch_size 3 " +
			"--gradient_accumulation_steps 2"),
		Flags: map[string]string{"micro-batch": "4"}, Dir: dir, GPUs: 2, LoadModel: half,
	})
	if len(told(j)) > 0 {
		t.Errorf("problems %v", told(j))
	}
	check(t, j, "micro_batch=4 grad_accum=2 seq_len=77 optimizer=lion checkpointing=none method=lora")
	for key, want := range map[string]string{"micro_batch": "flag --micro-batch",
		"grad_accum": "command line --gradient_accumulation_steps",
		"optimizer":  "oomguard.yaml:3", "checkpointing": "default of transformers 5.2.0"} {
		i := slices.IndexFunc(j.Settings(), func(s Named) bool { return s.Key == key })
		if got := j.Settings()[i].Origin; got != want {
			t.Errorf("origin of %s: %q, want %q", key, got, want)
		}
	}
	if got := j.LoRA.Value; got == nil || !slices.Equal(got.Targets, []string{"q_proj", "v_proj"}) {
		t.Errorf("lora %+v", got)
	}
}

func TestOwnFileErrors(t *testing.T) {
	for text, want := range map[string]string{
		"micro_batch: 2\nmicro-batch: 3": "oomguard.yaml:2: micro-batch was given before in line 1",
		"batch: 2":                       `oomguard.yaml:1: "batch" is not a job setting; known: model, params`,
		"\nsharding: all":                `oomguard.yaml:2: sharding: "all" is not one of none, ddp`,
		"micro_batch: [1, {a: 2}]":       "oomguard.yaml:1: micro_batch: need one word or a list of words",
		"- a":                            "oomguard.yaml:1: need lines of the form key: value",
		"a: [":                           "oomguard.yaml: broken YAML: yaml: line 1",
		"micro_batch: &x 1\ngrad_accum: *x": "oomguard.yaml:2: grad_accum: need one word or a list of words, not an " +
			"alias",
		"a: \xff": "oomguard.yaml:1:4: is not UTF-8",
	} {
		j := Read(Sources{Dir: write(t, t.TempDir(), ownFile, text)})
		if len(told(j)) != 1 || !strings.Contains(told(j)[0].Error(), want) {
			t.Errorf("%q: %v, want %q", text, told(j), want)
		}
	}
	for _, text := range []string{"", "# nothing\n"} {
		if j := Read(Sources{Dir: write(t, t.TempDir(), ownFile, text)}); len(told(j)) > 0 {
			t.Errorf("%q: %v", text, told(j))
		}
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, ownFile), 0o700); err != nil {
		t.Fatal(err)
	}
	if j := Read(Sources{Dir: dir}); len(told(j)) != 1 || !strings.Contains(told(j)[0].Error(), "is a directory") {
		t.Errorf("a directory: %v", told(j))
	}
}

func TestParams(t *testing.T) {
	dir := models(t)
	tests := []struct {
		flags   map[string]string
		params  int64
		problem string
	}{
		{map[string]string{"params": "7B"}, 7e9, ""},
		{map[string]string{"model": "org/name", "params": "7B"}, 7e9, ""},
		{map[string]string{"model": "half"}, 1000, ""},
		{map[string]string{"model": "half", "params": "1000"}, 1000, ""},
		{map[string]string{"model": "half", "params": "7B"}, 7e9,
			"7000000000 parameters, but config.json has 1000; give one of the two"},
		{map[string]string{"model": "org/name"}, 0, ""},
		{map[string]string{"params": "many"}, 0, `--params: "many"`},
	}
	for _, tt := range tests {
		j := Read(Sources{Flags: tt.flags, Dir: dir, LoadModel: half})
		if j.ModelParams.Or(0) != tt.params {
			t.Errorf("%v: %+v, want %d", tt.flags, j.ModelParams, tt.params)
		}
		if tt.problem == "" && len(told(j)) > 0 ||
			tt.problem != "" && (len(told(j)) != 1 || !strings.Contains(told(j)[0].Error(), tt.problem)) {
			t.Errorf("%v: problems %v, want %q", tt.flags, told(j), tt.problem)
		}
		if tt.params > 0 && (j.Architecture == nil) {
			t.Errorf("%v: no architecture", tt.flags)
		}
	}
	if j := Read(Sources{Flags: map[string]string{"model": "org/name"}}); !strings.Contains(j.ModelParams.Origin,
		"org/name is neither in the Hugging Face cache nor") {
		t.Errorf("hub name: %+v", j.ModelParams)
	}
}

// HfArgumentParser reads <script>.args before the command line.
func TestArgsFile(t *testing.T) {
	dir := write(t, t.TempDir(), "run_clm.args", "--per_device_train_batch_size 2 --block_size 64\n")
	j := Read(Sources{Argv: words("torchrun run_clm.py --output_dir o --block_size 128"), Dir: dir})
	check(t, j, "micro_batch=2 seq_len=128")
	if j.MicroBatch.Origin != "run_clm.args --per_device_train_batch_size" {
		t.Errorf("origin %q", j.MicroBatch.Origin)
	}
}

func TestSettingsAndJSONAgree(t *testing.T) {
	j := Read(Sources{Argv: words("torchrun --nproc-per-node 2 run_clm.py --output_dir o --use_peft"), GPUs: 2})
	data, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(data, &object); err != nil {
		t.Fatal(err)
	}
	settings := j.Settings()
	if len(settings) != len(object) {
		t.Errorf("%d settings, %d in JSON", len(settings), len(object))
	}
	for _, s := range settings {
		if object[s.Key] == nil {
			t.Errorf("%s is not in the JSON", s.Key)
		}
	}
	// The contract writes an absent wrapper and an absent failure as null.
	if got := string(object["outer"]); got != `{"value":null,"origin":"no wrapper before the launcher"}` {
		t.Errorf("outer: %s", got)
	}
	var back Job
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if back.LoRA.Value == nil || back.LoRA.Value.R != 8 || back.NProc.Value != j.NProc.Value {
		t.Errorf("read back: %+v %+v", back.LoRA, back.NProc)
	}
}

func FuzzRead(f *testing.F) {
	for _, seed := range []string{"torchrun\x00--nproc-per-node\x002\x00train.py",
		"python\x00-m\x00torch.distributed.run\x00-r3\x00--\x00a.py", "python\x00-c",
		"torchrun\x00--no-python\x00python\x00-X",
		"torchrun\x00run_clm.py\x00--output_dir\x00o\x00--fsdp\x00full_shard\x00--fsdp_config\x00{\"version\":2}",
		"python\x00run_clm.py\x00args.json", "torchrun\x00-mr", "accelerate\x00launch", "--",
		"torchrun\x00--nnodes\x00:",
		"env\x00HF_HOME=.\x00uv\x00run\x00torchrun\x00train.py\x00--model_name_or_path\x00gpt2\x00--model_revision\x00../x", "srun\x00-N\x004\x00bash\x00-c\x00torchrun $X pretrain_gpt.py --num-layers $L --hidden-size 4",
		"python\x00-m\x00verl.trainer.main_ppo\x00a.b=${c}\x00trainer.nnodes=0",
		"deepspeed\x00--module\x00openrlhf.cli.train_sft\x00--ds.lora.rank\x00x\x00--zero\x003",
		"pretrain_gpt.py\x00--num-layers=2\x00--hidden-size=8\x00--moe-layer-freq\x00([0]*9)\x00--num-experts\x003\x00--vocab-size\x001", "accelerate\x00launch\x00--config_file\x00.\x00a.py", "tune\x00run\x00full_finetune_distributed\x00--config\x00."} {
		f.Add(seed)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, line string) {
		j := Read(Sources{Argv: strings.Split(line, "\x00"), Dir: dir, GPUs: 2, CPUs: 2, LoadModel: loadNothing})
		for _, s := range j.Settings() {
			if s.Origin == "" {
				t.Errorf("%s has no origin", s.Key)
			}
		}
		if _, err := json.Marshal(j); err != nil {
			t.Error(err)
		}
	})
}

func FuzzOwnFile(f *testing.F) {
	for _, seed := range []string{"micro-batch: 2", "a: &x [*x]", "? {a: b}\n: c", "lora_targets: [a, b]",
		"versions: {torch: 2}", "---\n- 1", "params: !!binary aa"} {
		f.Add(seed)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		for _, problem := range Read(Sources{Dir: write(t, dir, ownFile, text), LoadModel: loadNothing}).Unreadable {
			if problem.Error() == "" {
				t.Error("a problem without words")
			}
		}
	})
}

// Reading a job is part of a start that must stay below 50 ms as a whole.
func BenchmarkRead(b *testing.B) {
	folders, err := filepath.Glob(filepath.Join("testdata", "jobs", "*"))
	if err != nil || len(folders) == 0 {
		b.Fatalf("no jobs: %v", err)
	}
	for _, folder := range folders {
		b.Run(filepath.Base(folder), func(b *testing.B) {
			sources := jobSources(b, folder)
			for b.Loop() {
				Read(sources)
			}
		})
	}
}
