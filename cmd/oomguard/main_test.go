package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"oomguard/launcher"
	"oomguard/launcher/patience"
)

// TestMain lets the test binary stand for the program: testscript puts it on PATH as "oomguard", and the tests below
// start it by path, so that it is started as a whole, helper process included.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"oomguard": main, launcher.RelayName: main, launcher.GuardName: main})
}

// TestScripts runs testdata/script/*.txtar: the program from outside, one file a behaviour.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"status": wantStatus},
		Setup: func(e *testscript.Env) error {
			e.Setenv("OOMGUARD_DIR", filepath.Join(e.WorkDir, "runs"))
			e.Setenv("NO_COLOR", "1")
			patience.EndAll(t, "OOMGUARD_DIR="+filepath.Join(e.WorkDir, "runs"))
			return nil
		},
	})
}

// wantStatus is the command "status N WORD...": exec, which must end with that status.
func wantStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N command [args...]")
	}
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("status %d, want %s", got, args[0])
	}
}

// testPython is a Python that imports torch, with torchrun beside it.
func testPython(tb testing.TB) string {
	tb.Helper()
	python, err := pythonWithTorch()
	if err != nil {
		tb.Fatalf("%v; run make test, which sets up a Python with torch", err)
	}
	return python
}

var pythonWithTorch = sync.OnceValues(func() (string, error) {
	python := os.Getenv("OOMGUARD_TEST_PYTHON")
	if python == "" {
		python = filepath.Join("..", "..", ".venv", "bin", "python")
	}
	// It is found, not imported: that would take seconds.
	if err := exec.Command(python, "-c",
		"import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)").Run(); err != nil {
		return "", fmt.Errorf("%s finds no torch: %w", python, err)
	}
	return filepath.Abs(python)
})
