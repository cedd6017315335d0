package launcher

import (
	"io"
	"os"
	"sync"
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
	t.open(os.O_APPEND) // another relay may have begun it
	if t.file != nil {
		if info, err := t.file.Stat(); err == nil {
			t.size = int(info.Size())
		}
	}
	return t
}

func (t *tail) open(how int) {
	f, err := os.OpenFile(t.path, os.O_WRONLY|os.O_CREATE|how, 0o600)
	if err != nil {
		f = nil
	}
	t.file, t.size = f, 0
}

func (t *tail) write(data []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file == nil {
		return
	}
	if t.size+len(data) > tailBytes {
		_ = t.file.Close()
		if os.Rename(t.path, t.path+".1") != nil {
			t.file = nil
			return
		}
		if t.open(os.O_TRUNC); t.file == nil {
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
		f, err := os.Open(name)
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
