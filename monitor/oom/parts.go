package oom

import (
	"fmt"
	"io"
	"regexp"
	"sort"
	"strings"
	"sync"
	"time"
)

// part is one text of a log that was read from several, such as one file a rank. Lines of a Log are counted through all
// its parts, so that every line has one number inside; what people see is the number inside its file. Only lines of one
// part have an order.
type part struct {
	name         string
	first, lines int
	// exception is the last one of this part that is a cause in its own right; stepsAfter counts the steps beyond that
	// of the part's last message, which stands at line message, and skipped says that the program left a batch out then
	// and lived on.
	exception           Sign
	message, stepsAfter int
	skipped             bool
}

// Source is one text of a log.
type Source struct {
	Name string // as it is shown to people
	Rank int    // the rank that wrote it, as its path tells; -1 unknown or of several ranks
	Text io.Reader
}

// Add reads a further text into the log, as Scan reads the first. The error is that of its reader, with the name of the
// text; what was read before it stays.
func (l *Log) Add(source Source) error {
	if l.buffer == nil {
		l.buffer = make([]byte, 0, bufferBytes)
	}
	more, err := scanWith(source.Text, l.buffer)
	if err != nil {
		return fmt.Errorf("%s: %w", source.Name, err)
	}
	more.parts[0].name = source.Name
	more.shift(l.Lines, source.Rank)
	l.merge(more)
	return nil
}

// shift moves all line numbers behind those of earlier parts, and names the rank of what names none.
func (l *Log) shift(lines, rank int) {
	named := func(r *int) {
		if *r < 0 {
			*r = rank
		}
	}
	for i := range l.Messages {
		m := &l.Messages[i]
		m.Line, m.lastLine = m.Line+lines, m.lastLine+lines
		named(&m.Rank)
	}
	for i := range l.Signs {
		l.Signs[i].Line += lines
		named(&l.Signs[i].Rank)
	}
	for i := range l.Exits {
		l.Exits[i].Line += lines
	}
	for _, e := range []*Sign{&l.Exception, &l.firstException} {
		if e.Line > 0 {
			e.Line += lines
		}
	}
	p := &l.parts[0]
	p.first += lines
	if p.exception.Line > 0 {
		p.exception.Line += lines
	}
	if p.message > 0 {
		p.message += lines
	}
}

// merge takes over what another part holds. What a launcher repeats in its own log counts once.
func (l *Log) merge(more *Log) {
	for _, m := range more.Messages {
		if !l.repeats(m) {
			l.addMessage(m)
		}
	}
	for _, s := range more.Signs {
		l.addSign(s)
	}
	for _, e := range more.Exits {
		l.addExit(e)
	}
	if more.Exception.Line > 0 {
		l.Exception = more.Exception
	}
	if l.firstException.Line == 0 {
		l.firstException = more.firstException
	}
	for word, series := range more.Growth {
		if old := l.Growth[word]; old == nil || len(more.Messages) > 0 {
			l.Growth[word] = series
		}
	}
	for name, n := range more.Clues {
		if l.Clues == nil {
			l.Clues = map[string]int{}
		}
		l.Clues[name] += n
	}
	l.LastStep = max(l.LastStep, more.LastStep)
	l.Bytes += more.Bytes
	l.Lines += more.Lines
	l.parts = append(l.parts, more.parts...)
	l.trim()
}

// NewLog returns a log of no text, to which Add adds.
func NewLog() *Log { return &Log{Growth: map[string]*Series{}} }

// partOf returns the part in which a line stands, nil for a line of no text.
func (l *Log) partOf(line int) *part {
	i := sort.Search(len(l.parts), func(i int) bool { return l.parts[i].first > line }) - 1
	if line <= 0 || i < 0 {
		return nil
	}
	return &l.parts[i]
}

// after tells whether a line stands behind another in the same text.
func (l *Log) after(line, earlier int) bool {
	return line > earlier && l.partOf(line) == l.partOf(earlier)
}

// where names a line for people: its file too, when there are several.
func (l *Log) where(line int) string {
	p := l.partOf(line)
	switch {
	case p == nil:
		return fmt.Sprintf("line %d", line)
	case len(l.parts) == 1:
		return fmt.Sprintf("line %d", line-p.first+1)
	}
	return fmt.Sprintf("%s, line %d", p.name, line-p.first+1)
}

// localMessages are the messages with the file and the line in it.
func (l *Log) localMessages() []Message {
	list := make([]Message, len(l.Messages))
	for i, m := range l.Messages {
		if p := l.partOf(m.Line); p != nil {
			m.Line -= p.first - 1
			if len(l.parts) > 1 {
				m.File = p.name
			}
		}
		list[i] = m
	}
	return list
}

// earlier tells whether a message was printed before another, as far as both carry a time.
func earlier(a, b *Message) bool {
	return !a.when.IsZero() && !b.when.IsZero() && a.zone == b.zone && a.when.Before(b.when)
}

var stamp = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(\d{4}-\d\d-\d\d)[T _](\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)( UTC|Z|[+-]\d\d:?\d\d)?`)
})

// timeIn reads the date and time that a logger puts before a line, to the second or finer, and the name of its zone, ""
// where it has none.
func timeIn(line string) (when time.Time, zone string) {
	m := stamp().FindStringSubmatch(line)
	if m == nil {
		return time.Time{}, ""
	}
	when, err := time.Parse("2006-01-02 15:04:05", m[1]+" "+strings.Replace(m[2], ",", ".", 1))
	if err != nil {
		return time.Time{}, ""
	}
	return when, m[3]
}
