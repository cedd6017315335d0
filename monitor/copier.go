package monitor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"oomguard/launcher/files"
	"oomguard/monitor/probe"
)

// copier carries what the ranks' probes append into the run folder, whole lines only. It keeps the ranks' files open,
// so that those it has seen are read to their end even when somebody takes their folder away.
type copier struct {
	from  string
	store *Store
	scrub *Scrubber
	open  map[string]*source
	gone  bool
	err   error
}

// source is one rank's file and how much of it was taken.
type source struct {
	file *os.File
	read int64
}

func newCopier(from string, store *Store, scrub *Scrubber) *copier {
	return &copier{from: from, store: store, scrub: scrub, open: map[string]*source{}}
}

// maxCopy bounds what one poll takes from one file at a time; the rest comes with the next turn.
const maxCopy = 8 << 20

func (c *copier) poll() {
	c.look()
	for name, from := range c.open {
		if err := c.take(name, from); err != nil {
			c.err = err
		}
	}
}

// look opens the files that are new.
func (c *copier) look() {
	folder, err := files.OpenFolder(c.from)
	if err != nil {
		c.gone = c.gone || errors.Is(err, os.ErrNotExist)
		if !c.gone {
			c.err = err
		}
		return
	}
	defer folder.Close()
	for _, name := range probeFiles(folder) {
		if c.open[name] != nil {
			continue
		}
		file, err := folder.Open(name)
		if err != nil {
			c.err = err
			continue
		}
		c.open[name] = &source{file: file}
	}
}

// probeFiles are the names of the probes' files in a folder.
func probeFiles(folder *files.Folder) []string {
	entries, _ := folder.Entries()
	var names []string
	for _, e := range entries {
		if e.Type().IsRegular() && probe.IsFile(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names
}

func (c *copier) take(name string, from *source) error {
	for {
		data, err := io.ReadAll(io.NewSectionReader(from.file, from.read, maxCopy))
		if err != nil {
			return err
		}
		end := bytes.LastIndexByte(data, '\n') + 1
		if end == 0 {
			return nil
		}
		out, err := c.store.appendFile(stagesDir, name)
		if err != nil {
			return err
		}
		_, err = out.Write(c.scrub.JSON(data[:end]))
		if err := errors.Join(err, out.Close()); err != nil {
			return err
		}
		from.read += int64(end)
		if len(data) < maxCopy {
			return nil
		}
	}
}

// close ends the copying and says what is missing.
func (c *copier) close() []string {
	for _, from := range c.open {
		_ = from.file.Close() // it was only read
	}
	var notes []string
	if c.gone {
		notes = append(notes, fmt.Sprintf("stage records of processes that began late: somebody took the private "+
			"folder %s away while the command ran", c.from))
	}
	if c.err != nil {
		notes = append(notes, fmt.Sprintf("stage records may be incomplete: %v", c.err))
	}
	return notes
}
