package job

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// torchrunCommands are command lines after the word torchrun. What torchrun itself makes of them is asked from the
// installed torch in TestTorchrunAgainstTorch; the expectations here hold the same for torch 2.6 to 2.15
// (torch/distributed/run.py).
func torchrunCommands() []struct {
	args   []string
	script string // "" when torchrun refuses
	rest   []string
	nproc  string
	nnodes string
	fails  string
} {
	return []struct {
		args   []string
		script string
		rest   []string
		nproc  string
		nnodes string
		fails  string
	}{
		{args: words("train.py"), script: "train.py"},
		{args: words("--nproc-per-node 8 train.py --lr 1"), script: "train.py", rest: words("--lr 1"), nproc: "8"},
		{args: words("--nproc_per_node=8 train.py"), script: "train.py", nproc: "8"},
		{args: words("--nproc_per_node 2 --nproc-per-node 4 train.py"), script: "train.py", nproc: "4"},
		{args: words("--nproc_per=3 train.py"), script: "train.py", nproc: "3"},
		{args: words("--nnode 2 train.py"), script: "train.py", nnodes: "2"},
		{args: words("--nnodes=1:4 --max-restarts=3 train.py"), script: "train.py", nnodes: "1:4"},
		{args: words("--nproc 2 x.py"),
			fails: "torchrun: error: ambiguous option: --nproc could match --nproc-per-node, --nproc_per_node"},
		{args: words("--nproc=2 x.py"),
			fails: "torchrun: error: ambiguous option: --nproc=2 could match --nproc-per-node, --nproc_per_node"},
		{args: words("--rdzv 3 x.py"), fails: "torchrun: error: ambiguous option: --rdzv could match " +
			"--rdzv-backend, --rdzv_backend, --rdzv-endpoint, --rdzv_endpoint, --rdzv-id, --rdzv_id, --rdzv-conf, " +
			"--rdzv_conf"},
		{args: words("-r3 -t 3 train.py"), script: "train.py"},
		{args: words("-r 3 --tee=0:1,1:2 train.py"), script: "train.py"},
		{args: words("-mr3 my.train --lr 1"), script: "my.train", rest: words("--lr 1")},
		{args: words("-m my.train"), script: "my.train"},
		{args: words("--module -t3 my.train -m other"), script: "my.train", rest: words("-m other")},
		{args: words("--standalone train.py --nproc-per-node 4 --nnodes 9"), script: "train.py",
			rest: words("--nproc-per-node 4 --nnodes 9")},
		{args: words("--standalone=1 x.py"),
			fails: "torchrun: error: argument --standalone: ignored explicit argument '1'"},
		{args: words("-mfoo"), fails: "torchrun: error: argument -m/--module: ignored explicit argument 'foo'"},
		{args: words("--nnodes"), fails: "torchrun: error: argument --nnodes: expected one argument"},
		{args: words("--nproc-per-node --nnodes 2 x.py"),
			fails: "torchrun: error: argument --nproc-per-node/--nproc_per_node: expected one argument"},
		{args: words("--max-restarts x y.py"),
			fails: "torchrun: error: argument --max-restarts/--max_restarts: invalid int value: 'x'"},
		{args: words("--monitor-interval=soon y.py"),
			fails: "torchrun: error: argument --monitor-interval/--monitor_interval: invalid float value: 'soon'"},
		{args: nil, fails: "torchrun: error: the following arguments are required: training_script, " +
			"training_script_args"},
		{args: words("-- train.py --nnodes 3"), script: "train.py", rest: words("--nnodes 3")},
		{args: words("train.py -- --lr 1"), script: "train.py", rest: words("--lr 1")},
		{args: words("--nproc-per-node -1 train.py"), script: "train.py", nproc: "-1"},
		{args: words("--no-python --nproc-per-node=2 bash -c true"), script: "bash", rest: words("-c true"),
			nproc: "2"},
		{args: words("--run-path --role= train.py"), script: "train.py"},
		{args: words("--log-dir - train.py"), script: "train.py"},
		{args: []string{"--role", "a role", "train.py", ""}, script: "train.py", rest: []string{""}},
	}
}

