//go:build linux

package launcher

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkRelay sets a command that floods a pipe, beside the same with a relay between, in turns: as fast as it can,
// at 1 GB/s, and line by line. What counts is what the command itself measured: a loss below zero means that it was
// faster with the relay's larger pipe.
func BenchmarkRelay(b *testing.B) {
	for _, c := range []struct {
		name              string
		size, piece, pace int
	}{
		{"full-speed", 1 << 30, 1 << 16, 0},
		{"1-GB-s", 1 << 30, 1 << 16, 1000},
		{"single-lines", 32 << 20, 1, 0},
	} {
		b.Run(c.name, func(b *testing.B) {
			var took [2]time.Duration
			for b.Loop() {
				for i, relayed := range []bool{false, true} {
					took[i] += flood(b, relayed, strconv.Itoa(c.size), strconv.Itoa(c.piece), strconv.Itoa(c.pace))
				}
			}
			rate := func(d time.Duration) float64 { return float64(c.size) * float64(b.N) / 1e6 / d.Seconds() }
			b.ReportMetric(rate(took[0]), "direct-MB/s")
			b.ReportMetric(rate(took[1]), "relayed-MB/s")
			b.ReportMetric(100*(1-took[0].Seconds()/took[1].Seconds()), "loss-%")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// flood runs the writer program against cat and returns what the writer measured.
func flood(b *testing.B, relayed bool, what ...string) time.Duration {
	b.Helper()
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	reader, writer, err := os.Pipe()
	must(err)
	sink := exec.Command("cat")
	sink.Stdin = reader
	must(sink.Start())
	must(reader.Close())
	r := &Relay{Stdout: writer, Stderr: writer}
	if relayed {
		r, err = StartRelay(program("relay"), filepath.Join(b.TempDir(), "output"), writer, writer)
		must(err)
	}
	argv := program("writer", what...)
	cmd := exec.Command(argv[0], argv[1:]...)
	var measured bytes.Buffer
	cmd.Stdout, cmd.Stderr = r.Stdout, &measured
	must(cmd.Start())
	r.Started()
	must(cmd.Wait())
	r.Finish(time.Minute)
	must(writer.Close())
	must(sink.Wait())
	took, err := time.ParseDuration(measured.String())
	must(err)
	return took
}

// writerProgram writes lines: how many bytes, in pieces of how many (at least a line), at how many MB/s (0: at full
// speed). It tells on stderr how long it took.
func writerProgram(args []string) int {
	var numbers [3]int
	for i := range numbers {
		numbers[i], _ = strconv.Atoi(args[i])
	}
	size, piece, pace := numbers[0], numbers[1], numbers[2]
	const line = "step 1000/2000 loss 1.2345 lr 1.0e-05\n"
	text := bytes.Repeat([]byte(line), max(1, piece/len(line)))
	began := time.Now()
	for written := 0; written < size; {
		n, err := unix.Write(1, text)
		if err != nil {
			return 1
		}
		written += n
		if pace > 0 {
			time.Sleep(time.Until(began.Add(time.Duration(written) * time.Microsecond / time.Duration(pace))))
		}
	}
	fmt.Fprint(os.Stderr, time.Since(began))
	return 0
}
