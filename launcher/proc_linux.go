package launcher

import (
	"bytes"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// process is what /proc/<pid>/stat says of one; see proc_pid_stat(5).
type process struct {
	pid, parent, group int
	session            int
	name               string
	state              byte
	threads            int
	flags              int             // PF_... of include/linux/sched.h
	start              uint64          // clock ticks since boot; with the pid it names a process for good
	status             unix.WaitStatus // as its parent will get it from wait; only in a zombie
}

// ended tells whether it only waits to be reaped ('Z') or is being removed ('X'). While other threads of it are still
// dying, the first thread's state is Z already: then it holds its memory, also that of the GPU, and cannot be reaped.
func (p process) ended() bool { return p.state == 'Z' && p.threads <= 1 || p.state == 'X' }

// dying tells whether its first thread has begun to end. Before that, what another thread of it leaves behind goes to
// this one.
func (p process) dying() bool {
	const exiting = 0x4 // PF_EXITING of include/linux/sched.h, the same in all versions
	return p.state == 'Z' || p.state == 'X' || p.flags&exiting != 0
}

// forked tells whether it has executed nothing since its parent forked it: it still is a copy of that.
func (p process) forked() bool {
	const forkedNoExec = 0x40 // PF_FORKNOEXEC of include/linux/sched.h, the same in all versions
	return p.flags&forkedNoExec != 0
}

// age is how long ago it was forked.
func (p process) age() time.Duration {
	const tick = time.Second / 100 // USER_HZ, in which Linux tells every program the time
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil { // no Linux without that clock
		return math.MaxInt64
	}
	return time.Duration(now.Nano()) - time.Duration(p.start)*tick
}

// readProcess reads /proc/<pid>/stat; false when there is no such process.
func readProcess(pid int) (process, bool) {
	text, err := readProc("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	return parseStat(text)
}

// parseStat takes one line of /proc/<pid>/stat apart. The name stands in parentheses and may hold anything, also
// parentheses and spaces; whatever follows the last one is separated by spaces. Kernels add fields at the end only.
func parseStat(line []byte) (process, bool) {
	const firstField, flags, threads, startTime, exitCode = 3, 9, 20, 22, 52 // numbers of proc_pid_stat(5)
	open, end := bytes.IndexByte(line, '('), bytes.LastIndexByte(line, ')')
	if open < 0 || end < open {
		return process{}, false
	}
	fields := strings.Fields(string(line[end+1:]))
	if len(fields) <= exitCode-firstField || len(fields[0]) != 1 {
		return process{}, false
	}
	valid := true
	number := func(text string) int {
		n, err := strconv.Atoi(text)
		valid = valid && err == nil
		return n
	}
	p := process{
		pid:     number(strings.TrimSpace(string(line[:open]))),
		name:    string(line[open+1 : end]),
		state:   fields[0][0],
		parent:  number(fields[4-firstField]),
		group:   number(fields[5-firstField]),
		session: number(fields[6-firstField]),
		flags:   number(fields[flags-firstField]),
		threads: number(fields[threads-firstField]),
		start:   uint64(number(fields[startTime-firstField])),
		status:  unix.WaitStatus(number(fields[exitCode-firstField])),
	}
	return p, valid
}

// readProc reads a file of /proc. These are read whole, never wait, and are read often: hence without the detour
// through os.File, which costs twice as many system calls.
func readProc(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }() // it was only read
	text := make([]byte, 0, 1024)
	for {
		n, err := unix.Read(fd, text[len(text):cap(text)])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return nil, err
		case n == 0:
			return text, nil
		}
		text = text[:len(text)+n]
		if len(text) == cap(text) {
			text = append(text, 0)[:len(text)]
		}
	}
}

// tree walks the processes below one.
type tree struct {
	scan bool // the kernel was built without /proc/<pid>/task/<tid>/children
}

func newTree() tree {
	_, err := os.Stat("/proc/thread-self/children")
	return tree{scan: err != nil}
}

// children returns the pids of a process's children, zombies too. The kernel lists them by the thread that started
// them. One may be missed while another is being reaped at the same moment; who must not miss any looks twice.
func (t tree) children(pid int) []int {
	if t.scan {
		return scanChildren(pid)
	}
	threads := "/proc/" + strconv.Itoa(pid) + "/task/"
	var pids []int
	for _, thread := range entries(threads) {
		text, err := readProc(threads + thread + "/children")
		if err != nil {
			continue // the thread has ended
		}
		for word := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

// below calls visit for the roots and everything below them, parents first, until visit says not to descend. It follows
// each pid once, so that a pid that is used again meanwhile cannot send it in circles.
func (t tree) below(roots []int, visit func(pid int) (descend bool)) {
	seen := map[int]bool{}
	for queue := slices.Clone(roots); len(queue) > 0; queue = queue[1:] {
		pid := queue[0]
		if seen[pid] {
			continue
		}
		seen[pid] = true
		if visit(pid) {
			queue = append(queue, t.children(pid)...)
		}
	}
}

// scanChildren finds children in all of /proc: right on every kernel, and slow where there are thousands of processes.
func scanChildren(parent int) []int {
	var pids []int
	for _, name := range entries("/proc") {
		if pid, err := strconv.Atoi(name); err == nil {
			if p, ok := readProcess(pid); ok && p.parent == parent {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// entries returns the names in a folder, none if it is gone.
func entries(folder string) []string {
	f, err := os.Open(folder)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1) // what was read before the process ended is good
	return names
}

// ignored tells whether we ignore a signal, which is what a command started by us then does as well. Other than
// signal.Ignored this is also right for the job control signals.
func ignored(s unix.Signal) bool {
	text, err := readProc("/proc/self/status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if mask, ok := strings.CutPrefix(line, "SigIgn:"); ok {
			bits, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			return err == nil && bits&(1<<(s-1)) != 0
		}
	}
	return false
}
