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

// execute starts the command, with a parent-death signal if that is wanted. The kernel sends that one when the thread
// ends which has started the command; so it gets a thread that lives until the command has ended.
func (p *Process) execute(c Command, file string) (pid int, err error) {
	sys := p.term.attributes()
	if !p.options.DieWithUs || p.guard != nil {
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

// execute starts the file and returns its pid once the new program has replaced us in the child. It does not use
// os/exec, whose Wait would compete with ours; syscall.ForkExec also gives the child the resource limits and signal
// mask that we came with.
func execute(c Command, file string, sys *syscall.SysProcAttr) (int, error) {
	files, closeNull, err := withNull(c.Stdin, c.Stdout, c.Stderr)
	if err != nil {
		return 0, err
	}
	defer closeNull()
	fds, err := numbers(files...)
	if err != nil {
		return 0, err
	}
	fds, beyond := table(fds, c.Descriptors)
	for _, fd := range beyond {
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0) // it fails only where it has been closed
	}
	attr := &syscall.ProcAttr{Dir: c.Dir, Env: c.Env, Files: fds, Sys: sys}
	first, argv := ignoring(file, c.Argv)
	pid, err := syscall.ForkExec(first, argv, attr)
	// a script without a #! line: /bin/sh runs it, as execvp(3) and the shells have it
	if errors.Is(err, unix.ENOEXEC) {
		pid, err = syscall.ForkExec("/bin/sh", append([]string{"/bin/sh", file}, c.Argv[1:]...), attr)
	}
	runtime.KeepAlive(files) // a stream that is garbage would be closed by its finalizer
	if err != nil {
		return 0, explain(inside(c.Dir, file), err)
	}
	for _, fd := range c.Descriptors {
		_ = unix.Close(fd) // the command has it
	}
	return pid, nil
}

// explain says why a file that Lookup has found could not be executed.
func explain(file string, err error) error {
	script := interpreter(file)
	switch {
	case missing(err) && script != "": // to shells and env(1) too, what is missing was not found
		return fmt.Errorf("%w: %s is a script for %s, which does not exist; was its environment moved or deleted? "+
			"Install it again",
			ErrNotFound, file, script)
	case missing(err):
		return fmt.Errorf("%w: %s needs a program loader that is not here; it was built for another system",
			ErrNotFound, file)
	case errors.Is(err, unix.EACCES) && script != "":
		return fmt.Errorf("%w: %s is a script for %s, which may not be executed", ErrNotExecutable, file, script)
	case errors.Is(err, unix.EACCES) || errors.Is(err, unix.ETXTBSY) || errors.Is(err, unix.ENOEXEC) ||
		errors.Is(err, unix.ELOOP):
		return fmt.Errorf("%w: %s: %w", ErrNotExecutable, file, err)
	}
	return fmt.Errorf("start %s: %w", file, err)
}
