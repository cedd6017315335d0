package launcher

import (
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// settling is how long helpers may take to notice that the command has ended (Python's resource tracker does when
	// its pipe is closed) before they count as left over. Our own choice.
	settling = 100 * time.Millisecond
	// becoming is how long after its birth a process that a killed command had forked may take to become another one: a
	// rank that nobody could know as such yet. On an idle machine that takes a millisecond, on one that swaps or has
	// many processes for each processor as long as several of them have their turn; DataLoader workers, which never
	// become anything else, see their parent's death within as long (MP_STATUS_CHECK_INTERVAL of
	// torch/utils/data/_utils). Our own choice.
	becoming = 5 * time.Second
	// dying is how long a process may take to end after SIGKILL before it counts as hanging in the kernel: freeing a
	// GPU's and the host's memory takes the driver seconds. Our own choice.
	dying = 10 * time.Second
	// looks bounds how often in a row we look again because something ended meanwhile: somebody may start processes
	// without end.
	looks = 10
	// watching is how often survivors that are not our children, whose end nobody tells us, are looked at.
	watching = 20 * time.Millisecond
)

// Tree returns the pids of the command and all its descendants, orphans included. It reads a file for each thread of
// each of them; to place the few pids that use a GPU, Owns is much faster.
func (p *Process) Tree() []int {
	var roots, pids []int
	if command, ok := readProcess(p.pid); ok && command.start == p.start {
		roots = append(roots, p.pid)
	}
	for _, orphan := range p.orphans() {
		roots = append(roots, orphan.pid)
	}
	p.tree.below(roots, func(pid int) bool {
		pids = append(pids, pid)
		return true
	})
	return pids
}

// Owns tells whether a process is the command or a descendant of it.
func (p *Process) Owns(pid int) bool {
	us, excluded := os.Getpid(), p.excluded()
	for q, ok := readProcess(pid); ok; q, ok = readProcess(q.parent) {
		switch {
		case q.pid == p.pid:
			return q.start == p.start
		case q.parent == us:
			return q.group != unix.Getpgrp() && !excluded[q.pid]
		}
	}
	return false
}

// orphans returns our children other than the command that belong to its tree: their parents have died, and as the
// subreaper we got them. Our own helpers are in our process group or excluded; the command's tree cannot be in our
// group.
func (p *Process) orphans() []process {
	ours, excluded := unix.Getpgrp(), p.excluded()
	var orphans []process
	for _, pid := range p.tree.children(os.Getpid()) {
		if q, ok := readProcess(pid); ok && pid != p.pid && q.group != ours && !excluded[pid] {
			orphans = append(orphans, q)
		}
	}
	return orphans
}

func (p *Process) excluded() map[int]bool {
	pids := map[int]bool{}
	if p.canary != nil {
		pids[p.canary.pid] = true
	}
	if p.guard != nil {
		pids[p.guard.pid] = true
	}
	if p.options.Exclude != nil {
		for _, pid := range p.options.Exclude() {
			pids[pid] = true
		}
	}
	return pids
}

// reap removes the orphans that have ended and returns those that live. One that ended after we had listed it has left
// its children to us since: then it lists them anew.
func (p *Process) reap() (living []process) {
	for again := true; again; {
		again, living = false, nil
		for _, orphan := range p.orphans() {
			if !orphan.ended() {
				living = append(living, orphan)
				continue
			}
			var status unix.WaitStatus
			if pid, err := unix.Wait4(orphan.pid, &status, unix.WNOHANG, nil); err == nil && pid == orphan.pid {
				p.ranks.reaped(orphan, status)
				again = true
			}
		}
	}
	return living
}

// survivors returns what lives of the command's tree after its end, parents first.
func (p *Process) survivors() []process {
	var roots []int
	for _, orphan := range p.reap() {
		roots = append(roots, orphan.pid)
	}
	var living []process
	p.tree.below(roots, func(pid int) bool {
		q, ok := readProcess(pid)
		if ok = ok && !q.ended(); ok {
			living = append(living, q)
		}
		return ok
	})
	return living
}

