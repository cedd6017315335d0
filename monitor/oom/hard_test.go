package oom

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// hardLogs are texts that hold much more of one thing than any real log: what a reader does for one message, one line
// or one word is done for each of them. A generator writes about n bytes.
func hardLogs() map[string]func(n int) string {
	tried := func(i int) string {
		return strings.Replace(fullCard, "132.00", fmt.Sprintf("%d.%02d", i%9000, i%97), 1)
	}
	frames := func(file string, n int) string {
		var b strings.Builder
		b.WriteString("Traceback (most recent call last):\n")
		for i := range n {
			fmt.Fprintf(&b, "  File \"/opt/%s/f%d.py\", line %d, in call_%d\n    out = self.layer_%d(hidden, "+
				"mask=mask)\n", file, i, i, i, i)
		}
		return b.String()
	}
	words, _ := watched()
	return map[string]func(int) string{
		"messages":       repeated(func(i int) string { return "torch.OutOfMemoryError: " + tried(i) + "\n" }),
		"equal messages": repeated(func(int) string { return "torch.OutOfMemoryError: " + fullCard + "\n" }),
		"ranks": repeated(func(i int) string {
			return fmt.Sprintf("[rank%d]: torch.OutOfMemoryError: %s\n", i,
				tried(i))
		}),
		"short messages": repeated(func(int) string { return "RuntimeError: CUDA error: out of memory\n" }),
		"ranks and bars": repeated(func(i int) string {
			return fmt.Sprintf("[rank%d]: 10%%|##   | %d/1970 [00:31<44:05,  1.36s/it]%s\n", i, i, tried(i))
		}),
		"bars": repeated(func(i int) string { return fmt.Sprintf("\r 10%%|###   %d  out of memory", i) }),
		"tracebacks": repeated(func(i int) string {
			return frames("site-packages/x", 40) + "torch.OutOfMemoryError: " + tried(i) + "\n"
		}),
		"shared frames": repeated(func(i int) string {
			return fmt.Sprintf("  File \"a.py\", line %d, in f\n[rank%d]: %s\n", i, i, tried(i))
		}),
		"nearly a stage": repeated(func(i int) string {
			return fmt.Sprintf("  File \"module.py\", line 1, in load_\n   load_state, in_, optimizer step( "+
				"empty_strided(((, in_\n[rank%d]: %s\n", i, tried(i))
		}),
		"frames behind": repeated(func(i int) string { return "CUDA out of memory.\n" + frames("mine", 10) }),
		"attempts": repeated(func(i int) string {
			return frames("mine", 5) + fmt.Sprintf("RuntimeError: %s\n[E1] failed (exitcode: 1) local_rank: %d "+
				"(pid: %d) of binary\n", tried(i), i%8, i)
		}),
		"exits": repeated(func(i int) string {
			return fmt.Sprintf("failed (exitcode: -9) local_rank: %d (pid: %d) of binary: python\n", i%8, i)
		}),
		"exit table": repeated(func(i int) string {
			return fmt.Sprintf("  rank      : %d (local_rank: %d)\n  exitcode  : 1 (pid: %d)\n", i, i, i)
		}),
		"exceptions": repeated(func(int) string { return "ValueError: x\n" }),
		"signs":      repeated(func(i int) string { return fmt.Sprintf("oom-kill: %d\n", i) }),
		"agent kills": repeated(func(i int) string {
			return fmt.Sprintf("Unable to shutdown process %d via 15\nfailed (exitcode: -9) local_rank: 0 (pid: %d)\n",
				i, i)
		}),
		"killed":   repeated(func(int) string { return "Killed\n" }),
		"one line": repeated(func(i int) string { return tried(i) + " " }),
		"escaped lines": repeated(func(i int) string {
			return `  File \"a.py\", line 1, in f\n    x = f(x)\nRuntimeError: ` + tried(i) + `\n`
		}),
		"wrapped":         repeated(func(i int) string { return hardWrap(tried(i), 7) }),
		"only the words":  repeated(func(int) string { return "out of memory" }),
		"all words":       repeated(func(i int) string { return words[i%len(words)] + " " }),
		"all words lines": repeated(func(i int) string { return words[i%len(words)] + "\n" }),
		"library says":    repeated(func(int) string { return "cudaMalloc could not not out of memory " }),
		"heads": repeated(func(i int) string {
			return "Allocation on device 0 would exceed allowed memory " +
				"Tried to allocate x "
		}),
		"processes": repeated(func(i int) string {
			return "CUDA out of memory. Tried to allocate 1.00 GiB. " +
				strings.Repeat("Process 12 has 1.00 GiB memory in use. ", 300)
		}),
		"prefixes": repeated(func(i int) string { return strings.Repeat("[rank1]: ", 90) + "out of memory " }),
		"times": repeated(func(i int) string {
			return "2024-04-20 18:56:38,931 2024-04-20 18:56:38,931 step 12 CUDA out of memory\n"
		}),
		"steps": repeated(func(i int) string {
			return fmt.Sprintf("12:00:00 step %d/2000\n", i) + "CUDA out of memory. Tried to allocate 1.00 GiB\n"
		}),
		"percent": repeated(func(i int) string {
			return strings.Repeat("1%|", 300) + " CUDA out of memory. Tried to allocate 1.00 GiB\n"
		}),
		"memory figures": repeated(func(i int) string { return fmt.Sprintf("memory: %d ", i) }),
		"clues":          repeated(func(int) string { return "/axolotl/" }),
		"newlines":       repeated(func(i int) string { return "CUDA out of memory" + strings.Repeat("\n", 900) }),
		"escapes": repeated(func(i int) string {
			return "CUDA out of memory" + strings.Repeat("\x1b[0m", 80) +
				"[12;"
		}),
		"binary": func(n int) string { return randomText(n) },
		"quoted": repeated(func(i int) string { return `{"message": "` + tried(i) + `\n"}` + "\n" }),
		"sentences": repeated(func(i int) string {
			return "if you see RuntimeError: CUDA out of memory. Tried to allocate, try a smaller batch\n"
		}),
	}
}

