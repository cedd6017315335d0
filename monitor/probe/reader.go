package probe

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"oomguard/launcher/files"
)

const (
	filePattern = "rank-*.jsonl"
	// MaxFileBytes is twice what a rank's file may grow to (OOMGUARD_MAXBYTES), of which thinning leaves little.
	MaxFileBytes = 128 << 20
	// maxLineBytes is far above the longest line a probe writes: 12,000 characters of an exception, 6 bytes each when
	// escaped.
	maxLineBytes = 1 << 20
	// maxSequence is far above the number of lines in any file.
	maxSequence = 1 << 40
	// tooLong stands for a line that is longer than maxLineBytes; it is no event.
	tooLong = "too long"
)

// lines turns lines into events and counts what is lost between them.
type lines struct {
	sequence int64 // of the last good event
	damaged  int64 // lines since then
}

// add appends the event of a line and returns how many lines are now known to be lost. Each event has a sequence
// number, so a gap tells of lines that never came; a damaged line fills one place of the gap.
func (l *lines) add(line []byte, events *[]Event) int64 {
	line = bytes.TrimSpace(line)
	if len(line) == 0 {
		return 0
	}
	var event Event
	if err := json.Unmarshal(line, &event); err != nil || event.E == "" || event.Q < 1 || event.Q > maxSequence {
		l.damaged++
		return 1
	}
	missing := event.Q - l.sequence - 1 - l.damaged
	if event.E == "hello" || missing < 0 {
		missing = 0 // a process that replaced itself by exec starts anew in the same file
	}
	l.sequence, l.damaged = event.Q, 0
	*events = append(*events, event)
	return missing
}

// IsFile tells from its name whether a file is a probe's.
func IsFile(name string) bool {
	ok, err := filepath.Match(filePattern, name)
	return ok && err == nil
}

// ReadFile reads one file of a finished run and counts the lines that were damaged or missing. A last line without end,
// which a killed process may leave, counts as damaged unless it is whole.
func ReadFile(path string) ([]Event, int64, error) {
	file, err := files.OpenOwn(path)
	if err != nil {
		return nil, 0, fmt.Errorf("read the probe's file: %w", err)
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > MaxFileBytes {
		return nil, 0, fmt.Errorf("read the probe's file: %w", &files.TooLargeError{Path: path, Limit: MaxFileBytes})
	}
	return decode(io.LimitReader(file, MaxFileBytes), path)
}

// decode reads events to the end; lines that are too long are damaged.
func decode(source io.Reader, path string) ([]Event, int64, error) {
	reader := bufio.NewReaderSize(source, maxLineBytes)
	var events []Event
	var lost int64
	var state lines
	for {
		line, err := reader.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			lost += state.add([]byte(tooLong), &events)
			err = skipLine(reader)
		default:
			lost += state.add(line, &events)
		}
		if errors.Is(err, io.EOF) {
			return events, lost, nil
		}
		if err != nil {
			return events, lost, fmt.Errorf("read the probe's file %s: %w", path, err)
		}
	}
}

// skipLine reads to the end of the line.
func skipLine(reader *bufio.Reader) error {
	for {
		_, err := reader.ReadSlice('\n')
		if !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}
