package launcher

import (
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func guardOf(wanted string) []string {
	if wanted == "" {
		return nil
	}
	return program("guard")
}

func guardProgram(args []string) int {
	grace, _ := time.ParseDuration(args[0])
	return ServeGuard(grace)
}

// TestGuard: a command that ignores SIGTERM, and what it has started in sessions of their own, ends after us when it is
// to die with us.
func TestGuard(t *testing.T) {
	for name, script := range map[string]string{
		"it ignores SIGTERM":           `trap '' TERM; echo command $$ >$EVENTS; setsid sleep 1000 & echo child $! >$EVENTS; while :; do wait; done`,
		"it obeys, its child does not": `(trap '' TERM; exec setsid sleep 1000) & echo child $! >$EVENTS; echo command $$ >$EVENTS; wait`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := supervise(t, []string{"bash", "-c", script}, with("DIE_WITH_US=1", "GUARD=1", "KILL_AFTER=200ms"))
			pids := []int{s.pid("command"), s.pid("child")}
			s.eventually("the child sleeps", func() bool { p, _ := readProcess(pids[1]); return p.name == "sleep" })
			s.signal(unix.SIGKILL)
			_ = s.cmd.Wait()
			for _, pid := range pids {
				t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGKILL) })
				s.eventually("it is ended", func() bool { p, there := readProcess(pid); return !there || p.ended() })
			}
		})
	}
}

// TestGuardIsDismissed: when all has ended in good order the guard is gone, and was taken for no process of the
// command.
func TestGuardIsDismissed(t *testing.T) {
	s := supervise(t, program("signals", "SIGTERM"), with("DIE_WITH_US=1", "GUARD=1"))
	s.hear("ready")
	guards := func() (pids []int) {
		for _, name := range entries("/proc") {
			if pid, err := strconv.Atoi(name); err == nil {
				if p, ok := readProcess(pid); ok && p.parent == s.cmd.Process.Pid && p.name == GuardName {
					pids = append(pids, pid)
				}
			}
		}
		return pids
	}
	s.eventually("it guards", func() bool { return len(guards()) == 1 })
	guard := guards()[0]
	s.signal(unix.SIGTERM)
	if status, exit := s.wait(); status != 7 || len(exit.Survivors) > 0 {
		t.Errorf("status %d, exit %+v", status, exit)
	}
	if _, err := os.Stat("/proc/" + strconv.Itoa(guard)); err == nil {
		t.Error("the guard is left")
	}
}
