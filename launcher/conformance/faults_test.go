//go:build linux

package conformance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"oomguard/launcher/patience"
)

// What becomes of a run when a part of oomguard fails: nothing. A program that was built with the tag faults tells
// which parts of its work stand behind a fence, and lets each of them fail in every way; a part that is new is tried
// without being named here.

// faultyProgram is oomguard with parts that can be made to fail.
var faultyProgram = sync.OnceValues(func() (string, error) {
	if err := lookAtSources(); err != nil {
		return "", err
	}
	path := filepath.Join(programFolder(), "faulty", "oomguard")
	build := exec.Command("go", "build", "-tags=faults", "-trimpath", "-ldflags=-extldflags=-Wl,-z,lazy", "-o", path,
		"oomguard/cmd/oomguard")
	// as in the Makefile
	build.Env = append(os.Environ(), "CGO_CFLAGS=-O2 -Wno-deprecated-declarations", "CGO_LDFLAGS=-Wl,-z,lazy")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build oomguard: %w\n%s", err, out)
	}
	return path, nil
})

// A faultBench is a folder in which launchers are shell scripts with a known behaviour, so that any job "runs" in no
// time.
type faultBench struct {
	*testing.T
	program string
	bin     string
}

// standIns are the launchers.
func standIns() []string {
	return []string{"torchrun", "python", "accelerate", "deepspeed", "axolotl", "llamafactory-cli", "trl", "tune",
		"litgpt", "srun", "bash"}
}

// standIn is what every launcher does: it is what oomguard must hand on whatever fails. Its own lines of stderr can be
// told from others.
const standIn = `#!/bin/sh
printf 'out %s\n' "$@"
echo 'cmd: err' >&2
case $OOMGUARD_TEST_END in
signal) ulimit -c 0; kill -SEGV $$ ;;
term) trap 'echo got TERM; exit 9' TERM; echo ready; while :; do sleep 0.05; done ;;
esac
exit 7
`

