// Package files is the one place that opens files. What a person names may be a link and must be a regular file: a pipe
// without a writer, a device or a socket would hold us up for ever, and a file without bounds fill the memory. What
// lies in a folder of ours is reached through that folder, held open (Folder), and never through a link: others may be
// able to write there.
package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// NotRegularError says that a name leads to something else than a file of bytes.
type NotRegularError struct {
	Path string
	Kind string // "a directory", "a named pipe", ...
}

func (e *NotRegularError) Error() string {
	return fmt.Sprintf("%s is %s, not a regular file: name a file, or store in one what it gives", e.Path, e.Kind)
}

// TooLargeError says that a file has more bytes than anything of its kind.
type TooLargeError struct {
	Path  string
	Limit int64
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%s has more than %s, which no such file has: check that it is the right one", e.Path,
		size(e.Limit))
}

func size(n int64) string {
	for _, unit := range []struct {
		name  string
		shift int
	}{{"GiB", 30}, {"MiB", 20}, {"KiB", 10}} {
		if n >= 1<<unit.shift && n%(1<<unit.shift) == 0 {
			return fmt.Sprintf("%d %s", n>>unit.shift, unit.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

// Directory is the kind of NotRegularError for a folder.
const Directory = "a directory"

// kind says what a mode is, "" for a regular file.
func kind(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return ""
	case mode.IsDir():
		return Directory
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	}
	return "a special file"
}

// Open opens a regular file that a person has named, through links. It never waits.
func Open(path string) (*os.File, error) {
	info, err := os.Stat(path) // before opening: that has effects on some devices
	if err != nil {
		return nil, err
	}
	if what := kind(info.Mode()); what != "" {
		return nil, &NotRegularError{path, what}
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	return regular(f, path)
}

// regular closes a file that is none.
func regular(f *os.File, path string) (*os.File, error) {
	info, err := f.Stat()
	if err == nil {
		if what := kind(info.Mode()); what != "" {
			err = &NotRegularError{path, what}
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Read reads a whole file that a person has named. One of more than limit bytes is a *TooLargeError.
func Read(path string, limit int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f, path, limit)
}

func readAll(f *os.File, path string, limit int64) ([]byte, error) {
	if info, err := f.Stat(); err == nil && info.Size() > limit {
		return nil, &TooLargeError{path, limit}
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1)) // it may grow while it is read
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, &TooLargeError{path, limit}
	}
	return data, nil
}

// Head reads the first n bytes of a regular file, or all when it has fewer.
func Head(path string, n int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, n))
}

// writerWait is how long a named pipe is given until somebody writes to it.
const writerWait = 30 * time.Second

// OpenStream is Open for what may also come through a pipe: postmortem <(zcat log.gz). It waits for the pipe's writer,
// and not for ever.
func OpenStream(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil || info.Mode()&fs.ModeNamedPipe == 0 {
		return Open(path)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if !awaitWriter(int(f.Fd()), writerWait) { // Fd makes it blocking: once there is a writer, its end is our end
		return nil, errors.Join(fmt.Errorf("%s is a named pipe to which nobody writes", path), f.Close())
	}
	return f, nil
}

// awaitWriter waits until a pipe has something to read or its writer has gone.
func awaitWriter(fd int, limit time.Duration) bool {
	for deadline := time.Now().Add(limit); ; {
		left := time.Until(deadline)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(max(left, 0).Milliseconds()))
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return err == nil
		}
		if left <= 0 {
			return false
		}
	}
}

// WriteNamed writes a result to where a person wants it: a file, which keeps its mode and may be a link, or a pipe or
// terminal. It does not wait for a pipe's reader.
func WriteNamed(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NONBLOCK|unix.O_NOCTTY, 0o666)
	if errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("%s is a named pipe that nobody reads, or a socket", path)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}
