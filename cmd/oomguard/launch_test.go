package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"oomguard/launcher"
	"oomguard/launcher/patience"
	"oomguard/monitor/oom"
)

// TestEveryOomguardKilled: whoever kills all processes called oomguard leaves the command its output.
func TestEveryOomguardKilled(t *testing.T) {
	b := newBench(t)
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	cmd := b.command(b.exe, "run", "--", "bash", "-c",
		`echo one; until [ -e go ]; do sleep 0.01; done; for i in $(seq 20000); do echo line $i; done`)
	cmd.Stdout, cmd.Stderr = writer, nil
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	writer.Close()
	out := bufio.NewReader(reader)
	if line, err := out.ReadString('\n'); err != nil || line != "one\n" {
		t.Fatalf("%q, %v", line, err)
	}
	ours, relays := children(t, cmd.Process.Pid)
	if relays == 0 {
		t.Error("there is no relay to be spared")
	}
	for _, pid := range append(ours, cmd.Process.Pid) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Logf("kill %d: %v", pid, err) // a helper that has ended by itself
		}
	}
	_ = cmd.Wait()
	b.write("go", "")
	rest, err := io.ReadAll(out)
	if lines := bytes.Count(rest, []byte("\n")); err != nil || lines != 20000 {
		t.Errorf("%d lines of 20000 arrived (%v)", lines, err)
	}
}

// children are those of a process that are called oomguard, and how many are relays.
func children(t *testing.T, parent int) (ours []int, relays int) {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		text, _ := os.ReadFile(list) // the thread may have ended
		for word := range strings.FieldsSeq(string(text)) {
			pid, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			name, _ := os.ReadFile(filepath.Join("/proc", word, "comm"))
			switch strings.TrimSpace(string(name)) {
			case "oomguard":
				ours = append(ours, pid)
			case launcher.RelayName:
				relays++
			}
		}
	}
	return ours, relays
}

// TestDieWithOomguard and its opposite, which is the default: SIGKILL of oomguard.
func TestDieWithOomguard(t *testing.T) {
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{[]string{"run", "--"}, "went on"},
		{[]string{"run", "--die-with-oomguard", "--"}, "told to end"},
	} {
		b := newBench(t)
		script := `trap 'echo told to end >end.tmp; mv end.tmp end; exit' TERM; touch ready; until [ -e go ]; do sleep 0.01; done; echo went on >end.tmp; mv end.tmp end`
		cmd := b.command(append(append([]string{b.exe}, c.flags...), "bash", "-c", script)...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		exists := func(name string) func() bool {
			return func() bool { _, err := os.Stat(filepath.Join(b.dir, name)); return err == nil }
		}
		patience.Until(t, "the command", exists("ready"))
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if c.want == "went on" {
			b.write("go", "")
		}
		patience.Until(t, "the command's end", exists("end"))
		if end, err := os.ReadFile(filepath.Join(b.dir, "end")); err != nil ||
			strings.TrimSpace(string(end)) != c.want {
			t.Errorf("%q: the command %s (%v), want %s", c.flags, end, err, c.want)
		}
	}
}

// TestKillAfter: a command that does not end is killed when its time is over, and the report says so.
func TestKillAfter(t *testing.T) {
	b := newBench(t)
	cmd := b.command(b.exe, "run", "--kill-after", "200ms", "--", "bash", "-c",
		`trap '' TERM; touch ready; while :; do sleep 0.05; done`)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	patience.Until(t, "the command",
		func() bool { _, err := os.Stat(filepath.Join(b.dir, "ready")); return err == nil })
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 137 ||
		!strings.Contains(stderr.String(), "all of it was killed (--kill-after)") {
		t.Errorf("status %d, stderr\n%s", code, stderr.String())
	}
}

// failsOnce fails in its first attempt, in the way that torchrun's documentation asks for, and as soon as oomguard
// holds a handle of it.
const failsOnce = `import glob, os, time
from torch.distributed.elastic.multiprocessing.errors import record
def held():
    for path in glob.glob("/proc/[0-9]*/fdinfo/*"):
        try:
            with open(path) as f:
                if "\nPid:\t%d\n" % os.getpid() in f.read():
                    return True
        except OSError:
            pass
@record
def main():
    while not held():
        time.sleep(0.05)
    if os.environ["RANK"] == "0" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        raise ValueError("bad sample 4711")
main()
`

