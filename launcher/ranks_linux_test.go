package launcher

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// agent runs the agent program below a supervisor and waits until all ranks are known; the pids of the ranks are
// returned.
func agent(t *testing.T, ranks []string, setup ...func(*exec.Cmd)) (*supervised, []int) {
	t.Helper()
	s := supervise(t, program("agent", ranks...), setup...)
	pids := make([]int, len(ranks))
	for i := range ranks {
		pids[i] = s.pid(fmt.Sprintf("rank %d pid", i))
	}
	s.hear(fmt.Sprint("seen ", len(ranks)))
	return s, pids
}

// TestRankCodes: torchrun tells only that some rank failed; how each one did is learned beside it.
func TestRankCodes(t *testing.T) {
	ranks := []string{"exit 42", "kill 9", "exit 0", "kill 15"}
	s, pids := agent(t, ranks)
	for _, pid := range pids {
		s.must(unix.Kill(pid, unix.SIGUSR1))
	}
	status, exit := s.wait()
	if status != 1 || exit.Code != 1 || exit.Signal != 0 || len(exit.Survivors) > 0 {
		t.Errorf("status %d, exit %+v", status, exit)
	}
	for i, code := range []int{42, -9, 0, -15} {
		r := exit.Ranks[i]
		want := RankExit{PID: pids[i], Rank: i, LocalRank: i, Attempt: 3, Known: true, Code: code, EndedAt: r.EndedAt}
		if r != want || r.EndedAt.Before(exit.Started) {
			t.Errorf("rank %d (%s): %+v", i, ranks[i], r)
		}
	}
}

// TestRankIsCommand: a rank that is started by us directly (srun starts one oomguard a rank).
func TestRankIsCommand(t *testing.T) {
	s := supervise(t, program("rank", "exit 5"),
		func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "RANK=7", "LOCAL_RANK=1") })
	pid := s.pid("rank 7 pid")
	s.hear("seen 1")
	s.must(unix.Kill(pid, unix.SIGUSR1))
	status, exit := s.wait()
	if len(exit.Ranks) != 1 || status != 5 {
		t.Fatalf("status %d, exit %+v", status, exit)
	}
	want := RankExit{PID: pid, Rank: 7, LocalRank: 1, Known: true, Code: 5, EndedAt: exit.Ranks[0].EndedAt}
	if exit.Ranks[0] != want {
		t.Errorf("got %+v, want %+v", exit.Ranks[0], want)
	}
}

// TestAgentKilled: ranks that a killed agent leaves behind are ended, with their children, reported and reaped. The one
// that ignores SIGTERM gets the grace.
func TestAgentKilled(t *testing.T) {
	for _, test := range []struct {
		name    string
		ranks   []string
		setup   func(*exec.Cmd)
		actions []string
		codes   []int
		child   string // what was done with rank 0's; "": it has none
		signal  bool   // tell the supervisor to end when only those are left that do not obey
	}{
		{"they end", []string{"parent", "exit 3"}, long, []string{Terminated, Terminated}, []int{-15, -15}, Terminated,
			false},
		{"the grace is over", []string{"stubborn"}, short, []string{Killed}, []int{-9}, "", false},
		{"somebody is impatient", []string{"parent", "stubborn"}, long, []string{Terminated, Killed}, []int{-15, -9},
			Terminated, true},
		{"the child of one is stubborn", []string{"parent of a stubborn one"}, long, []string{Terminated}, []int{-15},
			Killed, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s, pids := agent(t, test.ranks, test.setup)
			all, want := slices.Clone(pids), map[int]Survivor{}
			for i, pid := range pids {
				want[pid] = Survivor{pid, filepath.Base(os.Args[0]), i, test.actions[i]}
			}
			if test.child != "" {
				child := s.pid("child pid")
				all = append(all, child)
				want[child] = Survivor{child, "sleep", -1, test.child}
			}
			s.must(unix.Kill(s.command, unix.SIGKILL))
			s.hear(fmt.Sprint("left behind ", len(pids)))
			if test.signal {
				for pid, survivor := range want {
					s.eventually("who obeys is gone",
						func() bool { return survivor.Action == Killed || unix.Kill(pid, 0) != nil })
				}
				s.signal(unix.SIGTERM)
			}
			status, exit := s.wait()
			if status != 137 || exit.Signal != unix.SIGKILL || len(exit.Forwarded) > 0 {
				t.Errorf("status %d, exit %+v", status, exit)
			}
			s.gone(all...)
			got := map[int]Survivor{}
			for _, survivor := range exit.Survivors {
				got[survivor.PID] = survivor
			}
			if !maps.Equal(got, want) {
				t.Errorf("survivors %+v, want %+v", got, want)
			}
			for i, r := range exit.Ranks {
				if r.PID != pids[i] || !r.Known || r.Code != test.codes[i] {
					t.Errorf("rank %d: %+v, want code %d", i, r, test.codes[i])
				}
			}
		})
	}
}

