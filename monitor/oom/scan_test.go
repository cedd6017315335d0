package oom

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
)

// generations holds one message a generation, built from the format strings of the PyTorch sources that reference the
// generation.
var generations = []struct{ generation, text string }{
	{"G0", "RuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/THCStorage.cu:58"},
	{"G1", "RuntimeError: CUDA out of memory. Tried to allocate 12.50 MiB (GPU 1; 10.92 GiB total capacity; 8.57 " +
		"MiB already allocated; 9.28 GiB free; 4.68 MiB cached)"},
	{"G2", "RuntimeError: CUDA out of memory. Tried to allocate 12.50 MiB (GPU 1; 10.92 GiB total capacity; 8.57 " +
		"MiB already allocated; 9.28 GiB free; 13.25 MiB reserved in total by PyTorch)"},
	{"G2h", "RuntimeError: CUDA out of memory. Tried to allocate 12.50 MiB (GPU 1; 10.92 GiB total capacity; 8.57 " +
		"MiB already allocated; 9.28 GiB free; 13.25 MiB reserved in total by PyTorch) If reserved memory is >> " +
		"allocated memory try setting max_split_size_mb to avoid fragmentation.  See documentation for Memory " +
		"Management and PYTORCH_CUDA_ALLOC_CONF"},
	{"G2c", "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 12.50 MiB (GPU 1; 10.92 GiB total " +
		"capacity; 8.57 MiB already allocated; 9.28 GiB free; 13.25 MiB reserved in total by PyTorch)"},
	{"G3", "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 12.50 MiB. GPU 1 has a total capacty " +
		"of 10.92 GiB of which 9.28 GiB is free. Of the allocated memory 8.57 MiB is allocated by PyTorch, and 4.68 " +
		"MiB is reserved by PyTorch but unallocated."},
	{"G4", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 12.50 MiB. GPU 1 has a total capacity of " +
		"10.92 GiB of which 9.28 GiB is free. Including non-PyTorch memory, this process has 1.64 GiB memory in " +
		"use. Of the allocated memory 8.57 MiB is allocated by PyTorch, and 4.68 MiB is reserved by PyTorch but " +
		"unallocated."},
	{"G5", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 12.50 MiB. GPU 1 has a total capacity of " +
		"10.92 GiB of which 9.28 GiB is free. Of the allocated memory 8.57 MiB is allocated by PyTorch, with 1.00 " +
		"MiB allocated in private pools (e.g., CUDA Graphs), and 4.68 MiB is reserved by PyTorch but unallocated."},
	{"G4d", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 12.50 MiB. GPU 1 has a total capacity of " +
		"10.92 GiB of which 9.28 GiB is free. Of the allocated memory 8.57 MiB is allocated by PyTorch, and 4.68 " +
		"MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting " +
		"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for " +
		"Memory Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"},
	{"G6", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 12.50 MiB. GPU 1 has a total capacity of " +
		"10.92 GiB of which 9.28 GiB is free. Of the allocated memory 8.57 MiB is allocated by PyTorch, and 4.68 " +
		"MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting " +
		"PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory " +
		"Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html)"},
	{"G7", "[W624 CUDACachingAllocator.cpp:1131] memory allocation failed with OOM on device 1 while trying to " +
		"allocate 13107200 bytes (free: 9964324127, total: 11725260718)."},
	{"GA", "torch.OutOfMemoryError: Allocation on device 1 would exceed allowed memory. (out of memory)\nCurrently " +
		"allocated     : 8.57 MiB\nRequested               : 12.50 MiB\nDevice limit            : 10.92 GiB\nFree " +
		"(according to CUDA): 9.28 GiB\nPyTorch limit (set by user-supplied memory fraction)\n                  " +
		"      : 17179869184.00 GiB"},
	{"GN", `RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at "/opt/builds/pytorch/c10/cuda/CUDACachingAllocator.cpp":830, please report a bug to PyTorch.`},
	{"GD", "RuntimeError: CUDA driver error: out of memory"},
}

