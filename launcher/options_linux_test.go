//go:build linux

package launcher

import (
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

func with(variables ...string) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, variables...) }
}

// stubborn stands for a launcher that does not end, with a rank in a session of its own and a daemon: all three ignore
// SIGTERM.
const stubborn = `trap '' TERM
RANK=0 LOCAL_RANK=0 setsid bash -c 'echo rank $$ >$EVENTS; exec sleep 1000' &
(setsid bash -c 'echo daemon $$ >$EVENTS; exec sleep 1000' &)
while :; do wait; done`

// TestKillAfter: the whole tree is killed so long after the request to end, and at once, without another grace.
func TestKillAfter(t *testing.T) {
	s := supervise(t, []string{"bash", "-c", stubborn}, with("KILL_AFTER=300ms", "GRACE=1h"))
	pids := []int{s.pid("rank"), s.pid("daemon")}
	s.hear("seen 1")
	s.signal(unix.SIGTERM)
	status, exit := s.wait()
	if status != 137 || exit.Signal != unix.SIGKILL || !exit.LastResort {
		t.Errorf("status %d, exit %+v", status, exit)
	}
	s.gone(pids...)
	if len(exit.Ranks) != 1 || exit.Ranks[0].Code != -9 {
		t.Errorf("ranks: %+v", exit.Ranks)
	}
}

// TestKillAfterIsNotNeeded: a command that ends in time is not touched, nor one that was not asked to end.
func TestKillAfterIsNotNeeded(t *testing.T) {
	s := supervise(t, program("signals", "SIGTERM"), with("KILL_AFTER=1h"))
	s.hear("ready")
	s.signal(unix.SIGUSR1)
	s.hear("SIGUSR1")
	s.signal(unix.SIGTERM)
	if status, exit := s.wait(); status != 7 || exit.LastResort {
		t.Errorf("status %d, exit %+v", status, exit)
	}
}

// TestDieWithUs: a command that is to die with us gets SIGTERM when we are killed, and nothing before.
func TestDieWithUs(t *testing.T) {
	s := supervise(t, program("signals", "SIGTERM"), with("DIE_WITH_US=1"))
	s.hear("ready")
	s.signal(unix.SIGUSR1)
	s.hear("SIGUSR1")
	s.signal(unix.SIGKILL)
	_ = s.cmd.Wait()
	s.hear("SIGTERM")
	s.heardOnly()
	s.eventually("the command has ended",
		func() bool { p, there := readProcess(s.command); return !there || p.ended() })
}

// TestLaunchersThatHideDeaths: launchers of the structure of deepspeed (a runner, a launcher below it, its ranks, all
// in one process group) and of accelerate (ranks right below the command): each rank is found by its environment, and
// how it ended is known whatever they return.
func TestLaunchersThatHideDeaths(t *testing.T) {
	const ranks = `RANK=0 LOCAL_RANK=0 "$0" program:rank "kill 9" & RANK=1 LOCAL_RANK=1 "$0" program:rank "exit 0" & wait; `
	for _, test := range []struct {
		name, script string
		status       int
	}{
		{"deepspeed: the launcher dies of its rank's signal, and the runner returns 0",
			`bash -c "$RANKS kill -KILL \$\$" "$0"; [ $? -gt 128 ] && exit 0`, 0},
		{"accelerate: ranks are children of the command", ranks + `exit 1`, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			argv := []string{"bash", "-c", test.script, program("rank")[0]}
			s := supervise(t, argv, with("RANKS="+ranks))
			pids := []int{s.pid("rank 0 pid"), s.pid("rank 1 pid")}
			s.hear("seen 2")
			for _, pid := range pids {
				s.must(unix.Kill(pid, unix.SIGUSR1))
			}
			status, exit := s.wait()
			if status != test.status || len(exit.Ranks) != 2 || exit.Clean() {
				t.Fatalf("status %d, exit %+v", status, exit)
			}
			for i, code := range []int{-9, 0} {
				if r := exit.Ranks[i]; r.PID != pids[i] || !r.Known || r.Code != code {
					t.Errorf("rank %d: %+v, want code %d", i, r, code)
				}
			}
		})
	}
}

// TestAttempts: the ranks of each attempt stand together, and only the last attempt decides whether all ended well.
func TestAttempts(t *testing.T) {
	ranks := []RankExit{
		{Rank: 0, Attempt: 0, Known: true, Code: 1}, {Rank: 1, Attempt: 0, Known: true, Code: -15},
		{Rank: 0, Attempt: 1, Known: true}, {Rank: 1, Attempt: 1},
	}
	for _, test := range []struct {
		exit     Exit
		attempts int
		clean    bool
	}{
		{Exit{}, 0, true},
		{Exit{Code: 1}, 0, false},
		{Exit{Ranks: ranks}, 2, true},
		{Exit{Ranks: ranks[:2]}, 1, false},
		{Exit{Ranks: append(ranks[:2:2], RankExit{Rank: 1, Attempt: 0, Known: true})}, 1, false},
		// the script ran torchrun again
		{Exit{Ranks: append(ranks[1:2:2], RankExit{Rank: 1, Attempt: 0, Known: true})}, 1, true},
		{Exit{Ranks: ranks, Code: 1}, 2, false},
	} {
		got := test.exit.Attempts()
		if len(got) != test.attempts || test.exit.Clean() != test.clean {
			t.Errorf("%+v: %d attempts, clean %v", test.exit, len(got), test.exit.Clean())
		}
		for i, attempt := range got {
			if len(attempt) < 2 || attempt[0].Attempt != i || attempt[1].Attempt != i {
				t.Errorf("attempt %d: %+v", i, attempt)
			}
		}
	}
}