func short(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "GRACE=300ms") }
func long(cmd *exec.Cmd)  { cmd.Env = append(cmd.Env, "GRACE=1h") }

// TestStoppedRank: a stopped rank takes its SIGTERM too.
func TestStoppedRank(t *testing.T) {
	s, pids := agent(t, []string{"exit 0"}, long)
	s.must(unix.Kill(pids[0], unix.SIGSTOP))
	s.must(unix.Kill(s.command, unix.SIGKILL))
	_, exit := s.wait()
	if len(exit.Survivors) != 1 || exit.Survivors[0].Action != Terminated || exit.Ranks[0].Code != -15 {
		t.Errorf("exit %+v", exit)
	}
	s.gone(pids...)
}

// TestRankStopsLater: a rank that is stopped while it is waited for is continued, and ends in its own way.
func TestRankStopsLater(t *testing.T) {
	s, pids := agent(t, []string{"stubborn"}, long)
	s.must(unix.Kill(s.command, unix.SIGKILL))
	s.hear("left behind 1")
	s.must(unix.Kill(pids[0], unix.SIGSTOP))
	s.must(unix.Kill(pids[0], unix.SIGUSR1)) // at which it ends, once it goes on
	_, exit := s.wait()
	if len(exit.Survivors) != 1 || exit.Survivors[0].Action != Terminated {
		t.Errorf("exit %+v", exit)
	}
}

// TestCommandGivesUp: a command that exits while its ranks run has given up on them (torchrun does after a third
// signal).
func TestCommandGivesUp(t *testing.T) {
	gate := fifo(t)
	s := supervise(t, append([]string{"bash", "-c", `RANK=0 LOCAL_RANK=0 setsid "$@" & read x <$0; exit 9`, gate},
		program("rank", "exit 1")...), long)
	pid := s.pid("rank 0 pid")
	s.hear("seen 1")
	s.must(os.WriteFile(gate, []byte("go\n"), 0))
	status, exit := s.wait()
	if status != 9 || len(exit.Survivors) != 1 || exit.Survivors[0].Action != Terminated {
		t.Errorf("status %d, survivors %+v", status, exit.Survivors)
	}
	s.gone(pid)
}

// TestLeftByRank: what a rank leaves running in its process group, and the command too, was meant to go on (an upload).
func TestLeftByRank(t *testing.T) {
	gate := fifo(t)
	s := supervise(t, []string{"bash", "-c",
		`RANK=0 LOCAL_RANK=0 setsid bash -c 'sleep 1000 & echo upload $! >$EVENTS; read x <$0' $0; exit 4`, gate}, long)
	upload := s.pid("upload")
	t.Cleanup(func() { _ = unix.Kill(upload, unix.SIGKILL) })
	s.hear("seen 1")
	s.eventually("the upload runs", func() bool { p, _ := readProcess(upload); return p.name == "sleep" })
	s.must(os.WriteFile(gate, []byte("go\n"), 0))
	status, exit := s.wait()
	if want := (Survivor{upload, "sleep", -1, LeftAlone}); status != 4 || len(exit.Survivors) != 1 ||
		exit.Survivors[0] != want {
		t.Errorf("status %d, survivors %+v, want %+v", status, exit.Survivors, want)
	}
	if err := unix.Kill(upload, 0); err != nil {
		t.Error(err)
	}
	s.heardOnly()
}

