package launcher

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// torchrun runs a script with real ranks below a supervisor, and returns their pids when all are known. The script says
// who it is and then waits for signals; the ranks do not import torch, which would only take time.
func torchrun(t *testing.T, ranks int, script string) (*supervised, []int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "train.py")
	text := `
import os, signal, sys
rank = int(os.environ["RANK"])
def say(text):
    with open(os.environ["EVENTS"], "a") as f:
        f.write(text + "\n")
` + script + `
say(f"rank {rank} pid {os.getpid()}")
while True:
    signal.pause()
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	argv := []string{filepath.Join(filepath.Dir(testPython(t)), "torchrun"), "--standalone",
		fmt.Sprint("--nproc-per-node=", ranks), file}
	s := supervise(t, argv)
	pids := make([]int, ranks)
	for i := range pids {
		pids[i] = s.pid(fmt.Sprintf("rank %d pid", i))
	}
	s.hear(fmt.Sprint("seen ", ranks))
	return s, pids
}

// TestTorchrunKilled: torchrun alone leaves its ranks running when it is killed; with us none remains.
func TestTorchrunKilled(t *testing.T) {
	s, pids := torchrun(t, 2, "")
	s.must(unix.Kill(s.command, unix.SIGKILL))
	status, exit := s.wait()
	if status != 137 || len(exit.Survivors) < 2 {
		t.Errorf("status %d, exit %+v", status, exit)
	}
	for i, r := range exit.Ranks {
		if r.PID != pids[i] || r.Rank != i || !r.Known || r.Code != -15 {
			t.Errorf("rank %+v", r)
		}
	}
	s.gone(pids...)
}

// TestTorchrunTerminated: one SIGTERM is one graceful stop: each rank gets one, may finish, and torchrun exits with 1
// as it does without us.
func TestTorchrunTerminated(t *testing.T) {
	s, pids := torchrun(t, 2, `
def stop(number, frame):
    say(f"rank {rank} got {signal.Signals(number).name}")
    sys.exit(3 - 3 * rank)
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, stop)
`)
	s.signal(unix.SIGTERM)
	s.hear("rank 0 got SIGTERM")
	s.hear("rank 1 got SIGTERM")
	status, exit := s.wait()
	s.heardOnly()
	if status != 1 || exit.Signal != 0 || len(exit.Survivors) > 0 || len(exit.Forwarded) != 1 {
		t.Errorf("status %d, exit %+v", status, exit)
	}
	for i, code := range []int{3, 0} {
		if r := exit.Ranks[i]; r.PID != pids[i] || !r.Known || r.Code != code {
			t.Errorf("rank %d: %+v, want code %d", i, r, code)
		}
	}
}

// TestTorchrunRankCodes: torchrun exits with 1 whatever its ranks did; their own codes are known. Here the first to
// fail is killed, and torchrun then stops the other one.
func TestTorchrunRankCodes(t *testing.T) {
	s, pids := torchrun(t, 2, `
if rank == 1:
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(42))
`)
	s.must(unix.Kill(pids[0], unix.SIGKILL))
	status, exit := s.wait()
	if status != 1 || len(exit.Ranks) != 2 {
		t.Errorf("status %d, exit %+v", status, exit)
	}
	for i, code := range []int{-9, 42} {
		if r := exit.Ranks[i]; r.PID != pids[i] || !r.Known || r.Code != code {
			t.Errorf("rank %d: %+v, want code %d", i, r, code)
		}
	}
}
