package oom

import (
	"regexp"
	"strings"
	"sync"
)

// inquest is what the rules ask about: the message that killed the run, the numbers derived from it, and how processes
// ended.
type inquest struct {
	log   *Log
	facts Facts
	// msg is the first message that was not caught; nil: there is none.
	msg *Message
	// caught are messages after which the run went on.
	caught int
	stage  string
	// fromProbe says that stage was seen by the probe and not read out of a traceback.
	fromProbe bool
	deaths    []Exit
	victims   map[int]bool // of the agent's SIGKILL
	root      *Exit
	// outside is device memory that neither this process nor free memory explains, others what the listed processes
	// hold; Unknown if not derivable.
	outside, others int64
}

func newInquest(log *Log, facts Facts) *inquest {
	q := &inquest{log: log, facts: facts, stage: facts.Stage, fromProbe: facts.Stage != ""}
	q.deaths = append(q.deaths, log.Exits...)
	for _, d := range facts.Deaths {
		if d.ExitCode != 0 && !q.hasDeath(d) {
			q.deaths = append(q.deaths, Exit{RankDeath: d, LocalRank: -1, PID: -1, Launcher: "oomguard"})
		}
	}
	q.victims = agentVictims(log)
	q.root = q.findRoot()
	q.pickMessage()
	if q.stage == "" && q.msg != nil {
		q.stage = q.msg.Traceback.Stage
	}
	if d := q.rootDeath(); q.stage == "" && d != nil {
		q.stage = d.Stage
	}
	q.outside, q.others = Unknown, 0
	if q.msg != nil {
		q.outside, q.others = outsideBytes(*q.msg), max(listedBytes(*q.msg), facts.Run.strangerTotal())
	}
	return q
}

func (q *inquest) hasDeath(d RankDeath) bool {
	for _, e := range q.deaths {
		if e.ExitCode == d.ExitCode && (e.Rank == d.Rank || e.Rank < 0) {
			return true
		}
	}
	return false
}

// pickMessage takes the first message that was not caught: of the rank that the probe names if it has one, else the
// earliest, and one with sizes before a bare warning.
func (q *inquest) pickMessage() {
	better := func(m *Message) bool {
		if q.msg == nil {
			return true
		}
		ofRank := q.facts.Rank >= 0 && m.Rank == q.facts.Rank && q.msg.Rank != q.facts.Rank
		return ofRank || earlier(m, q.msg) ||
			(q.msg.Form == FormWarning || q.msg.Form == FormAssert) && m.Form == FormCUDA
	}
	for i := range q.log.Messages {
		m := &q.log.Messages[i]
		if q.wasCaught(m) {
			q.caught++
		} else if better(m) {
			q.msg = m
		}
	}
}

// wasCaught: the run ended well; or the message is only a log line or a warning and the run died of something else
// later.
func (q *inquest) wasCaught(m *Message) bool {
	if q.facts.ExitCode == 0 {
		return true
	}
	return (m.Logged || m.Form == FormWarning) && q.diedOfOther(m) || q.wentOn(m)
}

// diedOfOther: an exception that is a cause in its own right stands behind the message in the same text.
func (q *inquest) diedOfOther(m *Message) bool {
	if m.Line == 0 { // a probe told of it: it stands in no text
		return q.log.Exception.Line > 0
	}
	p := q.log.partOf(m.Line)
	return p != nil && p.exception.Line > m.Line
}

// outsideBytes is total - free - what this process holds. The process's own figure includes its context and NCCL; where
// the driver does not give it, what PyTorch reserved is the next best, and context and NCCL count as outside.
func outsideBytes(m Message) int64 {
	if m.TotalBytes < 0 || m.FreeBytes < 0 {
		return Unknown
	}
	own := m.ProcessBytes
	if own < 0 {
		own = m.ReservedBytes
	}
	if own < 0 {
		return Unknown
	}
	return max(0, m.TotalBytes-m.FreeBytes-own)
}

func listedBytes(m Message) int64 {
	var sum int64
	for _, o := range m.OtherProcesses {
		sum += max(0, o.Bytes)
	}
	return sum
}

// Thresholds of the number tests. contextBytes is the upper end of what a CUDA context and NCCL take (0.3 to 1.5 GiB in
// the logs of testdata). outsideShare keeps the job's own sibling contexts (case 031: 7 % of the card) from being
// called strangers. holesShare is the least share of the card that must lie in unusable cache: below 3 % it is the
// ordinary rest of 2 and 20 MiB segments (cases 033, 034, 043). hugeShare is a request that no small change makes fit.
// poolShare is the least that cudaMallocAsync must hold unused (case 047: 19 %, another cause; a public thread: 25 %).
const (
	contextBytes    = 3 << 29
	outsideShare    = 0.15
	listedShare     = 0.10
	holesShare      = 0.03
	plainHolesShare = 0.05
	hugeShare       = 0.25
	poolShare       = 0.20
	bogusTimes      = 100 // requests above 100 cards come from garbage (cases 129, 277)
)

func (q *inquest) cuda() bool {
	return q.msg != nil && (q.msg.Form == FormCUDA || q.msg.Form == FormAsync || q.msg.Form == FormWarning ||
		q.msg.Form == FormServing)
}

