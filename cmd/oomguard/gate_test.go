package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The gate holds what oomguard answers about every job, published model and log in testdata. `make gate` writes the
// answers of an older commit and those of the working tree and shows what differs: moving code changes nothing, and
// what changes an answer can be listed.

// A gateCase is a command line and the folder where it is asked.
type gateCase struct {
	name    string // of the file with the answer
	dir     string
	environ []string
	args    []string
}

// gateCases are all cases. Nothing in them depends on the machine: hardware and versions are given.
func gateCases(t *testing.T) []gateCase {
	t.Helper()
	all := append(jobCases(t), modelCases(t)...)
	all = append(all, logCases(t)...)
	slices.SortFunc(all, func(a, b gateCase) int { return strings.Compare(a.name, b.name) })
	return all
}

func jobCases(t *testing.T) []gateCase {
	t.Helper()
	var all []gateCase
	for _, dir := range matches(t, "../../preflight/job/testdata/jobs/*") {
		var given struct {
			GPUs     int               `json:"gpus"`
			Env      map[string]string `json:"env"`
			Versions map[string]string `json:"versions"`
		}
		if err := json.Unmarshal(readFile(t, filepath.Join(dir, "env.json")), &given); err != nil {
			t.Fatal(err)
		}
		if given.Versions == nil {
			given.Versions = map[string]string{"torch": "2.6.0"}
		}
		words := shellQuoted(string(readFile(t, filepath.Join(dir, "cmd.txt"))))
		hardware := []string{"--gpu", fmt.Sprintf("%dxH100-80GB", max(given.GPUs, 1))}
		for command, flags := range map[string][]string{"explain": nil, "estimate": hardware, "plan": hardware,
			"check": append(hardware, "--skip", "run-folder-writable")} {
			args := append([]string{command, "--format", "json", "--versions",
				strings.Join(assignments(given.Versions), ",")}, flags...)
			all = append(all, gateCase{name: filepath.Base(dir) + "." + command, dir: dir,
				environ: assignments(given.Env), args: append(append(args, "--"), words...)})
		}
	}
	return all
}

// shellQuoted splits at spaces outside double quotes, as the tests of preflight/job do.
func shellQuoted(line string) []string {
	var words []string
	for i, part := range strings.Split(strings.TrimSpace(line), `"`) {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}

// assignments are name=value, sorted.
func assignments(of map[string]string) []string {
	var all []string
	for name, value := range of {
		all = append(all, name+"="+value)
	}
	slices.Sort(all)
	return all
}

func modelCases(t *testing.T) []gateCase {
	t.Helper()
	ways := map[string]string{
		"full": "--method full --precision bf16-mixed --optimizer adamw --micro-batch 2 --seq-len 512 --sharding " +
			"ddp --nproc 8",
		"fsdp": "--method full --precision fp32 --optimizer adamw_8bit --micro-batch 1 --seq-len 512 --sharding " +
			"fsdp-full --nproc 8 --checkpointing full --attention eager",
		"lora": "--method lora --precision bf16 --optimizer adamw_fused --lora-r 16 --lora-targets all-linear " +
			"--micro-batch 4 --seq-len 512 --sharding zero2 --nproc 2 --attention flash_attention_2",
		"qlora": "--method qlora --quant nf4-dq --precision bf16 --optimizer paged_adamw_8bit --lora-r 8 " +
			"--lora-targets all-linear --micro-batch 1 --seq-len 512 --sharding none --nproc 1 --checkpointing full " +
			"--layer-kernels liger",
	}
	root := t.TempDir()
	var all []gateCase
	for _, path := range matches(t, "../../preflight/model/known/*.json") {
		var known struct {
			Config json.RawMessage `json:"config"`
		}
		if err := json.Unmarshal(readFile(t, path), &known); err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		if err := os.Mkdir(filepath.Join(root, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name, "config.json"), known.Config, 0o600); err != nil {
			t.Fatal(err)
		}
		for way, flags := range ways {
			for _, command := range []string{"estimate", "plan"} {
				args := append([]string{command, "--format", "json", "--gpu", "8xA100-80GB", "--versions",
					"torch=2.6.0,transformers=4.51.3", "--model", name}, strings.Fields(flags)...)
				all = append(all, gateCase{name: name + "." + way + "." + command, dir: root, args: args})
			}
		}
	}
	return all
}

func logCases(t *testing.T) []gateCase {
	t.Helper()
	var all []gateCase
	for _, kind := range []string{"logs", "forms"} {
		for _, path := range matches(t, "../../monitor/oom/testdata/"+kind+"/*") {
			all = append(all, gateCase{name: kind + "." + filepath.Base(path), dir: ".",
				args: []string{"postmortem", "--format", "json", path}})
		}
	}
	return all
}

func matches(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) == 0 {
		t.Fatalf("%s: nothing found (%v)", pattern, err)
	}
	return found
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestGate asks every thirtieth case, or all of them with OOMGUARD_TEST_GATE, the folder where the answers go.
func TestGate(t *testing.T) {
	folder, every := os.Getenv("OOMGUARD_TEST_GATE"), 30
	if folder != "" {
		every = 1
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for i, q := range gateCases(t) {
		if i%every != 0 {
			continue
		}
		stdout, stderr := scratchFile(t), scratchFile(t)
		code := run(environment{args: q.args,
			environ: append([]string{"PATH=/usr/bin:/bin", "HOME=/nonexistent"}, q.environ...),
			stdin:   null, stdout: stdout, stderr: stderr, dir: q.dir, executable: "/nonexistent",
			now: func() time.Time { return time.Unix(0, 0) }})
		said, problem := readFile(t, stdout.Name()), readFile(t, stderr.Name())
		stdout.Close()
		stderr.Close()
		if code != exitUsage && code != exitNoAnswer && !json.Valid(said) {
			t.Errorf("%s: status %d, no JSON: %.300s %.300s", q.name, code, said, problem)
		}
		if bytes.Contains(problem, []byte("fault of its own")) {
			t.Errorf("%s: %s", q.name, problem)
		}
		if code != exitOK && len(said)+len(problem) == 0 {
			t.Errorf("%s: status %d without a word", q.name, code)
		}
		if folder == "" {
			continue
		}
		answer := fmt.Appendf(nil, "status %d\n%s\n%s", code, said, problem)
		answer = bytes.ReplaceAll(bytes.ReplaceAll(answer, []byte(root), nil), []byte(q.dir), nil)
		if err := os.WriteFile(filepath.Join(folder, q.name), answer, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func scratchFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	return f
}
