package oom

import (
	"bytes"
	"iter"
	"slices"
	"sort"
	"strings"
)

// line is a line near a message. Many messages may look at the same line, so what is asked of it is worked out once.
type line struct {
	text
	frame answer[bool]
	code  answer[string]
	own   answer[string]
	steps [2]answer[int]
}

// answer is what was worked out before, if it was.
type answer[T any] struct {
	value T
	known bool
}

func (a *answer[T]) or(work func() T) T {
	if !a.known {
		a.value, a.known = work(), true
	}
	return a.value
}

func newLine(raw []byte) *line { return &line{text: clean(clip(raw))} }

func (l *line) isFrame() bool {
	return l.frame.or(func() bool { return frame().line.isIn(l.string) })
}

// squeezedCode is the line as the rules for stages read it.
func (l *line) squeezedCode() string {
	return l.code.or(func() string { return squeezeCode(l.string) })
}

// ownFrame is the frame of the project's own code that the line names, "" none.
func (l *line) ownFrame() string {
	return l.own.or(func() string {
		m := frame().python.FindStringSubmatch(l.string)
		if m == nil || strings.Contains(m[1], "-packages") || frame().launcher.MatchString(l.string) {
			return ""
		}
		return m[1] + ":" + m[2] + " in " + m[3]
	})
}

// step is the step that the line names, -1 none.
func (l *line) step(printed bool) int {
	kind := 0
	if printed {
		kind = 1
	}
	return l.steps[kind].or(func() int { return stepIn(l.string, printed) })
}

// lineWindow holds the lines of the buffer as far as messages asked for them: each byte is split into lines once.
type lineWindow struct {
	list []span
	open int64 // where the line behind the last of list begins
	seen int64 // no line ends between open and here
}

// span is the place of a line in the whole text, and the line once somebody asked for it.
type span struct {
	from, to int64
	line     *line
}

// reach splits the text into lines up to an offset. Lines before low are not needed any more.
func (w *lineWindow) reach(b textBuffer, low, to int64) {
	if w.seen < low {
		w.list, w.open, w.seen = w.list[:0], low, low
	}
	if gone := w.index(low); gone > len(w.list)/2 {
		w.list = slices.Delete(w.list, 0, gone)
	}
	for w.seen < to {
		i := bytes.IndexAny(b.between(w.seen, to), "\r\n")
		if i < 0 {
			w.seen = to
			return
		}
		end := w.seen + int64(i)
		w.list = append(w.list, span{from: w.open, to: end})
		w.open, w.seen = end+1, end+1
	}
}

// index is the number of lines that end before an offset.
func (w *lineWindow) index(offset int64) int {
	return sort.Search(len(w.list), func(i int) bool { return w.list[i].to >= offset })
}

// back yields the lines between low and end from the last to the first; the first and the last may be parts of lines.
func (w *lineWindow) back(b textBuffer, low, end int64) iter.Seq[*line] {
	return func(yield func(*line) bool) {
		w.reach(b, low, end)
		n, open := w.index(end), w.open
		if n < len(w.list) {
			open = w.list[n].from
		}
		if rest := b.between(max(low, open), end); len(rest) > 0 {
			if !yield(newLine(rest)) {
				return
			}
		} else {
			for n > 0 && w.list[n-1].from == w.list[n-1].to { // empty lines at the end
				n--
			}
		}
		for n--; n >= 0 && w.list[n].from >= low; n-- {
			if !yield(w.list[n].read(b)) {
				return
			}
		}
		if n >= 0 && w.list[n].to > low {
			yield(newLine(b.between(low, w.list[n].to)))
		}
	}
}

// ahead returns the first n lines from an offset on that are not empty, up to a limit.
func (w *lineWindow) ahead(b textBuffer, low, from, limit int64, n int) []*line {
	var lines []*line
	rest := b.between(from, limit)
	first := bytes.IndexAny(rest, "\r\n")
	if first < 0 {
		first = len(rest)
	}
	if first > 0 {
		lines = append(lines, newLine(rest[:first]))
	}
	for at := from + int64(first) + 1; at < limit && len(lines) < n; {
		const more = 512
		w.reach(b, low, min(limit, max(at, w.seen)+more))
		for i := w.index(at); i < len(w.list) && len(lines) < n; i++ {
			if l := &w.list[i]; l.from < l.to {
				lines = append(lines, l.read(b))
			}
			at = w.list[i].to + 1
		}
		if w.seen >= limit {
			if at < limit && len(lines) < n {
				lines = append(lines, newLine(b.between(at, limit)))
			}
			break
		}
	}
	return lines
}

func (s *span) read(b textBuffer) *line {
	if s.line == nil {
		s.line = newLine(b.between(s.from, s.to))
	}
	return s.line
}

// textBuffer is the part of a text that is in memory, and where it begins.
type textBuffer struct {
	bytes []byte
	from  int64
}

func (b textBuffer) between(from, to int64) []byte { return b.bytes[from-b.from : to-b.from] }

// linesBack yields the lines of raw from the last to the first; they are cleaned only as far as they are asked for.
func linesBack(raw []byte) iter.Seq[*line] {
	return func(yield func(*line) bool) {
		for raw = bytes.TrimRight(raw, "\r\n"); len(raw) > 0; {
			i := bytes.LastIndexAny(raw, "\r\n")
			if !yield(newLine(raw[i+1:])) {
				return
			}
			raw = raw[:max(i, 0)]
		}
	}
}

// allowance bounds what looking closer may cost, so that no text takes longer than its length explains: every byte that
// was read earns one, every look takes some. What real logs need is far below it.
type allowance struct{ left, at int64 }

// allowanceMost is what may be saved up.
const allowanceMost = 256 << 10

func newAllowance() allowance { return allowance{left: allowanceMost} }

// pays takes the cost of a look at an offset, if there is enough.
func (a *allowance) pays(at, cost int64) bool {
	a.left = min(allowanceMost, a.left+max(0, at-a.at))
	a.at = max(a.at, at)
	if a.left < cost {
		return false
	}
	a.left -= cost
	return true
}