// doomed returns those survivors that are ranks, members of a rank's process group, or descendants of such, also of
// those that have died since.
func (p *Process) doomed(met fates) []process {
	survivors := p.survivors()
	p.ranks.regroup(survivors)
	groups := p.doomedGroups()
	belongs := map[int]bool{}
	var doomed []process
	for _, q := range survivors {
		if p.exit.LastResort || p.isDoomed(p.ranks.known(q)) || groups[q.group] || belongs[q.parent] ||
			met.find(q) != nil {
			belongs[q.pid] = true
			doomed = append(doomed, q)
		}
	}
	return doomed
}

// doomedGroups are the process groups of ranks that are to be ended, also of those that have ended.
func (p *Process) doomedGroups() map[int]bool {
	groups := p.ranks.groups()
	if p.exit.Code != 0 || p.exit.LastResort {
		return groups
	}
	for _, r := range p.ranks.all() { // whoever is in the group of one that is to go on is left alone
		if q, ok := readProcess(r.PID); ok && q.start == r.start && !q.ended() && !p.isDoomed(r) {
			delete(groups, r.group)
		}
	}
	return groups
}

// countRanks is how many of the processes are ranks; what belongs to a rank that has ended counts as one.
func (p *Process) countRanks(of []process) int {
	ranks := 0
	for _, q := range of {
		if p.ranks.known(q) != nil {
			ranks++
		}
	}
	return max(ranks, 1)
}

// sweep ends the ranks that outlived the command and reports everything that did.
func (p *Process) sweep() []Survivor {
	var met fates
	if p.gaveUp() {
		p.endRanks(&met)
	}
	p.settle()
	for _, q := range p.survivors() {
		met.of(q, p.ranks) // whoever is new here was left alone
	}
	return met.list()
}

// gaveUp tells whether the command has left ranks to us: one that was killed had no chance to stop them, and one that
// fails before them has given up on them. They would hold their GPUs' memory for nothing. What outlives ranks that have
// ended in good order was meant to, and so were ranks that a command leaves which ends in good order itself, unless
// their own launcher did not.
func (p *Process) gaveUp() bool {
	if p.wasKilled() || p.exit.LastResort {
		return true
	}
	p.settle()
	left, seenAll := false, false
	for tries := 0; !left && !seenAll && tries < looks; tries++ {
		seenAll = p.seeAll(func() {
			p.findLateRanks()
			left = slices.ContainsFunc(p.survivors(), func(q process) bool { return p.isDoomed(p.ranks.known(q)) })
		})
	}
	return left
}

// isDoomed tells whether a rank is to be ended; nil is none.
func (p *Process) isDoomed(r *rank) bool {
	return r != nil && (p.exit.Code != 0 || p.exit.LastResort || r.abandoned(p.pid))
}

// seeAll looks at what is left, and tells whether that was all: the children of a process that ends meanwhile come to
// us, and are missed where it was looked for them below it before and among ours after.
func (p *Process) seeAll(look func()) bool {
	pids := func() (pids []int) {
		for _, orphan := range p.reap() {
			pids = append(pids, orphan.pid)
		}
		return pids
	}
	before := pids()
	look()
	return slices.Equal(before, pids())
}

func (p *Process) wasKilled() bool { return p.exit.Signal != 0 }

// endRanks ends ranks and what belongs to them, gently first, and waits for those that are still to come.
func (p *Process) endRanks(met *fates) {
	for _, step := range []struct {
		signal unix.Signal
		limit  time.Duration
		fate   string
	}{
		{unix.SIGTERM, p.options.Grace, Terminated},
		{unix.SIGKILL, dying, Killed},
	} {
		if p.exit.LastResort && step.signal != unix.SIGKILL {
			continue // they have had their time
		}
		limit := time.After(step.limit)
		for more := true; more; more = p.pause(limit) {
			var expecting bool
			var doomed []process
			seenAll := p.seeAll(func() {
				expecting = p.expecting() // before we look for ranks: what becomes one in between is found
				p.findLateRanks()
				doomed = p.doomed(*met)
			})
			if len(doomed) == 0 && !expecting && seenAll {
				return
			}
			if len(doomed) > 0 && len(*met) == 0 && p.options.LeftBehind != nil {
				p.options.LeftBehind(p.countRanks(doomed))
			}
			p.end(doomed, step.signal, step.fate, met)
		}
	}
	for _, q := range p.doomed(*met) {
		met.of(q, p.ranks).Action = Unkillable
	}
}

