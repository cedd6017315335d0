package oom

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func openLog(t testing.TB, name string) io.Reader {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "logs", name))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(data)
}

// BenchmarkScan prints MB/s; the promise is 300 on log text.
func BenchmarkScan(b *testing.B) {
	var plain, figures, hf, bars strings.Builder
	for i := range 200_000 {
		fmt.Fprintf(&plain, "2024-11-20 14:37:16,%03d INFO trainer.py:%d] epoch %d step %d loss %.4f lr 1.0e-04 "+
			"grad_norm %.3f tokens/s %d\n", i%1000, i%900, i/1000, i, 1/float64(i+1), float64(i%7), i%9999)
		fmt.Fprintf(&figures, "Epoch(train) [1][%d/42324] lr: 3.75e-04 time: 0.2795 data_time: 0.0017 memory: %d "+
			"loss: 0.79 loss_cls: 0.42\n", i, 6000+i%900)
		fmt.Fprintf(&hf, "{'loss': %.4f, 'grad_norm': %.3f, 'learning_rate': 6e-06, 'epoch': %.2f}\n", 1/float64(i+1),
			float64(i%7), float64(i)/1000)
		fmt.Fprintf(&bars, "\r %d%%|######    | %d/1970 [00:31<44:05,  1.36s/it]", i%100, i%1970)
	}
	for _, c := range []struct{ name, text string }{{"plain", plain.String()}, {"memory-figures", figures.String()},
		{"dicts", hf.String()}, {"bars", bars.String()}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.text)))
			for b.Loop() {
				if _, err := Scan(strings.NewReader(c.text)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// generated is an endless reader of a training log: bars, dicts, log lines, and now and then a message of another size.
type generated struct {
	unit []byte
	at   int
}

func newGenerated() *generated {
	var b strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&b, "\r %d%%|######    | %d/1970 [00:31<44:05,  1.36s/it]", i%100, i%1970)
		if i%10 == 0 {
			fmt.Fprintf(&b, "\n{'loss': %.4f, 'grad_norm': %.3f, 'learning_rate': 6e-06, 'epoch': %.2f}\n",
				1/float64(i+1), float64(i%7), float64(i)/1000)
			fmt.Fprintf(&b, "2024-11-20 14:37:16,%03d INFO trainer.py:%d] step %d gpu_mem %d tokens/s %d\n", i%1000,
				i%900, i, 6000+i%900, i%9999)
		}
	}
	b.WriteString("[rank3]: torch.OutOfMemoryError: " + fullCard + "\n")
	return &generated{unit: []byte(b.String())}
}

func (g *generated) Read(p []byte) (int, error) {
	n := copy(p, g.unit[g.at:])
	g.at = (g.at + n) % len(g.unit)
	return n, nil
}

// BenchmarkScanTwoGiB prints MB/s and the most memory that the process ever had resident; the promises are 300 MB/s and
// 100 MiB.
func BenchmarkScanTwoGiB(b *testing.B) {
	const size = 2 << 30
	b.SetBytes(size)
	before, runs := processorTime(b), 0.0
	for b.Loop() {
		log, err := Scan(io.LimitReader(newGenerated(), size))
		if err != nil || log.Bytes != size {
			b.Fatal(err)
		}
		runs++
	}
	// what a machine that does nothing else would show
	b.ReportMetric(runs*size/1e6/(processorTime(b)-before).Seconds(), "MB/s-of-CPU")
	b.ReportMetric(peakResidentMiB(b), "MiB-resident")
}

// BenchmarkScanManyFiles reads a thousand short logs, as those of a large job.
func BenchmarkScanManyFiles(b *testing.B) {
	text := strings.Repeat("step 1 loss 2.5\n", 100) + "torch.OutOfMemoryError: " + fullCard + "\n"
	for b.Loop() {
		log := NewLog()
		for rank := range 1000 {
			if err := log.Add(Source{Name: "stderr.log", Rank: rank, Text: strings.NewReader(text)}); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// processorTime is what this process has used so far.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// peakResidentMiB reads VmHWM of this process (proc_pid_status(5)).
func peakResidentMiB(b *testing.B) float64 {
	b.Helper()
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0 // no /proc here
	}
	_, rest, _ := strings.Cut(string(data), "VmHWM:")
	var kib float64
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		b.Fatal(err)
	}
	return kib / 1024
}
