package launcher

import (
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// stat is a line of /proc/<pid>/stat with the given name: pid 12, state Z, parent 7, group 5, session 3, started at
// 4242 ticks, killed by SIGKILL, with flags 4. 52 fields, numbered as in proc_pid_stat(5).
func stat(name string) string {
	return "12 (" + name + ") Z 7 5 3 0 -1 4 0 0 0 0 1 2 3 4 20 0 1 0 4242 0 0 18446744073709551615 0 0 0 0 0 0 0 0 " +
		"0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 9\n"
}

func TestParseStat(t *testing.T) {
	for _, name := range []string{"python", "a b", "x) R 1 2 3 (", ")", "", "\xff\n"} {
		got, ok := parseStat([]byte(stat(name)))
		want := process{pid: 12, parent: 7, group: 5, session: 3, name: name, state: 'Z', flags: 4, threads: 1,
			start: 4242, status: 9}
		if !ok || got != want {
			t.Errorf("%q: %+v %v", name, got, ok)
		}
	}
	whole := stat("python")
	for _, line := range []string{"", "12", "12 (x", ") 12 (", "12 () ", whole[:len(whole)-4],
		strings.Replace(whole, " 7 ", " seven ", 1)} {
		if got, ok := parseStat([]byte(line)); ok {
			t.Errorf("%q: %+v", line, got)
		}
	}
	if got, ok := parseStat([]byte(strings.TrimSpace(whole) + " 1 2 3\n")); !ok || got.status != 9 {
		t.Errorf("with fields of a future kernel: %+v %v", got, ok)
	}
	if p, _ := parseStat([]byte(whole)); !p.ended() {
		t.Error("a zombie has not ended")
	}
	if p, _ := parseStat([]byte(strings.Replace(whole, " 20 0 1 ", " 20 0 2 ", 1))); p.ended() {
		t.Error("a zombie with a second thread has ended")
	}
	for line, dying := range map[string]bool{
		whole: true, strings.Replace(whole, " Z 7", " S 7", 1): true, // flag 4
		strings.NewReplacer(" Z 7", " S 7", " -1 4 ", " -1 4194304 ").Replace(whole): false,
		strings.Replace(whole, " -1 4 ", " -1 0 ", 1):                                true,
	} {
		if p, _ := parseStat([]byte(line)); p.dying() != dying {
			t.Errorf("%q: dying %v", line, !dying)
		}
	}
	us, ok := readProcess(os.Getpid())
	if want := unix.Getpgrp(); !ok || us.parent != os.Getppid() || us.group != want || us.ended() || us.dying() {
		t.Errorf("this process: %+v %v", us, ok)
	}
	if _, ok := readProcess(0); ok {
		t.Error("there is no process 0")
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte(stat("python")))
	f.Add([]byte(stat("x) R 1 2 3 (")))
	f.Add([]byte("12 (x) R 1"))
	f.Fuzz(func(t *testing.T, line []byte) {
		if p, ok := parseStat(line); ok && (p.state == 0 || p.state == ' ') {
			t.Errorf("%q: %+v", line, p)
		}
	})
}

// TestTree finds descendants that left their session and ones whose parent has died, with and without the kernel's
// lists of children.
func TestTree(t *testing.T) {
	script := "(setsid sleep 1001 &); sleep 1002 & setsid bash -c 'sleep 1003 & wait' & wait"
	p, err := Start(Command{Argv: []string{"bash", "-c", script}, Env: os.Environ()}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, pid := range p.Tree() {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		_, _ = p.Wait()
	})
	find := func() (pids []int, sleeps int) {
		for _, pid := range p.Tree() {
			if q, ok := readProcess(pid); ok && q.name == "sleep" {
				sleeps++
			}
			pids = append(pids, pid)
		}
		slices.Sort(pids)
		return pids, sleeps
	}
	s := &supervised{TB: t}
	s.eventually("three sleeps", func() bool { _, sleeps := find(); return sleeps == 3 })
	pids, _ := find()
	if len(pids) != 5 { // the sleeps, the second bash and the command
		t.Errorf("tree %v", pids)
	}
	for _, pid := range pids {
		if !p.Owns(pid) {
			t.Errorf("%d is in the tree and not owned", pid)
		}
	}
	p2 := &Process{pid: p.pid, start: p.start, tree: tree{scan: true}}
	scanned := p2.Tree()
	slices.Sort(scanned)
	if !slices.Equal(scanned, pids) {
		t.Errorf("lists of children give %v, all processes give %v", pids, scanned)
	}
}
