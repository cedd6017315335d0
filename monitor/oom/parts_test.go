package oom

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func addAll(t testing.TB, sources ...Source) *Log {
	t.Helper()
	log := NewLog()
	for _, s := range sources {
		if err := log.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	return log
}

// TestOneFileARank: the rank comes from the file, lines are those of the file, and what the launcher repeats counts
// once.
func TestOneFileARank(t *testing.T) {
	log := addAll(t,
		Source{"launcher.log", -1, strings.NewReader("start\ntorch.OutOfMemoryError: " + fullCard + "\n" +
			agentKilled)},
		Source{"0/stderr.log", 0, strings.NewReader("a\nb\ntorch.distributed.DistBackendError: NCCL communicator " +
			"was aborted\n")},
		Source{"1/stderr.log", 1, strings.NewReader("a\n\n\ntorch.OutOfMemoryError: " +
			strings.Replace(fullCard, "132.00", "256.00", 1) + "\n")},
		Source{"2/stderr.log", 2, strings.NewReader("a\nKeyError: 'x'\n")},
	)
	d := Diagnose(log, NoFacts())
	if d.Cause != Capacity || len(d.OOMs) != 2 {
		t.Fatalf("%s, %d messages", d.Cause, len(d.OOMs))
	}
	if m := d.OOMs[1]; m.File != "1/stderr.log" || m.Line != 4 || m.Rank != 1 {
		t.Errorf("%s line %d rank %d", m.File, m.Line, m.Rank)
	}
	if !slices.ContainsFunc(d.Evidence, func(e string) bool { return strings.HasPrefix(e, "launcher.log, line 2: ") }) {
		t.Errorf("%q", d.Evidence)
	}
	if log.Lines != 3+3+4+2 {
		t.Errorf("%d lines", log.Lines)
	}
}

// TestEarliestRank: with one file a rank the first message by the clock counts, not the first by the name of the file.
func TestEarliestRank(t *testing.T) {
	at := func(second int) string {
		return fmt.Sprintf("[2024-06-07 18:22:%02d UTC] torch.OutOfMemoryError: %s\n", second,
			strings.Replace(fullCard, "132.00", fmt.Sprint(second)+".00", 1))
	}
	log := addAll(t, Source{"0", 0, strings.NewReader(at(44))}, Source{"1", 1, strings.NewReader(at(41))},
		Source{"2", 2, strings.NewReader(at(43))})
	if d := Diagnose(log, NoFacts()); d.Rank != 1 {
		t.Errorf("rank %d", d.Rank)
	}
}

// TestOrderOnlyInsideAFile: an exception in another rank's file does not turn a message into one that was caught, steps
// there neither.
func TestOrderOnlyInsideAFile(t *testing.T) {
	var steps strings.Builder
	for i := range 50 {
		fmt.Fprintf(&steps, "\r 12%%|#  | %d/1000 [00:31<03:49,  3.83it/s]", i)
	}
	log := addAll(t,
		Source{"0", 0, strings.NewReader("WARNING: " + fullCard + "\n")},
		Source{"1", 1, strings.NewReader(steps.String() + "\n{'train_runtime': 3}\nValueError: bad sample\n")},
	)
	if d := Diagnose(log, NoFacts()); d.Cause != Capacity || d.Rank != 0 {
		t.Errorf("%s, rank %d", d.Cause, d.Rank)
	}
}

// TestAddNamesTheFile: a text that cannot be read is named, and what was read before it stays.
func TestAddNamesTheFile(t *testing.T) {
	log := addAll(t, Source{"a.log", -1, strings.NewReader("torch.OutOfMemoryError: " + fullCard + "\n")})
	err := log.Add(Source{"b.log", -1, iotest.ErrReader(errors.New("disk gone"))})
	if err == nil || !strings.Contains(err.Error(), "b.log") || !strings.Contains(err.Error(), "disk gone") ||
		len(log.Messages) != 1 {
		t.Errorf("%v, %d messages", err, len(log.Messages))
	}
}

// TestManyFiles: hundreds of files leave no more behind than their messages (a thousand: BenchmarkScanManyFiles).
func TestManyFiles(t *testing.T) {
	log := NewLog()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range 500 {
		text := fmt.Sprintf("start\n[rank%d]: torch.OutOfMemoryError: %s\nKeyError: 'x'\n", i,
			strings.Replace(fullCard, "132.00", fmt.Sprintf("%d.00", i+1), 1))
		if err := log.Add(Source{Name: fmt.Sprint(i), Rank: i, Text: strings.NewReader(text)}); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 8<<20 || len(log.Messages) > keepMessages {
		t.Errorf("%d bytes live, %d messages", grown, len(log.Messages))
	}
	if d := Diagnose(log, NoFacts()); d.Cause != Capacity || d.Rank != 0 {
		t.Errorf("%s, rank %d", d.Cause, d.Rank)
	}
}