// TestGenerations: every generation is read whole, plain and behind each prefix that launchers put before a line.
func TestGenerations(t *testing.T) {
	sized := map[string]bool{"G1": true, "G2": true, "G2h": true, "G2c": true, "G3": true, "G4": true, "G5": true,
		"G4d": true, "G6": true, "G7": true, "GA": true}
	for _, g := range generations {
		for _, prefix := range []string{"", "[rank3]: ", "[default3]:[rank3]: ", "2024-11-20 14:37:16 [rank3]: ",
			"  0%|   | 0/9 [00:00<?, ?it/s][rank3]: ", "\x1b[31m", "10%|#\r",
			"2025-06-07T18:22:41.310482917Z stderr F ", "worker-1: ", "(RayTrainWorker pid=8812, ip=10.0.0.7) ",
			"Jun 07 18:22:41 node7 train.sh[4182]: ", "trainer-1  | ",
			"[pod/llama-ft-worker-0/pytorch] [rank3]: ", "node-07.cluster: ", "10.0.0.7: [rank3]: ",
			"node7: [default3]:[rank3]: ", "[1,3]<stderr>: [rank3]: ", `{"log":"`,
			"2024-08-21 22:56:04.112 | ERROR    | trainer.common:wrapper:121 - "} {
			log := scanText(t, "start\n"+prefix+g.text+"\nend\n")
			if len(log.Messages) != 1 {
				t.Errorf("%s behind %q: %d messages", g.generation, prefix, len(log.Messages))
				continue
			}
			m := log.Messages[0]
			if m.Generation != g.generation || m.Line != 2 {
				t.Errorf("behind %q: generation %q, line %d, want %q, line 2", prefix, m.Generation, m.Line,
					g.generation)
			}
			if strings.Contains(prefix, "rank3") && m.Rank != 3 {
				t.Errorf("%s behind %q: rank %d", g.generation, prefix, m.Rank)
			}
			if sized[g.generation] && (m.TriedBytes != 13107200 || m.GPU != 1 && g.generation != "GA" ||
				m.FreeBytes/1e8 != 99 || m.TotalBytes/1e8 != 117) {
				t.Errorf("%s behind %q: tried %d gpu %d free %d total %d", g.generation, prefix, m.TriedBytes, m.GPU,
					m.FreeBytes, m.TotalBytes)
			}
		}
	}
}

// TestHardWraps: a wrap at any column from 60 on changes nothing that was read; terminals and log viewers are no
// narrower.
func TestHardWraps(t *testing.T) {
	for _, g := range generations {
		if g.generation == "GA" || g.generation == "GN" {
			continue // several lines already; a path
		}
		want := scanText(t, g.text+"\n").Messages[0]
		for column := 60; column < 140; column++ {
			var b strings.Builder
			for i, r := range g.text {
				if i > 0 && i%column == 0 {
					b.WriteByte('\n')
				}
				b.WriteRune(r)
			}
			log := scanText(t, b.String()+"\n")
			if len(log.Messages) != 1 {
				t.Errorf("%s wrapped at %d: %d messages", g.generation, column, len(log.Messages))
				continue
			}
			got := log.Messages[0]
			got.Text, want.Text = "", "" // the wrap stays visible there
			if got.Generation != want.Generation && strings.HasPrefix(want.Generation, "G2") {
				got.Generation = want.Generation // the exception's name may be cut: G2c reads as G2
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s wrapped at %d:\n%+v\n%+v", g.generation, column, got, want)
			}
		}
	}
}

// TestNoFalseAlarm: text about out-of-memory messages is none.
func TestNoFalseAlarm(t *testing.T) {
	for _, line := range []string{
		"# RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.76 GiB total capacity)",
		"INFO: if you run into CUDA out of memory, reduce the batch size",
		"  --auto-batch    retry when CUDA out of memory is raised",
		`    if "CUDA out of memory" in str(e):`,
		`    raise RuntimeError("CUDA out of memory")`,
		"except torch.cuda.OutOfMemoryError:",
		"Note: you may see errors like RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB",
		"WARNING lowering batch size to avoid CUDA out of memory errors",
		"If you see RuntimeError: CUDA out of memory, use a smaller model",
		"Setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True against out of memory",
		"OOMKilled pods will be restarted by the operator",
		"# Bus error: raise --shm-size",
		"INFO registered a CUDA error callback for out of memory events",
		"CUDA error handling: out of memory batches are skipped",
		"if the GPU failed with error out of memory, lower the batch size",
		`    "cuda runtime error: out of memory",`,
		`    raise RuntimeError("CUDA failed with error out of memory")`,
		"# cudaMalloc error out of memory means that the index is too large",
		"[metal::malloc] is the allocator of MLX",
		"RuntimeError: CUDA out of date, install a newer driver",
	} {
		log := scanText(t, line+"\n")
		if len(log.Messages) != 0 {
			t.Errorf("%q: read as %q", line, log.Messages[0].Text)
		}
		if d := Diagnose(log, NoFacts()); d.Cause != NotOOM && d.Cause != NoCause {
			t.Errorf("%q: called %s", line, d.Cause)
		}
	}
}

