package files

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// oddities makes one of each thing that a name can lead to; the value is what the error must say, "" when it can be
// read.
func oddities(t *testing.T, dir string) map[string]string {
	t.Helper()
	write(t, filepath.Join(dir, "file"), "text")
	must(t, os.Symlink("file", filepath.Join(dir, "link")))
	must(t, os.Symlink("nowhere", filepath.Join(dir, "broken")))
	must(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	must(t, os.Symlink("/dev/zero", filepath.Join(dir, "zero")))
	must(t, os.Mkdir(filepath.Join(dir, "folder"), 0o700))
	must(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	listener, err := net.Listen("unix", filepath.Join(dir, "socket"))
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	write(t, filepath.Join(dir, "large"), strings.Repeat("x", 65))
	must(t, os.Truncate(filepath.Join(dir, "large"), 3<<30)) // takes no room
	return map[string]string{
		"file": "", "link": "", "broken": "no such file", "loop": "too many levels", "zero": "a device",
		"folder": "a directory",
		"pipe":   "a named pipe", "socket": "a socket", "large": "more than 64 bytes", "missing": "no such file",
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	for name, want := range oddities(t, dir) {
		path := filepath.Join(dir, name)
		data, err := Read(path, 64)
		switch {
		case want == "" && (err != nil || string(data) != "text"):
			t.Errorf("%s: %q, %v", name, data, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path)):
			t.Errorf("%s: error %v, want one with %q and the path", name, err, want)
		}
	}
	if data, err := Head(filepath.Join(dir, "large"), 3); err != nil || string(data) != "xxx" {
		t.Errorf("head %q, %v", data, err)
	}
}

// TestFolderFollowsNothing: in a folder of ours no link is followed, neither for reading nor for writing, and what is
// made is ours alone.
func TestFolderFollowsNothing(t *testing.T) {
	dir := t.TempDir()
	want := oddities(t, dir)
	for _, name := range []string{"link", "broken", "loop", "zero"} {
		want[name] = "a symbolic link"
	}
	f, err := OpenFolder(dir)
	must(t, err)
	defer f.Close()
	for name, text := range want {
		_, err := f.Read(name, 64)
		if (text == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("%s: error %v, want %q", name, err, text)
		}
	}
	for _, name := range []string{"link", "broken", "zero", "pipe", "folder"} {
		if file, err := f.Append(name); err == nil {
			t.Errorf("%s was opened for writing", name)
			file.Close()
		}
	}
	must(t, os.Link(filepath.Join(dir, "file"), filepath.Join(dir, "hard")))
	if _, err := f.Append("hard"); err == nil {
		t.Error("a file with two names was opened for writing")
	}
	// a whole file replaces what was there, and leaves alone where it led
	for _, name := range []string{"link", "broken", "pipe", "fresh"} {
		must(t, f.Write(name, []byte("new")))
		info, err := os.Lstat(filepath.Join(dir, name))
		must(t, err)
		if !info.Mode().IsRegular() || info.Mode().Perm() != fileMode {
			t.Errorf("%s is %v", name, info.Mode())
		}
	}
	if data, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(data) != "text" {
		t.Errorf("the link's target: %q, %v", data, err)
	}
	for _, name := range []string{"", ".", "..", "../x", "folder/x", "/etc/passwd", "a\x00"} {
		if _, err := f.Open(name); err == nil {
			t.Errorf("opened %q", name)
		}
		if err := f.Write(name, nil); err == nil {
			t.Errorf("wrote %q", name)
		}
	}
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".tmp") {
			t.Errorf("%s is left over", e.Name())
		}
	}
}

func TestFolders(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Symlink(dir, filepath.Join(dir, "self")))
	for _, open := range []func(string) (*Folder, error){OpenFolder, EnsureFolder, NewFolder} {
		if _, err := open(filepath.Join(dir, "self")); err == nil {
			t.Error("a link was taken for a folder")
		}
	}
	if _, err := OpenFolder(filepath.Join(dir, "self")); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("error %v", err)
	}
	f, err := EnsureFolder(filepath.Join(dir, "a", "b"))
	must(t, err)
	sub, err := f.Make("c")
	must(t, err)
	for _, folder := range []*Folder{f, sub} {
		if err := errors.Join(folder.Private(), folder.Ours()); err != nil {
			t.Error(err)
		}
	}
	must(t, os.Chmod(sub.Path(), 0o750))
	if sub.Private() == nil || sub.Ours() != nil {
		t.Error("a folder that the group can enter is private")
	}
	if os.Geteuid() == 0 {
		must(t, os.Chown(sub.Path(), 65534, 65534))
		if sub.Private() == nil || sub.Ours() == nil {
			t.Error("another user's folder is ours")
		}
	}
	if now, err := f.Clock(); err != nil || now.IsZero() {
		t.Errorf("clock %v, %v", now, err)
	}
	// the folder that is held is the one that was opened
	must(t, os.Rename(f.Path(), filepath.Join(dir, "moved")))
	must(t, os.Symlink("/", f.Path()))
	must(t, f.Write("here", []byte("x")))
	if _, err := os.Stat(filepath.Join(dir, "moved", "here")); err != nil {
		t.Error(err)
	}
}

// TestRemoveAll: a tree goes as a whole, and nothing beyond it.
func TestRemoveAll(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	write(t, filepath.Join(outside, "keep"), "x")
	must(t, os.MkdirAll(filepath.Join(dir, "tree", "deep"), 0o700))
	must(t, os.Symlink(outside, filepath.Join(dir, "tree", "deep", "out")))
	write(t, filepath.Join(dir, "tree", "deep", "f"), "x")
	f, err := OpenFolder(dir)
	must(t, err)
	must(t, f.RemoveAll("tree"))
	must(t, f.RemoveAll("tree"))
	if _, err := os.Lstat(filepath.Join(dir, "tree")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the tree is still there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(outside, "keep")); err != nil {
		t.Error(err)
	}
}

// TestOpenStream: a pipe that a person names is read as a whole.
func TestOpenStream(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	must(t, unix.Mkfifo(path, 0o600))
	wrote := make(chan error, 1)
	go func() { // opens when we do
		w, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err == nil {
			_, err = w.WriteString(strings.Repeat("line\n", 50_000))
			err = errors.Join(err, w.Close())
		}
		wrote <- err
	}()
	f, err := OpenStream(path)
	must(t, err)
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil || len(data) != 250_000 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	must(t, <-wrote)
	if awaitWriter(int(f.Fd()), 0) != true { // its writer has gone
		t.Error("the end of a pipe is waited for")
	}
}

func TestWriteNamed(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), "longer than what comes")
	must(t, os.Symlink("file", filepath.Join(dir, "link")))
	must(t, WriteNamed(filepath.Join(dir, "link"), []byte("text")))
	must(t, WriteNamed(os.DevNull, []byte("text")))
	if data, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(data) != "text" {
		t.Errorf("%q, %v", data, err)
	}
	must(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	if err := WriteNamed(filepath.Join(dir, "pipe"), nil); err == nil ||
		!strings.Contains(err.Error(), "nobody reads") {
		t.Errorf("error %v", err)
	}
}

// TestLock: what one open file holds another one does not get, until it is closed.
func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		must(t, err)
		return f
	}
	a, b := open(), open()
	must(t, Share(a))
	must(t, Share(b))
	if err := Hold(b); !errors.Is(err, ErrLocked) {
		t.Errorf("a shared file was taken alone: %v", err)
	}
	must(t, a.Close())
	must(t, Hold(b))
}