// TestDaemonLeftAlone: neither a plain daemon nor one that a rank has started, and that left the rank's tree before the
// end, is touched; both are reported.
func TestDaemonLeftAlone(t *testing.T) {
	for name, end := range map[string]string{"exits": "exit 3", "is killed": "kill -KILL $$"} {
		t.Run(name, func(t *testing.T) {
			script := `orphan() { (RANK=$2 LOCAL_RANK=$2 setsid bash -c "echo $1 \$\$ >$EVENTS; exec sleep 1000" >/dev/null 2>&1 &) ; }
				orphan daemon ''; orphan daemon 0; orphan marker ''; orphan marker ''; read x <$0; ` + end
			gate := fifo(t)
			s := supervise(t, []string{"bash", "-c", script, gate}, long)
			daemons := []int{s.pid("daemon "), s.pid("daemon ")}
			for _, pid := range daemons {
				t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGKILL) })
				s.eventually("the daemon came to the supervisor", func() bool {
					p, ok := readProcess(pid)
					return ok && p.parent == s.cmd.Process.Pid && p.name == "sleep"
				})
			}
			for range 2 { // when the second one has been reaped, the supervisor is through with what it saw before
				marker := s.pid("marker ")
				s.must(unix.Kill(marker, unix.SIGKILL))
				s.eventually("the marker was reaped", func() bool { _, ok := readProcess(marker); return !ok })
			}
			s.must(os.WriteFile(gate, []byte("go\n"), 0))
			_, exit := s.wait()
			if len(exit.Survivors) != 2 {
				t.Fatalf("survivors %+v", exit.Survivors)
			}
			for _, survivor := range exit.Survivors {
				if survivor.Action != LeftAlone || survivor.Name != "sleep" || survivor.Rank != -1 ||
					!slices.Contains(daemons, survivor.PID) {
					t.Errorf("survivor %+v", survivor)
				}
				if err := unix.Kill(survivor.PID, 0); err != nil {
					t.Errorf("%d: %v", survivor.PID, err)
				}
			}
		})
	}
}

// TestWithoutHandles: where pidfds are not to be had, a rank is still caught while its parent has not reaped it.
func TestWithoutHandles(t *testing.T) {
	s := prepare(t, program("rank", "exit 6"),
		func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "RANK=2", "LOCAL_RANK=0") })
	s.start()
	pid := s.pid("rank 2 pid")
	p, _ := readProcess(pid)
	w := newRankWatch(newTree(), pid)
	w.ranks = []*rank{{RankExit: RankExit{PID: pid, Rank: 2}, start: p.start}}
	if pause := w.look(); pause < lookSeldom || len(w.exits()) != 1 || !w.exits()[0].EndedAt.IsZero() {
		t.Errorf("pause %v, ranks %+v", pause, w.exits())
	}
	s.must(unix.Kill(pid, unix.SIGUSR1))
	s.eventually("the rank ended", func() bool { p, _ := readProcess(pid); return p.ended() })
	w.look()
	if r := w.exits()[0]; !r.Known || r.Code != 6 || r.EndedAt.IsZero() {
		t.Errorf("rank %+v", r)
	}
	_ = s.cmd.Wait()
	w.ranks = []*rank{{RankExit: RankExit{PID: pid, Rank: 2}, start: p.start}}
	w.look()
	if r := w.exits()[0]; r.Known || r.EndedAt.IsZero() {
		t.Errorf("a rank that was reaped before it was looked at: %+v", r)
	}
	w.close()
}

