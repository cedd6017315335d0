package job

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// acceleratedJob reads an accelerate command in a folder with a config.yaml, a ds.json and a model.
func acceleratedJob(t testing.TB, config, ds, argv string, gpus int) *Job {
	t.Helper()
	files := map[string]string{"model/config.json": "{}", "config.yaml": config}
	if ds != "" {
		files["ds.json"] = ds
	}
	return Read(Sources{
		Argv: shellWords(argv), Dir: lay(t, files), GPUs: gpus, LoadModel: half,
		Versions: map[string]string{"transformers": "4.51.3", "torch": "2.6.0", "accelerate": "1.9.0"},
	})
}

const (
	multi    = "distributed_type: MULTI_GPU\nnum_processes: 4\n"
	fsdpFile = "distributed_type: FSDP\nnum_processes: 8\nmixed_precision: bf16\nfsdp_config:\n"
	zeroFile = "distributed_type: DEEPSPEED\nnum_processes: 8\nmixed_precision: bf16\ndeepspeed_config:\n"
	trained  = " run_clm.py --model_name_or_path ./model --output_dir o "
	launched = "accelerate launch --config_file config.yaml"
)

// The expectations follow accelerate/commands/launch.py and the plugins of accelerate/utils/dataclasses.py (1.9 to
// 1.15); the counts of processes were compared with what accelerate 1.15 itself makes of the same lines.
func TestAccelerateLaunch(t *testing.T) {
	for _, tt := range []struct{ name, config, ds, argv, want string }{
		{"all GPUs without a configuration", "", "", "accelerate launch train.py",
			"launcher=accelerate nproc=8 nnodes=1 world_size=8 sharding=ddp"},
		{"processes", "", "", "accelerate launch --num-processes 4 train.py", "nproc=4"},
		{"total over machines", "", "",
			"accelerate launch --num_processes=16 --num_machines 2 --machine_rank 0 train.py",
			"nproc=8 nnodes=2 world_size=16"},
		{"one process", "", "", "accelerate launch --num_processes 1" + trained, "nproc=1 sharding=dp world_size=1"},
		{"module", "", "", "accelerate-launch -m my.train --x 1", "nproc=8"},
		{"as a module", "", "", "python -m accelerate.commands.launch --num_processes 2 train.py",
			"launcher=accelerate nproc=2"},
		{"as the program's module", "", "",
			"python -m accelerate.commands.accelerate_cli launch --num_processes 2 train.py", "nproc=2"},
		{"other command", "", "", "accelerate config", "script=unknown nproc=unknown"},
		{"gpu ids", "", "", "accelerate launch --gpu_ids 0,1 train.py", "nproc=2"},
		{"cpu", multi, "", launched + " --cpu train.py", "nproc=1"},
		{"multi", multi, "", launched + " train.py", "nproc=4 sharding=ddp"},
		{"command line over file", multi, "", launched + " --num_processes 2 train.py", "nproc=2"},
		{"type NO", "distributed_type: 'NO'\nnum_processes: 8\n", "", launched + " train.py",
			"nproc=1 world_size=1 sharding=none"},
		{"type NO with Trainer", "distributed_type: 'NO'\n", "", launched + trained, "nproc=1 sharding=dp"},
		{"JSON", `{"distributed_type": "MULTI_GPU", "num_processes": 2}`, "", launched + " train.py", "nproc=2"},
		{"an option keeps the type out", zeroFile + "  zero_stage: 3\n", "", launched + " --use_fsdp" + trained,
			"sharding=fsdp-full nproc=8 fsdp_version=1"},
		{"old fp16", multi + "fp16: true\n", "", launched + trained, "precision=fp16"},
		{"mixed precision of the environment", "", "", "env ACCELERATE_MIXED_PRECISION=bf16 torchrun" + trained,
			"precision=bf16"},

		{"fsdp by options", "", "", "accelerate launch --use_fsdp --mixed_precision bf16 --fsdp_auto_wrap_policy " +
			"TRANSFORMER_BASED_WRAP" + trained,
			"sharding=fsdp-full fsdp_wrap=layers param_dtype=fp32 precision=bf16 fsdp_version=1 nproc=8"},
		{"no policy", fsdpFile + "  fsdp_offload_params: true\n", "", launched + trained, "fsdp_wrap=whole"},
		{"numbers", fsdpFile + "  sharding_strategy: 4\n", "", launched + trained, "sharding=fsdp-hybrid"},
		{"no shard", fsdpFile + "  fsdp_sharding_strategy: NO_SHARD\n", "", launched + trained, "sharding=ddp"},
		{"version 1 ignores reshard", fsdpFile + "  fsdp_reshard_after_forward: SHARD_GRAD_OP\n", "",
			launched + trained, "sharding=fsdp-full"},
		{"version 2", fsdpFile + "  fsdp_version: 2\n", "", launched + trained, "sharding=fsdp-full fsdp_version=2"},
		{"version 2 keeps parameters", fsdpFile + "  fsdp_version: 2\n  fsdp_reshard_after_forward: false\n", "",
			launched + trained, "sharding=fsdp-grad fsdp_version=2"},
		{"checkpointing", fsdpFile + "  fsdp_activation_checkpointing: true\n", "", launched + trained,
			"checkpointing=full"},
		{"size", fsdpFile + "  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n", "", launched + trained, "fsdp_wrap=size"},
		{"no mixed precision keeps the dtype", "distributed_type: FSDP\nnum_processes: 2\nfsdp_config: {}\n", "",
			launched + trained + "--torch_dtype bfloat16", "param_dtype=bf16"},
		{"the script's own fsdp", fsdpFile + "  fsdp_sharding_strategy: 3\n", "",
			launched + trained + "--fsdp shard_grad_op", "sharding=fsdp-grad"},
		{"own loop", fsdpFile + "  fsdp_sharding_strategy: 2\n", "", launched + " train.py",
			"framework=unknown sharding=fsdp-grad precision=bf16 param_dtype=fp32"},

		{"stage", zeroFile + "  zero_stage: 3\n  offload_optimizer_device: cpu\n", "", launched + trained + "--bf16",
			"sharding=zero3 param_dtype=bf16 master_fp32=true"},
		{"stage by default", "", "", "accelerate launch --use_deepspeed --mixed_precision fp16" + trained + "--fp16",
			"sharding=zero2 precision=fp16 grad_accum=1"},
		{"file", "", `{"zero_optimization": {"stage": 1}, "bf16": {"enabled": "auto"}}`,
			"accelerate launch --use_deepspeed --deepspeed_config_file ds.json --mixed_precision bf16" + trained +
				"--bf16", "sharding=zero1 precision=bf16"},
		{"auto stage", "", `{"zero_optimization": {"stage": "auto"}}`,
			"accelerate launch --use_deepspeed --zero_stage 3 --deepspeed_config_file ds.json --mixed_precision " +
				"bf16 train.py", "sharding=zero3 precision=bf16"},
		{"own loop takes the accumulation", zeroFile + "  zero_stage: 1\n  gradient_accumulation_steps: 4\n", "",
			launched + " train.py", "sharding=zero1 grad_accum=4"},

		{"context parallel", fsdpFile +
			"  fsdp_version: 2\nparallelism_config:\n  parallelism_config_dp_shard_size: 2\n  " +
			"parallelism_config_cp_size: 4\n", "", launched + trained, "cp=4 tp=1"},
		{"tensor parallel", fsdpFile + "  fsdp_version: 2\nparallelism_config:\n  parallelism_config_dp_shard_size: " +
			"4\n  parallelism_config_tp_size: 2\n", "", launched + trained, "tp=2"},
		{"replicas", fsdpFile + "  fsdp_version: 2\nparallelism_config:\n  parallelism_config_dp_shard_size: 4\n  " +
			"parallelism_config_dp_replicate_size: 2\n", "", launched + trained, "sharding=fsdp-hybrid"},
		{"megatron", "distributed_type: MEGATRON_LM\nnum_processes: 8\nmixed_precision: bf16\nmegatron_lm_config:\n " +
			" megatron_lm_tp_degree: 2\n  megatron_lm_pp_degree: 2\n  megatron_lm_use_distributed_optimizer: true\n " +
			" megatron_lm_num_micro_batches: 4\n  megatron_lm_recompute_activations: true\n", "",
			launched + " train.py", "tp=2 pp=2 sharding=dist-optim grad_accum=4 checkpointing=selective " +
				"master_fp32=true"},
		{"fp8", multi + "mixed_precision: fp8\nfp8_config:\n  backend: TE\n", "", launched + trained, "precision=fp8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := acceleratedJob(t, tt.config, tt.ds, tt.argv, 8)
			if len(told(j)) > 0 || j.WillFail.Value != "" {
				t.Errorf("problems %v, will fail %q", told(j), j.WillFail.Value)
			}
			check(t, j, tt.want)
		})
	}
}

