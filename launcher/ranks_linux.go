package launcher

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// How often the watcher looks for ranks. While there are none, it looks often, so that a script that dies at once (a
// syntax error ends Python after 20 ms, and torchrun polls its workers every 100 ms) is mostly still seen. It spends at
// most a 400th of the time looking. Measured on two slow cores, all that the launcher does: 0.7 % of one core without
// ranks, 0.2 % with them.
const (
	lookOften   = 25 * time.Millisecond
	lookSeldom  = 250 * time.Millisecond
	lookAtMost  = 2 * time.Second
	lookingCost = 400

	// Launchers start ranks one after the other: while new ones keep coming it is looked for more whatever that costs,
	// a few percent of a core for two seconds. Our own choice.
	lookForMore = 100 * time.Millisecond
	moreWithin  = 2 * time.Second
)

// identity is what the environment of a process says of the rank that it is.
type identity struct {
	rank, localRank, attempt int
	errorFile                string
	// byLauncher: it has what only a launcher sets that waits for its ranks (torchrun, DeepSpeed's).
	byLauncher bool
}

// rank is a training process.
type rank struct {
	RankExit
	start  uint64 // see process.start
	group  int    // its process group; only supervise looks at it
	handle *handle
	// parent is who started it; nil: the command itself, or one that had ended before we saw the rank.
	parent     *starter
	byLauncher bool // see identity
}

// rankWatch finds the training processes below the command and learns how each one ends. torchrun itself only tells
// that some rank failed: its own status is nearly always 1.
type rankWatch struct {
	tree tree
	root int // the command
	// single is Options.SingleRank.
	single func(argv []string) bool
	ended  chan struct{} // a rank has ended: its agent may start others
	newest time.Time     // when a look has last found new ones

	mu       sync.Mutex // guards ranks
	ranks    []*rank
	starters []*starter // only look's goroutine uses it
}

func newRankWatch(t tree, root int) *rankWatch {
	return &rankWatch{tree: t, root: root, ended: make(chan struct{}, 1)}
}

// look finds ranks that are new, and returns when to look again.
func (w *rankWatch) look() time.Duration {
	began, known := time.Now(), w.count()
	pause := lookOften
	if w.lookBelow([]int{w.root}) {
		pause = lookSeldom
	}
	if w.count() > known {
		w.newest = began
	}
	if began.Sub(w.newest) < moreWithin {
		return lookForMore
	}
	return min(max(pause, lookingCost*time.Since(began)), lookAtMost)
}

func (w *rankWatch) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.ranks)
}

// lookBelow finds ranks that are new among the roots and below them, and tells whether any rank runs.
func (w *rankWatch) lookBelow(roots []int) (found bool) {
	running := w.running()
	found = len(running) > 0
	w.tree.below(roots, func(pid int) bool {
		isRank := running[pid] || w.add(pid)
		found = found || isRank
		return !isRank // whatever is below a rank has inherited its environment and is no other rank
	})
	return found
}

// running returns the pids of the ranks that have not ended. Ranks without a handle are looked at here: they can only
// be caught while they wait to be reaped.
func (w *rankWatch) running() map[int]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	pids := map[int]bool{}
	for _, r := range w.ranks {
		if r.handle == nil && r.EndedAt.IsZero() {
			if p, ok := readProcess(r.PID); !ok || p.start != r.start || p.ended() {
				r.end(p.status, ok && p.start == r.start)
			}
		}
		if r.EndedAt.IsZero() {
			pids[r.PID] = true
		}
	}
	return pids
}

// add takes a process in if it is a rank. What is read while the handle's process runs is about that process, not about
// a later one with its pid.
func (w *rankWatch) add(pid int) bool {
	if _, found := w.identify(pid); !found {
		return false
	}
	handle, err := openHandle(pid)
	is, found := w.identify(pid)
	p, exists := readProcess(pid)
	if !found || !exists || p.ended() || err == nil && !handle.running() {
		if err == nil {
			handle.close()
		}
		return false
	}
	r := &rank{
		RankExit: RankExit{PID: pid, Rank: is.rank, LocalRank: is.localRank, Attempt: is.attempt,
			ErrorFile: is.errorFile},
		start:  p.start,
		group:  p.group,
		handle: handle,
	}
	r.parent, r.byLauncher = w.starter(p.parent), is.byLauncher
	w.mu.Lock()
	w.ranks = append(w.ranks, r)
	w.mu.Unlock()
	if handle != nil {
		go w.await(r)
	}
	return true
}

// await notes the end of a rank as soon as it comes.
func (w *rankWatch) await(r *rank) {
	if !r.handle.wait() {
		return
	}
	w.learn(r)
	r.handle.close() // a run with many restarts has many ranks
	select {
	case w.ended <- struct{}{}:
	default: // the last one has not been noticed yet
	}
}

