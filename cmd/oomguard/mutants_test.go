package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Mutants of all test jobs go through run --dry-run: Python, shell, YAML, JSON and command lines with words taken out,
// put in and exchanged, as people and programs mistype them. Whatever they hold, oomguard answers: no panic, no hang,
// memory bounded.

// A mutantJob is a test job in a folder of its own, whose files can be changed and put back.
type mutantJob struct {
	name  string
	dir   string
	words []string
	files map[string]string // by relative path, as they were
	names []string
}

func mutantJobs(t testing.TB) []*mutantJob {
	t.Helper()
	folders, err := filepath.Glob(filepath.Join("..", "..", "preflight", "job", "testdata", "jobs", "*"))
	if err != nil || len(folders) == 0 {
		t.Fatalf("no jobs: %v", err)
	}
	root := t.TempDir()
	var jobs []*mutantJob
	for _, folder := range folders {
		j := &mutantJob{name: filepath.Base(folder), dir: filepath.Join(root, filepath.Base(folder)),
			files: map[string]string{}}
		if err := os.CopyFS(j.dir, os.DirFS(folder)); err != nil {
			t.Fatal(err)
		}
		command, err := os.ReadFile(filepath.Join(folder, "cmd.txt"))
		if err != nil {
			t.Fatal(err)
		}
		j.words = strings.Fields(string(command))
		err = filepath.WalkDir(j.dir, func(path string, entry os.DirEntry, err error) error {
			const largest = 200_000
			info, infoErr := os.Stat(path)
			if err != nil || infoErr != nil || info.IsDir() || info.Size() > largest {
				return err
			}
			switch base := filepath.Base(path); base {
			case "cmd.txt", "env.json", "expected.json", "source.txt":
				return nil
			}
			text, err := os.ReadFile(path)
			relative, relErr := filepath.Rel(j.dir, path)
			if err != nil || relErr != nil {
				return err
			}
			j.files[relative] = string(text)
			j.names = append(j.names, relative)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// strange are words that stand where nobody expects them.
func strange() []string {
	return []string{
		"$UNSET", "${UNSET:-1}", `"$UNSET"`, "$(no-such-program)", "`x`", "$((1/0))", "$((", "${", "--unknown-option",
		"-", "--", "", " ", "0", "-1", "1e308", "Infinity",
		"NaN", "99999999999999999999", "0x", "null", "None", "True", "[]", "{}", "[[[[[[", "}}}}", "((((((", `"`, "'",
		`"""`, "\\", "\x00", "\xff\xfe", "\u202e", "\r",
		"if", "if True:", "else:", "for x in y:", "while True:", "lambda: 0", "def f():", "class A(A):", "return",
		"import os", "import *", "from . import x", "@", "*args", "**kw",
		"x = x", "a.b.c.d.e.f", "&a", "*a", "<<: *a", "!!python/object:os.system", "---", "- - - -", "? :", "|", ">",
		"%s", "{{x}}", "${oc.env:HOME}", "${x}", "auto", "cpu", "zero3", "bf16", "7B",
		"case x in", "esac", "done", "fi", "function f {", "set -u", "exec", "eval", "source x", "<<EOF", "EOF", "|&",
		"&&", ";;", "srun", "torchrun", "python", "accelerate launch", "-m", "--nproc_per_node", "--config",
		strings.Repeat("(", 3000), strings.Repeat("[", 3000), strings.Repeat("{a: ", 1000), strings.Repeat("x", 5000),
		strings.Repeat("- ", 2000), strings.Repeat("not ", 2000), strings.Repeat("a.", 2000),
		strings.Repeat("1+", 3000), strings.Repeat("$(", 500),
	}
}

// mutate changes a text at one to four places.
func mutate(r *rand.Rand, text string, other func() string) string {
	for range 1 + r.IntN(4) {
		at := func() int { return r.IntN(len(text) + 1) }
		switch r.IntN(9) {
		case 0: // a word is another one
			words := strings.SplitAfter(text, " ")
			words[r.IntN(len(words))] = strange()[r.IntN(len(strange()))] + " "
			text = strings.Join(words, "")
		case 1: // something is put in
			i := at()
			text = text[:i] + strange()[r.IntN(len(strange()))] + text[i:]
		case 2: // cut off
			text = text[:at()]
		case 3: // taken out
			i, j := at(), at()
			text = text[:min(i, j)] + text[max(i, j):]
		case 4: // a line twice, or many times
			lines := strings.SplitAfter(text, "\n")
			i := r.IntN(len(lines))
			lines[i] = strings.Repeat(lines[i], 2+r.IntN(50))
			text = strings.Join(lines, "")
		case 5: // two lines exchanged
			lines := strings.SplitAfter(text, "\n")
			i, j := r.IntN(len(lines)), r.IntN(len(lines))
			lines[i], lines[j] = lines[j], lines[i]
			text = strings.Join(lines, "")
		case 6: // a byte
			if len(text) > 0 {
				i := r.IntN(len(text))
				text = text[:i] + string([]byte{byte(r.IntN(256))}) + text[i+1:]
			}
		case 7: // indented anew
			lines := strings.SplitAfter(text, "\n")
			i := r.IntN(len(lines))
			lines[i] = strings.Repeat(" ", r.IntN(9)) + strings.TrimLeft(lines[i], " ")
			text = strings.Join(lines, "")
		case 8: // a piece of another file
			from := other()
			if len(from) > 0 {
				i, j, k := r.IntN(len(from)), r.IntN(len(from)), at()
				text = text[:k] + from[min(i, j):max(i, j)] + text[k:]
			}
		}
		const largest = 400_000
		text = text[:min(len(text), largest)]
	}
	return text
}

// mutantBench runs mutants in this process.
type mutantBench struct {
	jobs    []*mutantJob
	devices string
	null    *os.File
	stderr  *os.File
}

func newMutantBench(t testing.TB) *mutantBench {
	t.Helper()
	b := &mutantBench{jobs: mutantJobs(t), devices: filepath.Join(t.TempDir(), "devices.json")}
	if err := os.WriteFile(b.devices, []byte(`{"devices": []}`), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if b.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		t.Fatal(err)
	}
	if b.stderr, err = os.Create(filepath.Join(t.TempDir(), "stderr")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.null.Close(); b.stderr.Close() })
	return b
}

// mostAllocated bounds what one answer may allocate, all in all.
const mostAllocated = 2 << 30

// try runs the mutant of a seed and returns what is wrong with the answer, or "".
func (b *mutantBench) try(seed uint64) string {
	r := rand.New(rand.NewPCG(seed, 1))
	j := b.jobs[r.IntN(len(b.jobs))]
	words := j.words
	other := func() string {
		o := b.jobs[r.IntN(len(b.jobs))]
		if len(o.names) == 0 {
			return strings.Join(o.words, " ")
		}
		return o.files[o.names[r.IntN(len(o.names))]]
	}
	if len(j.names) == 0 || r.IntN(3) == 0 {
		words = strings.Split(mutate(r, strings.Join(words, " "), other), " ")
	}
	if len(j.names) > 0 {
		name := j.names[r.IntN(len(j.names))]
		path := filepath.Join(j.dir, name)
		if err := os.WriteFile(path, []byte(mutate(r, j.files[name], other)), 0o600); err != nil {
			return err.Error()
		}
		defer func() { _ = os.WriteFile(path, []byte(j.files[name]), 0o600) }()
	}
	_ = b.stderr.Truncate(0)
	_, _ = b.stderr.Seek(0, 0)
	env := environment{
		args: append([]string{"run", "--dry-run", "--format", "json", "--devices", b.devices, "--"}, words...),
		environ: []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent", "HF_HOME=" + filepath.Join(j.dir, "hf_home"),
			"OOMGUARD_DIR=" + filepath.Join(j.dir, "runs")},
		stdin: b.null, stdout: b.null, stderr: b.stderr, dir: j.dir, executable: "/nonexistent", now: time.Now,
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	code := run(env)
	runtime.ReadMemStats(&after)
	said, _ := os.ReadFile(b.stderr.Name())
	switch allocated := after.TotalAlloc - before.TotalAlloc; {
	case strings.Contains(string(said), "by a fault of its own"):
		return fmt.Sprintf("job %s: %s", j.name, said)
	case code != exitOK && code != exitUsage && code != exitNo:
		return fmt.Sprintf("job %s: status %d: %s", j.name, code, said)
	case allocated > mostAllocated:
		return fmt.Sprintf("job %s: %d MiB were allocated", j.name, allocated>>20)
	}
	return ""
}

// TestMutants tries fifty seeds, or those from OOMGUARD_TEST_MUTANTS=first:count. A hang shows as the time limit
// of the tests, with the seed in the log.
func TestMutants(t *testing.T) {
	first, count := uint64(1), uint64(50)
	if text := os.Getenv("OOMGUARD_TEST_MUTANTS"); text != "" {
		if _, err := fmt.Sscanf(text, "%d:%d", &first, &count); err != nil {
			t.Fatalf("OOMGUARD_TEST_MUTANTS=%s: want first:count", text)
		}
	}
	b := newMutantBench(t)
	var slowest time.Duration
	for seed := first; seed < first+count; seed++ {
		watchdog := time.AfterFunc(time.Minute, func() { t.Logf("seed %d takes more than a minute", seed) })
		start := time.Now()
		if wrong := b.try(seed); wrong != "" {
			t.Errorf("seed %d: %s", seed, wrong)
		}
		watchdog.Stop()
		if took := time.Since(start); took > slowest {
			slowest = took
			t.Logf("seed %d took %s", seed, strconv.FormatFloat(took.Seconds(), 'f', 3, 64))
		}
	}
}

// FuzzDryRun is TestMutants for go test -fuzz.
func FuzzDryRun(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed)
	}
	b := newMutantBench(f)
	f.Fuzz(func(t *testing.T, seed uint64) {
		if wrong := b.try(seed); wrong != "" {
			t.Error(wrong)
		}
	})
}