func newFaultBench(t *testing.T) *faultBench {
	t.Helper()
	path, err := faultyProgram()
	if err != nil {
		t.Fatal(err)
	}
	b := &faultBench{T: t, program: path, bin: t.TempDir()}
	for _, name := range standIns() {
		if err := os.WriteFile(filepath.Join(b.bin, name), []byte(standIn), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	list, err := os.ReadFile(filepath.Join("..", "..", "checklists", "pretraining.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	mild := strings.NewReplacer("severity: fail", "severity: warn", "name: pretraining",
		"name: mild").Replace(string(list))
	if err := os.WriteFile(filepath.Join(b.bin, mildList), []byte(mild), 0o600); err != nil {
		t.Fatal(err)
	}
	return b
}

// mildList never refuses: what is tested is what happens to a command that is started.
const mildList = "mild.yaml"

// trial is one run under oomguard.
type trial struct {
	folder string // of the job
	argv   []string
	end    string // how the command ends
	fault  string // part=way
	parts  string // the file that parts are written to
}

// do runs a trial and returns what can be seen of it: status, stdout, and the command's own lines of stderr.
func (b *faultBench) do(t *testing.T, c trial, wrapped bool) (seen, stderr string) {
	t.Helper()
	words := c.argv
	if wrapped {
		words = slices.Concat([]string{b.program, "run", "--gpu", "8xH100-80GB", "--checklist",
			filepath.Join(b.bin, mildList), "--"}, words)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience.Limit(t))
	defer cancel()
	cmd := exec.CommandContext(ctx, "/usr/bin/env", words...)
	cmd.Dir = c.folder
	cmd.Env = []string{
		"PATH=" + b.bin + ":/usr/bin:/bin", "HOME=" + t.TempDir(), "OOMGUARD_DIR=" + filepath.Join(t.TempDir(), "runs"),
		"NO_COLOR=1",
		"OOMGUARD_TEST_END=" + c.end, "OOMGUARD_TEST_FAULT" + "=" + c.fault, "OOMGUARD_TEST_PARTS" + "=" + c.parts,
	}
	cmd.Env = append(cmd.Env, patience.Mark()...)
	var out, err bytes.Buffer
	cmd.Stderr = &err
	pipe, pipeErr := cmd.StdoutPipe()
	if pipeErr != nil {
		t.Fatal(pipeErr)
	}
	if startErr := cmd.Start(); startErr != nil {
		t.Fatal(startErr)
	}
	lines := bufio.NewReader(pipe)
	for {
		line, readErr := lines.ReadString('\n')
		out.WriteString(line)
		if line == "ready\n" {
			_ = cmd.Process.Signal(unix.SIGTERM) // it is there: it has just spoken
		}
		if readErr != nil {
			break
		}
	}
	_ = cmd.Wait() // the status is what is compared
	var own []string
	for line := range strings.Lines(err.String()) {
		if strings.HasPrefix(line, "cmd: ") {
			own = append(own, line)
		}
	}
	return fmt.Sprintf("status %d\n%s%s", shellStatus(cmd), out.String(), strings.Join(own, "")), err.String()
}

// faultJobs are test jobs of different launchers and frameworks: between them they use the readers.
func faultJobs(t *testing.T) []trial {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", "..", "preflight", "job", "testdata", "jobs"))
	if err != nil {
		t.Fatal(err)
	}
	folders, err := filepath.Glob(filepath.Join(root, "*"))
	if err != nil || len(folders) == 0 {
		t.Fatalf("no jobs in %s: %v", root, err)
	}
	var jobs []trial
	known := map[string]bool{}
	for _, folder := range folders {
		command, err := os.ReadFile(filepath.Join(folder, "cmd.txt"))
		if err != nil {
			t.Fatal(err)
		}
		words := strings.Fields(strings.ReplaceAll(string(command), `"`, ""))
		text, err := os.ReadFile(filepath.Join(folder, "expected.json"))
		if err != nil {
			t.Fatal(err)
		}
		var expected struct{ Framework string }
		if err := json.Unmarshal(text, &expected); err != nil {
			t.Fatal(err)
		}
		if kind := words[0] + " " + expected.Framework; slices.Contains(standIns(), words[0]) && !known[kind] {
			known[kind] = true
			jobs = append(jobs, trial{folder: folder, argv: words})
		}
	}
	return jobs
}

// parts runs a job under oomguard and returns what stood behind a fence.
func (b *faultBench) parts(t *testing.T, job trial) []string {
	t.Helper()
	job.parts = filepath.Join(t.TempDir(), "parts")
	b.do(t, job, true)
	text, err := os.ReadFile(job.parts)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(strings.TrimSpace(string(text)), "\n")
	slices.Sort(parts)
	return slices.Compact(parts)
}

// TestFaults breaks each part of oomguard in each way under run: the command's output and status are its own.
func TestFaults(t *testing.T) {
	b := newFaultBench(t)
	tried := map[string]bool{}
	for _, job := range faultJobs(t) {
		want, _ := b.do(t, job, false)
		for _, part := range b.parts(t, job) {
			if tried[part] {
				continue
			}
			tried[part] = true
			for _, way := range []string{"panic", "hang", "exit", "stack", "garbage"} {
				if (way == "exit" || way == "stack") && slices.Contains(ownParts(), part) {
					continue
				}
				t.Run(part+" "+way, func(t *testing.T) {
					t.Parallel()
					broken := job
					broken.fault = part + "=" + way
					if got, stderr := b.do(t, broken, true); got != want {
						t.Errorf("%s\ndirectly:\n%s\nunder oomguard:\n%s\nstderr:\n%s", strings.Join(job.argv, " "),
							want, got, stderr)
					}
				})
			}
		}
	}
	const fewest = 60 // a list that has become short by mistake is a test that tests nothing
	if len(tried) < fewest {
		t.Errorf("only %d parts were tried", len(tried))
	}
}

// TestFaultsAndSignals: a command that dies of a signal, or is sent one, while a part of oomguard is broken.
func TestFaultsAndSignals(t *testing.T) {
	b := newFaultBench(t)
	for _, end := range []string{"signal", "term"} {
		job := faultJobs(t)[0]
		job.end = end
		want, _ := b.do(t, job, false)
		for _, fault := range []string{
			"reading the command=panic", "reading the command=hang", "reading the command=memory", "estimating=stack",
			"judging headroom=exit",
			"preparing the recording=hang", "starting the recording=panic", "recording device samples=panic",
			"ending the recording=hang",
			"making the post-mortem=panic", "making the post-mortem=exit", "writing the report=stack",
		} {
			t.Run(end+" "+fault, func(t *testing.T) {
				t.Parallel()
				broken := job
				broken.fault = fault
				if got, stderr := b.do(t, broken, true); got != want {
					t.Errorf("directly:\n%s\nunder oomguard:\n%s\nstderr:\n%s", want, got, stderr)
				}
			})
		}
	}
}

// TestFaultsInAnswers: explain, check and estimate keep what the other parts found when one is broken, and say so.
func TestFaultsInAnswers(t *testing.T) {
	b := newFaultBench(t)
	job := faultJobs(t)[0]
	answer := func(t *testing.T, command, fault string) (document map[string]any, status int, stderr string) {
		t.Helper()
		flags := []string{command, "--format", "json"}
		if command != "explain" {
			flags = append(flags, "--gpu", "8xH100-80GB")
		}
		cmd := exec.Command(b.program, slices.Concat(flags, []string{"--"}, job.argv)...)
		cmd.Dir = job.folder
		cmd.Env = []string{"PATH=" + b.bin + ":/usr/bin:/bin", "HOME=" + t.TempDir(), "OOMGUARD_TEST_FAULT=" + fault}
		cmd.Env = append(cmd.Env, patience.Mark()...)
		var words bytes.Buffer
		cmd.Stderr = &words
		out, err := cmd.Output()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		if len(out) > 0 {
			if err := json.Unmarshal(out, &document); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		}
		return document, cmd.ProcessState.ExitCode(), words.String()
	}
	for _, part := range b.parts(t, job) {
		for _, command := range []string{"explain", "check", "estimate"} {
			t.Run(command+" "+part, func(t *testing.T) {
				t.Parallel()
				document, status, stderr := answer(t, command, part+"=panic")
				if status == 1 || strings.Contains(stderr, "goroutine") {
					t.Errorf("status %d: %s", status, stderr)
				}
				settings, _ := document["job"].(map[string]any)
				launcher, _ := settings["launcher"].(map[string]any)
				late := []string{"reading the model", "reading the settings of hf-trainer", "reading the defaults",
					"reading which framework it is"}
				if command == "explain" && slices.Contains(late, part) &&
					(launcher["value"] != "torchrun" || !strings.Contains(stderr, part)) {
					t.Errorf("launcher %v: %s", launcher, stderr)
				}
			})
		}
	}
}

// ownParts are done in the process that starts the command and hands its status on: there nothing can survive the end
// of the process, so they are kept small.
func ownParts() []string {
	return []string{
		"looking at the GPUs", "learning the secrets", "preparing the recording", "comparing the environments",
		"starting the recording", "recording device samples",
		"recording stage records", "ending the recording", "writing down the end", "removing the private folder",
		"noting its own faults",
	}
}
