//go:build linux

package conformance

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// process is one of those that a run has started, however far down.
type process struct {
	pid    int
	name   string
	parent int
	rank   bool // known as a rank of a training by its environment
}

// living are the processes that have the run's mark in the environment that they were started with.
func (r *run) living() []process { return marked("CONFORMANCE=" + r.folder) }

// marked are the processes that were started with an environment variable.
func marked(variable string) []process {
	var found []process
	paths, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range paths {
		environment, err := os.ReadFile(path) // a process that has ended has none
		environment = append([]byte{0}, environment...)
		if err != nil || !bytes.Contains(environment, []byte("\x00"+variable+"\x00")) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		if fields := stat(pid); fields != nil {
			parent, _ := strconv.Atoi(fields[2])
			found = append(found, process{pid, fields[0], parent, bytes.Contains(environment, []byte("\x00RANK="))})
		}
	}
	return found
}

// isHeld tells whether another process of the run holds a handle (pidfd) of this one.
func (r *run) isHeld(pid int) bool {
	for _, p := range r.living() {
		handles, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(p.pid), "fdinfo", "*"))
		for _, path := range handles {
			text, _ := os.ReadFile(path)
			if bytes.Contains(text, fmt.Appendf(nil, "\nPid:\t%d\n", pid)) {
				return true
			}
		}
	}
	return false
}

// stat is name, state and parent of a process, nil when there is none.
func stat(pid int) []string {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return nil
	}
	open, close := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	return append([]string{string(text[open+1 : close])}, strings.Fields(string(text[close+1:]))[:2]...)
}

func inState(pid int, letters string) bool {
	fields := stat(pid)
	return fields != nil && strings.Contains(letters, fields[1])
}

func killAll(all []process) {
	for _, p := range all {
		_ = unix.Kill(p.pid, unix.SIGKILL)
	}
}
