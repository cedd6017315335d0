package launcher

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// starter is a process below the command that has started ranks: a launcher, or a script. How it ends tells whether
// ranks that outlive it were meant to.
type starter struct {
	process
	handle *handle

	mu     sync.Mutex // guards what follows
	known  bool       // how it ended was learned
	status unix.WaitStatus
}

// starter watches the parent of a rank, nil where that is the command, whose end we learn anyhow, or cannot be watched.
func (w *rankWatch) starter(pid int) *starter {
	p, ok := readProcess(pid)
	if !ok || pid == w.root || pid == os.Getpid() {
		return nil
	}
	for _, s := range w.starters {
		if s.pid == pid && s.start == p.start {
			return s
		}
	}
	handle, err := openHandle(pid)
	if err != nil {
		return nil
	}
	s := &starter{process: p, handle: handle}
	w.starters = append(w.starters, s)
	go func() {
		if handle.wait() {
			s.learn()
		}
	}()
	return s
}

// learn reads how it ended: the zombie tells until its parent reaps it, recent kernels also later.
func (s *starter) learn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known {
		return
	}
	if p, ok := readProcess(s.pid); ok && p.start == s.start && p.ended() {
		s.status, s.known = p.status, true
		return
	}
	s.status, s.known = s.handle.exitStatus()
}

// abandoned tells whether a rank that outlives a command which returned 0 was left by a launcher that was killed or
// failed. One that still has a launcher, or that a script has started and then ended in good order, was meant to go on:
// it would without us.
func (r *rank) abandoned(command int) bool {
	p, ok := readProcess(r.PID)
	if !ok || p.start != r.start || p.parent == command {
		return false
	}
	if r.parent == nil {
		return r.byLauncher && p.parent == os.Getpid()
	}
	if r.parent.handle.running() {
		return false
	}
	r.parent.learn()
	r.parent.mu.Lock()
	defer r.parent.mu.Unlock()
	if !r.parent.known {
		return r.byLauncher
	}
	return r.parent.status != 0
}