// TestAttempts: a rank fails, torchrun starts all anew, and the second attempt does well. The report tells the attempts
// apart, and what the failed rank wrote into its error file, without a variable of ours.
func TestAttempts(t *testing.T) {
	b := newBench(t)
	b.write("recorded.py", failsOnce)
	r := b.run(b.exe, "run", "--no-probe", "--", "torchrun", "--standalone", "--nproc-per-node=1", "--max-restarts=1",
		"recorded.py")
	doc := b.theRun()
	if r.status != 0 || doc.Exit == nil || !doc.Exit.Clean() || doc.Postmortem != nil {
		t.Fatalf("status %d, exit %+v, post-mortem %+v", r.status, doc.Exit, doc.Postmortem)
	}
	attempts := doc.Exit.Attempts()
	if len(attempts) != 2 || attempts[0][0].Code != 1 || attempts[1][0].Code != 0 {
		t.Fatalf("attempts: %+v", attempts)
	}
	if e := attempts[0][0].Error; e == nil || e.Message != "ValueError: bad sample 4711" ||
		!strings.Contains(e.Traceback, "recorded.py") {
		t.Errorf("the error file gave %+v", e)
	}
	for _, want := range []string{"attempt 0 (started anew):", "attempt 1 (the last one):",
		"rank 0 wrote: ValueError: bad sample 4711"} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("the report does not say %q:\n%s", want, r.stderr)
		}
	}
}

// TestStatusZeroHidesNothing: a launcher of the kind of deepspeed returns 0 although a rank was killed.
func TestStatusZeroHidesNothing(t *testing.T) {
	b := newBench(t)
	// The rank dies as soon as oomguard holds a handle of it.
	const known = `until grep -qs "^Pid:[[:space:]]*$$\$" /proc/[0-9]*/fdinfo/*; do sleep 0.05; done; kill -KILL $$`
	r := b.run(b.exe, "run", "--", "bash", "-c", `RANK=3 LOCAL_RANK=1 bash -c '`+known+`'; exit 0`)
	if want := "returned status 0 after "; r.status != 0 || !strings.Contains(r.stderr, want) ||
		!strings.Contains(r.stderr, "but rank 3 killed by signal 9 (SIGKILL)") {
		t.Errorf("status %d, stderr\n%s", r.status, r.stderr)
	}
	if doc := b.theRun(); doc.Postmortem == nil {
		t.Error("no post-mortem of the rank that was killed")
	}
}

// TestBelieve: what was seen is not overruled by what was told; ranks that were not seen are added to the last attempt.
func TestBelieve(t *testing.T) {
	exit := launcher.Exit{Code: 1, Ranks: []launcher.RankExit{
		{PID: 10, Rank: 0, Attempt: 1, Known: true, Code: -9},
		{PID: 11, Rank: 1, Attempt: 1},
	}}
	told := func(rank, pid, code int) oom.Exit {
		return oom.Exit{RankDeath: oom.RankDeath{Rank: rank, ExitCode: code}, PID: pid, LocalRank: rank}
	}
	believe(&exit, &oom.Log{Exits: []oom.Exit{told(0, 10, 1), told(1, 11, -15), told(-1, 12, 3), told(2, 13, 42),
		told(3, -1, 5)}})
	want := []launcher.RankExit{
		{PID: 10, Rank: 0, Attempt: 1, Known: true, Code: -9},
		{PID: 11, Rank: 1, Attempt: 1, Known: true, Code: -15, Told: true},
		{PID: 13, Rank: 2, LocalRank: 2, Attempt: 1, Known: true, Code: 42, Told: true},
	}
	if len(exit.Ranks) != len(want) {
		t.Fatalf("%+v", exit.Ranks)
	}
	for i, r := range exit.Ranks {
		if r != want[i] {
			t.Errorf("%+v, want %+v", r, want[i])
		}
	}
}

// TestReadmeEnvironment: the README lists every variable that the command may be given.
func TestReadmeEnvironment(t *testing.T) {
	data, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range reasons() {
		if !strings.Contains(string(data), "`"+name+"`") {
			t.Errorf("README.md does not list %s", name)
		}
	}
}
