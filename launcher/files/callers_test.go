package files

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// opening are the calls that open, make or take away files by their names. Asking about a name (os.Stat, os.Readlink)
// is free.
func opening() map[string]string {
	calls := map[string]string{}
	for pkg, names := range map[string]string{
		"os": "Open OpenFile Create CreateTemp ReadFile WriteFile ReadDir Mkdir MkdirAll " +
			"MkdirTemp Remove RemoveAll Rename Link Truncate Chmod Chown DirFS CopyFS OpenRoot OpenInRoot",
		"io/ioutil": "ReadFile WriteFile ReadDir TempFile TempDir",
		"syscall": "Open Openat Creat Mkdir Mkdirat Rename Renameat Rmdir Unlink Unlinkat Truncate " +
			"Link Linkat Mknod Mkfifo",
		"golang.org/x/sys/unix": "Open Openat Openat2 Creat Mkdir Mkdirat Rename Renameat Renameat2 Rmdir Unlink " +
			"Unlinkat Truncate Link Linkat Mknod Mkfifo",
	} {
		for name := range strings.FieldsSeq(names) {
			calls[pkg+"."+name] = pkg
		}
	}
	return calls
}

// allowed are the files that open others themselves, and why.
func allowed() map[string]string {
	return map[string]string{
		"launcher/proc_linux.go":           "/proc, many times a second",
		"launcher/descriptors_linux.go":    "/dev/null for streams",
		"launcher/guard_linux.go":          "/proc/self/comm",
		"launcher/relay_linux.go":          "the pipe of a stream, as that was opened",
		"launcher/patience/patience.go":    "/proc, in tests",
		"launcher/process_other.go":        "/dev/tty",
		"launcher/terminal_linux.go":       "/dev/tty",
		"launcher/window_linux.go":         "/dev/null",
		"launcher/fence/memory.go":         "/proc/self/oom_score_adj",
		"launcher/fence/inject_on.go":      "faults that tests make",
		"launcher/relaying_linux.go":       "/proc/self/comm",
		"monitor/gpu/fakenvml/fakenvml.go": "a library for tests",
	}
}

// TestOnlyHereAreFilesOpened: whoever opens a file elsewhere is told to use this package, which bounds what is read and
// follows no link where we write. The linter (forbidigo) says the same.
func TestOnlyHereAreFilesOpened(t *testing.T) {
	root := filepath.Join("..", "..")
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Fatal(err)
	}
	calls, excused := opening(), allowed()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && (name == "testdata" || path != root && strings.HasPrefix(name, ".") && name != ".."):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if relative = filepath.ToSlash(relative); strings.HasPrefix(relative, "launcher/files/") {
			return nil
		}
		found, err := openings(path, calls)
		_, isExcused := excused[relative]
		delete(excused, relative)
		switch {
		case err != nil:
			return err
		case isExcused && len(found) == 0:
			t.Errorf("%s opens no files any more: take it off the list above", relative)
		case !isExcused:
			for _, call := range found {
				t.Errorf("%s: open files through launcher/files", call)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range excused {
		t.Errorf("%s is not there any more: take it off the list above", name)
	}
}

// openings are the places of a Go file that name one of the calls.
func openings(path string, calls map[string]string) ([]string, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	imported := map[string]string{} // the name in this file -> the package
	for _, spec := range file.Imports {
		pkg := strings.Trim(spec.Path.Value, `"`)
		name := pkg[strings.LastIndexByte(pkg, '/')+1:]
		if spec.Name != nil {
			name = spec.Name.Name
		}
		imported[name] = pkg
	}
	var found []string
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && calls[imported[x.Name]+"."+s.Sel.Name] != "" {
				found = append(found, set.Position(s.Pos()).String()+" uses "+x.Name+"."+s.Sel.Name)
			}
		}
		return true
	})
	return found, nil
}
