package oom

import (
	"bytes"
	"fmt"
	"io"
	"iter"
)

// Sizes of the reader's only buffer.
const (
	bufferBytes = 1 << 20
	// behindBytes stay in the buffer before the text being read: a traceback stands before its message.
	behindBytes = 32 << 10
	// aheadBytes are read before a word is judged: a message with the list of a hundred processes, a traceback after
	// it.
	aheadBytes = 64 << 10
	// segmentBytes bound the part of one line that is looked at on either side of a word; lines may be of any length.
	segmentBytes = 1 << 10
)

// Scan reads a log of any length in bounded memory and returns what it holds of out-of-memory messages and of ends of
// processes. Invalid UTF-8, progress bars, ANSI colours, prefixes of launchers and hard wraps are taken as they come.
// The error is that of r.
func Scan(r io.Reader) (*Log, error) {
	size := bufferBytes
	// a text in memory: one byte more than it has, so that its end is seen
	if text, ok := r.(interface{ Len() int }); ok {
		size = min(size, text.Len()+1)
	}
	return scanWith(r, make([]byte, 0, size))
}

// scanWith is Scan with a buffer to read into, which the next text may use again.
func scanWith(r io.Reader, buffer []byte) (*Log, error) {
	shared := sharedVocabulary()
	s := &scanner{
		log:     &Log{Growth: map[string]*Series{}},
		finder:  shared.finder,
		readers: shared.readers,
		buf:     buffer[:0],
		line:    1,
		hits:    newAllowance(),
		looks:   newAllowance(),
	}
	if err := s.run(r); err != nil {
		return nil, fmt.Errorf("read log after %d bytes: %w", s.log.Bytes, err)
	}
	s.log.trim()
	return s.log, nil
}

type scanner struct {
	log     *Log
	finder  *wordFinder
	readers []reader
	buf     []byte
	counted int // the newlines of buf[:counted] are in line
	line    int // 1-based number of the line at counted
	read    int // buf[:read] belongs to messages already taken
	lines   lineWindow
	hits    allowance // for words that are looked at
	looks   allowance // for what stands around messages
	last    byte
	message lastMessage
}

// lastMessage is the latest message: what comes after it tells whether it was caught.
type lastMessage struct {
	line, step int
	printed    bool  // printed steps count too
	end        int64 // offset in the text behind it, 0: there was none
}

// reader takes what stands at a watched word, given by its offset in the buffer.
type reader func(s *scanner, at int)

func (s *scanner) run(r io.Reader) error {
	for from, eof := 0, false; !eof; {
		var err error
		if eof, err = s.fill(r); err != nil {
			return err
		}
		limit := len(s.buf)
		if !eof {
			limit -= aheadBytes
		}
		from = s.search(from, limit)
		if eof {
			s.finish()
			break
		}
		from = s.discard(from)
	}
	return nil
}

// finish notes what only the end of the text shows.
func (s *scanner) finish() {
	s.log.Lines = s.line
	if s.last == '\n' || s.log.Bytes == 0 {
		s.log.Lines--
	}
	p := part{first: 1, lines: s.log.Lines, exception: s.log.Exception, message: s.message.line}
	if s.message.end > 0 {
		behind := s.buf[max(0, int64(len(s.buf))-(s.log.Bytes-s.message.end)):]
		p.stepsAfter, p.skipped = stepsAfter(behind, s.message.step, s.message.printed), skipsBatch(behind)
	}
	s.log.parts = []part{p}
}

// fill reads until the buffer is full or the text ends.
func (s *scanner) fill(r io.Reader) (eof bool, err error) {
	n, err := io.ReadFull(r, s.buf[len(s.buf):cap(s.buf)])
	s.buf = s.buf[:len(s.buf)+n]
	s.log.Bytes += int64(n)
	if n > 0 {
		s.last = s.buf[len(s.buf)-1]
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return true, nil
	}
	return false, err
}

// search hands every watched word that starts in buf[from:limit] to its reader and returns where to go on.
func (s *scanner) search(from, limit int) int {
	for from < limit {
		at, word := s.finder.next(s.buf, from)
		if at < 0 || at >= limit {
			break
		}
		from = at + 1
		if at < s.read {
			continue
		}
		s.readers[word](s, at)
		from = max(from, s.read)
	}
	s.count(limit)
	return max(from, limit)
}

func (s *scanner) count(to int) {
	if to > s.counted {
		s.line += bytes.Count(s.buf[s.counted:to], []byte{'\n'})
		s.counted = to
	}
}

// discard drops what lies further back than a traceback can reach, and returns where from has moved to.
func (s *scanner) discard(from int) int {
	drop := max(0, min(from, s.counted)-behindBytes)
	s.buf = s.buf[:copy(s.buf, s.buf[drop:])]
	s.counted -= drop
	s.read = max(0, s.read-drop)
	return from - drop
}

// place is a watched word in the buffer: buf[start:end] is the part of the line around it, between carriage returns and
// newlines.
type place struct {
	buf            []byte
	at, start, end int
	line           int
	from           *scanner
}

// placeAt finds the line around an offset. Offsets may go back only behind what was counted by way of placeBefore.
func (s *scanner) placeAt(at int) place {
	s.count(at)
	p := place{buf: s.buf, at: at, line: s.line, from: s}
	p.start = max(0, at-segmentBytes)
	for _, end := range []byte{'\n', '\r'} {
		p.start += bytes.LastIndexByte(s.buf[p.start:at], end) + 1
	}
	p.end = min(len(s.buf), at+segmentBytes)
	for _, end := range []byte{'\n', '\r'} {
		if i := bytes.IndexByte(s.buf[at:p.end], end); i >= 0 {
			p.end = at + i
		}
	}
	return p
}

// segment is the text of the line around the word.
func (p place) segment() text { return clean(p.buf[p.start:p.end]) }

// lead is what stands before the word, without prefixes.
func (p place) lead() text { return clean(p.buf[p.start:p.at]) }

// behind yields the lines before the line of the word, the nearest first.
func (p place) behind() iter.Seq[*line] {
	b := p.from.buffer()
	return p.from.lines.back(b, p.low(), b.from+int64(p.start))
}

// ahead returns the first n lines from an offset in the buffer on.
func (p place) ahead(at, n int) []*line {
	b := p.from.buffer()
	return p.from.lines.ahead(b, p.low(), b.from+int64(at), b.from+int64(min(len(p.buf), at+behindBytes/2)), n)
}

// low is how far back a look goes, as an offset in the whole text.
func (p place) low() int64 { return p.from.buffer().from + int64(max(0, p.start-behindBytes)) }

// affords tells whether a look around the place at so many bytes is still within what the text may cost.
func (p place) affords(bytes int) bool {
	return p.from.looks.pays(p.from.buffer().from+int64(p.at), int64(bytes))
}

// buffer is what of the text is in memory.
func (s *scanner) buffer() textBuffer { return textBuffer{s.buf, s.log.Bytes - int64(len(s.buf))} }
