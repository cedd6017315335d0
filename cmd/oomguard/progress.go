package main

import (
	"fmt"
	"io"

	"oomguard/monitor/oom/logfile"
	"oomguard/monitor/report"
)

// progressFrom is the size from which reading takes long enough to be shown.
const progressFrom = 200 << 20

// progress shows on a terminal how much of some files has been read. The zero value shows nothing.
type progress struct {
	to          io.Writer
	total, done int64
	percent     int64
}

// newProgress makes a progress for files, which stays silent where stderr is no terminal or the files are small or of
// unknown size.
func newProgress(env environment, files []logfile.File) *progress {
	p := &progress{percent: -1}
	for _, f := range files {
		if f.Bytes < 0 {
			return p
		}
		p.total += f.Bytes
	}
	if p.total >= progressFrom && isTerminal(env.stderr) && env.getenv("TERM") != "dumb" {
		p.to = env.stderr
	}
	return p
}

func (p *progress) add(n int) {
	p.done += int64(n)
	if p.to == nil {
		return
	}
	if now := 100 * p.done / p.total; now > p.percent {
		p.percent = now
		fmt.Fprintf(p.to, "\roomguard: read %d %% of %s ", min(now, 100), report.Units{}.Size(p.total))
	}
}

// end removes the line.
func (p *progress) end() {
	if p.to != nil && p.percent >= 0 {
		fmt.Fprint(p.to, "\r\x1b[K")
	}
}

// reader counts what is read from r.
func (p *progress) reader(r io.Reader) io.Reader { return countingReader{r, p} }

type countingReader struct {
	from io.Reader
	bar  *progress
}

func (c countingReader) Read(b []byte) (int, error) {
	n, err := c.from.Read(b)
	c.bar.add(n)
	return n, err
}
