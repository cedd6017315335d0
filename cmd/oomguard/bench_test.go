package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The benchmarks of this file measure whole commands: the binary that make build makes, started anew each time. Beside
// the time they report the largest resident size.

// builtBinary makes and finds bin/oomguard.
func builtBinary(tb testing.TB) string {
	tb.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		tb.Fatal(err)
	}
	if out, err := exec.Command("make", "-C", root, "build").CombinedOutput(); err != nil {
		tb.Fatalf("make build: %v\n%s", err, out)
	}
	return filepath.Join(root, "bin", "oomguard")
}

const llama70B = `{"model_type":"llama","hidden_size":8192,"num_hidden_layers":80,"num_attention_heads":64,"num_key_value_heads":8,` +
	`"intermediate_size":28672,"vocab_size":128256,"max_position_embeddings":131072,"tie_word_embeddings":false,"torch_dtype":"bfloat16"}`

func benchCommand(b *testing.B, args ...string) {
	b.Helper()
	dir := b.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(llama70B), 0o644); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "train.py"), nil, 0o644); err != nil {
		b.Fatal(err)
	}
	var resident int64
	for b.Loop() {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil && cmd.ProcessState.ExitCode() != exitNo {
			b.Fatalf("%v: %v\n%s", args, err, out)
		}
		if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
			resident = max(resident, usage.Maxrss)
		}
	}
	b.ReportMetric(float64(resident)/1024, "MiB-resident")
}

func job70B(command string, binary string) []string {
	return []string{
		binary, command, "--gpu", "8xH100-80GB", "--sharding", "zero3", "--precision", "bf16", "--checkpointing",
		"full", "--",
		"torchrun", "--nproc-per-node=8", "train.py", "--model_name_or_path", ".", "--per_device_train_batch_size", "1",
		"--max_seq_length", "4096",
	}
}

// BenchmarkEstimate70BZeRO3: the promise is < 50 ms and < 50 MiB without a GPU.
func BenchmarkEstimate70BZeRO3(b *testing.B) {
	benchCommand(b, job70B("estimate", builtBinary(b))...)
}

// BenchmarkCheck70BZeRO3: the promise is < 50 ms and < 50 MiB without a GPU.
func BenchmarkCheck70BZeRO3(b *testing.B) { benchCommand(b, job70B("check", builtBinary(b))...) }

// BenchmarkExplain: the promise is < 50 ms and < 50 MiB without a GPU.
func BenchmarkExplain(b *testing.B) {
	benchCommand(b, builtBinary(b), "explain", "--", "torchrun", "--nproc-per-node=8", "train.py",
		"--model_name_or_path", ".", "--bf16")
}

// BenchmarkExplainJobs is the same promise for every job of preflight/job, with its configuration files.
func BenchmarkExplainJobs(b *testing.B) {
	binary := builtBinary(b)
	folders, err := filepath.Glob(filepath.Join("..", "..", "preflight", "job", "testdata", "jobs", "*"))
	if err != nil || len(folders) == 0 {
		b.Fatalf("no jobs: %v", err)
	}
	for _, folder := range folders {
		b.Run(filepath.Base(folder), func(b *testing.B) {
			command, err := os.ReadFile(filepath.Join(folder, "cmd.txt"))
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				cmd := exec.Command(binary, "explain", "--", "bash", "-c", string(command))
				cmd.Dir = folder
				if out, err := cmd.CombinedOutput(); err != nil {
					b.Fatalf("%v\n%s", err, out)
				}
			}
		})
	}
}

// BenchmarkStartUp sets `oomguard run -- true` beside `true`: the promise is < 100 ms added, the checklist, the
// watching and the report included.
func BenchmarkStartUp(b *testing.B) {
	binary := builtBinary(b)
	b.Run("direct", func(b *testing.B) { benchCommand(b, "true") })
	b.Run("wrapped", func(b *testing.B) { benchCommand(b, binary, "run", "--", "true") })
}

// BenchmarkPostmortem: the promise is < 1 s for a log that can be read in less; this one has a hundred thousand lines
// of training before its death.
func BenchmarkPostmortem(b *testing.B) {
	log := filepath.Join(b.TempDir(), "crash.log")
	text := strings.Repeat("[rank3]: {'loss': 1.234, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.01}\n",
		100_000) +
		"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of " +
		"79.10 GiB of which 98.00 MiB is free. Including non-PyTorch memory, this process has 78.89 GiB memory " +
		"in use. Of the allocated memory 77.12 GiB is allocated by PyTorch, and 165.81 MiB is reserved by " +
		"PyTorch but unallocated.\n"
	if err := os.WriteFile(log, []byte(text), 0o644); err != nil {
		b.Fatal(err)
	}
	benchCommand(b, builtBinary(b), "postmortem", "--redact", "--format", "html", log)
}
