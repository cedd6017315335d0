package snapshot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// hardSnapshots are pickles of about n bytes that hold much more of one thing than the allocator writes.
func hardSnapshots() map[string]func(n int) []byte {
	block := func(size int, frames string) string {
		return fmt.Sprintf("}(X\x04\x00\x00\x00size%sX\x05\x00\x00\x00stateX\x10\x00\x00\x00active_allocatedX\x06\x00\x00\x00frames%su", number(size), frames)
	}
	segment := func(device int, blocks string) string {
		return fmt.Sprintf("}(X\x06\x00\x00\x00device%sX\x0a\x00\x00\x00total_size%sX\x06\x00\x00\x00blocks%su",
			number(device), number(1<<20), blocks)
	}
	whole := func(before, segments, traces string) []byte {
		return []byte("\x80\x02" + before + "}(X\x08\x00\x00\x00segments](" + segments +
			"eX\x0d\x00\x00\x00device_traces](" + traces + "eu.")
	}
	many := func(n int, piece func(i int) string) string {
		var b strings.Builder
		for i := 0; b.Len() < n; i++ {
			b.WriteString(piece(i))
		}
		return b.String()
	}
	frame := func(i int) string {
		return fmt.Sprintf("}(X\x08\x00\x00\x00filenameX\x04\x00\x00\x00f.pyX\x04\x00\x00\x00line%sX\x04\x00\x00\x00nameX\x01\x00\x00\x00fu", number(i))
	}
	// what stands before is put into the memo under 0 and dropped
	kept := func(value string) string { return value + "q\x000" }
	const again = "h\x00"
	return map[string]func(int) []byte{
		"devices": func(n int) []byte {
			return whole("", many(n, func(i int) string { return segment(i, "]("+block(512, "]")+"e") }), "")
		},
		"segments": func(n int) []byte {
			return whole("", many(n, func(int) string { return segment(0, "]("+block(512, "]")+"e") }), "")
		},
		"blocks": func(n int) []byte {
			return whole("", segment(0, "]("+many(n, func(int) string { return block(512, "]") })+"e"), "")
		},
		"long stacks": func(n int) []byte {
			return whole("", segment(0, "]("+
				many(n, func(i int) string { return block(512, "]("+many(8000, frame)+"e") })+"e"), "")
		},
		"one stack for all": func(n int) []byte {
			return whole(kept("]("+many(n/2, frame)+"e"),
				segment(0, "]("+many(n/2, func(int) string { return block(512, again) })+"e"), "")
		},
		"failures": func(n int) []byte {
			return whole("", segment(0, "]("+many(n/2, func(int) string { return block(512, "]") })+"e"),
				"]("+many(n/2, func(int) string { return "}(X\x06\x00\x00\x00actionX\x03\x00\x00\x00oomX\x04\x00\x00\x00sizeK\x01u" })+"e")
		},
		"settings": func(n int) []byte {
			return []byte("\x80\x02}(X\x08\x00\x00\x00segments]X\x12\x00\x00\x00allocator_settings}(" +
				many(n, func(i int) string { return fmt.Sprintf("X\x08\x00\x00\x00%08dK\x01", i) }) + "uu.")
		},
		"nesting": func(n int) []byte {
			return []byte("\x80\x02" + strings.Repeat("](", n/2) + strings.Repeat("e", n/2) + ".")
		},
		"marks": func(n int) []byte { return []byte("\x80\x02" + strings.Repeat("(", n) + ".") },
		"texts": func(n int) []byte { return []byte("(" + strings.Repeat("V\\x\n", n/4) + "l.") },
		"repeats": func(n int) []byte {
			return whole(kept("]("+many(n/2, func(int) string { return block(512, "]") })+"e"),
				many(n/2, func(int) string { return segment(0, again) }), "")
		},
		"repeated traces": func(n int) []byte {
			return whole(kept("]("+many(n/2,
				func(int) string { return "}(X\x06\x00\x00\x00actionX\x03\x00\x00\x00oomu" })+"e"), "",
				strings.Repeat(again, n/4))
		},
	}
}

// number is the pickle of a whole number.
func number(n int) string {
	return "J" + string(binary.LittleEndian.AppendUint32(nil, uint32(n)))
}

// TestRepeatedEntries: a small pickle may stand for a huge one by its references; none is written out.
func TestRepeatedEntries(t *testing.T) {
	for name, make := range hardSnapshots() {
		s, err := Read(bytes.NewReader(make(20_000)))
		if want := strings.HasPrefix(name, "repeat"); errors.Is(err, errRepeats) != want {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			Analyse(s, name)
		}
	}
}

// TestManyDevices: each device gets its own segments, however many there are.
func TestManyDevices(t *testing.T) {
	s, err := Read(bytes.NewReader(hardSnapshots()["devices"](200_000)))
	if err != nil {
		t.Fatal(err)
	}
	report := Analyse(s, "many")
	for i, d := range report.Devices {
		if d.Index != i || d.Segments != 1 || d.AllocatedBytes != 512 || len(d.Maps) != 1 {
			t.Fatalf("device %d: %+v", i, d)
		}
	}
	if len(report.Devices) != len(s.Segments) {
		t.Errorf("%d devices of %d", len(report.Devices), len(s.Segments))
	}
}

// BenchmarkHard prints MB/s of such pickles; 10 MB of any of them take seconds.
func BenchmarkHard(b *testing.B) {
	for name, make := range hardSnapshots() {
		b.Run(name, func(b *testing.B) {
			data := make(2_000_000)
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if s, err := Read(bytes.NewReader(data)); err == nil {
					Analyse(s, name)
				}
			}
		})
	}
}