// accelerate ends with these errors before anything starts (accelerate 1.15; its words are shortened where they are
// long). TestAccelerateOneProcess: simple_launcher of accelerate/commands/launch.py sets neither RANK nor LOCAL_RANK,
// the others do.
func TestAccelerateOneProcess(t *testing.T) {
	const fsdpOfOne = "distributed_type: FSDP\nnum_processes: 1\n"
	for _, tt := range []struct {
		config, argv string
		want         bool
	}{
		{"", "accelerate launch --num_processes 1 train.py", true},
		{multi, launched + " --cpu train.py", true},
		{"distributed_type: 'NO'\n", launched + " train.py", true},
		{multi, launched + " train.py", false},
		{fsdpOfOne, launched + " train.py", false},
		{"", "accelerate launch --cpu --mpirun_hostfile hosts --num_processes 4 train.py", false},
		{"", "torchrun --nproc-per-node 1 train.py", false},
	} {
		if j := acceleratedJob(t, tt.config, "", tt.argv, 8); j.OneProcess != tt.want {
			t.Errorf("%s: one process %v", tt.argv, j.OneProcess)
		}
	}
}

func TestAccelerateRefuses(t *testing.T) {
	for _, tt := range []struct{ name, config, ds, argv, want string }{
		{"unknown option value", "", "", "accelerate launch --num_processes x train.py",
			"argument --num_processes/--num-processes: invalid int value: 'x'"},
		{"no script", "", "", "accelerate launch --num_processes 2", "the following arguments are required"},
		{"unknown key", multi + "nodes: 2\n", "", launched + " a.py", `config.yaml:3: accelerate knows no key "nodes"`},
		{"no type", "num_processes: 2\n", "", launched + " a.py", "needs a distributed_type"},
		{"wrong type", "distributed_type: DDP\nnum_processes: 2\n", "", launched + " a.py",
			`distributed_type is "DDP"`},
		{"no processes", "distributed_type: MULTI_GPU\n", "", launched + " a.py", "manually pass in `--num_processes`"},
		{"unquoted NO without processes", "distributed_type: NO\n", "", launched + " a.py",
			"manually pass in `--num_processes`"},
		{"unquoted no", multi + "mixed_precision: no\n", "", launched + " a.py",
			"'bool' object has no attribute 'lower'"},
		{"one of several", "", "", "accelerate launch --multi_gpu --num_processes 1 a.py", "at least 2 processes"},
		{"broken", "distributed_type: [\n", "", launched + " a.py", "config.yaml:"},
		{"not a mapping", "- a\n", "", launched + " a.py", "need keys"},
		{"no such file", "", "", "accelerate launch --config_file gone.yaml a.py", "gone.yaml: no such file"},
		{"a folder", "", "", "accelerate launch --config_file model a.py", "model: is a directory"},
		{"file and section", zeroFile + "  deepspeed_config_file: ds.json\n  zero_stage: 2\n",
			`{"zero_optimization": {}}`, launched + trained, "zero_stage of accelerate's configuration"},
		{"file and mixed precision", zeroFile + "  deepspeed_config_file: ds.json\n", `{"zero_optimization": {}}`,
			launched + trained, "mixed_precision of accelerate's configuration"},
		{"no zero section", "", `{}`, "accelerate launch --use_deepspeed --deepspeed_config_file ds.json " +
			"run_clm_no_trainer.py", "specify the ZeRO optimization config"},
		{"two precisions", "", `{"zero_optimization": {"stage": 2}, "fp16": {"enabled": true}}`,
			"accelerate launch --use_deepspeed --mixed_precision bf16 --deepspeed_config_file ds.json " +
				"run_clm_no_trainer.py", "accelerate's mixed precision is bf16"},
		{"Trainer without bf16", zeroFile + "  zero_stage: 2\n", "", launched + trained, "Trainer's --bf16 is false"},
		{"Trainer's accumulation", zeroFile + "  zero_stage: 2\n  gradient_accumulation_steps: 4\n", "",
			launched + trained + "--bf16 --gradient_accumulation_steps 2", "gradient_accumulation_steps is 4"},
		{"context parallel with version 1",
			fsdpFile + "  fsdp_version: 1\nparallelism_config:\n  parallelism_config_dp_shard_size: 4\n  " +
				"parallelism_config_cp_size: 2\n", "", launched + trained, "requires FSDP2"},
		{"sizes", fsdpFile + "  fsdp_version: 2\nparallelism_config:\n  parallelism_config_dp_shard_size: 4\n  " +
			"parallelism_config_cp_size: 4\n", "", launched + trained,
			"total_size (16) does not match num_processes (8)"},
		{"strategy", fsdpFile + "  fsdp_sharding_strategy: half\n", "", launched + trained, `"half", need FULL_SHARD`},
		{"version", fsdpFile + "  fsdp_version: 3\n", "", launched + trained, "need 1 or 2"},
		{"checkpointing twice", fsdpFile + "  fsdp_activation_checkpointing: true\n", "",
			launched + trained + "--gradient_checkpointing", "can't both be True"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := acceleratedJob(t, tt.config, tt.ds, tt.argv, 8)
			if !strings.Contains(fmt.Sprint(told(j), j.WillFail.Value), tt.want) || j.WillFail.Value == "" {
				t.Errorf("will fail %q, problems %v, want %q", j.WillFail.Value, told(j), tt.want)
			}
		})
	}
}

