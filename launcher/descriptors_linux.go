package launcher

import (
	"fmt"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// inheritedDescriptors returns those beyond the standard streams that this process was started with, and closes them to
// all programs that it starts: whatever Go opens itself is so already.
func inheritedDescriptors() []int {
	var inherited []int
	for _, fd := range openDescriptors() {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 && fd > 2 {
			unix.CloseOnExec(fd)
			inherited = append(inherited, fd)
		}
	}
	slices.Sort(inherited)
	return inherited
}

// openDescriptors are numbers that may be open.
func openDescriptors() []int {
	var fds []int
	for _, name := range entries("/proc/self/fd") {
		if fd, err := strconv.Atoi(name); err == nil {
			fds = append(fds, fd)
		}
	}
	if len(fds) == 0 { // /proc is not mounted
		const usual = 1024 // the limit of a process that nobody has changed
		for fd := range usual {
			fds = append(fds, fd)
		}
	}
	return fds
}

// closedFD stands for a descriptor that the child is to have closed; see syscall.ForkExec.
const closedFD = ^uintptr(0)

// table is what ForkExec is to be told of a command's descriptors, and the inherited ones beyond that, which pass on by
// themselves. ForkExec moves the one that it needs for itself to the second number after the table: that must be
// nobody's.
func table(streams []uintptr, inherited []int) (fds []uintptr, beyond []int) {
	end := len(streams)
	for _, fd := range streams {
		if fd != closedFD {
			end = max(end, int(fd)+1)
		}
	}
	for slices.Contains(inherited, end+1) {
		end++
	}
	fds = streams
	for len(fds) < end {
		fds = append(fds, closedFD)
	}
	for _, fd := range inherited {
		if fd < end {
			fds[fd] = uintptr(fd)
		} else {
			beyond = append(beyond, fd)
		}
	}
	return fds, beyond
}

// numbers returns the files' descriptors. File.Fd is of no use here: it may change the stream's blocking mode, which we
// share with whoever gave it to us. A standard stream that was closed when we were started is closed.
func numbers(files ...*os.File) ([]uintptr, error) {
	var fds []uintptr
	for i, f := range files {
		conn, err := f.SyscallConn()
		if err == nil {
			err = conn.Control(func(fd uintptr) {
				if int(fd) == i && inheritedClosed(i) {
					fd = closedFD // what is there now was opened by Go's runtime
				}
				fds = append(fds, fd)
			})
		}
		if err != nil {
			return nil, fmt.Errorf("stream %s: %w", f.Name(), err)
		}
	}
	return fds, nil
}

// withNull puts /dev/null in the place of nil files.
func withNull(files ...*os.File) (all []*os.File, closeNull func(), err error) {
	if !slices.Contains(files, nil) {
		return files, func() {}, nil
	}
	null, err := openNull()
	if err != nil {
		return nil, nil, err
	}
	for _, f := range files {
		if f == nil {
			f = null
		}
		all = append(all, f)
	}
	return all, func() { null.Close() }, nil
}

// openNull opens /dev/null, or an empty file of our own where there is none.
func openNull() (*os.File, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err == nil {
		return null, nil
	}
	fd, failed := unix.MemfdCreate("null", unix.MFD_CLOEXEC)
	if failed != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), os.DevNull), nil
}

// Release gives up this process's copy of a stream that a command has been given, so that nobody waits for us where the
// command has closed it.
func Release(stream *os.File) {
	null, err := openNull()
	if err != nil {
		return
	}
	defer null.Close()
	from, err := numbers(null)
	if err != nil {
		return
	}
	if conn, err := stream.SyscallConn(); err == nil {
		// the copy stays, where it fails
		_ = conn.Control(func(fd uintptr) { _ = unix.Dup3(int(from[0]), int(fd), unix.O_CLOEXEC) })
	}
}
