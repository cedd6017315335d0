package launcher

import (
	"io"
	"os"
	"path/filepath"
	"sync"

	"oomguard/launcher/files"
)

// tailBytes is how much of the output's end is kept at least; twice as much at most.
const tailBytes = 2 << 20

// tail is a file that keeps the end of what is written: when it is full it becomes path.1, and a new one begins.
type tail struct {
	mu   sync.Mutex
	path string
	file *os.File // nil: it could not be opened; nothing is kept then
	size int
}

func newTail(path string) *tail {
	t := &tail{path: path}
	t.open(false) // another relay may have begun it
	if t.file != nil {
		if info, err := t.file.Stat(); err == nil {
			t.size = int(info.Size())
		}
	}
	return t
}

// open goes on with the file, or begins a new one when it is full.
func (t *tail) open(full bool) {
	t.file, t.size = nil, 0
	folder, err := files.OpenFolder(filepath.Dir(t.path))
	if err != nil {
		return
	}
	defer folder.Close()
	if name := filepath.Base(t.path); full && folder.Rename(name, name+".1") != nil {
		return
	}
	if t.file, err = folder.Append(filepath.Base(t.path)); err != nil {
		t.file = nil
		return
	}
	// as long as we write, the folder is in use; where there are no locks it is not cleared either
	_ = files.Share(t.file)
}

func (t *tail) write(data []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file == nil {
		return
	}
	if t.size+len(data) > tailBytes {
		_ = t.file.Close()
		if t.open(true); t.file == nil {
			return
		}
	}
	n, err := t.file.Write(data)
	t.size += n
	if err != nil { // a full disk: the command's output goes on, the copy ends
		_ = t.file.Close()
		t.file = nil
	}
}

// ReadTail gives the end of what a relay copied to path; "" when there is nothing.
func ReadTail(path string) string {
	var text []byte
	for _, name := range []string{path + ".1", path} {
		f, err := files.OpenOwn(name)
		if err != nil {
			continue
		}
		data, err := io.ReadAll(io.LimitReader(f, 2*tailBytes))
		_ = f.Close()
		if err == nil {
			text = append(text, data...)
		}
	}
	return string(text)
}
