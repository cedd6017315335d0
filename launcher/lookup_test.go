//go:build linux

package launcher

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// folder makes a folder of files: name to mode; a name with a slash at its end is a folder.
func folder(t *testing.T, files map[string]os.FileMode) string {
	t.Helper()
	root := t.TempDir()
	for name, mode := range files {
		path := filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil && strings.HasSuffix(name, "/") {
			err = os.MkdirAll(path, mode)
		} else if err == nil {
			err = os.WriteFile(path, []byte("#!/bin/sh\nexit 0\n"), mode)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestLookup(t *testing.T) {
	root := folder(t, map[string]os.FileMode{
		"a/tool": 0o755, "b/tool": 0o755, "plain/tool": 0o644, "dir/tool/": 0o755, "a/only": 0o644, "here": 0o755,
	})
	in := func(path string) string { return strings.ReplaceAll(path, "~", root) }
	for _, test := range []struct {
		name, argv0, path, dir string
		want                   string
		err                    error
		says                   string
	}{
		{"the first in PATH", "tool", "~/a:~/b", "", "~/a/tool", nil, ""},
		{"folders that do not exist", "tool", "~/none:~/b", "", "~/b/tool", nil, ""},
		{"not executable, later one is", "tool", "~/plain:~/b", "", "~/b/tool", nil, ""},
		{"a directory, later one is no", "tool", "~/dir:~/b", "", "~/b/tool", nil, ""},
		{"nowhere", "tol", "~/a:~/b", "", "", ErrNotFound, "~/a:~/b"},
		{"only not executable", "only", "~/a:~/b", "", "", ErrNotExecutable, "~/a/only has no execute permission"},
		{"only a directory", "tool", "~/dir", "", "", ErrNotExecutable, "~/dir/tool is a directory"},
		{"no PATH at all", "sh", "", "", "/bin/sh", nil, ""},
		{"with a slash", "~/a/tool", "", "", "~/a/tool", nil, ""},
		{"with a slash, not there", "~/a/none", "~/a", "", "", ErrNotFound, "there is no file ~/a/none"},
		{"with a slash, a directory", "~/a", "", "", "", ErrNotExecutable, "is a directory"},
		{"with a slash, not executable", "~/plain/tool", "", "", "", ErrNotExecutable, "chmod +x"},
		{"through a file", "~/here/tool", "", "", "", ErrNotFound, "there is no file"},
		{"relative to the child's folder", "./tool", "", "~/a", "./tool", nil, ""},
		{"relative, not there", "./tool", "", "~", "", ErrNotFound, "~/tool"},
		{"relative folder in PATH", "tool", "b", "~", "b/tool", nil, ""},
		{"empty entry in PATH", "here", "/none:", "~", "./here", nil, ""},
		{"empty name", "", "~/a", "", "", ErrNotFound, "empty"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Lookup(in(test.argv0), in(test.path), in(test.dir))
			if !errors.Is(err, test.err) || err == nil && got != in(test.want) {
				t.Errorf("got %q, %v; want %q, %v", got, err, in(test.want), test.err)
			}
			if err != nil && !strings.Contains(err.Error(), in(test.says)) {
				t.Errorf("%q does not say %q", err, in(test.says))
			}
		})
	}
}

// TestStartErrors: what cannot be started says why, is told apart, and leaves nothing behind.
func TestStartErrors(t *testing.T) {
	root := folder(t, map[string]os.FileMode{"empty/": 0o755, "plain": 0o644})
	write := func(name, text string) string {
		path := filepath.Join(root, name)
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	moved := write("moved", "#!/no/such/venv/bin/python -u\nprint()\n")
	refused := write("refused", "#!"+root+"/plain\n")
	for _, test := range []struct {
		name string
		c    Command
		err  error // nil: any other
		says string
	}{
		{"no command", Command{}, ErrNotFound, "none was given"},
		{"not found", Command{Argv: []string{"torchrunn"}, Env: []string{"PATH=" + root}}, ErrNotFound,
			`no "torchrunn" in any folder of PATH (` + root + `)`},
		{"the child's PATH counts", Command{Argv: []string{"bash"}, Env: []string{"PATH=" + root}}, ErrNotFound,
			"bash"},
		{"directory", Command{Argv: []string{root}}, ErrNotExecutable, "is a directory"},
		{"not executable", Command{Argv: []string{root + "/plain"}}, ErrNotExecutable, "no execute permission"},
		{"interpreter moved", Command{Argv: []string{moved}}, ErrNotFound,
			"script for /no/such/venv/bin/python, which does not exist"},
		{"interpreter not executable", Command{Argv: []string{refused}}, ErrNotExecutable,
			"plain, which may not be executed"},
		{"no such working directory", Command{Argv: []string{"true"}, Dir: root + "/none"}, nil, "working directory"},
		{"working directory is a file", Command{Argv: []string{"true"}, Dir: moved}, nil, "not a directory"},
		// MAX_ARG_STRLEN is 128 KiB
		{"arguments too long", Command{Argv: []string{"/bin/true", strings.Repeat("x", 1<<20)}}, nil,
			"argument list too long"},
		{"NUL in an argument", Command{Argv: []string{"/bin/true", "a\x00b"}}, nil, "invalid argument"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, err := Start(test.c, Options{})
			if err == nil {
				t.Fatalf("pid %d was started", p.pid)
			}
			for _, kind := range []error{ErrNotFound, ErrNotExecutable} {
				if errors.Is(err, kind) != (errors.Is(test.err, kind)) {
					t.Errorf("%q: is %q: %v", err, kind, errors.Is(err, kind))
				}
			}
			if !strings.Contains(err.Error(), test.says) {
				t.Errorf("%q does not say %q", err, test.says)
			}
		})
	}
}

// TestScriptWithoutInterpreter runs by /bin/sh, as it does without us.
func TestScriptWithoutInterpreter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(path, []byte("exit $1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := Start(Command{Argv: []string{path, "21"}, Env: os.Environ()}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(); err != nil || exit.Code != 21 {
		t.Errorf("exit %+v, %v", exit, err)
	}
}

// TestDirectory: a relative command and the child's work are meant from Dir, and a script finds its own name as it was
// given.
func TestDirectory(t *testing.T) {
	root := folder(t, map[string]os.FileMode{"x/": 0o755})
	script := filepath.Join(root, "x", "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho $0 >name\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := Start(Command{Argv: []string{"./script"}, Env: os.Environ(), Dir: filepath.Join(root, "x")}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(); err != nil || exit.Code != 0 {
		t.Errorf("exit %+v, %v", exit, err)
	}
	if name, err := os.ReadFile(filepath.Join(root, "x", "name")); err != nil || string(name) != "./script\n" {
		t.Errorf("the script is called %q, %v", name, err)
	}
}
