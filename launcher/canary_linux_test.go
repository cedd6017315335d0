package launcher

import (
	"os/exec"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// below are all processes below one.
func below(pid int) []int {
	var pids []int
	newTree().below([]int{pid}, func(pid int) bool {
		pids = append(pids, pid)
		return true
	})
	return pids
}

// TestWholeJob: a scheduler signals every process of a job, or only us, and any mixture of the two: the command gets
// each signal once.
func TestWholeJob(t *testing.T) {
	s := supervise(t, program("signals", "SIGTERM"), func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "WHOLE_JOB=1") })
	s.hear("ready")
	supervisor := s.cmd.Process.Pid
	all := func(sig unix.Signal) {
		pids := below(supervisor)
		for _, pid := range slices.Backward(pids) { // us last: in a loop of kills nobody is far behind
			s.must(unix.Kill(pid, sig))
		}
		// it is replaced when it has been looked at; the next signal would find the one or the other
		for _, canary := range pids {
			s.eventually("the canary was replaced", func() bool {
				_, there := readProcess(canary)
				return !there || canary == supervisor || canary == s.command
			})
		}
	}
	only := s.signal
	for _, step := range []struct {
		signal unix.Signal
		to     func(unix.Signal)
	}{
		{unix.SIGUSR1, all},
		{unix.SIGUSR2, only},
		{unix.SIGUSR2, all},
		{unix.SIGINT, all},
		{unix.SIGUSR1, only}, // may overtake in us the one before, which we have not looked at
		{unix.SIGUSR2, only},
		{unix.SIGTERM, only},
	} {
		step.to(step.signal)
		s.hear(signalName(step.signal))
	}
	s.heardOnly()
	status, exit := s.wait()
	slices.Sort(exit.Reached)
	if status != 7 || !slices.Equal(exit.Reached, []string{"SIGINT", "SIGUSR1", "SIGUSR2"}) ||
		!slices.Equal(exit.Forwarded, []string{"SIGUSR2", "SIGUSR1", "SIGUSR2", "SIGTERM"}) {
		t.Errorf("status %d, exit %+v", status, exit)
	}
}

// TestCanaryDies: nothing of it is left, whether we end it or are killed.
func TestCanaryDies(t *testing.T) {
	c := startCanary()
	if c == nil {
		t.Fatal("no canary: sleep(1) is missing here")
	}
	if q, ok := readProcess(c.pid); !ok || q.group != c.pid || q.ended() {
		t.Errorf("the canary is %+v", q)
	}
	if c.got(unix.SIGTERM) {
		t.Error("it got a signal that nobody sent")
	}
	c.end()
	if _, ok := readProcess(c.pid); ok {
		t.Error("the canary is left behind")
	}

	s := supervise(t, program("signals", "SIGTERM"), func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "WHOLE_JOB=1") })
	s.hear("ready")
	pids := below(s.cmd.Process.Pid)
	s.signal(unix.SIGKILL)
	_ = s.cmd.Wait()
	s.must(unix.Kill(s.command, unix.SIGTERM))
	for _, pid := range pids {
		s.eventually("everything ends", func() bool {
			q, ok := readProcess(pid)
			return !ok || q.ended()
		})
	}
}
