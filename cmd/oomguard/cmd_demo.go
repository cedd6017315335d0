package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/urfave/cli/v2"

	"oomguard/launcher"
	"oomguard/launcher/files"
	"oomguard/monitor/gpu"
)

//go:embed demo/train.py demo/config.json
var demoFiles embed.FS

func demoCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "demo",
		Usage: "the main job on real input, anywhere: a small real training under torchrun, then its report",
		UsageText: "oomguard demo [--oom]\n\nIt is oomguard torchrun with two ranks that train a small Llama-shaped " +
			"decoder. Without a GPU the memory of a rank\n" +
			"is its resident host memory, and every line says so.",
		Flags: join(runFlags(env), []cli.Flag{
			&cli.BoolFlag{Name: "oom", Usage: "make it run out of memory: on a GPU really, without one by raising " +
				"PyTorch's own error (the report says so)"},
		}),
		Action: func(c *cli.Context) error {
			return demoAction(c.Context, env, c)
		},
	}
}

// demoSteps and demoOOMStep: the error comes in the third step, when every stage has been seen.
const (
	demoSteps   = 5
	demoOOMStep = 3
)

func demoAction(ctx context.Context, env environment, c *cli.Context) error {
	if env.adviser != nil {
		return env.adviser.serve(env, c)
	}
	if c.Args().Present() {
		return usagef("demo takes no command; use oomguard run -- for your own")
	}
	if _, err := launcher.Lookup("torchrun", env.getenv("PATH"), env.dir); err != nil {
		return fmt.Errorf("the demo needs torchrun: %w; install PyTorch (pip install torch) or run make demo, which "+
			"does", err)
	}
	dir, err := writeDemo(runRoot(env, c))
	if err != nil {
		return err
	}
	gpus := visibleGPUs(ctx, env)
	ranks := 2
	if gpus == 1 {
		ranks = 1 // two ranks cannot share a GPU under NCCL
	}
	argv := []string{
		"torchrun", "--standalone", "--nproc-per-node=" + strconv.Itoa(ranks), filepath.Join(dir, "train.py"),
		"--model_name_or_path", dir, "--torch_dtype", "float32", "--attn_implementation", "sdpa",
		"--per_device_train_batch_size", "2", "--max_seq_length", "128", "--gradient_accumulation_steps", "1",
		"--gradient_checkpointing", "false", "--optim", "adamw_torch", "--max_steps", strconv.Itoa(demoSteps),
	}
	o := runOptions{argv: argv}
	if gpus == 0 {
		o.environ = promptFrees()
	}
	if c.Bool("oom") {
		o.argv = append(o.argv, "--oom_at_step", strconv.Itoa(demoOOMStep))
		o.simulated = gpus == 0
	}
	return runAction(ctx, env, c, o)
}

// promptFrees makes glibc's malloc give freed memory back to the system at once (fixed thresholds of 128 KiB,
// mallopt(3)), so that without a GPU the resident memory follows the tensors; and it lets the probe reset the kernel's
// peak of that, so that each stage has its own.
func promptFrees() []string {
	return []string{"MALLOC_MMAP_THRESHOLD_=131072", "MALLOC_TRIM_THRESHOLD_=131072", "OOMGUARD_RESET_PEAKS=1"}
}

// visibleGPUs is how many GPUs the demo may use; 0 when none can be seen.
func visibleGPUs(ctx context.Context, env environment) int {
	devices := watchedDevices(env)
	defer devices.Close()
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	snap, err := devices.Snapshot(ctx)
	if err != nil {
		return 0
	}
	return len(visibleDevices(env, snap))
}

func visibleDevices(env environment, snap gpu.Snapshot) []gpu.Device {
	p := prepared{}
	p.see(env, snap)
	return p.visible
}

// writeDemo puts the training program beside the recorded runs, so that its command can be run again by hand.
func writeDemo(root string) (string, error) {
	dir := filepath.Join(root, "demo")
	folder, err := files.EnsureFolder(dir)
	if err != nil {
		return "", fmt.Errorf("write the demo: %w (choose another place with --dir)", err)
	}
	defer folder.Close()
	var errs []error
	for _, name := range []string{"train.py", "config.json"} {
		data, err := demoFiles.ReadFile("demo/" + name)
		if err == nil {
			err = folder.Write(name, data)
		}
		errs = append(errs, err)
	}
	return dir, errors.Join(errs...)
}
