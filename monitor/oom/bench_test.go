package oom

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
		fmt.Fprintf(&plain, "2024-11-20 14:37:16,%03d INFO trainer.py:%d] epoch %d step %d loss %.4f lr 1.0e-04 grad_norm %.3f tokens/s %d\n", i%1000, i%900, i/1000, i, 1/float64(i+1), float64(i%7), i%9999)
		fmt.Fprintf(&figures, "Epoch(train) [1][%d/42324] lr: 3.75e-04 time: 0.2795 data_time: 0.0017 memory: %d loss: 0.79 loss_cls: 0.42\n", i, 6000+i%900)
		fmt.Fprintf(&hf, "{'loss': %.4f, 'grad_norm': %.3f, 'learning_rate': 6e-06, 'epoch': %.2f}\n", 1/float64(i+1), float64(i%7), float64(i)/1000)
		fmt.Fprintf(&bars, "\r %d%%|######    | %d/1970 [00:31<44:05,  1.36s/it]", i%100, i%1970)
	}
	for _, c := range []struct{ name, text string }{{"plain", plain.String()}, {"memory-figures", figures.String()}, {"dicts", hf.String()}, {"bars", bars.String()}} {
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
