package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestWhatIsSaidIsSafe: what stands in arguments, names of files and logs does nothing to a terminal or to a CI system,
// whatever is wrong with it.
func TestWhatIsSaidIsSafe(t *testing.T) {
	const evil = "a\n::error::x\r::add-mask::y\x1b]0;title\a\u009b31m\u202e\u2028::error::z"
	dir := t.TempDir()
	log := filepath.Join(dir, "run.log")
	if err := os.WriteFile(log, []byte(evil+
		"\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. \x1b]0;t\a\u009b31m\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{evil}, {"report", evil}, {"postmortem", evil}, {"postmortem", log}, {"postmortem", "--format", "github", log},
		{"postmortem", "--format", "json", log},
		{"estimate", "--params", evil}, {"estimate", "--model", evil}, {"estimate", "--" + evil},
		{"check", "--checklist", evil, "--params", "7B"}, {"check", "--skip", evil, "--params", "7B"},
		{"check", "--devices", evil}, {"estimate", "--gpu", evil},
		{"check", "--format", "github", "--", "torchrun", evil},
		{"explain", "--", "torchrun", evil, "--" + evil, evil},
		{"run", "--dry-run", "--", "torchrun", evil}, {"run", "--", evil}, {"runs", "--dir", evil},
		{"gpus", "--format", evil}, {"estimate", "--params", "7B", "-o", dir + "/" + evil + "/x"},
	} {
		cmd := exec.Command(program(t), args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "NO_COLOR=1", "OOMGUARD_DIR="+dir)
		out, err := cmd.CombinedOutput()
		if len(out) == 0 {
			t.Errorf("%q said nothing: %v", args, err)
		}
		for line := range strings.SplitSeq(string(out), "\n") {
			if i := strings.IndexFunc(line, func(r rune) bool {
				return r < ' ' && r != '\t' || r >= 0x7f && r < 0xa0 || r == '\u202e' || r == '\u2028'
			}); i >= 0 {
				t.Errorf("%q printed %q", args, line)
			}
			if strings.HasPrefix(line, "::") &&
				!regexp.MustCompile(`^::(error|warning|notice) title=oomguard [^:]*::`).MatchString(line) {
				t.Errorf("%q printed the command %q", args, line)
			}
		}
	}
}

// TestOneVoice: what oomguard says outside reports is made in one function, so that none can forget to make its text
// safe. (The progress of reading is the other, and has no text from outside.)
func TestOneVoice(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if !strings.HasSuffix(name, "_test.go") && strings.Contains(line, "oomguard:") &&
				!strings.HasPrefix(strings.TrimSpace(line), "//") && !strings.Contains(line, "usagef(") {
				found = append(found, name+": "+strings.TrimSpace(line))
			}
		}
	}
	if len(found) != 2 {
		t.Errorf("want two places that begin a line with our name, got\n%s", strings.Join(found, "\n"))
	}
}
