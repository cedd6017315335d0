package document

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"unicode/utf8"

	"oomguard/launcher/files"
)

const (
	// maxFileBytes bounds what is read of one configuration file. Real ones have a few kilobytes.
	maxFileBytes = 4 << 20
	// maxDepth bounds the nesting of a JSON document; a DeepSpeed configuration has at most five levels.
	maxDepth = 100
)

// Read reads a whole configuration file of text. shown is the file's name in messages.
func Read(path, shown string) ([]byte, error) {
	data, err := files.Read(path, maxFileBytes)
	var other *files.NotRegularError
	var large *files.TooLargeError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, Gone(fmt.Errorf("%s: no such file; correct the name, or run oomguard in the folder it is "+
			"relative to", shown))
	case errors.As(err, &other) && other.Kind == files.Directory:
		return nil, fmt.Errorf("%s: is a directory; name the configuration file in it", shown)
	case errors.As(err, &other):
		return nil, Ours(fmt.Errorf("%s: is %s and not a regular file; reading it would take its content from the "+
			"training, so store it in a file", shown, other.Kind))
	case errors.As(err, &large):
		return nil, Ours(fmt.Errorf("%s: has more than the %d MiB that a configuration may have; check that it is "+
			"the right file", shown, maxFileBytes>>20))
	case err != nil:
		return nil, fmt.Errorf("%s: %w", shown, err)
	}
	if bad := firstInvalid(data); bad >= 0 {
		line, column := position(data, bad)
		return nil, Ours(fmt.Errorf("%s:%d:%d: is not UTF-8 text (byte 0x%02x); save it as UTF-8", shown, line, column,
			data[bad]))
	}
	return data, nil
}

// ErrOurs marks an error of this reader's own limits: the program that the file is for may well read it.
var ErrOurs = errors.New("not read here")

// Ours marks an error as ErrOurs, whose text it keeps.
func Ours(err error) error { return ours{err} }

type ours struct{ error }

func (ours) Is(target error) bool { return target == ErrOurs }

func (o ours) Unwrap() error { return o.error }

// Gone marks an error as fs.ErrNotExist, whose text it keeps.
func Gone(err error) error { return gone{err} }

type gone struct{ error }

func (gone) Is(target error) bool { return target == fs.ErrNotExist }

// firstInvalid is the offset of the first byte that is not part of UTF-8, or -1.
func firstInvalid(data []byte) int {
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size <= 1 {
			return i
		}
		i += size
	}
	return -1
}

// position turns an offset into a line and a column (in bytes), both counted from 1.
func position(data []byte, offset int) (line, column int) {
	before := data[:min(offset, len(data))]
	return bytes.Count(before, []byte("\n")) + 1, len(before) - bytes.LastIndexByte(before, '\n')
}