func repeated(piece func(i int) string) func(int) string {
	return func(n int) string {
		var b strings.Builder
		for i := 0; b.Len() < n; i++ {
			b.WriteString(piece(i))
		}
		return b.String()
	}
}

func hardWrap(s string, width int) string {
	var b strings.Builder
	for i := 0; i < len(s); i += width {
		b.WriteString(s[i:min(len(s), i+width)] + "\n")
	}
	return b.String()
}

func randomText(n int) string {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return string(b)
}

// BenchmarkHard prints MB/s of texts that no run writes; the promise is that 10 MB of any of them take seconds.
func BenchmarkHard(b *testing.B) {
	for name, text := range hardLogs() {
		b.Run(name, func(b *testing.B) {
			text := text(1_000_000)
			b.SetBytes(int64(len(text)))
			before, runs := processorTime(b), 0.0
			for b.Loop() {
				runs++
				log := NewLog()
				if err := log.Add(Source{Name: "a", Rank: -1, Text: strings.NewReader(text)}); err != nil {
					b.Fatal(err)
				}
				Diagnose(log, NoFacts())
			}
			b.ReportMetric((processorTime(b)-before).Seconds()/runs*10e6/float64(len(text)), "s/10MB-of-CPU")
		})
	}
}

// TestWorkGrowsWithTheText counts allocations, which every look at a line or a word makes: a byte of a longer text
// takes no more than one of a shorter text of the same kind, and never much.
func TestWorkGrowsWithTheText(t *testing.T) {
	most := 1.5       // a byte
	if raceDetector { // under which the pools of regexp and fmt forget at random
		most *= 20
	}
	for name, text := range hardLogs() {
		per := func(n int) float64 {
			text := text(n)
			allocations := testing.AllocsPerRun(1, func() {
				log := NewLog()
				if err := log.Add(Source{Name: "a", Rank: -1, Text: strings.NewReader(text)}); err != nil {
					t.Fatal(err)
				}
				Diagnose(log, NoFacts())
			})
			return allocations / float64(len(text))
		}
		short, long := per(20_000), per(40_000)
		if long > most || long > 1.2*short+0.01*most {
			t.Errorf("%s: %.3f allocations a byte, in a text of half the length %.3f; want at most %.1f", name, long,
				short, most)
		}
	}
}

// TestCrowdedText: what is skipped where words stand too close for their number is not what stands behind them.
func TestCrowdedText(t *testing.T) {
	for name, text := range hardLogs() {
		message := "\n" + strings.Repeat("step 1 loss 2.5\n", 8000) +
			"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 77.00 GiB. GPU 6 has a total capacity of " +
			"79.10 GiB\n"
		log := scanText(t, text(100_000)+message)
		if n := len(log.Messages); n == 0 || log.Messages[n-1].TriedBytes != 77<<30 || log.Messages[n-1].GPU != 6 {
			t.Errorf("%s: the message behind it was not read; %d others were", name, n)
		}
	}
}
