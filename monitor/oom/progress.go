package oom

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A message after which the run went on was caught. What shows it is progress after the message, but only where the
// order of the lines can be trusted: Python writes bars and log lines at once, while what print writes to a file waits
// in a buffer and may come out after the traceback of the exception that ended the process.

type progressPatterns struct{ bar, logged, step, skip *regexp.Regexp }

var progress = sync.OnceValue(func() progressPatterns {
	return progressPatterns{
		bar:    regexp.MustCompile(`(\d+)/\d+ \[\d+:\d\d`),
		logged: regexp.MustCompile(`\d\d:\d\d:\d\d.*\b(?i:step|iter|iteration|global_step|batch)[ =:\[/]*(\d+)`),
		step:   regexp.MustCompile(`\b(?i:step|iter|iteration|global_step|batch)[ =:\[/]*(\d+)`),
		// fairseq, OpenNMT
		skip: regexp.MustCompile(`(?i)\bskip(?:ping|ped)? (?:this |the )?batch|\bbatch (?:was )?(?:skipped|removed)`),
	}
})

const (
	// stepsThatGoOn is how many new steps after a message show that it was caught: the other ranks of a job may finish
	// one or two more.
	stepsThatGoOn = 3
	// progressReach is how much of the end of a log is searched for them.
	progressReach = 256 << 10
)

// stepIn returns the step that a line names, -1 none. Printed lines count only where their order does not matter.
func stepIn(line string, printed bool) int {
	var list []*regexp.Regexp
	if strings.Contains(line, " [") {
		list = append(list, progress().bar)
	}
	if strings.Count(line, ":") > 1 {
		list = append(list, progress().logged)
	}
	if printed {
		list = append(list, progress().step)
	}
	for _, pattern := range list {
		if m := pattern.FindStringSubmatch(line); m != nil {
			return firstInt(m[1:])
		}
	}
	return -1
}

// stepBefore returns the last step that stands above a message, -1 none.
func stepBefore(p place, printed bool) int {
	if n := stepIn(string(p.buf[p.start:p.at]), printed); n >= 0 {
		return n
	}
	read := 0
	for l := range p.behind() {
		if n := l.step(printed); n >= 0 {
			return n
		}
		if read++; read == stepReach {
			break
		}
	}
	return -1
}

// stepsAfter counts the different steps beyond the one at the message that the text names. Lines of Ray's workers do
// not count: they are of many runs.
func stepsAfter(text []byte, step int, printed bool) int {
	text = text[max(0, len(text)-progressReach):]
	seen := map[int]bool{}
	for len(text) > 0 && len(seen) < stepsThatGoOn {
		i := bytes.IndexAny(text, "\r\n")
		if i < 0 {
			i = len(text)
		}
		if line := string(clip(text[:i])); !strings.HasPrefix(line, "(") {
			if n := stepIn(line, printed); n > step {
				seen[n] = true
			}
		}
		text = text[min(i+1, len(text)):]
	}
	return len(seen)
}

// skipsBatch tells whether the program says right behind a message that it leaves the batch out, and no traceback
// follows.
func skipsBatch(behind []byte) bool {
	return progress().skip.Match(behind[:min(len(behind), segmentBytes)]) &&
		!bytes.Contains(behind, []byte("Traceback (most recent call last)"))
}

// wentOn tells whether training passed a message: new steps after it, or a trainer's word that it is done, and no death
// after that.
func (q *inquest) wentOn(m *Message) bool {
	p := q.log.partOf(m.lastLine)
	if p == nil {
		return false
	}
	if p.stepsAfter >= stepsThatGoOn && m.lastLine <= p.message {
		return true
	}
	if p.skipped && m.lastLine <= p.message && p.exception.Line <= p.message && !q.diedBehind(p.message) {
		return true
	}
	done := 0
	for _, s := range q.log.Signs {
		if s.Kind == SignFinished && q.log.after(s.Line, m.lastLine) {
			done = s.Line
		}
	}
	return done > 0 && q.facts.ExitCode <= 0 && p.exception.Line <= done && !q.diedBehind(done)
}

// diedBehind tells whether a launcher tells of a death behind a line.
func (q *inquest) diedBehind(line int) bool {
	return slices.ContainsFunc(q.log.Exits, func(e Exit) bool { return e.Line > line && e.ExitCode != 0 })
}

// deviceOf reads the device that NCCL puts before its lines: host:pid:thread [device].
func deviceOf(line string) int {
	if m := ncclDevice().FindStringSubmatch(line); m != nil {
		n, _ := strconv.Atoi(m[1])
		return n
	}
	return -1
}

var ncclDevice = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`:\d+:\d+ \[(\d{1,4})\]`) })