func words(text string) []string { return strings.Fields(text) }

func TestParseTorchrun(t *testing.T) {
	for _, tt := range torchrunCommands() {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			c, err := parseTorchrun("torchrun", torchrunOptions(), tt.args, func(string) string { return "" })
			if err != nil {
				if err.Error() != tt.fails {
					t.Errorf("error %q, want %q", err, tt.fails)
				}
				return
			}
			if tt.fails != "" {
				t.Fatalf("accepted, want %q", tt.fails)
			}
			if c.script != tt.script || len(c.args)+len(tt.rest) > 0 && !reflect.DeepEqual(c.args, tt.rest) {
				t.Errorf("script %q %q, want %q %q", c.script, c.args, tt.script, tt.rest)
			}
			if got := c.values["nproc_per_node"].text; got != tt.nproc {
				t.Errorf("nproc %q, want %q", got, tt.nproc)
			}
			if got := c.values["nnodes"].text; got != tt.nnodes {
				t.Errorf("nnodes %q, want %q", got, tt.nnodes)
			}
		})
	}
}

// TestTorchrunAgainstTorch compares the parser with the real one on the same command lines.
func TestTorchrunAgainstTorch(t *testing.T) {
	var lines [][]string
	for _, tt := range torchrunCommands() {
		lines = append(lines, append([]string{}, tt.args...))
	}
	input, err := json.Marshal(lines)
	if err != nil {
		t.Fatal(err)
	}
	const program = `
import contextlib, io, json, sys
from torch.distributed.run import get_args_parser
sys.argv[0] = "torchrun"
out = []
for words in json.load(sys.stdin):
    text = io.StringIO()
    try:
        with contextlib.redirect_stderr(text):
            a = get_args_parser().parse_args(words)
        out.append({"script": a.training_script, "args": a.training_script_args, "nproc": str(a.nproc_per_node), "nnodes": a.nnodes})
    except SystemExit:
        out.append({"error": text.getvalue().strip().splitlines()[-1]})
json.dump(out, sys.stdout)
`
	cmd := exec.CommandContext(t.Context(), testPython(t), "-c", program)
	cmd.Stdin = strings.NewReader(string(input))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	if err != nil {
		t.Fatalf("torch's parser: %v\n%s", err, stderr.String())
	}
	var real []struct {
		Script, Nproc, Nnodes, Error string
		Args                         []string
	}
	if err := json.Unmarshal(output, &real); err != nil {
		t.Fatal(err)
	}
	for i, args := range lines {
		c, err := parseTorchrun("torchrun", torchrunOptions(), args, func(string) string { return "" })
		want := real[i]
		switch {
		case err != nil:
			if err.Error() != want.Error {
				t.Errorf("%q: error %q, torch says %q", args, err, want.Error)
			}
			continue
		case want.Error != "":
			t.Errorf("%q: accepted, torch says %q", args, want.Error)
			continue
		}
		given := func(dest, fallback string) string {
			if v, ok := c.values[dest]; ok {
				return v.text
			}
			return fallback
		}
		// argparse leaves a "--" that follows the script among its arguments in some versions of Python.
		if len(want.Args) > 0 && want.Args[0] == "--" {
			want.Args = want.Args[1:]
		}
		if c.script != want.Script || strings.Join(c.args, "\x00") != strings.Join(want.Args, "\x00") ||
			len(c.args) != len(want.Args) {
			t.Errorf("%q: script %q %q, torch says %q %q", args, c.script, c.args, want.Script, want.Args)
		}
		if nproc, nnodes := given("nproc_per_node", "1"),
			given("nnodes", "1:1"); nproc != want.Nproc || nnodes != want.Nnodes {
			t.Errorf("%q: nproc %s nnodes %s, torch says %s %s", args, nproc, nnodes, want.Nproc, want.Nnodes)
		}
	}
}