// TestScanAcrossBuffers: messages far apart and at every position relative to the buffer's end are found with their
// line.
func TestScanAcrossBuffers(t *testing.T) {
	filler := strings.Repeat("step 100 loss 2.34 lr 1e-4 grad_norm 0.7 tokens/s 12345\n", 1000)
	for _, shift := range []int{0, 1, 700, 56000} {
		var b strings.Builder
		b.WriteString(strings.Repeat(" ", shift) + "\n")
		line := 2
		var want []int
		for i := range 40 {
			b.WriteString(filler)
			line += 1000
			fmt.Fprintf(&b, "RuntimeError: CUDA out of memory. Tried to allocate %d.00 MiB (GPU 0; 10.76 GiB total "+
				"capacity; 2.42 GiB already allocated; 26.12 MiB free; 2.75 GiB reserved in total by PyTorch)\n", i+1)
			want = append(want, line)
			line++
		}
		log, err := Scan(iotest.HalfReader(strings.NewReader(b.String())))
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		for _, m := range log.Messages {
			got = append(got, m.Line)
		}
		if !reflect.DeepEqual(got, want) || log.Lines != line-1 {
			t.Errorf("shift %d: lines %v of %d, want %v of %d", shift, got, log.Lines, want, line-1)
		}
	}
}

func TestScanReportsReadErrors(t *testing.T) {
	broken := errors.New("disk gone")
	_, err := Scan(io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "3 bytes") {
		t.Errorf("got %v", err)
	}
}

// TestLongLine: one line without an end, larger than the buffer, with a message in it.
func TestLongLine(t *testing.T) {
	text := strings.Repeat("x", 3<<20) + " " + generations[6].text + strings.Repeat("y", 3<<20)
	if log := scanText(t, text); len(log.Messages) != 1 || log.Messages[0].TriedBytes != 13107200 || log.Lines != 1 {
		t.Errorf("%d messages, %d lines", len(log.Messages), log.Lines)
	}
}

// TestCutMessages: a message without its beginning or its end gives what is left of it.
func TestCutMessages(t *testing.T) {
	_, headless, _ := strings.Cut(generations[2].text, "memory. ")
	if log := scanText(t, headless+"\n"); len(log.Messages) != 1 || log.Messages[0].TotalBytes < 0 {
		t.Errorf("without its head: %+v", log.Messages)
	}
	for _, g := range generations[1:9] {
		for cut := strings.Index(g.text, "MiB") + 3; cut < len(g.text); cut += 7 {
			if log := scanText(t, g.text[:cut]); len(log.Messages) != 1 || log.Messages[0].TriedBytes != 13107200 {
				t.Errorf("%s cut at %d: %+v", g.generation, cut, log.Messages)
			}
		}
	}
}

func TestMessageJSON(t *testing.T) {
	m := scanText(t, generations[6].text+"\n").Messages[0]
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(data, []byte(`"allowed_bytes":null`)) ||
		!bytes.Contains(data, []byte(`"tried_bytes":13107200`)) ||
		!bytes.Contains(data, []byte(`"other_processes":[]`)) || bytes.Contains(data, []byte(":-1,\"allocated")) {
		t.Errorf("%s", data)
	}
	var back Message
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if !back.sameNumbers(Message{Form: back.Form, TriedBytes: m.TriedBytes, TotalBytes: m.TotalBytes,
		FreeBytes: m.FreeBytes, AllocatedBytes: m.AllocatedBytes,
		ReservedBytes: m.ReservedBytes, GPU: m.GPU}) || back.AllowedBytes != Unknown {
		t.Errorf("%+v", back)
	}
}

func scanText(t testing.TB, text string) *Log {
	t.Helper()
	log, err := Scan(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// FuzzScan: no text makes Scan or Diagnose panic, and what is kept stays within its bounds.
func FuzzScan(f *testing.F) {
	for _, g := range generations {
		f.Add([]byte(g.text))
	}
	for _, form := range readForms(f) {
		if strings.HasPrefix(form.name, "launchers.txt") { // tables, error files
			f.Add([]byte(form.text))
		}
	}
	for _, l := range readLabels(f)[:10] {
		log, err := io.ReadAll(openLog(f, l.File))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(log)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		log, err := Scan(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if len(log.Messages) > keepMessages || len(log.Signs) > keepSigns || len(log.Exits) > keepExits {
			t.Fatal("bounds exceeded")
		}
		for _, m := range log.Messages {
			if m.Line < 1 || m.Line > max(1, log.Lines) {
				t.Fatalf("line %d of %d", m.Line, log.Lines)
			}
		}
		if _, err := json.Marshal(Diagnose(log, NoFacts())); err != nil {
			t.Fatal(err)
		}
	})
}

// TestScanMemory: a log of 200 MB full of messages leaves no more behind than a short one.
func TestScanMemory(t *testing.T) {
	unit := []byte(strings.Repeat("epoch 3 step 10 loss 1.5\n", 40000) + generations[6].text + "\n")
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	log, err := Scan(io.LimitReader(&repeating{unit: unit}, 200<<20))
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 4<<20 {
		t.Errorf("%d bytes live after the scan", grown)
	}
	runtime.KeepAlive(log)
}

// repeating is an endless reader of one text.
type repeating struct {
	unit []byte
	at   int
}

func (r *repeating) Read(p []byte) (int, error) {
	n := copy(p, r.unit[r.at:])
	r.at = (r.at + n) % len(r.unit)
	return n, nil
}