// settle gives survivors until shortly after the command's end to end by themselves.
func (p *Process) settle() {
	limit := time.After(time.Until(p.exit.Ended.Add(settling)))
	for len(p.survivors()) > 0 && p.pause(limit) {
	}
}

// findLateRanks looks for ranks that were started just before the command's end, and had not been noticed.
func (p *Process) findLateRanks() { p.ranks.lookBelow(p.lateOrphans()) }

// lateOrphans are those that the command's end has brought us. One that came earlier is no rank, though it may have a
// rank's environment: a daemon that a rank has started. Neither is one that looks like a rank that we know: it came to
// us because that one has ended. Only a killed command may have been about to start a rank anew that had ended before.
func (p *Process) lateOrphans() []int {
	var since time.Time
	if p.wasKilled() {
		since = p.exit.Ended
	}
	var late []int
	for _, orphan := range p.reap() {
		is, isRank := p.ranks.identify(orphan.pid)
		if p.adopted[orphan.pid] || isRank && p.ranks.had(is, since) {
			continue
		}
		late = append(late, orphan.pid)
	}
	return late
}

// expecting tells whether a process may yet become a rank: the command was killed when it had forked it, and it has not
// executed its own program so far.
func (p *Process) expecting() (found bool) {
	if !p.wasKilled() {
		return false
	}
	p.tree.below(p.lateOrphans(), func(pid int) bool {
		unborn := p.unborn(pid)
		found = found || unborn
		return unborn
	})
	return found
}

// unborn tells whether a process was forked not long ago and has not executed anything since, or is at it, or is a rank
// that we do not know: when we look for ranks it may be at it again, as setsid(1) and env(1) are.
func (p *Process) unborn(pid int) bool {
	q, ok := readProcess(pid)
	if !ok || q.ended() || q.age() > p.options.becoming {
		return false
	}
	if q.forked() {
		return true
	}
	if environment, err := readEnvironment(pid); err != nil || len(environment) == 0 {
		return err == nil
	}
	_, isRank := p.ranks.identify(pid)
	return isRank && p.ranks.known(q) == nil
}

// killAll ends the command and all that is below it, at once. What is started meanwhile, and what does not die, sweep
// finds.
func (p *Process) killAll() {
	p.exit.LastResort = true
	for _, pid := range p.Tree() { // parents first, so that a launcher does not answer the death of its ranks
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// pause waits until something may have changed. It returns false when the limit has come, or when somebody who wants us
// to end has lost patience.
func (p *Process) pause(limit <-chan time.Time) bool {
	tick := time.NewTimer(watching)
	defer tick.Stop()
	for {
		select {
		case <-limit:
			return false
		case s, open := <-p.signals:
			if !open {
				p.signals = nil
			}
			if isRequestToEnd(s) {
				return false
			}
		case <-p.changed:
			return true
		case <-tick.C:
			return true
		}
	}
}

// end sends a signal to each of the doomed that has not had it: to a rank's whole process group at once, as torchrun
// does, so that its DataLoader workers do not see their parent die first.
func (p *Process) end(doomed []process, s unix.Signal, fate string, met *fates) {
	groups := p.doomedGroups()
	done := map[int]bool{}
	for _, q := range doomed {
		f := met.of(q, p.ranks)
		if f.Action == fate {
			q.wake()
			continue
		}
		to := q.pid
		if groups[q.group] {
			to = -q.group
		}
		if !done[to] {
			done[to] = unix.Kill(to, s) == nil
		}
		had := done[to]
		// it left the group just before
		if now, ok := readProcess(q.pid); ok && now.start == q.start && now.group != q.group {
			had = unix.Kill(q.pid, s) == nil || had
		}
		q.wake()
		if had {
			f.Action = fate
		} else {
			f.Action = Gone
		}
	}
}

// wake continues a process that is stopped: it takes no SIGTERM before.
func (p process) wake() {
	if p.state == 'T' {
		_ = unix.Kill(p.pid, unix.SIGCONT)
	}
}