// The configuration that accelerate config writes is used without being named: $HF_HOME, else
// $XDG_CACHE_HOME/huggingface, else ~/.cache/huggingface.
func TestDefaultAccelerateConfig(t *testing.T) {
	dir := lay(t, map[string]string{
		"hf/accelerate/default_config.yaml":                      "distributed_type: MULTI_GPU\nnum_processes: 2\n",
		"cache/huggingface/accelerate/default_config.json":       `{"distributed_type": "MULTI_GPU", "num_processes": 3}`,
		"home/.cache/huggingface/accelerate/default_config.yaml": "distributed_type: MULTI_GPU\nnum_processes: 5\n",
		"broken/accelerate/default_config.yaml": "distributed_type: MULTI_GPU\nnum_processes: " +
			"5\nx: 1\n",
		"home2/.cache/huggingface/accelerate/default_config2.yaml": "",
	})
	for _, tt := range []struct {
		name, file, want string
	}{{"HF_HOME", "hf", "2"}, {"XDG_CACHE_HOME", "cache", "3"}, {"HOME", "home", "5"}, {"HOME", "home2", "8"},
		{"HF_HOME", "broken", "5"}} {
		env := map[string]string{tt.name: filepath.Join(dir, tt.file)}
		j := Read(Sources{Argv: words("accelerate launch a.py"), Dir: dir, GPUs: 8,
			Getenv: func(name string) string { return env[name] }})
		check(t, j, "nproc="+tt.want)
	}
}