// TestReapedAtOnce: an agent that reaps its rank before anybody can look at the zombie. Recent kernels tell anyhow; on
// others it is unknown, and said to be.
func TestReapedAtOnce(t *testing.T) {
	cmd := exec.Command("bash", "-c", "read x; exit 8")
	cmd.Stdin = silent(t)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h, err := openHandle(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if !h.running() {
		t.Error("it has ended already")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if !h.wait() || h.running() {
		t.Error("its end is not noticed")
	}
	w := newRankWatch(newTree(), 0)
	w.ranks = []*rank{{RankExit: RankExit{PID: cmd.Process.Pid}, handle: h}}
	w.close()
	r := w.exits()[0]
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	told := major > 6 || major == 6 && minor >= 15
	if r.Known != told || told && r.Code != -9 || r.EndedAt.IsZero() {
		t.Errorf("on Linux %d.%d: %+v", major, minor, r)
	}
}

func TestParseIdentity(t *testing.T) {
	for _, test := range []struct {
		environment string
		want        identity
		ok          bool
	}{
		{"RANK=3\x00LOCAL_RANK=1\x00TORCHELASTIC_RESTART_COUNT=2\x00", identity{rank: 3, localRank: 1, attempt: 2},
			true},
		{"RANK=0\x00LOCAL_RANK=0\x00TORCHELASTIC_ERROR_FILE=/tmp/e.json\x00", identity{errorFile: "/tmp/e.json"}, true},
		// DeepSpeed's launcher: no attempt
		{"A=b\x00LOCAL_RANK=0\x00X\x00RANK=0\x00", identity{rank: 0, localRank: 0, attempt: 0}, true},
		// a node's rank, set by a Kubernetes operator
		{"RANK=3\x00WORLD_SIZE=8\x00", identity{rank: 3, localRank: -1, attempt: 0}, false},
		{"LOCAL_RANK=3\x00", identity{rank: -1, localRank: 3, attempt: 0}, false},
		{"RANK=\x00LOCAL_RANK=\x00", identity{rank: -1, localRank: -1, attempt: 0}, false},
		{"RANK=-1\x00LOCAL_RANK=-1\x00", identity{rank: -1, localRank: -1, attempt: 0}, false},
		{"MY_RANK=1\x00GROUP_RANK=1\x00RANK =1\x00", identity{rank: -1, localRank: -1, attempt: 0}, false},
		{"", identity{rank: -1, localRank: -1, attempt: 0}, false},
		{"RANK=99999999999999999999\x00LOCAL_RANK=1\x00", identity{rank: -1, localRank: 1, attempt: 0}, false},
	} {
		if got, ok := parseIdentity([]byte(test.environment)); got != test.want || ok != test.ok {
			t.Errorf("%q: %+v %v, want %+v %v", test.environment, got, ok, test.want, test.ok)
		}
	}
}

func FuzzParseIdentity(f *testing.F) {
	f.Add([]byte("RANK=3\x00LOCAL_RANK=1\x00TORCHELASTIC_RESTART_COUNT=2\x00"))
	f.Add([]byte("\x00=\x00RANK"))
	f.Fuzz(func(t *testing.T, environment []byte) {
		is, ok := parseIdentity(environment)
		if is.rank < -1 || is.localRank < -1 || is.attempt < 0 || ok != (is.rank >= 0 && is.localRank >= 0) {
			t.Errorf("%+v %v", is, ok)
		}
	})
}

// BenchmarkLook is what looking for ranks costs in a tree of nine processes, BenchmarkTree and BenchmarkOwns what
// accounting does.
func BenchmarkLook(b *testing.B) {
	p, _ := forest(b)
	for b.Loop() {
		p.ranks.look()
	}
}

func BenchmarkTree(b *testing.B) {
	p, _ := forest(b)
	for b.Loop() {
		p.Tree()
	}
}

func BenchmarkOwns(b *testing.B) {
	p, leaf := forest(b)
	for b.Loop() {
		if !p.Owns(leaf) {
			b.Fatal("not owned")
		}
	}
}

// forest is a command with eight children, and one of these.
func forest(b *testing.B) (*Process, int) {
	b.Helper()
	p, err := Start(Command{Argv: []string{"bash", "-c", strings.Repeat("sleep 1000 & ", 8) + "wait"},
		Env: os.Environ()}, Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = unix.Kill(-p.pid, unix.SIGKILL)
		_, _ = p.Wait()
	})
	s := &supervised{TB: b}
	s.eventually("eight children", func() bool { return len(p.Tree()) == 9 })
	return p, p.Tree()[8]
}
