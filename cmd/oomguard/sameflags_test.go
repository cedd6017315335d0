package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"oomguard/preflight/job"
)

// answering are the commands that read a job, and how each is asked for an answer without starting anything.
func answering() map[string][]string {
	return map[string][]string{"explain": nil, "check": nil, "estimate": nil, "plan": nil, "run": {"--dry-run"}}
}

// TestSameFlags: every command that reads a job takes every key of a job and every flag of the hardware.
func TestSameFlags(t *testing.T) {
	app := newApp(environment{})
	for name := range answering() {
		i := slices.IndexFunc(app.Commands, func(c *cli.Command) bool { return c.Name == name })
		own := ownFlags(app.Commands[i])
		for _, f := range slices.Concat(jobFlags(), hardwareFlags()) {
			if _, ok := own[f.Names()[0]]; !ok {
				t.Errorf("%s lacks --%s", name, f.Names()[0])
			}
		}
	}
}

// values are two values for every key of a job that has no list of words.
func values(k job.Key) []string {
	if k.Values != nil {
		return slices.DeleteFunc(slices.Clone(k.Values), func(v string) bool { return v == "selective:N" })[:2]
	}
	return map[string][]string{
		"model": {"small", "large"}, "params": {"1B", "2B"}, "versions": {"torch=2.6.0", "torch=2.7.0"},
		"lora-dropout": {"0.1", "0.2"}, "lora-targets": {"q_proj", "all-linear"},
	}[k.Flag]
}

// TestFlagsHaveEffect: a flag that changes what one command understands changes it in all of them, and in the same way.
func TestFlagsHaveEffect(t *testing.T) {
	dir := t.TempDir()
	for name, layers := range map[string]string{"small": "2", "large": "4"} {
		config := `{"model_type":"llama","hidden_size":256,"num_hidden_layers":` + layers +
			`,"num_attention_heads":4,"intermediate_size":512,"vocab_size":1000}`
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "config.json"), []byte(config), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	devices := `{"devices":[{"index":0,"name":"NVIDIA H100 80GB HBM3","total_bytes":85520809984,"used_bytes":0},{"index":1,"name":"NVIDIA H100 80GB HBM3","total_bytes":85520809984,"used_bytes":0}]}`
	for path, text := range map[string]string{"gpus.json": devices, "train.py": "print(1)\n"} {
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	hardware := map[string][]string{"gpu": {"8xH100-80GB", "4xA100-40GB"}, "gpu-memory": {"80GB", "40GB"},
		"devices": {filepath.Join(dir, "gpus.json"), filepath.Join(dir, "gpus.json")}}
	for _, k := range job.Keys() {
		given := values(k)
		if given == nil {
			given = []string{"2", "4"}
		}
		compareAnswers(t, dir, k.Flag, given)
	}
	for flag, given := range hardware {
		compareAnswers(t, dir, flag, given)
	}
}

// compareAnswers gives a flag two values and wants each command to understand the same job of it, that of explain.
func compareAnswers(t *testing.T, dir, flag string, given []string) {
	t.Helper()
	var understood []string
	for _, value := range given {
		args := []string{"--" + flag, value}
		if flag != "model" && flag != "params" {
			args = append(args, "--model", "small")
		}
		if flag != "devices" && flag != "gpu-memory" && flag != "gpu" {
			args = append(args, "--gpu-memory", "80GB")
		}
		jobs, whole := map[string]string{}, ""
		for name, more := range answering() {
			if len(understood) > 0 && name != "explain" {
				continue
			}
			var all string
			jobs[name], all = answerOf(t, dir,
				slices.Concat([]string{name, "--format", "json"}, more, args,
					[]string{"--", "torchrun", "--nproc-per-node=gpu", "train.py"}))
			if name == "explain" {
				whole = all
			}
		}
		for name, got := range jobs {
			if got != "" && got != jobs["explain"] {
				t.Errorf("--%s %s: %s and explain differ: %s", flag, value, name, difference(got, jobs["explain"]))
			}
		}
		understood = append(understood, whole)
	}
	if understood[0] == "" {
		t.Errorf("--%s %s is not understood", flag, given[0])
	}
	_, without := answerOf(t, dir, []string{"explain", "--format", "json", "--model", "small", "--", "torchrun",
		"--nproc-per-node=gpu", "train.py"})
	if understood[0] == understood[1] && understood[0] == without {
		t.Errorf("--%s changes nothing", flag)
	}
}

// difference is where two texts part.
func difference(a, b string) string {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	part := func(s string) string { return s[max(0, i-80):min(len(s), i+80)] }
	return fmt.Sprintf("%q and %q", part(a), part(b))
}

// answerOf is the job that a command's JSON shows, "" when it shows none, and the whole of it.
func answerOf(t *testing.T, dir string, args []string) (shown, whole string) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	var text bytes.Buffer
	copied := make(chan error, 1)
	go func() {
		defer read.Close()
		_, err := text.ReadFrom(read)
		copied <- err
	}()
	status := run(environment{args: args, environ: []string{"PATH=/usr/bin:/bin"}, stdin: null, stdout: write,
		stderr: null, dir: dir, executable: "/bin/false", now: time.Now})
	write.Close()
	var doc struct {
		Job      json.RawMessage
		Estimate struct{ Job json.RawMessage }
	}
	if err := errors.Join(<-copied, json.Unmarshal(text.Bytes(), &doc)); err != nil || status == exitUsage ||
		status == exitInternal {
		t.Errorf("%q: status %d, %v", args, status, err)
		return "", ""
	}
	if doc.Job == nil {
		doc.Job = doc.Estimate.Job
	}
	var compact bytes.Buffer
	if doc.Job != nil {
		if err := json.Compact(&compact, doc.Job); err != nil {
			t.Fatal(err)
		}
	}
	return compact.String(), text.String()
}
