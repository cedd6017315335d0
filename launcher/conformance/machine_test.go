//go:build linux

package conformance

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// torch is a Python that imports PyTorch, with torchrun beside it.
type torch struct {
	name   string
	bin    string
	newest bool
}

// newestTorch is the one that make python sets up.
func newestTorch(tb testing.TB) torch {
	tb.Helper()
	python, err := pythonOf("OOMGUARD_TEST_PYTHON", "../../.venv/where")
	if err != nil {
		tb.Fatalf("%v; run make test, which sets up a Python with torch", err)
	}
	return torch{name: "newest", bin: filepath.Dir(python), newest: true}
}

// torches are the newest and, where everything is run and there is one, the oldest.
func torches(tb testing.TB) []torch {
	tb.Helper()
	all := []torch{newestTorch(tb)}
	if !everything() {
		return all
	}
	python, err := pythonOf("OOMGUARD_TEST_OLD_PYTHON", "../../.venv/old/where")
	if err != nil {
		tb.Logf("NOT run on an old torch: %v; make test sets one up where it can (.ci/old-torch.sh)", err)
		return all
	}
	return append(all, torch{name: "oldest", bin: filepath.Dir(python)})
}

// pythonOf is the Python that a variable names, or else the one in the folder that a file names.
func pythonOf(variable, file string) (string, error) {
	python, given := os.LookupEnv(variable)
	if !given {
		folder, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("%s is not set: %w", variable, err)
		}
		if len(folder) > 0 {
			python = filepath.Join(strings.TrimSpace(string(folder)), "python")
		}
	}
	if python == "" {
		return "", fmt.Errorf("%s names no Python", variable)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(python), "torchrun")); err != nil {
		return "", err
	}
	return filepath.Abs(python)
}

// program is oomguard as make build makes it.
func program(tb testing.TB) string {
	tb.Helper()
	path, err := built()
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

var built = sync.OnceValues(func() (string, error) {
	if err := lookAtSources(); err != nil {
		return "", err
	}
	path := filepath.Join(programFolder(), "oomguard")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-extldflags=-Wl,-z,lazy", "-o", path,
		"oomguard/cmd/oomguard")
	// as in the Makefile
	build.Env = append(os.Environ(), "CGO_CFLAGS=-O2 -Wno-deprecated-declarations", "CGO_LDFLAGS=-Wl,-z,lazy")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build oomguard: %w\n%s", err, out)
	}
	return path, nil
})

// lookAtSources opens each folder that the program is made of. Another process builds it, so that go test would not see
// it change and would print the result of an older program from its cache; what a test opens itself is seen.
func lookAtSources() error {
	for _, folder := range []string{"cmd", "checklists", "preflight", "launcher", "monitor"} {
		err := filepath.WalkDir(filepath.Join("..", "..", folder),
			func(path string, entry fs.DirEntry, err error) error {
				if err == nil && entry.IsDir() && entry.Name() == "testdata" {
					return filepath.SkipDir
				}
				return err
			})
		if err != nil {
			return err
		}
	}
	return nil
}

// programFolder is where this run of the tests has it; TestMain removes it.
func programFolder() string {
	return filepath.Join(os.TempDir(), fmt.Sprint("oomguard-conformance-", os.Getpid()))
}

// lastPort is the last port that freePort gave.
var lastPort atomic.Int32

// freePort is a port below those that the kernel hands out, which nobody listens on and no other run has been given.
func freePort(tb testing.TB) int {
	tb.Helper()
	lastPort.CompareAndSwap(0, 20000+rand.Int32N(8000))
	for range 1000 {
		port := int(lastPort.Add(1))
		if l, err := net.Listen("tcp", fmt.Sprint(":", port)); err == nil {
			l.Close()
			return port
		}
	}
	tb.Fatal("no free port")
	return 0
}
