package probe

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// demoCommand runs the demo program's training with two ranks and a tiny model.
func demoCommand(t *testing.T, args ...string) []string {
	t.Helper()
	torchrun := filepath.Join(filepath.Dir(testPython(t)), "torchrun")
	train := filepath.Join("..", "..", "cmd", "oomguard", "demo", "train.py")
	command := []string{torchrun, "--nproc_per_node=2", "--master_port=0", "--rdzv_backend=c10d",
		"--rdzv_endpoint=localhost:0",
		train, "--model_name_or_path", filepath.Join("testdata", "tiny"), "--max_seq_length", "32", "--max_steps", "3"}
	return append(command, args...)
}

// TestTorchrun: each of two ranks reports, the launcher does not.
func TestTorchrun(t *testing.T) {
	t.Parallel()
	dir, out := newRun(t), t.TempDir()
	got := python(t, Env(plainEnv(), dir),
		demoCommand(t, "--gradient_accumulation_steps", "2", "--gradient_checkpointing", "--save", "--output_dir",
			out)...)
	if got.code != 0 || !strings.Contains(got.stdout, "step 3/3  loss ") {
		t.Fatalf("torchrun: %+v", got)
	}
	files := readRanks(t, dir)
	if len(files) != 2 {
		t.Fatalf("files %v", files)
	}
	for rank, file := range files {
		hello, bye := file.Events[0], file.Events[len(file.Events)-1]
		if hello.E != "hello" || hello.Rank != rank || hello.LocalRank != rank || hello.WorldSize != 2 ||
			bye.E != "bye" || bye.Step != 3 || file.Lost != 0 {
			t.Errorf("rank %d: %+v ... %+v", rank, hello, bye)
		}
		want := []string{"start", "model-load", "forward", "backward", "forward", "backward", "optimizer-init"}
		if got := stages(file.Events); len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
			t.Errorf("rank %d: stages %v", rank, got)
		}
		if saves := slices.Contains(stages(file.Events), "checkpoint-save"); saves != (rank == 0) {
			t.Errorf("rank %d: saves %v, and only rank 0 writes", rank, saves)
		}
	}
}

// oomMessage is what c10/cuda/CUDACachingAllocator.cpp of torch 2.8 and later prints.
var oomMessage = regexp.MustCompile(`^CUDA out of memory\. Tried to allocate 20\.00 MiB\. GPU 0 has a total capacity of \d+\.\d\d [MG]iB of which 10\.00 MiB is free\. ` +
	`Including non-PyTorch memory, this process has \d+\.\d\d [MG]iB memory in use\. Of the allocated memory \d+\.\d\d [MG]iB is allocated by PyTorch, ` +
	`and 5\.00 MiB is reserved by PyTorch but unallocated\. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True ` +
	`to avoid fragmentation\.  See documentation for Memory Management  \(https://docs\.pytorch\.org/docs/stable/notes/cuda\.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf\)$`)

// TestSimulatedOOM: the demo's error looks like PyTorch's and is told as one of the forward pass. A batch of 64 has
// logits of 64 * 32 * 256 * 4 = 2 MiB, for which the allocator asks the driver for 20 MiB.
func TestSimulatedOOM(t *testing.T) {
	t.Parallel()
	dir := newRun(t)
	got := python(t, Env(plainEnv("CUDA_VISIBLE_DEVICES="), dir),
		demoCommand(t, "--oom_at_step", "2", "--per_device_train_batch_size", "64")...)
	if got.code == 0 || !strings.Contains(got.stderr, "is simulated") {
		t.Fatalf("want a failed run: %+v", got)
	}
	files := readRanks(t, dir)
	if len(files) != 2 {
		t.Fatalf("files %v", files)
	}
	exceptions := ofKind(files[0].Events, "exc")
	if len(exceptions) != 1 {
		t.Fatalf("rank 0 tells of %d exceptions: %s", len(exceptions), got.stderr)
	}
	if e := exceptions[0]; !e.OOM || e.S != "forward" || e.Step != 1 || !oomMessage.MatchString(e.Msg) {
		t.Errorf("exception %+v", e)
	}
}
