package launcher

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLateRanks: ranks that the watcher had no time to see are found when their agent has been killed.
func TestLateRanks(t *testing.T) {
	s := supervise(t, append([]string{"bash", "-c", `RANK=0 LOCAL_RANK=0 setsid "$@" & read x <$0`, fifo(t)},
		program("rank", "exit 1")...), long)
	pid := s.pid("rank 0 pid")
	s.must(unix.Kill(s.command, unix.SIGKILL)) // it may have been seen by now, or not
	_, exit := s.wait()
	if len(exit.Survivors) != 1 || exit.Survivors[0].Rank != 0 || exit.Survivors[0].Action != Terminated {
		t.Errorf("survivors %+v", exit.Survivors)
	}
	s.gone(pid)
}

// TestUnbornRanks: an agent is killed when it has forked a rank that is not one yet; it becomes one when nobody but the
// supervisor is left.
func TestUnbornRanks(t *testing.T) {
	for _, test := range []struct {
		name, script string
		ranks        int
	}{
		{"a child", `eval "$UNBORN" &`, 1},
		{"a grandchild", `{ eval "$UNBORN" & wait; } &`, 1},
		{"the child of one that goes", `{ eval "$UNBORN" & read x <$PARENT; } &`, 1},
		// each leaves its child to us at a moment that we may be looking at
		{"the last of a long line", `line() { if (($1)); then line $(($1 - 1)) "${@:2}" & else RANK=0 LOCAL_RANK=0 exec setsid "${@:2}"; fi; }
			{ echo forked >$EVENTS; read x <$BIRTH; line 200 "$@"; } &`, 1},
		{"another one lives", `RANK=1 LOCAL_RANK=1 setsid "$@" & eval "$UNBORN" &`, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			birth, parent := fifo(t), fifo(t)
			s := supervise(t, append([]string{"bash", "-c", test.script + " wait", "bash"},
				program("rank", "exit 1")...), with("GRACE=1h", "BECOMING=1h",
				`UNBORN=echo forked >$EVENTS; read x <$BIRTH; RANK=0 LOCAL_RANK=0 exec setsid "$@"`, "BIRTH="+birth,
				"PARENT="+parent))
			open := func(gate string) { s.must(os.WriteFile(gate, []byte("go\n"), 0)) }
			s.hear("forked")
			if test.ranks == 2 {
				s.pid("rank 1 pid")
			}
			s.must(unix.Kill(s.command, unix.SIGKILL))
			s.eventually("the supervisor has learned of it",
				func() bool { _, there := readProcess(s.command); return !there })
			if strings.Contains(test.script, "$PARENT") {
				open(parent)
			}
			open(birth)
			status, exit := s.wait()
			if status != 137 || len(exit.Ranks) != test.ranks {
				t.Fatalf("status %d, exit %+v", status, exit)
			}
			terminated := map[int]bool{}
			for _, survivor := range exit.Survivors {
				terminated[survivor.Rank] = survivor.Action == Terminated
			}
			for _, r := range exit.Ranks {
				s.gone(r.PID)
				if !terminated[r.Rank] {
					t.Errorf("rank %d, survivors %+v", r.Rank, exit.Survivors)
				}
			}
		})
	}
}

// TestForkedForGood: a process that is forked and executes nothing is waited for so long and no longer, and is left
// alone; one that is older than that is not waited for.
func TestForkedForGood(t *testing.T) {
	for _, becoming := range []string{"1ns", "300ms"} {
		t.Run(becoming, func(t *testing.T) {
			t.Parallel()
			s := supervise(t, []string{"bash", "-c",
				`{ trap '' TERM; echo forked $BASHPID >$EVENTS; read x <$0; } & wait`, fifo(t)},
				with("GRACE=1h", "BECOMING="+becoming))
			child := s.pid("forked")
			t.Cleanup(func() { _ = unix.Kill(child, unix.SIGKILL) })
			s.must(unix.Kill(s.command, unix.SIGKILL))
			_, exit := s.wait()
			if want := (Survivor{child, "bash", -1, LeftAlone}); len(exit.Survivors) != 1 || exit.Survivors[0] != want {
				t.Errorf("survivors %+v, want %+v", exit.Survivors, want)
			}
		})
	}
}

// TestRankLeavesTheGroup: a rank has been seen when it still was in the launcher's process group. What else is in that
// is no concern of ours.
func TestRankLeavesTheGroup(t *testing.T) {
	gate := fifo(t)
	s := supervise(t, []string{"bash", "-c", `sleep 1000 & echo helper $! >$EVENTS
		RANK=0 LOCAL_RANK=0 bash -c 'echo rank $$ >$EVENTS; read x <$0; exec setsid sleep 1000' $0 & wait`, gate}, long)
	helper, rank := s.pid("helper"), s.pid("rank")
	t.Cleanup(func() { _ = unix.Kill(helper, unix.SIGKILL) })
	s.hear("seen 1")
	s.must(os.WriteFile(gate, []byte("go\n"), 0))
	for _, pid := range []int{helper, rank} {
		s.eventually("it sleeps", func() bool { p, _ := readProcess(pid); return p.name == "sleep" })
	}
	s.must(unix.Kill(s.command, unix.SIGKILL))
	_, exit := s.wait()
	got := map[Survivor]bool{}
	for _, survivor := range exit.Survivors {
		got[survivor] = true
	}
	if len(got) != 2 || !got[Survivor{helper, "sleep", -1, LeftAlone}] || !got[Survivor{rank, "sleep", 0, Terminated}] {
		t.Errorf("survivors %+v", exit.Survivors)
	}
}
