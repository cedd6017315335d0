package probe

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// BenchmarkStep measures what the probe adds to a training step: testdata/bench.py runs a small model as fast as it
// goes, and in steps of 10 ms. Run it with -benchtime=1x and compare us/step of "with" and "without".
func BenchmarkStep(b *testing.B) {
	dir := newRun(b)
	environments := map[string][]string{"without": rankEnv(), "with": Env(rankEnv(), dir)}
	for _, name := range []string{"without", "with"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				got := python(b, environments[name], testPython(b), filepath.Join("testdata", "bench.py"))
				report(b, got.stdout)
			}
		})
	}
}

// BenchmarkStart measures the start of an interpreter that never imports torch: what every Python below the command
// pays.
func BenchmarkStart(b *testing.B) {
	dir := newRun(b)
	environments := map[string][]string{"without": rankEnv(), "with": Env(rankEnv(), dir)}
	for _, name := range []string{"without", "with"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				python(b, environments[name], testPython(b), "-c", "pass")
			}
		})
	}
}

// BenchmarkPoll measures reading, MB/s of one rank's file.
func BenchmarkPoll(b *testing.B) {
	line := `{"e":"w","q":1,"t":2495000000,"s":"forward","st":1,"mb":0,"n":1,"a":342396928,"pa":346587136,"r":0,"pr":0,"is":0,"rt":0,"ooms":0,"d":0}` + "\n"
	text := strings.Repeat(line, 5000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, _, err := decode(strings.NewReader(text), "bench"); err != nil {
			b.Fatal(err)
		}
	}
}

// report turns the lines "name value" of a Python benchmark into metrics.
func report(b *testing.B, text string) {
	b.Helper()
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			b.Fatalf("benchmark printed %q: %v", line, err)
		}
		b.ReportMetric(number, name)
	}
}
