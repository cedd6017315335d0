package launcher

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A guard ends the command of an oomguard that was killed, where that is asked for. It is a process of its own with a
// name of its own, and sees our end by that of a pipe. It notes who belongs to the command before it sends SIGTERM:
// afterwards nobody could tell.
type guard struct {
	pid int
	us  *os.File // the pipe's end that is closed when we die
}

// GuardName is what a guard is called, in ps as in pkill.
const GuardName = "command-guard"

// startGuard starts argv, this program as a guard, before there is a command: it calls ServeGuard with the duration
// that is added here.
func startGuard(argv []string, grace time.Duration) (*guard, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	g := &guard{us: write}
	if g.pid, err = runGuard(append(slices.Concat([]string{argv[0], GuardName}, argv[1:]), grace.String()),
		read); err != nil {
		write.Close()
		return nil, err
	}
	return g, nil
}

// runGuard executes the first of the words, with the others as its arguments.
func runGuard(words []string, stdin *os.File) (pid int, err error) {
	files, closeNull, err := withNull(stdin, nil, nil)
	if err != nil {
		return 0, err
	}
	defer closeNull()
	fds, err := numbers(files...)
	if err != nil {
		return 0, err
	}
	return syscall.ForkExec(words[0], words[1:],
		&syscall.ProcAttr{Dir: "/", Env: []string{}, Files: fds, Sys: &syscall.SysProcAttr{Setsid: true}})
}

// watch tells the guard of the command.
func (g *guard) watch(command process) {
	if g != nil {
		fmt.Fprintln(g.us, command.pid, command.start)
	}
}

// dismiss ends a guard when the command has ended and nothing is left to do.
func (g *guard) dismiss() {
	if g == nil {
		return
	}
	_, _ = g.us.WriteString(dismissed) // a guard that somebody has killed does not read it
	_ = g.us.Close()
	for err := error(unix.EINTR); errors.Is(err, unix.EINTR); {
		_, err = unix.Wait4(g.pid, nil, 0, nil)
	}
}

const dismissed = "dismissed\n"

// ServeGuard is the body of a guard process: it waits on its standard input for our end, sends SIGTERM to the command,
// and SIGKILL after the grace to what still lives of it.
func ServeGuard(grace time.Duration) int {
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE, unix.SIGUSR1, unix.SIGUSR2,
		unix.SIGTSTP)
	// without it we are harder to tell from oomguard, and work
	_ = os.WriteFile("/proc/self/comm", []byte(GuardName), 0)
	heard, err := io.ReadAll(io.LimitReader(os.Stdin, 1<<10))
	var pid int
	var start uint64
	if _, scanErr := fmt.Sscan(string(heard), &pid, &start); err != nil || scanErr != nil ||
		strings.HasSuffix(string(heard), dismissed) {
		return 0 // there is no command, or all is over
	}
	g := guarded{tree: newTree(), met: map[int]uint64{pid: start}}
	if g.look() {
		_ = unix.Kill(pid, unix.SIGTERM)
	}
	for until := time.Now().Add(grace); g.look() && time.Now().Before(until); {
		time.Sleep(watching)
	}
	for until := time.Now().Add(dying); g.look() && time.Now().Before(until); {
		for pid := range g.met {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		time.Sleep(watching)
	}
	return 0
}

// guarded are the processes that belong to a command: each with its start, since pids are used again.
type guarded struct {
	tree tree
	met  map[int]uint64
}

// look forgets those that have ended, meets those below the others, and tells whether any lives.
func (g guarded) look() bool {
	var living []int
	for pid, start := range g.met {
		if p, ok := readProcess(pid); ok && p.start == start && !p.ended() {
			living = append(living, pid)
		} else {
			delete(g.met, pid)
		}
	}
	g.tree.below(living, func(pid int) bool {
		p, ok := readProcess(pid)
		if ok && !p.ended() {
			g.met[pid] = p.start
		}
		return ok
	})
	return len(g.met) > 0
}
