package launcher

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// find looks the command up, and its working directory.
func find(c Command) (string, error) {
	if len(c.Argv) == 0 {
		return "", fmt.Errorf("%w: none was given", ErrNotFound)
	}
	if c.Dir != "" {
		info, err := os.Stat(c.Dir)
		if err == nil && !info.IsDir() {
			err = fmt.Errorf("%s: %w", c.Dir, unix.ENOTDIR)
		}
		if err != nil {
			return "", fmt.Errorf("working directory of the command: %w", err)
		}
	}
	return Lookup(c.Argv[0], variable(c.Env, "PATH"), c.Dir)
}

// execute starts the command, with a parent-death signal if that is wanted. The kernel sends that one when the thread ends which has
// started the command; so it gets a thread that lives until the command has ended.
func (p *Process) execute(c Command, file string) (pid int, err error) {
	sys := p.term.attributes()
	if !p.options.DieWithUs {
		return execute(c, file, sys)
	}
	sys.Pdeathsig = unix.SIGTERM
	started := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		pid, err = execute(c, file, sys)
		close(started)
		if err == nil {
			<-p.done
		}
	}()
	<-started
	return pid, err
}

// execute starts the file and returns its pid once the new program has replaced us in the child. It does not use os/exec, whose
// Wait would compete with ours; syscall.ForkExec also gives the child the resource limits and signal mask that we came with.
func execute(c Command, file string, sys *syscall.SysProcAttr) (int, error) {
	streams, closeStreams, err := descriptors(c.Stdin, c.Stdout, c.Stderr)
	if err != nil {
		return 0, err
	}
	defer closeStreams()
	attr := &syscall.ProcAttr{Dir: c.Dir, Env: c.Env, Files: streams, Sys: sys}
	pid, err := syscall.ForkExec(file, c.Argv, attr)
	if errors.Is(err, unix.ENOEXEC) { // a script without a #! line: /bin/sh runs it, as execvp(3) and the shells have it
		pid, err = syscall.ForkExec("/bin/sh", append([]string{"/bin/sh", file}, c.Argv[1:]...), attr)
	}
	runtime.KeepAlive(c) // a stream that is garbage would be closed by its finalizer
	if err != nil {
		return 0, explain(inside(c.Dir, file), err)
	}
	return pid, nil
}

// descriptors returns the streams' descriptors, of /dev/null for those that are nil. File.Fd is of no use here: it may change the
// stream's blocking mode, which we share with whoever gave it to us.
func descriptors(files ...*os.File) (fds []uintptr, closeNull func(), err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	for i, f := range files {
		if f == nil {
			f = null
		}
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
			null.Close()
			return nil, nil, fmt.Errorf("standard stream %s: %w", f.Name(), err)
		}
	}
	return fds, func() { null.Close() }, nil
}

// closedFD stands for a descriptor that the child is to have closed; see syscall.ForkExec.
const closedFD = ^uintptr(0)

// explain says why a file that Lookup has found could not be executed.
func explain(file string, err error) error {
	script := interpreter(file)
	switch {
	case missing(err) && script != "": // to shells and env(1) too, what is missing was not found
		return fmt.Errorf("%w: %s is a script for %s, which does not exist; was its environment moved or deleted? Install it again",
			ErrNotFound, file, script)
	case missing(err):
		return fmt.Errorf("%w: %s needs a program loader that is not here; it was built for another system", ErrNotFound, file)
	case errors.Is(err, unix.EACCES) && script != "":
		return fmt.Errorf("%w: %s is a script for %s, which may not be executed", ErrNotExecutable, file, script)
	case errors.Is(err, unix.EACCES) || errors.Is(err, unix.ETXTBSY) || errors.Is(err, unix.ENOEXEC) || errors.Is(err, unix.ELOOP):
		return fmt.Errorf("%w: %s: %w", ErrNotExecutable, file, err)
	}
	return fmt.Errorf("start %s: %w", file, err)
}
