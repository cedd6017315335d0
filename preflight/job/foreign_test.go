package job

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The jobs foreign-* are of programs that nobody here knows, with options that look familiar. What must stay unknown is
// null in their expected.json, which TestJobs compares. Here: nothing is refused, filled from a framework's defaults,
// or called "not given".
func TestForeignJobs(t *testing.T) {
	folders, err := filepath.Glob(filepath.Join("testdata", "jobs", "foreign-*"))
	if err != nil || len(folders) < 30 {
		t.Fatalf("%d jobs: %v", len(folders), err)
	}
	defaults := regexp.MustCompile(`default of (transformers|trl|peft|PEFT|Megatron|Unsloth|lightning|nanotron|torch |DeepSpeed)`)
	for _, dir := range folders {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			j := Read(jobSources(t, dir))
			var want map[string]any
			readTestJSON(t, filepath.Join(dir, "expected.json"), &want)
			if len(j.Problems) > 0 || j.WillFail.Value != "" {
				t.Errorf("refused: %v %q", j.Problems, j.WillFail.Value)
			}
			if framework, asserted := want["framework"]; !asserted || framework != nil {
				return // its own text shows what it does
			}
			if j.Framework.Known || !strings.Contains(j.Framework.Origin, "is not a program that oomguard knows") {
				t.Errorf("framework %+v", j.Framework)
			}
			for _, s := range j.Settings() {
				if defaults.MatchString(s.Origin) || strings.Contains(s.Origin, "not given, and the script decides") {
					t.Errorf("%s is %s: %s", s.Key, s.Value, s.Origin)
				}
				if s.Known && strings.HasPrefix(s.Origin, "command line --per_device") &&
					!strings.Contains(s.Origin, byName) {
					t.Errorf("%s does not say that it was read by name: %s", s.Key, s.Origin)
				}
			}
		})
	}
}

// How many processes plain python is, is known where the script's own text leaves nothing open.
func TestProcessesOfScripts(t *testing.T) {
	const loop = "import torch\nmodel = torch.nn.Linear(2, 2)\noptimizer = " +
		"torch.optim.AdamW(model.parameters())\nfor x in rows:\n    model(x).sum().backward()\n"
	for name, row := range map[string]struct{ script, want string }{
		"plain loop": {loop, "1 @ plain python starts one process"},
		"workers of a loader": {"import multiprocessing\nfrom concurrent.futures import ThreadPoolExecutor\n" + loop,
			"1 @ plain python"},
		"spawn": {"import torch.multiprocessing as mp\n" + loop + "mp.spawn(main, nprocs=4)\n",
			"4 @ train.py"},
		"Ray": {"import ray\n" + loop,
			"unknown: train.py:1 imports ray, which may start the processes"},
		"Ray Train": {"from ray.train.torch import TorchTrainer\n" + loop,
			"unknown: may start the processes"},
		"Ray in a function": {loop + "def main():\n    import ray\n", "unknown: may start the processes"},
		"SageMaker":         {"from sagemaker.pytorch import PyTorch\n" + loop, "unknown: may start the processes"},
		"submitit":          {"import submitit\n" + loop, "unknown: may start the processes"},
		"subprocess": {"import subprocess\n" + loop + "subprocess.run(['torchrun', 'x.py'])\n",
			"unknown: calls subprocess.run, which may start the processes"},
		"a shell": {"import os\n" + loop + "os.system('torchrun x.py')\n", "unknown: calls os.system"},
		"torchrun in Python": {"from torch.distributed.run import main\n" + loop,
			"unknown: may start the processes"},
		"elastic": {"from torch.distributed.launcher.api import elastic_launch\n" + loop,
			"unknown: may start the processes"},
		"torchrun as a name": {"from torch.distributed import run\n" + loop, "unknown: may start the processes"},
		"processes by hand": {"from multiprocessing import Process\n" + loop + "Process(target=main).start()\n",
			"unknown: calls Process"},
		"module that is absent": {"from mylab.engine import run\n" + loop,
			"unknown: imports mylab.engine, which is not here and may start processes"},
		"Lightning elsewhere": {"import lightning as L\n" + loop, "unknown: imports Lightning"},
		"not a program known": {"print('hello')\n", "1 @ plain python"},
		"no text":             {"", "unknown: may start processes itself"},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"train.py": row.script}
			if row.script == "" {
				files = nil
			}
			j := scriptJob(t, files, 4, versions2025, "python train.py")
			checkSettings(t, j, map[string]string{"nproc": row.want})
		})
	}
}