// learn reads how a rank with a handle ended. The zombie tells until its parent reaps it, recent kernels also later.
// The rank could be seen at all because its environment may be read, and who may read that may read the status.
func (w *rankWatch) learn(r *rank) {
	var status unix.WaitStatus
	p, known := readProcess(r.PID)
	if known = known && p.start == r.start && p.ended(); known {
		status = p.status
	} else {
		status, known = r.handle.exitStatus()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r.end(status, known)
}

// reaped takes the status of a process that we have waited for ourselves.
func (w *rankWatch) reaped(p process, status unix.WaitStatus) {
	if r := w.known(p); r != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		r.end(status, true)
	}
}

// end notes how a rank ended. Who knows is not overruled by who does not.
func (r *rank) end(status unix.WaitStatus, known bool) {
	if r.EndedAt.IsZero() {
		r.EndedAt = time.Now()
	}
	if known {
		r.Known, r.Code = true, rankCode(status)
	}
}

// rankCode is how Python counts: the exit code, or -N for signal N.
func rankCode(status unix.WaitStatus) int {
	if status.Signaled() {
		return -int(status.Signal())
	}
	return status.ExitStatus()
}

// exits returns all ranks seen, by attempt and rank.
func (w *rankWatch) exits() []RankExit {
	w.mu.Lock()
	defer w.mu.Unlock()
	var exits []RankExit
	for _, r := range w.ranks {
		exits = append(exits, r.RankExit)
	}
	slices.SortStableFunc(exits, func(a, b RankExit) int {
		return cmp.Or(cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.Rank, b.Rank))
	})
	return exits
}

// had tells whether a rank with an identity is known that lived after some time.
func (w *rankWatch) had(is identity, since time.Time) bool {
	for _, r := range w.exits() {
		if r.Rank == is.rank && r.LocalRank == is.localRank && r.Attempt == is.attempt &&
			(r.EndedAt.IsZero() || r.EndedAt.After(since)) {
			return true
		}
	}
	return false
}

// known returns the rank that a process is, nil for none.
func (w *rankWatch) known(p process) *rank {
	for _, r := range w.all() {
		if r.PID == p.pid && r.start == p.start {
			return r
		}
	}
	return nil
}

// regroup notes the process groups that ranks have now: setsid(1) and scripts leave the launcher's when they are ranks
// already.
func (w *rankWatch) regroup(living []process) {
	for _, p := range living {
		if r := w.known(p); r != nil {
			r.group = p.group
		}
	}
}

// groups returns the process groups of all ranks seen, also of those that have ended: their DataLoader workers are in
// them.
func (w *rankWatch) groups() map[int]bool {
	groups := map[int]bool{}
	for _, r := range w.all() {
		groups[r.group] = true
	}
	return groups
}

// close stops watching. A rank that ended just now may not have been noted yet.
func (w *rankWatch) close() {
	for _, r := range w.all() {
		if r.handle == nil {
			continue
		}
		if !r.handle.running() {
			w.learn(r)
		}
		r.handle.close()
	}
	for _, s := range w.starters {
		s.handle.close()
	}
}

func (w *rankWatch) all() []*rank {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.ranks)
}

// identify tells who a process is, from its environment or else from its arguments.
func (w *rankWatch) identify(pid int) (identity, bool) {
	if is, found := readIdentity(pid); found || w.single == nil || pid == w.root {
		return is, found
	}
	arguments, err := readProc("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return identity{}, false
	}
	return identity{}, w.single(strings.Split(strings.TrimSuffix(string(arguments), "\x00"), "\x00"))
}

// readIdentity reads who a process is from the environment that it was started with: torchrun, accelerate and
// DeepSpeed's launcher set RANK and LOCAL_RANK for each rank, torchrun also the attempt. An outer RANK alone
// (Kubernetes operators set it for the node) does not make a rank. Beside these only the file for its exception is
// looked at: an environment may hold secrets.
func readIdentity(pid int) (identity, bool) {
	environment, err := readEnvironment(pid)
	if err != nil {
		return identity{}, false // another user's, or it has just ended
	}
	return parseIdentity(environment)
}

// readEnvironment is the environment that a process was started with. It is empty while the kernel is putting another
// program in its place.
func readEnvironment(pid int) ([]byte, error) {
	return readProc("/proc/" + strconv.Itoa(pid) + "/environ")
}

// parseIdentity reads an environment as the kernel shows it: name=value entries, each with a NUL behind.
func parseIdentity(environment []byte) (identity, bool) {
	is := identity{rank: -1, localRank: -1}
	wanted := map[string]*int{"RANK": &is.rank, "LOCAL_RANK": &is.localRank, "TORCHELASTIC_RESTART_COUNT": &is.attempt}
	for entry := range bytes.SplitSeq(environment, []byte{0}) {
		name, value, _ := bytes.Cut(entry, []byte{'='})
		switch string(name) {
		case "TORCHELASTIC_ERROR_FILE":
			is.errorFile = string(value)
		case "TORCHELASTIC_RUN_ID", "CROSS_RANK":
			is.byLauncher = true
		}
		if into, ok := wanted[string(name)]; ok {
			if n, err := strconv.Atoi(string(value)); err == nil && n >= 0 {
				*into = n
			}
		}
	}
	return is, is.rank >= 0 && is.localRank >= 0
}
