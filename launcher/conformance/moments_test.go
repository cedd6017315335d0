//go:build linux

package conformance

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"oomguard/launcher/patience"
)

const (
	// moments is how often each of the two is killed: what the stand-in for torchrun does is the same and takes a tenth
	// of the time.
	standInMoments, torchrunMoments = 23, 2
	// standInRun and torchrunRun are the times within which the moment lies: from the first instruction to shortly
	// after the ranks' end.
	standInRun, torchrunRun = 900 * time.Millisecond, 5 * time.Second
)

// moment is one run that is killed at some moment.
type moment struct {
	name  string
	argv  []string
	after time.Duration // from the start; when all has ended by then, nothing is killed
}

// randomMoments are those of one test, from a seed that it prints: CONFORMANCE_SEED repeats them.
func randomMoments(t *testing.T) []moment {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if given := os.Getenv("CONFORMANCE_SEED"); given != "" {
		if _, err := fmt.Sscan(given, &seed); err != nil {
			t.Fatalf("CONFORMANCE_SEED=%q: %v", given, err)
		}
	}
	t.Logf("CONFORMANCE_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var all []moment
	for i := range standInMoments {
		all = append(all, moment{fmt.Sprint("stand-in ", i),
			[]string{"python", "-S", "DATA/agent.py", "brief", "brief"},
			time.Duration(random.Int64N(int64(standInRun)))})
	}
	for i := range torchrunMoments {
		all = append(all, moment{fmt.Sprint("torchrun ", i), torchrun("rank:brief"),
			time.Duration(random.Int64N(int64(torchrunRun)))})
	}
	return all
}

// TestTorchrunKilledAtAnyMoment: whenever torchrun is killed, no process of it is left when oomguard ends, and the run
// can be read.
func TestTorchrunKilledAtAnyMoment(t *testing.T) {
	with := newestTorch(t)
	for _, m := range randomMoments(t) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			r := begin(t, scenario{argv: m.argv}, with)
			if r.passes(m.after) {
				for _, p := range r.living() {
					// its helpers are called like itself
					if p.parent == r.cmd.Process.Pid && p.name != filepath.Base(program(t)) {
						r.kill(p.pid, unix.SIGKILL)
					}
				}
			}
			r.awaitEnd()
			r.until("all has ended", func() bool {
				// a helper that torchrun was just running (uname) ends by itself; a rank must have, and none may come
				// later
				left := r.living()
				if slices.ContainsFunc(left, func(p process) bool { return p.rank }) {
					t.Fatalf("killed after %v: left are %v", m.after, left)
				}
				return len(left) == 0
			})
			r.readable()
		})
	}
}

// TestOomguardKilledAtAnyMoment: whenever oomguard is killed, the training ends as it would have, with all its output,
// and the run can be read as far as it got.
func TestOomguardKilledAtAnyMoment(t *testing.T) {
	with := newestTorch(t)
	for _, m := range randomMoments(t) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			r := begin(t, scenario{argv: m.argv}, with)
			var launched []process
			if r.passes(m.after) {
				r.kill(r.cmd.Process.Pid, unix.SIGSTOP) // so that it starts nothing while we look
				for _, p := range r.living() {
					if p.pid != r.cmd.Process.Pid && p.name != filepath.Base(program(t)) {
						launched = append(launched, p)
					}
				}
				r.kill(r.cmd.Process.Pid, unix.SIGKILL)
			}
			r.awaitEnd()
			r.until("the training has ended", func() bool { return len(r.living()) == 0 })
			<-r.stdout.done
			got := sortedLines(r.stdout.String())
			neverStarted := got == "" && len(launched) == 0 && shellStatus(r.cmd) != 0
			if got != "begin 0\nbegin 1\nend 0\nend 1\n" && !neverStarted {
				t.Errorf("killed after %v, when %v ran: the training's output\n%s", m.after, launched, got)
			}
			r.readable()
		})
	}
}

// TestDieWithOomguard: on request torchrun is told to end when oomguard is killed, once, and ends its ranks as it
// always does.
func TestDieWithOomguard(t *testing.T) {
	t.Parallel()
	r := begin(t, scenario{argv: torchrun("rank:log"), flags: []string{"--die-with-oomguard"}}, newestTorch(t))
	ready(2)(r)
	r.kill(r.cmd.Process.Pid, unix.SIGKILL)
	r.awaitEnd()
	r.until("the training has ended", func() bool { return len(r.living()) == 0 })
	for rank := range 2 {
		log, err := os.ReadFile(filepath.Join(r.folder, fmt.Sprint("log.", rank)))
		if err != nil || string(log) != "SIGTERM\n" {
			t.Errorf("rank %d logged %q, %v", rank, log, err)
		}
	}
	r.readable()
}

// begin starts oomguard with a training.
func begin(t *testing.T, s scenario, with torch) *run {
	t.Helper()
	r := &run{T: t, scenario: s, wrapped: true, folder: t.TempDir(), runs: t.TempDir(), ended: make(chan struct{})}
	r.port = fmt.Sprint(freePort(t))
	r.prepare(with)
	r.start()
	return r
}

// passes waits for a moment, and tells whether it came before the end.
func (r *run) passes(after time.Duration) bool {
	select {
	case <-r.ended:
		return false
	case <-time.After(after): // the moment is what is tested
		return true
	}
}

func (r *run) awaitEnd() {
	r.Helper()
	select {
	case <-r.ended:
	case <-patience.Over(r):
		r.giveUp("oomguard did not end")
	}
}

// readable: whatever there is of a run folder, oomguard reads and lists it.
func (r *run) readable() {
	r.Helper()
	folders, err := filepath.Glob(filepath.Join(r.runs, "*", "run.json"))
	if err != nil {
		r.Fatal(err)
	}
	commands := [][]string{{"runs"}}
	for _, path := range folders {
		commands = append(commands, []string{"report", filepath.Base(filepath.Dir(path))})
	}
	for _, words := range commands {
		cmd := exec.Command(program(r), words...)
		cmd.Dir, cmd.Env = r.folder, r.env
		if out, err := cmd.CombinedOutput(); err != nil {
			r.Errorf("oomguard %q: %v\n%s", words, err, out)
		}
	}
}
