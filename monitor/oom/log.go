package oom

import "slices"

// Bounds on what is kept of a log of any size: the first and the last of each kind, so that both the root cause and the
// end of the run survive.
const (
	keepMessages = 256
	keepSigns    = 512
	keepExits    = 4096 // one line a rank of a large job
	keepSamples  = 256
)

// Log is what Scan found in a log; Diagnose judges it.
type Log struct {
	// Messages are the out-of-memory messages of GPU allocators in their order; equal ones (a message printed again by
	// a launcher) once.
	Messages []Message
	// Signs are the other lines that speak for or against a shortage of memory.
	Signs []Sign
	// Exits are process ends told by torchrun, DeepSpeed, accelerate, mp.spawn, MPI, Slurm and Kubernetes.
	Exits []Exit
	// Exception is the last Python exception that is not a launcher's echo and not an out-of-memory message; Line 0:
	// none.
	Exception      Sign
	firstException Sign
	// Growth are figures of used GPU memory that the training printed while it ran, one series a spelling.
	Growth map[string]*Series
	// LastStep is the last "step/total" above 1000 that was printed before the first message, 0 none.
	LastStep int
	// Clues count the lines that give a framework or a platform away, by its name.
	Clues map[string]int
	// Lines and Bytes are the size of the text.
	Lines int
	Bytes int64

	parts  []part
	buffer []byte // for the next Add
	exitAt map[exitKey]int
}

// Sign is one line that speaks for or against a shortage of memory.
type Sign struct {
	Kind SignKind
	Rank int // -1 unknown
	GPU  int // -1 unknown
	PID  int // -1 unknown
	Line int // 1-based
	Text string
}

// Exit is the end of one process as a launcher told it.
type Exit struct {
	RankDeath
	LocalRank int // -1 unknown
	PID       int // -1 unknown
	Root      bool
	Launcher  string
	Line      int
}

// Series is a thinned series of memory figures in the unit in which they were printed.
type Series struct {
	Values []float64
	// stride is the number of printed figures that one kept value stands for.
	stride, seen int
}

func (s *Series) add(v float64) {
	if s.stride == 0 {
		s.stride = 1
	}
	if s.seen++; s.seen%s.stride != 0 {
		return
	}
	s.Values = append(s.Values, v)
	if len(s.Values) < keepSamples {
		return
	}
	half := s.Values[:0]
	for i := 1; i < len(s.Values); i += 2 {
		half = append(half, s.Values[i])
	}
	s.Values, s.stride = half, s.stride*2
}

// Growth thresholds, from the labelled logs of testdata: a running maximum that levels off is no growth, so every
// quarter of the run must end higher than the one before, and the whole by more than the scatter of variable batch
// sizes.
const (
	growthLeastSamples = 4
	growthLeastShare   = 0.10
)

// grows tells whether memory rose through the whole series, and from what to what.
func (s *Series) grows() (first, last float64, ok bool) {
	n := len(s.Values)
	if n < growthLeastSamples {
		return 0, 0, false
	}
	first, last = s.Values[0], s.Values[n-1]
	if first <= 0 || last < first*(1+growthLeastShare) {
		return first, last, false
	}
	before := 0.0
	for q := range 4 {
		peak := maxOf(s.Values[q*n/4 : (q+1)*n/4])
		if peak <= before {
			return first, last, false
		}
		before = peak
	}
	return first, last, true
}

func maxOf(values []float64) float64 {
	top := values[0]
	for _, v := range values {
		top = max(top, v)
	}
	return top
}

// repeats tells whether m is a message already taken, printed once more by a launcher or a logger, and adds what it
// knows more.
func (l *Log) repeats(m Message) bool {
	for i := range l.Messages {
		old := &l.Messages[i]
		if old.sameNumbers(m) && (old.Rank == m.Rank || old.Rank < 0 || m.Rank < 0) {
			old.Rank = max(old.Rank, m.Rank)
			if old.when.IsZero() {
				old.when, old.zone = m.when, m.zone
			}
			old.Logged, old.lastLine = old.Logged && m.Logged, m.Line
			return true
		}
	}
	return false
}

func (l *Log) addSign(s Sign) { l.Signs = keepEnds(l.Signs, s, keepSigns) }

func (l *Log) addMessage(m Message) { l.Messages = keepEnds(l.Messages, m, keepMessages) }

// exitKey is by what an exit is known again.
type exitKey struct{ pid, code int }

// addExit joins what the agent's line and its table say of one process.
func (l *Log) addExit(e Exit) {
	key := exitKey{e.PID, e.ExitCode}
	if i, ok := l.exitAt[key]; ok && e.PID >= 0 {
		old := &l.Exits[i]
		old.Rank, old.LocalRank = max(old.Rank, e.Rank), max(old.LocalRank, e.LocalRank)
		old.Root = old.Root || e.Root
		return
	}
	n := len(l.Exits)
	l.Exits = keepEnds(l.Exits, e, keepExits)
	if l.exitAt == nil || len(l.Exits) <= n { // some were dropped
		l.indexExits()
	}
	l.exitAt[key] = len(l.Exits) - 1
}

func (l *Log) indexExits() {
	l.exitAt = map[exitKey]int{}
	for i, e := range slices.Backward(l.Exits) {
		l.exitAt[exitKey{e.PID, e.ExitCode}] = i
	}
}

// keepEnds appends. What lies in the middle is dropped now and then, so that one more costs no more with many than with
// few.
func keepEnds[T any](list []T, item T, most int) []T {
	if len(list) >= 2*most {
		list = ends(list, most)
	}
	return append(list, item)
}

// ends returns the first and the last of a list, most of them together.
func ends[T any](list []T, most int) []T {
	if len(list) <= most {
		return list
	}
	return slices.Delete(list, most/2, len(list)-(most-most/2))
}

// trim drops what is beyond the bounds.
func (l *Log) trim() {
	l.Messages, l.Signs, l.Exits = ends(l.Messages, keepMessages), ends(l.Signs, keepSigns), ends(l.Exits, keepExits)
	l.indexExits()
}

// signs returns the first sign of any of these kinds.
func (l *Log) sign(kinds ...SignKind) *Sign {
	for i := range l.Signs {
		if slices.Contains(kinds, l.Signs[i].Kind) {
			return &l.Signs[i]
		}
	}
	return nil
}
