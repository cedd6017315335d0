package logfile

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"oomguard/launcher/files"
)

// headBytes is how much of a text is looked at to tell what it is.
const headBytes = 4096

// Open opens a file for reading as UTF-8 text. onRead, if not nil, is told of every read of the file itself, in bytes.
// The errors name the file and say what to do.
func Open(f File, onRead func(n int)) (io.ReadCloser, error) {
	file, err := files.OpenStream(f.Name)
	if err != nil {
		return nil, err
	}
	text, err := Text(counting{file, onRead}, f.Name)
	if err != nil {
		file.Close()
		return nil, err
	}
	return opened{text, file}, nil
}

type opened struct {
	io.Reader
	file *os.File
}

func (o opened) Close() error { return o.file.Close() }

type counting struct {
	from   io.Reader
	onRead func(n int)
}

func (c counting) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	if c.onRead != nil {
		c.onRead(n)
	}
	return n, err
}

// maxUnpacked bounds what a packed file of bytes may hold.
const maxUnpacked = 4 << 30

// Unpack gives what a file of bytes holds that gzip or bzip2 may have packed, up to 4 GiB.
func Unpack(r io.Reader) (io.Reader, error) {
	in := bufio.NewReaderSize(r, headBytes)
	head, err := in.Peek(3)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte("\x1f\x8b")):
		unpacked, err := gzip.NewReader(in)
		if err != nil {
			return nil, err
		}
		return io.LimitReader(unpacked, maxUnpacked), nil
	case bytes.HasPrefix(head, []byte("BZh")):
		return io.LimitReader(bzip2.NewReader(in), maxUnpacked), nil
	}
	return in, nil
}

// Text makes UTF-8 text of what r holds: gzip and bzip2 are unpacked, UTF-16 is converted, a byte order mark is
// dropped, an error file of torchrun becomes the lines that Python would have printed. name is for messages.
func Text(r io.Reader, name string) (io.Reader, error) { return text(r, name, 0) }

// maxPackings is how often a text may be packed into itself: there are files that unpack to themselves without end.
const maxPackings = 4

func text(r io.Reader, name string, packings int) (io.Reader, error) {
	if packings > maxPackings {
		return nil, fmt.Errorf("%s is packed more than %d times over: unpack it first", name, maxPackings)
	}
	in := bufio.NewReaderSize(r, headBytes)
	head, err := in.Peek(headBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	starts := func(magic string) bool { return bytes.HasPrefix(head, []byte(magic)) }
	switch {
	case starts("\x1f\x8b"):
		unpacked, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("unpack %s: %w", name, err)
		}
		return text(cutOff{unpacked}, strings.TrimSuffix(name, ".gz"), packings+1)
	case starts("BZh"):
		return text(cutOff{bzip2.NewReader(in)}, strings.TrimSuffix(name, ".bz2"), packings+1)
	case starts("\x28\xb5\x2f\xfd"):
		return nil, unpackFirst(name, "compressed by zstd, which oomguard cannot unpack", "zstd -dc")
	case starts("\xfd7zXZ\x00"):
		return nil, unpackFirst(name, "compressed by xz, which oomguard cannot unpack", "xz -dc")
	case starts("PK\x03\x04") && !checkpointName().MatchString(name) && !bytes.Contains(head, []byte("data.pkl")):
		return nil, unpackFirst(name, "a zip archive", "unzip -p")
	}
	if order := wideOrder(head); order != nil {
		return &wide{in: in, order: order}, nil
	}
	if what := binaryKind(head); what != "" {
		return nil, fmt.Errorf("%s is %s and not a log: name what the run printed (its standard output and error, "+
			"or a folder of such files)", name, what)
	}
	if starts("\xef\xbb\xbf") {
		if _, err := in.Discard(3); err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
	}
	if filepath.Ext(name) == ".json" && bytes.HasPrefix(bytes.TrimSpace(head), []byte(`{"message"`)) {
		return errorFile(in)
	}
	return in, nil
}

// unpackFirst says how to unpack a file; what came in through a pipe has no name to give to a command.
func unpackFirst(name, what, command string) error {
	if name == Stdin {
		return fmt.Errorf("%s is %s; unpack it on its way: %s FILE | oomguard postmortem", name, what, command)
	}
	return fmt.Errorf("%s is %s; run: %s %q | oomguard postmortem", name, what, command, name)
}

// Stdin is the name of what comes in through a pipe.
const Stdin = "stdin"

// cutOff reads what there is of a compressed file whose end is missing, as that of a machine that died: what was
// unpacked is judged.
type cutOff struct{ from io.Reader }

func (c cutOff) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return n, err
}
