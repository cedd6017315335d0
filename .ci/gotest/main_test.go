package main

import (
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestWhole runs the program on a module of its own: statuses, what is shown, what is not.
func TestWhole(t *testing.T) {
	program := filepath.Join(t.TempDir(), "gotest")
	if out, err := exec.Command("go", "build", "-o", program, "main.go").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const passes = "package a\nimport \"testing\"\nfunc TestA(t *testing.T) { t.Log(\"words of a test that " +
		"passes\") }\n"
	for _, c := range []struct {
		name, test string
		status     int
		want       []string
	}{
		{"passes", `func TestB(t *testing.T) { println("TestB was NOT RUN: no reason") }`, 0,
			[]string{"ok  \tm/a", "ok  \tm/b", "NOT RUN: no reason", "slowest tests:"}},
		{"fails", `func TestB(t *testing.T) { t.Run("sub", func(t *testing.T) { t.Error("what is wrong") }) }`, 1,
			[]string{"ok  \tm/a", "what is wrong", "--- FAIL: TestB/sub", "FAIL\tm/b", "slowest tests:"}},
		{"panics", `func TestB(t *testing.T) { t.Log("said before"); panic("so it is") }`, 1,
			[]string{"ok  \tm/a", "said before", "panic: so it is", "FAIL\tm/b"}},
		{"exits", `func TestB(t *testing.T) { println("said before"); os.Exit(0) }`, 1,
			[]string{"ok  \tm/a", "said before", "FAIL\tm/b"}},
		{"is not compiled", `func TestB(t *testing.T) { undefined() }`, 1,
			[]string{"ok  \tm/a", "undefined: undefined", "FAIL\tm/b"}},
		{"vet objects", `func TestB(t *testing.T) { t.Logf("%d", "x") }`, 1,
			[]string{"ok  \tm/a", "wrong type", "FAIL\tm/b"}},
		{"leaves a process", `func TestB(t *testing.T) { exec.Command("setsid", "sleep", "1000").Start() }`, 1,
			[]string{"ok  \tm/b", "left behind", "sleep 1000"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for name, text := range map[string]string{
				"go.mod": "module m\ngo 1.25\n", "a/a_test.go": passes,
				"b/b_test.go": "package b\nimport (\"os\"; \"os/exec\"; \"testing\")\nvar _, _ = os.Exit, " +
					"exec.Command\n" + c.test + "\n",
			} {
				path := filepath.Join(dir, name)
				_ = os.MkdirAll(filepath.Dir(path), 0o700)
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command(program, "-count=1")
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			if got := cmd.ProcessState.ExitCode(); got != c.status {
				t.Errorf("status %d, want %d (%v)", got, c.status, err)
			}
			for _, want := range c.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("%q is missing", want)
				}
			}
			if strings.Contains(string(out), "words of a test that passes") ||
				strings.Contains(string(out), `"Action"`) {
				t.Error("there is more than is worth reading")
			}
			if t.Failed() {
				t.Logf("%s", out)
			}
		})
	}
}

// TestShares: where the race detector has something to find.
func TestShares(t *testing.T) {
	for text, want := range map[string]bool{
		`import "sync"; var words = sync.OnceValue(func() int { return 1 })`: false,
		`func f() { go func() {}() }`:                                        true,
		`func f(ended <-chan int) {}`:                                        true,
		`import "sync"; type t struct { mu sync.Mutex }`:                     true,
		`import "sync/atomic"; var n atomic.Int64`:                           true,
		`// go f()`: false,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "a.go", "package a\n"+text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if got := shares(file); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
