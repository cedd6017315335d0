package job

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// lay writes files into a folder: name and text in turn.
func lay(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Each wrapper is taken off with its options; what it decides of processes and GPUs counts. The sources are the manual
// pages of the programs (wrappers.go names them) and, for Slurm, srun(1) and sbatch(1).
func TestWrappers(t *testing.T) {
	const torchrun = " torchrun --nproc-per-node=4 train.py"
	for _, tt := range []struct {
		argv string
		env  map[string]string
		want string
	}{
		{"nohup" + torchrun, nil, "launcher=torchrun nproc=4 outer=none"},
		{"time -f %e" + torchrun, nil, "launcher=torchrun script=train.py"},
		{"timeout -k 5 --signal=INT 2h" + torchrun, nil, "launcher=torchrun script=train.py"},
		{"nice -n 5 ionice -c 2 -n 0" + torchrun, nil, "launcher=torchrun"},
		{"nice -10" + torchrun, nil, "launcher=torchrun"},
		{"stdbuf -oL -e 0" + torchrun, nil, "launcher=torchrun"},
		{"numactl -N 0 --membind=0" + torchrun, nil, "launcher=torchrun"},
		{"taskset -c 0-15" + torchrun, nil, "launcher=torchrun"},
		{"setsid -w" + torchrun, nil, "launcher=torchrun"},
		{"sudo -E -u me A=1" + torchrun, nil, "launcher=torchrun"},
		{"xvfb-run -a -s 0" + torchrun, nil, "launcher=torchrun"},
		{"nsys profile -t cuda,nvtx -o out --force-overwrite true" + torchrun, nil, "launcher=torchrun"},
		{"ncu -o out --set full" + torchrun, nil, "launcher=torchrun"},
		{"nsys stats report.nsys-rep", nil, "launcher=unknown script=unknown"},
		{"python submit.py --nodes 1 --" + torchrun, nil, "launcher=torchrun nproc=4 script=train.py"},
		{"python mason.py --cluster a b --num_nodes 2 -- source x.sh && accelerate launch --num_processes 8 " +
			"open_instruct/finetune.py", nil, "launcher=accelerate nproc=8 nnodes=2"},
		{"python train.py -- --bf16", nil, "launcher=python script=train.py"},
		{"python train.py -- now", nil, "launcher=python script=train.py"},
		{"uv run" + torchrun, nil, "launcher=torchrun"},
		{"uv run --with trl --python 3.11 train.py --bf16", nil, "launcher=python script=train.py"},
		{"uv run -m my.train", nil, "launcher=python script=-mmy.train"},
		{"uv --directory sub run --" + torchrun, nil, "launcher=torchrun"},
		{"conda run -n env --no-capture-output" + torchrun, nil, "launcher=torchrun"},
		{"micromamba run -p /e" + torchrun, nil, "launcher=torchrun"},
		{"poetry run" + torchrun, nil, "launcher=torchrun"},
		{"pipenv run" + torchrun, nil, "launcher=torchrun"},
		{"apptainer exec --nv -B /data image.sif" + torchrun, nil, "launcher=torchrun"},
		{"singularity exec image.sif python train.py", nil, "launcher=python script=train.py"},
		{"docker run --rm -it --gpus 2 -v /data:/data -w /data image torchrun --nproc_per_node=gpu train.py", nil,
			"launcher=torchrun nproc=2"},
		{"docker run image", nil, "launcher=unknown"},
		{"ray job submit --address http://x --working-dir . -- torchrun --nproc_per_node 2 a.py", nil,
			"launcher=torchrun nproc=2"},
		{"env -u X A=1 CUDA_VISIBLE_DEVICES=2,3 torchrun --nproc_per_node gpu train.py", nil, "nproc=2"},
		{"env CUDA_VISIBLE_DEVICES=6,7,8,1 torchrun --nproc_per_node gpu train.py", nil, "nproc=2"},
		{"env -u CUDA_VISIBLE_DEVICES torchrun --nproc_per_node gpu train.py",
			map[string]string{"CUDA_VISIBLE_DEVICES": "1"}, "nproc=unknown"},
		{"CUDA_VISIBLE_DEVICES=GPU-1,MIG-2 torchrun --nproc_per_node gpu train.py", nil, "nproc=2"},
		{"srun -N 2 --ntasks-per-node=1 --gres=gpu:8 torchrun --nnodes 2 --nproc_per_node 8 train.py", nil,
			"outer=srun nnodes=2 nproc=8 world_size=16 launcher=torchrun"},
		{"srun -N4 -n32 --mpi=pmix python train.py", nil, "outer=srun launcher=python nnodes=4 nproc=8 world_size=32"},
		{"srun --nodes 2 --ntasks-per-node 4 python train.py", nil, "nnodes=2 nproc=4 world_size=8"},
		{"srun -N 2 python train.py", nil, "nnodes=2 nproc=1 world_size=2"},
		{"srun python train.py", nil, "nnodes=1 nproc=1"},
		{"srun --nodes=2-4 python train.py", nil, "nnodes=unknown world_size=unknown"},
		{"srun -N 2-2 python train.py", nil, "nnodes=2"},
		{"srun -n 16 python train.py", nil, "nnodes=unknown nproc=unknown world_size=16"},
		{"srun -n 16 --ntasks-per-node 8 python train.py", nil, "nnodes=2 nproc=8 world_size=16"},
		{"srun python train.py", map[string]string{"SLURM_NNODES": "2", "SLURM_NTASKS_PER_NODE": "8"},
			"nnodes=2 nproc=8 world_size=16"},
		{"srun -N 1 --gres=gpu:a100:2,nvme:1 torchrun --nproc_per_node gpu train.py", nil, "nproc=2"},
		{"srun -N 2 --gpus 8 torchrun --nnodes 2 --nproc_per_node gpu train.py", nil, "nproc=4 world_size=8"},
		{"srun --nodes=many python train.py", nil, "nproc=unknown nnodes=unknown"},
		{"mpirun -np 16 -H h1:8,h2:8 -x A=1 -mca btl tcp python train.py", nil,
			"outer=mpirun launcher=python nnodes=2 nproc=8 world_size=16"},
		{"mpirun --allow-run-as-root -np 4 python train.py", nil, "outer=mpirun nnodes=1 nproc=4 world_size=4"},
		{"mpirun -np 16 --map-by ppr:4:node --bind-to none python train.py", nil, "nnodes=4 nproc=4 world_size=16"},
		{"mpiexec -n 8 -ppn 4 -genv A 1 python train.py", nil, "nnodes=2 nproc=4"},
		{"horovodrun -np 8 -H a:4,b:4 python train.py", nil, "outer=mpirun nnodes=2 nproc=4"},
		{"mpirun -np 2 -npernode 1 torchrun --nnodes 2 --nproc_per_node 8 train.py", nil,
			"launcher=torchrun nnodes=2 nproc=8 world_size=16"},
		{"bash -c", nil, "launcher=unknown"},
		{"torchx run -s local_cwd dist.ddp -j 2x8 --script train.py -- --bf16", nil,
			"launcher=torchx nnodes=2 nproc=8 script=train.py"},
		{"torchx run dist.ddp -j 1:2x4 -m my.train", nil, "nnodes=unknown nproc=4"},
		{"torchx run utils.echo", nil, "script=unknown"},
		{"composer train.py", nil, "launcher=composer nproc=8 nnodes=1"},
		{"composer -n 4 --world_size 16 train.py", nil, "nproc=4 nnodes=4 world_size=16"},
		{"colossalai run --nproc_per_node 8 --host a,b train.py", nil, "launcher=colossalai nproc=8 nnodes=2"},
	} {
		t.Run(tt.argv, func(t *testing.T) {
			j := Read(Sources{Argv: words(tt.argv), Dir: t.TempDir(), GPUs: 8, CPUs: 4,
				Getenv: func(name string) string { return tt.env[name] }})
			if len(told(j)) > 0 && !strings.Contains(tt.argv, "many") {
				t.Errorf("problems %v", told(j))
			}
			j.Script.Value = strings.ReplaceAll(j.Script.Value, " ", "") // check splits at spaces
			check(t, j, tt.want)
		})
	}
}

// What a wrapper or a script changes is seen by the command behind it.
func TestInnerCommand(t *testing.T) {
	dir := lay(t, map[string]string{
		"hosts":           "a slots=4\n# no\nb slots=4\n",
		"sub/oomguard.md": "",
		"run.sh": `#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:8
export ACCELERATE_MIXED_PRECISION=bf16
GPUS=${GPUS:-4}
ARGS=(
    --output_dir "out dir"
    --per_device_train_batch_size $((GPUS / 2))
)
ARGS+=(--save_strategy no)
python -m pip install trl
torchrun --nnodes=$SLURM_NNODES --nproc_per_node=$GPUS train.py "${ARGS[@]}" "$@" 2>&1 | tee log
python merge.py
`,
		"srun.sh":   "#SBATCH -N 2\n#SBATCH --ntasks-per-node 8\nsrun python pretrain_gpt.py --num-layers 2\n",
		"nested.sh": "bash run.sh --bf16\n",
		"twice.sh":  "bash nested.sh\n",
		"self.sh":   "bash self.sh; bash self.sh\n",
		"either.sh": "if [ -e flag ]; then\ntorchrun --nproc_per_node 2 a.py\nelse\ntorchrun --nproc_per_node 4 " +
			"a.py\nfi\n",
		"maybe.sh": "if [ -e flag ]; then torchrun --nproc_per_node 2 a.py; fi\n",
		"open.sh": "torchrun --nproc_per_node=$(nvidia-smi -L | wc -l) a.py --per_device_train_batch_size $MBS " +
			"--output_dir o\n",
		"options.sh": "torchrun $DISTRIBUTED a.py\n",
		"nothing.sh": "echo torchrun\npip install deepspeed\n",
		"broken.sh":  "torchrun 'a\n",
		"last.sh":    "torchrun --nproc_per_node 2 a.py\ntorchrun --nproc_per_node 3 b.py\n",
		"cd.sh":      "cd \"$(dirname \"${BASH_SOURCE[0]}\")/sub\"\ntorchrun a.py\n",
		"eval.sh":    "CMD=\"torchrun --nproc_per_node 2 a.py\"\neval $CMD\n",
		"string.sh": "ADDR=$(hostname)\nN=2\nbash -c \"torchrun --nproc_per_node $N --master_addr $ADDR " +
			"--role=$ADDR a.py\"\n",
		"command.sh": "$LAUNCH a.py\n",
		"args.sh":    "torchrun --nproc_per_node ${1} ${2:-a.py}\n",
		"env.sh":     "N=5\n",
		"source.sh":  "source env.sh\ntorchrun --nproc_per_node $N a.py\n",
	})
	for _, tt := range []struct{ argv, want, problem string }{
		{"bash run.sh", "outer=bash launcher=torchrun nnodes=2 nproc=4 world_size=8 script=train.py micro_batch=2 " +
			"precision=bf16 framework=hf-trainer", ""},
		{"bash -eux -o pipefail run.sh --bf16", "nproc=4 precision=bf16", ""},
		{"sbatch -N 4 run.sh", "outer=bash nnodes=4 nproc=4", ""},
		{"./run.sh", "outer=bash nnodes=2", ""},
		{"env GPUS=2 bash run.sh", "nproc=2 micro_batch=1", ""},
		{"sbatch srun.sh", "outer=srun launcher=python nnodes=2 nproc=8 world_size=16", ""},
		{"bash srun.sh", "outer=srun nnodes=2 nproc=8", ""},
		{"bash nested.sh", "outer=bash nproc=4 precision=bf16", ""},
		{"bash twice.sh", "launcher=unknown", ""},
		{"bash self.sh", "launcher=unknown", ""},
		{"bash either.sh", "launcher=unknown nproc=unknown", ""},
		{"bash maybe.sh", "launcher=torchrun nproc=2", ""},
		{"bash open.sh", "launcher=torchrun nproc=8 micro_batch=unknown world_size=8 nnodes=1",
			"$MBS is not known: it is set neither"},
		{"bash options.sh", "launcher=torchrun nproc=unknown nnodes=unknown script=a.py", "$DISTRIBUTED is not known"},
		{"bash nothing.sh", "launcher=unknown", ""},
		{"bash broken.sh", "launcher=unknown", "broken.sh:1:10: reached EOF without closing quote"},
		{"bash gone.sh", "launcher=unknown", "gone.sh: no such file"},
		{"bash sub", "launcher=unknown", "sub: is a directory"},
		{"bash last.sh", "nproc=3 script=b.py", ""},
		{"bash cd.sh", "launcher=torchrun", ""},
		{"bash eval.sh", "nproc=2", ""},
		{"bash string.sh", "nproc=2 script=a.py", ""},
		{"bash command.sh", "launcher=unknown", ""},
		{"bash args.sh 6 c.py", "nproc=6 script=c.py", ""},
		{"bash source.sh", "nproc=5", ""},
		{"mpirun -hostfile hosts python a.py", "nnodes=2 nproc=4 world_size=8", ""},
		{"mpirun -hostfile gone -np 2 python a.py", "world_size=2", "hosts of mpirun: gone: no such file"},
	} {
		t.Run(tt.argv, func(t *testing.T) {
			j := Read(Sources{Argv: words(tt.argv), Dir: dir, GPUs: 8,
				Versions: map[string]string{"transformers": "4.51.3"}})
			check(t, j, tt.want)
			if (tt.problem == "") != (len(told(j)) == 0) ||
				tt.problem != "" && !strings.Contains(told(j)[0].Error(), tt.problem) {
				t.Errorf("problems %v, want %q", told(j), tt.problem)
			}
		})
	}
}

// The string of bash -c is one word, so it cannot stand in the tables above.
func TestShellString(t *testing.T) {
	for text, want := range map[string]string{
		"torchrun --nproc_per_node 2 a.py":                             "outer=bash nproc=2",
		"cd sub && CUDA_VISIBLE_DEVICES=0 python run_clm.py":           "launcher=python sharding=none",
		`export N=3; exec torchrun --nproc_per_node "$N" a.py`:         "nproc=3",
		`torchrun --nproc_per_node "$1" a.py`:                          "nproc=7",
		"source venv/bin/activate && torchrun --nproc_per_node 4 a.py": "nproc=4",
	} {
		j := Read(Sources{Argv: []string{"bash", "-lc", text, "name", "7"}, Dir: t.TempDir(), GPUs: 8})
		check(t, j, want)
	}
	j := Read(Sources{Argv: []string{"srun", "-N", "2", "bash", "-c",
		"torchrun --nnodes 2 --node_rank $SLURM_PROCID --nproc_per_node 8 a.py"}, GPUs: 8})
	check(t, j, "outer=srun nnodes=2 nproc=8 world_size=16")
}

// Every setting says where in the script it stands.
func TestPlaceInScript(t *testing.T) {
	dir := lay(t, map[string]string{"run.sh": "\ntorchrun --nproc_per_node 2 a.py --output_dir o --save_strategy no " +
		"--bf16 --model_name_or_path $MODEL\n"})
	j := Read(Sources{Argv: words("bash run.sh"), Dir: dir})
	if j.NProc.Origin != "run.sh:2 --nproc_per_node" || j.Precision.Origin != "run.sh:2 --bf16" {
		t.Errorf("%q %q", j.NProc.Origin, j.Precision.Origin)
	}
	if j.Model.Known || !strings.HasPrefix(j.Model.Origin, "$MODEL is not known: it is set neither in the script") {
		t.Errorf("%+v", j.Model)
	}
}

func FuzzCommand(f *testing.F) {
	for _, argv := range []string{
		"srun -N 2 bash -c 'torchrun a.py'", "env -i A=1 nohup time python -m x", "bash run.sh a b",
		"docker run -e A -v a:b -w b i python x.py",
		"mpirun -np 2 -H a:1,b -x A python x", "accelerate launch --config_file run.sh x.py",
		"deepspeed --include a:1@b x.py", "torchx run dist.ddp -j 2x8 --script a.py",
		"uv run -m x", "conda run -n e torchrun --nnodes 1:2 x.py", "sbatch --wrap x", "ray job submit -- python x.py",
	} {
		f.Add(argv, "torchrun $A --nproc_per_node=$N a.py \"$@\"")
	}
	f.Fuzz(func(t *testing.T, argv, script string) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "run.sh"), []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
		argv = strings.ReplaceAll(argv, "\x00", "") // the system hands no such words on
		j := Read(Sources{Argv: strings.Fields(argv), Dir: dir, GPUs: 2})
		for _, s := range j.Settings() {
			if s.Origin == "" || strings.Contains(s.Value+s.Origin, "\x00") {
				t.Fatalf("%+v", s)
			}
		}
	})
}