// testPython is a Python that can import torch.
func testPython(t *testing.T) string {
	t.Helper()
	python := os.Getenv("OOMGUARD_TEST_PYTHON")
	if python == "" {
		python = filepath.Join("..", "..", ".venv", "bin", "python")
	}
	if _, err := os.Stat(python); err != nil {
		t.Fatalf("no Python with torch (%v): run make test, which sets up a Python with torch", err)
	}
	return python
}

// TestProcesses: what nproc, nnodes and PET_* mean (determine_local_world_size, parse_min_max_nnodes and argparse_util
// of torch).
func TestProcesses(t *testing.T) {
	tests := []struct {
		name          string
		argv          string
		env           map[string]string
		gpus          int
		nproc, nnodes int // 0: unknown
		script        string
		origin        string // of nproc
		fails         string
	}{
		{name: "defaults", argv: "torchrun a.py", nproc: 1, nnodes: 1, script: "a.py", origin: "default of torchrun"},
		{name: "command line", argv: "torchrun --nnodes 2 --nproc-per-node=8 a.py", nproc: 8, nnodes: 2, script: "a.py",
			origin: "command line --nproc-per-node"},
		{name: "as a module", argv: "python3 -m torch.distributed.run --nproc-per-node=2 a.py", nproc: 2, nnodes: 1,
			script: "a.py", origin: "command line --nproc-per-node"},
		{name: "module in one word", argv: "/usr/bin/python3.11 -u -mtorch.distributed.run --nproc_per_node=2 a.py",
			nproc: 2, nnodes: 1, script: "a.py", origin: "command line --nproc_per_node"},
		{name: "old module", argv: "python -m torch.distributed.launch --use-env --nproc_per_node 2 a.py", nproc: 2,
			nnodes: 1, script: "a.py", origin: "command line --nproc_per_node"},
		{name: "console script under python", argv: "python /venv/bin/torchrun --nproc-per-node 2 a.py", nproc: 2,
			nnodes: 1, script: "a.py", origin: "command line --nproc-per-node"},
		{name: "PET", argv: "torchrun a.py", env: map[string]string{"PET_NPROC_PER_NODE": "4", "PET_NNODES": "2"},
			nproc: 4, nnodes: 2, script: "a.py", origin: "environment PET_NPROC_PER_NODE"},
		{name: "command line beats PET", argv: "torchrun --nproc-per-node 2 a.py",
			env: map[string]string{"PET_NPROC_PER_NODE": "4"}, nproc: 2, nnodes: 1, script: "a.py",
			origin: "command line --nproc-per-node"},
		{name: "PET flag", argv: "torchrun my.train", env: map[string]string{"PET_MODULE": "1"}, nproc: 1, nnodes: 1,
			script: "-m my.train", origin: "default of torchrun"},
		{name: "PET flag off", argv: "torchrun my.py", env: map[string]string{"PET_MODULE": "0"}, nproc: 1, nnodes: 1,
			script: "my.py", origin: "default of torchrun"},
		{name: "PET flag in words", argv: "torchrun a.py", env: map[string]string{"PET_STANDALONE": "yes"},
			fails: "ValueError: invalid literal for int() with base 10: 'yes'"},
		{name: "gpu", argv: "torchrun --nproc-per-node gpu a.py", gpus: 6, nproc: 6, nnodes: 1, script: "a.py",
			origin: "command line --nproc-per-node gpu: the GPUs that it can see"},
		{name: "gpu without any", argv: "torchrun --nproc-per-node gpu a.py", nnodes: 1, script: "a.py",
			fails: "ValueError: Cuda is not available.", origin: "Cuda is not available"},
		{name: "gpu, not known", argv: "torchrun --nproc-per-node gpu a.py", gpus: -1, nnodes: 1, script: "a.py",
			origin: "visible GPUs is not known"},
		{name: "auto", argv: "torchrun --nproc-per-node auto a.py", gpus: 2, nproc: 2, nnodes: 1, script: "a.py",
			origin: "the GPUs that it can see"},
		{name: "auto without GPUs", argv: "torchrun --nproc-per-node auto a.py", nproc: 16, nnodes: 1, script: "a.py",
			origin: "CPUs of this machine"},
		{name: "cpu", argv: "torchrun --nproc-per-node cpu a.py", gpus: 2, nproc: 16, nnodes: 1, script: "a.py",
			origin: "CPUs of this machine"},
		{name: "not a number", argv: "torchrun --nproc-per-node two a.py", nnodes: 1, script: "a.py",
			fails: "Unsupported nproc_per_node value: two", origin: "value: two"},
		{name: "zero", argv: "torchrun --nproc-per-node 0 a.py", nnodes: 1, script: "a.py", fails: "AssertionError",
			origin: "AssertionError"},
		{name: "elastic", argv: "torchrun --nnodes 1:4 a.py", nproc: 1, script: "a.py", origin: "default of torchrun"},
		{name: "elastic of one size", argv: "torchrun --nnodes 2:2 a.py", nproc: 1, nnodes: 2, script: "a.py",
			origin: "default of torchrun"},
		{name: "nodes backwards", argv: "torchrun --nnodes 3:2 a.py", nproc: 1, script: "a.py",
			origin: "default of torchrun", fails: "min_nodes must be > 0 and <= max_nodes, got min_nodes=3, max_nodes=2"},
		{name: "nodes in three parts", argv: "torchrun --nnodes 1:2:3 a.py", nproc: 1, script: "a.py",
			origin: "default of torchrun", fails: `nnodes=1:2:3 is not in "MIN:MAX" format`},
		{name: "nodes no number", argv: "torchrun --nnodes a a.py", nproc: 1, script: "a.py",
			origin: "default of torchrun", fails: "invalid literal for int() with base 10: 'a'"},
		{name: "no python", argv: "torchrun --no-python python -u -X dev a.py --x", nproc: 1, nnodes: 1, script: "a.py",
			origin: "default of torchrun"},
		{name: "no python and module", argv: "torchrun --no-python -m a", nproc: 1, nnodes: 1, script: "-m a",
			origin: "default of torchrun", fails: "at the same time"},
		{name: "an option of a newer torch", argv: "torchrun --new-thing 3 a.py --x", nproc: 1, nnodes: 1,
			script: "a.py", origin: "default of torchrun"},
		{name: "a flag of a newer torch", argv: "torchrun --new-flag a.py --x", nproc: 1, nnodes: 1, script: "a.py",
			origin: "default of torchrun"},
		{name: "plain", argv: "python -u a.py", script: "a.py", origin: "may start processes itself"},
		{name: "plain module", argv: "python -m pkg.train", script: "-m pkg.train",
			origin: "may start processes itself"},
		{name: "executable script", argv: "./a.py --x", script: "./a.py", origin: "may start processes itself"},
		{name: "code", argv: "python -c pass", script: "-c", origin: "may start processes itself"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j := Read(Sources{Argv: words(tt.argv), GPUs: tt.gpus, CPUs: 16, Dir: t.TempDir(),
				Getenv: func(name string) string { return tt.env[name] }})
			if j.NProc.Or(0) != tt.nproc || j.NNodes.Or(0) != tt.nnodes {
				t.Errorf("nproc %+v nnodes %+v, want %d %d", j.NProc, j.NNodes, tt.nproc, tt.nnodes)
			}
			if !strings.Contains(j.NProc.Origin, tt.origin) {
				t.Errorf("origin of nproc %q, want %q", j.NProc.Origin, tt.origin)
			}
			if j.Script.Or("") != tt.script {
				t.Errorf("script %q, want %q", j.Script.Value, tt.script)
			}
			if (tt.fails == "") != (j.WillFail.Value == "") || !strings.Contains(j.WillFail.Value, tt.fails) {
				t.Errorf("will fail %q, want %q", j.WillFail.Value, tt.fails)
			}
		})
	}
}
