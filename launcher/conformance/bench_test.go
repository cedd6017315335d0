//go:build linux

package conformance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// BenchmarkStartUp starts the same command directly and under oomguard in turn, so that what else the machine does hits
// both alike, and reports the time of each and what oomguard adds: the promise is < 100 ms, the checklist, the
// recording and the report included.
func BenchmarkStartUp(b *testing.B) {
	with := newestTorch(b)
	oomguard := program(b)
	here, err := filepath.Abs(filepath.Join("testdata", "rank.py"))
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name string
		argv []string
	}{
		{"true", []string{"true"}},
		{"torchrun", []string{filepath.Join(with.bin, "torchrun"), "--nproc_per_node=1", "--master_port=PORT", here,
			"exit:0"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			var direct, wrapped time.Duration
			for b.Loop() {
				direct += timed(b, c.argv)
				wrapped += timed(b, append([]string{oomguard, "run", "--"}, c.argv...))
			}
			n := float64(b.N)
			b.ReportMetric(0, "ns/op") // of both together: says nothing
			b.ReportMetric(direct.Seconds()*1e3/n, "ms-direct")
			b.ReportMetric(wrapped.Seconds()*1e3/n, "ms-wrapped")
			b.ReportMetric((wrapped-direct).Seconds()*1e3/n, "ms-added")
		})
	}
}

// timed runs a command to its end.
func timed(b *testing.B, argv []string) time.Duration {
	b.Helper()
	folder := b.TempDir()
	port := fmt.Sprint(freePort(b))
	cmd := exec.Command(argv[0])
	for _, word := range argv[1:] {
		cmd.Args = append(cmd.Args, strings.ReplaceAll(word, "PORT", port))
	}
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "OOMGUARD_DIR="+folder, "CONFORMANCE="+folder, "OMP_NUM_THREADS=1")
	began := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%q: %v\n%s", argv, err, out)
	}
	return time.Since(began)
}