func (q *inquest) share(bytes int64) float64 {
	if q.msg == nil || q.msg.TotalBytes <= 0 || bytes < 0 {
		return 0
	}
	return float64(bytes) / float64(q.msg.TotalBytes)
}

// otherProcess: memory outside this process is a large part of the card. A fraction limit or a request beyond the card
// explain themselves.
func (q *inquest) otherProcess() bool {
	if q.msg == nil || q.limited() {
		return false
	}
	listed := q.others >= contextBytes && q.share(q.others) >= listedShare
	return listed || q.outside >= contextBytes && q.share(q.outside) >= outsideShare
}

// holes: what is reserved and unused would hold the request.
func (q *inquest) holes(share float64) bool {
	m := q.msg
	return m != nil && m.TriedBytes > 0 && m.ReservedUnallocatedBytes >= m.TriedBytes &&
		q.share(m.ReservedUnallocatedBytes) >= share
}

// asyncHoles: cudaMallocAsync prints no cache; what is neither free nor allocated is its pool, as long as nothing else
// holds it.
func (q *inquest) asyncHoles() bool {
	m := q.msg
	if m == nil || m.Form != FormAsync || m.TriedBytes <= 0 || m.AllocatedBytes < 0 || m.TotalBytes < 0 ||
		m.FreeBytes < 0 {
		return false
	}
	held := m.TotalBytes - m.FreeBytes - m.AllocatedBytes
	return held >= contextBytes && q.share(held) >= poolShare
}

// limited: a memory fraction, not the card, was the limit.
func (q *inquest) limited() bool {
	m := q.msg
	return m != nil && m.AllowedBytes >= 0 && m.TotalBytes > 0 && m.AllowedBytes < m.TotalBytes &&
		m.FreeBytes >= m.TriedBytes
}

// unexplained: far more was free than was asked for, and no limit was set.
func (q *inquest) unexplained() bool {
	m := q.msg
	return m != nil && m.TriedBytes >= 0 && m.FreeBytes > 2*m.TriedBytes && q.share(m.FreeBytes) > 0.05 && !q.limited()
}

func (q *inquest) bogus() bool {
	m := q.msg
	return m != nil && (m.BogusSize || m.TotalBytes > 0 && m.TriedBytes/bogusTimes > m.TotalBytes)
}

func (q *inquest) logits() bool { return q.msg != nil && q.msg.Traceback.Logits }

func (q *inquest) expandableOn() bool {
	return strings.Contains(strings.ReplaceAll(q.facts.AllocConf, " ", ""), "expandable_segments:True")
}

// before tells whether a sign stands before the message, so that it is the earlier cause.
func (q *inquest) before(s *Sign) bool {
	return s != nil && (q.msg == nil || q.log.after(q.msg.Line, s.Line))
}

// growth returns the series that rose through the whole run.
func (q *inquest) growth() (word string, first, last float64, ok bool) {
	for _, w := range growthWords {
		if s := q.log.Growth[w]; s != nil {
			if f, l, grows := s.grows(); grows {
				return w, f, l, true
			}
		}
	}
	return "", 0, 0, false
}

// grewShare is the least rise over a log without any end that is worth calling a leak: the warm-up of a run is smaller.
const grewShare = 0.25

// grewOnly: the log shows nothing but memory in use that rises from its first to its last quarter.
func (q *inquest) grewOnly() bool {
	if q.msg != nil || q.caught > 0 || len(q.log.Signs) > 0 || len(q.deaths) > 0 || q.log.Exception.Line > 0 ||
		q.facts.Run != nil {
		return false
	}
	_, first, last, ok := q.growth()
	return ok && last >= (1+grewShare)*first
}

// rootDeath is the end that caused the others: the one torchrun names, else the first that is not an echo.
func (q *inquest) rootDeath() *Exit { return q.root }

func (q *inquest) findRoot() *Exit {
	var first *Exit
	for i := range q.deaths {
		d := &q.deaths[i]
		if d.ExitCode == 0 || q.echoed(*d) {
			continue
		}
		if d.Root {
			return d
		}
		if first == nil {
			first = d
		}
	}
	return first
}

var agentVictim = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`shutdown process (\d+) via`) })

// agentVictims are the processes that the agent says it killed.
func agentVictims(log *Log) map[int]bool {
	victims := map[int]bool{}
	for _, s := range log.Signs {
		if s.Kind != SignAgentKill {
			continue
		}
		if m := agentVictim().FindStringSubmatch(s.Text); m != nil {
			victims[firstInt(m[1:])] = true
		}
	}
	return victims
}

// echoed: the agent stops the other ranks with SIGTERM, and with SIGKILL those that do not stop.
func (q *inquest) echoed(e Exit) bool {
	return e.ExitCode == -15 || e.ExitCode == -9 && q.victims[e.PID]
}

// killed returns the process that died of SIGKILL and was not killed by the agent.
func (q *inquest) killed() *Exit {
	if d := q.rootDeath(); d != nil && (d.ExitCode == -9 || d.ExitCode == 137 || d.ExitCode == 247) {
		return d
	}
	return nil
}

func (q *inquest) bus() bool {
	d := q.rootDeath()
	return d != nil && (d.ExitCode == -7 || d.ExitCode == 135)
}