// A native loop of deepspeed's launcher; sources: deepspeed/launcher/runner.py (0.16 to 0.19).
func TestDeepSpeedLauncher(t *testing.T) {
	dir := lay(t, map[string]string{
		"hosts": "a slots=8\n# comment\n\nb slots=8\nc slots=4\n", "bad": "a 8\n", "again": "a slots=1\na slots=2\n",
		"empty": "# none\n",
	})
	for _, tt := range []struct {
		argv, cuda, want, fails string
		gpus                    int
	}{
		{argv: "deepspeed train.py", gpus: 8, want: "launcher=deepspeed nproc=8 nnodes=1 world_size=8"},
		{argv: "ds train.py", gpus: 2, want: "nproc=2"},
		{argv: "python -m deepspeed.launcher.runner train.py", gpus: 2, want: "launcher=deepspeed nproc=2"},
		{argv: "deepspeed train.py", gpus: -1, want: "nproc=unknown"},
		{argv: "deepspeed train.py", gpus: 0, want: "nproc=unknown"},
		{argv: "deepspeed --num_gpus=4 train.py --num_gpus 2", gpus: 8, want: "nproc=4"},
		{argv: "deepspeed --num_acc 4 train.py", gpus: 8, want: "nproc=4"},
		{argv: "env CUDA_VISIBLE_DEVICES=2,3 deepspeed train.py", gpus: 8, want: "nproc=2"},
		{argv: "env CUDA_VISIBLE_DEVICES=2,3 deepspeed --num_gpus 4 train.py", gpus: 8, want: "nproc=4"},
		{argv: "deepspeed --include localhost:1,3 train.py", gpus: 8, want: "nproc=2"},
		{argv: "deepspeed -e localhost:0 train.py", gpus: 8, want: "nproc=7"},
		{argv: "deepspeed --hostfile hosts train.py", gpus: 8, want: "nnodes=3 nproc=[8,8,4] world_size=20"},
		{argv: "deepspeed --hostfile /dev/null train.py", gpus: 8, want: "nnodes=1 nproc=8"},
		{argv: "deepspeed -H hosts --num_nodes 2 train.py", gpus: 8, want: "nnodes=2 nproc=8 world_size=16"},
		{argv: "deepspeed -H hosts --num_nodes 2 --num_gpus 4 train.py", gpus: 8,
			want: "nnodes=2 nproc=4 world_size=8"},
		{argv: "deepspeed -H hosts -i a@b:0,1 train.py", gpus: 8, want: "nnodes=2 nproc=[8,2] world_size=10"},
		{argv: "deepspeed -H hosts -i b:1@b:0,1@a:7 train.py", gpus: 8, want: "nnodes=2 nproc=[1,2] world_size=3"},
		{argv: "deepspeed -H hosts --exclude c@a:0,1,2,3 train.py", gpus: 8,
			want: "nnodes=2 nproc=[4,8] world_size=12"},
		{argv: "deepspeed --module my.train --deepspeed_config ds.json", gpus: 2, want: "nproc=2"},
		{argv: "deepspeed --no_python python train.py", gpus: 2, want: "script=train.py nproc=2"},
		{argv: "deepspeed -i a -e b train.py", fails: "mutually exclusive"},
		{argv: "deepspeed -i localhost --num_gpus 2 train.py",
			fails: "Cannot specify num_nodes/gpus with include/exclude"},
		{argv: "deepspeed --num_nodes 2 train.py", gpus: 8, fails: "no extra nodes available"},
		{argv: "deepspeed --num train.py", fails: "ambiguous option"},
		{argv: "deepspeed --num_gpus two train.py", fails: "invalid int value"},
		{argv: "deepspeed --num_gpus 2", fails: "the following arguments are required"},
		{argv: "deepspeed -H bad train.py", fails: "bad:1: ValueError: Hostfile contains a bad entry: a 8"},
		{argv: "deepspeed -H again train.py", fails: "again:2: ValueError: Hostfile contains multiple entries for a"},
		{argv: "deepspeed -H empty train.py", fails: "Hostfile is empty"},
		{argv: "deepspeed -H hosts -i d train.py", fails: "Hostname 'd' not found in hostfile"},
		{argv: "deepspeed -H hosts -e c:4 train.py", fails: "No slot '4' specified on host 'c'"},
		{argv: "deepspeed -H hosts -i a:x train.py", fails: "invalid literal for int()"},
		{argv: "deepspeed -H hosts -e a@b@c train.py", fails: "no host is left"},
	} {
		t.Run(tt.argv, func(t *testing.T) {
			j := Read(Sources{Argv: words(tt.argv), Dir: dir, GPUs: tt.gpus})
			check(t, j, tt.want)
			if (tt.fails == "") != (j.WillFail.Value == "") || !strings.Contains(j.WillFail.Value, tt.fails) {
				t.Errorf("will fail %q, want %q", j.WillFail.Value, tt.fails)
			}
		})
	}
	j := Read(Sources{Argv: words("deepspeed -H gone train.py"), Dir: dir, GPUs: 4})
	if len(told(j)) != 1 || j.NProc.Value != 4 {
		t.Errorf("%v %+v", told(j), j.NProc)
	}
}

func FuzzAccelerateConfig(f *testing.F) {
	for _, seed := range []string{multi, fsdpFile + " fsdp_version: 2\n", zeroFile + " zero_stage: 3\n",
		"distributed_type: NO", "a: &x [*x]", "{", "- 1", "fsdp_config: 3\ndistributed_type: FSDP"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, config string) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "c.yaml"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		j := Read(Sources{Argv: words("accelerate launch --config_file c.yaml run_clm.py --output_dir o"), Dir: dir,
			GPUs: 4})
		for _, s := range j.Settings() {
			if s.Origin == "" {
				t.Fatalf("%s has no origin", s.Key)
			}
		}
	})
}

func FuzzHostfile(f *testing.F) {
	f.Add("a slots=8\nb slots=4\n", "a:0,1@b", "")
	f.Add("a slots=99999999999\n", "", "a:1")
	f.Fuzz(func(t *testing.T, hosts, include, exclude string) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "h"), []byte(hosts), 0o600); err != nil {
			t.Fatal(err)
		}
		Read(Sources{Argv: []string{"deepspeed", "-H", "h", "--include=" + include, "--exclude=" + exclude, "a.py"},
			Dir: dir})
	})
}