// Neither a file's name nor an import in a branch, a function or a try says which framework it is.
func TestImportsThatDecide(t *testing.T) {
	const trainer = "trainer = Trainer(model=m, args=TrainingArguments(output_dir='o', " +
		"per_device_train_batch_size=4))\ntrainer.train()\n"
	const imports = "from transformers import Trainer, TrainingArguments\n"
	indent := func(text string) string {
		return "    " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n    ") + "\n"
	}
	for name, row := range map[string]struct{ file, script, want string }{
		"at the top":           {"train.py", imports + trainer, "hf-trainer"},
		"in main":              {"train.py", imports + "def main():\n" + indent(trainer) + "main()\n", "hf-trainer"},
		"import in a function": {"train.py", "def main():\n" + indent(imports+trainer) + "main()\n", "unknown"},
		"import in a branch": {"train.py", "import sys\nif len(sys.argv) > 1:\n" + indent(imports) + trainer,
			"unknown"},
		"import in a try": {"train.py", "try:\n" + indent(imports) + "except ImportError:\n    pass\n" + trainer,
			"unknown"},
		"made in a branch": {"train.py", imports + "import sys\nif len(sys.argv) > 1:\n" + indent(trainer),
			"unknown"},
		"another's Trainer":   {"train.py", "from mylab import Trainer, TrainingArguments\n" + trainer, "unknown"},
		"no import":           {"train.py", trainer, "unknown"},
		"all of transformers": {"train.py", "from transformers import *\n" + trainer, "hf-trainer"},
		"its own subclass": {"train.py",
			imports + "class Mine(Trainer):\n    pass\n" + strings.Replace(trainer, "Trainer(", "Mine(", 1),
			"hf-trainer"},
		"unsloth unused": {"train.py", "import unsloth\nprint(1)\n", "unknown"},
		"unsloth in a branch": {"train.py",
			"import sys\nif len(sys.argv) > 1:\n    from unsloth import FastLanguageModel\n    m = " +
				"FastLanguageModel.from_pretrained('x')\n", "unknown"},
		"unsloth": {"train.py",
			"from unsloth import FastLanguageModel\nfrom trl import SFTConfig, SFTTrainer\nm, t = " +
				"FastLanguageModel.from_pretrained('x')\nSFTTrainer(model=m, args=SFTConfig()).train()\n", "unsloth"},
		"name of TRL's":         {"sft.py", "from swift.llm import sft_main\nsft_main()\n", "unknown"},
		"name of transformers'": {"run_clm.py", "from mylab import main\nmain()\n", "unknown"},
		"name without Trainer":  {"run_clm_no_trainer.py", "from mylab import main\nmain()\n", "unknown"},
		"name of Megatron's":    {"pretrain_gpt.py", "from mylab import main\nmain()\n", "unknown"},
		"Megatron's": {"pretrain_gpt.py", "from megatron.training import pretrain\npretrain()\n",
			"megatron"},
		"name of nanotron's":     {"run_train.py", "from mylab import main\nmain()\n", "unknown"},
		"Lightning by file name": {"main.py", "from mylab import main\nmain()\n", "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			j := scriptJob(t, map[string]string{row.file: row.script}, 4, versions2025,
				"torchrun "+row.file+" --num-layers 2 --hidden-size 64 --micro-batch-size 1")
			checkSettings(t, j, map[string]string{"framework": row.want})
		})
	}
}

// A published script that is not here is known by its name only where all its arguments are its own.
func TestArgumentsThatDecide(t *testing.T) {
	for command, want := range map[string]string{
		"run_clm.py --model_name_or_path gpt2 --output_dir o --block_size 128":                                        "hf-trainer",
		"run_clm.py --model_name_or_path gpt2 --output_dir o --block_size 128 --vision_tower x":                       "unknown",
		"run_clm.py --model_name_or_path gpt2 -b 4":                                                                   "unknown",
		"examples/scripts/dpo.py --model_name_or_path gpt2 --beta 0.1":                                                "trl",
		"examples/scripts/dpo.py --model_name_or_path gpt2 --beta 0.1 --my_option 2":                                  "unknown",
		"sft.py --model_name_or_path gpt2 --per_device_train_batch_size 2":                                            "unknown",
		"train.py --model_name_or_path gpt2 --output_dir o --save_strategy no --learning_rate 1e-5":                   "hf-trainer",
		"train.py --model_name_or_path gpt2 --output_dir o --do_train --learning_rate 1e-5":                           "unknown",
		"run_clm_flax.py --model_name_or_path gpt2 --output_dir o --save_strategy no":                                 "unknown",
		"examples/tensorflow/run_glue.py --model_name_or_path gpt2 --output_dir o":                                    "unknown",
		"train.py --model_name_or_path gpt2 --output_dir o --do_train --mm_projector_type linear":                     "unknown",
		"train.py --model_name_or_path gpt2 --output_dir o --per_device_train_batch_size 2":                           "unknown",
		"train.py --num-layers 2 --hidden-size 64 --tensor-model-parallel-size 2 --micro-batch-size 1 --seq-length 8": "unknown",
		"pretrain_gpt.py --num-layers 2 --hidden-size 64 --micro-batch-size 1 --seq-length 8":                         "megatron",
		"train.py --trainer mine --model m":                                                                           "unknown",
		"train.py --trainer.kind mine":                                                                                "unknown",
		"train.py --trainer.devices 2":                                                                                "lightning",
		"train.py --deepspeed":                                                                                        "unknown",
		"train.py --deepspeed --deepspeed_config ds.json":                                                             "deepspeed",
	} {
		checkSettings(t, scriptJob(t, nil, 4, versions2025, "torchrun "+command), map[string]string{"framework": want})
	}
}
