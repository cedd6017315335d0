package logfile

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf16"
)

const sample = "step 1 loss 2.5\r\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. Größe 𝄞\n"

func zipped(t testing.TB, s string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(s)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func wideText(s string, order binary.AppendByteOrder, mark bool) []byte {
	var b []byte
	if mark {
		s = "\ufeff" + s
	}
	for _, u := range utf16.Encode([]rune(s)) {
		b = order.AppendUint16(b, u)
	}
	return b
}

// TestText: the same text in each wrapping reads the same, in whatever pieces it arrives.
func TestText(t *testing.T) {
	gz := zipped(t, sample)
	for name, data := range map[string][]byte{
		"plain": []byte(sample), "with a UTF-8 mark": []byte("\xef\xbb\xbf" + sample), "gzip": gz,
		"gzip twice":        zipped(t, string(gz)),
		"gzip, two members": append(zipped(t, sample[:20]), zipped(t, sample[20:])...),
		"UTF-16 LE":         wideText(sample, binary.LittleEndian, true),
		"UTF-16 BE":         wideText(sample, binary.BigEndian, true),
		"gzip of UTF-16":    zipped(t, string(wideText(sample, binary.LittleEndian, true))),
	} {
		for _, slow := range []func(io.Reader) io.Reader{func(r io.Reader) io.Reader { return r }, iotest.OneByteReader,
			iotest.DataErrReader} {
			r, err := Text(slow(bytes.NewReader(data)), "a.log")
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if got, err := io.ReadAll(r); string(got) != sample || err != nil {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		}
	}
}

// TestBinary: a file that is named in place of a log is refused with what it is; logs with broken bytes are not.
func TestBinary(t *testing.T) {
	noise := make([]byte, 4096)
	state := uint32(1)
	for i := range noise {
		state = state*1664525 + 1013904223 // Numerical Recipes' generator
		noise[i] = byte(state >> 24)
	}
	for name, c := range map[string]struct{ data, want string }{
		"train": {"\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 100), "a program"},
		"model.pt": {"PK\x03\x04\x00\x00" + strings.Repeat("archive/data.pkl", 20),
			"a checkpoint of PyTorch"},
		"logs.zip": {"PK\x03\x04\x00\x00" + strings.Repeat("stderr.log", 20),
			"is a zip archive; run: unzip -p"},
		"model.safetensors": {"\x40\x00\x00\x00\x00\x00\x00\x00" +
			`{"model.embed_tokens.weight":{"dtype":"BF16"}}`, "a safetensors file"},
		"events.out.tfevents.17.0": {"\x18\x00\x00\x00\x00\x00\x00\x00\xa3\x7f\x4b\x22\x09\x00\x00\x80\x22\x87\x39\xda\x41\x1a\x0dbrain.Event:2", "an event file of TensorBoard"},
		"run.wandb":                {":W&B\x00\x00\x00" + strings.Repeat("\x01", 80), "a record of Weights & Biases"},
		"optimizer.bin":            {string(noise), "binary data"},
	} {
		if _, err := Text(strings.NewReader(c.data), name); err == nil || !strings.Contains(err.Error(), name) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for name, data := range map[string]string{
		"truncated while it was written": strings.Repeat("\x00", 5000) + sample,
		"Latin-1":                        strings.Repeat("Speicher f\xfcr die Gr\xf6\xdfe\n", 20) + sample,
		"a bar that goes back":           strings.Repeat("\b\b\b\b 10%", 200) + "\n" + sample,
		"colours":                        strings.Repeat("\x1b[31mE\x1b[0m", 200) + "\n" + sample,
		"a few stray bytes": strings.Repeat("\x01\x02 step 100 loss 2.0 grad_norm 1.0 lr 1e-4 tokens/s "+
			"1234\n", 50) + sample,
		"prose about an event": "saved brain.Event: nothing\n" + sample,
	} {
		r, err := Text(strings.NewReader(data), "a.log")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, err := io.ReadAll(r); err != nil || !strings.HasSuffix(string(got), sample) {
			t.Errorf("%s: %q, %v", name, got[max(0, len(got)-80):], err)
		}
	}
}

// TestWideWithoutMark: ASCII text in UTF-16 shows by its zero bytes; binary data with some zeros is no text of that
// kind.
func TestWideWithoutMark(t *testing.T) {
	text := strings.Repeat("CUDA out of memory\n", 10)
	r, err := Text(bytes.NewReader(wideText(text, binary.LittleEndian, false)), "a.log")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); string(got) != text || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if order := wideOrder(append(bytes.Repeat([]byte{0}, 100), "abcdefgh"...)); order != nil {
		t.Error("zeros are no text")
	}
}

// TestTextSaysWhatToDo: what cannot be unpacked here is named with the command that can.
func TestTextSaysWhatToDo(t *testing.T) {
	for magic, want := range map[string]string{"\x28\xb5\x2f\xfdxx": "zstd -dc", "\xfd7zXZ\x00xx": "xz -dc",
		"PK\x03\x04xx": "unzip -p", "\x1f\x8bxx": "unpack run.log"} {
		if _, err := Text(strings.NewReader(magic), "run.log"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", magic, err)
		}
	}
	broken := errors.New("disk gone")
	if _, err := Text(iotest.ErrReader(broken), "run.log"); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

// TestCutGzip: what was unpacked before the file ends counts.
func TestCutGzip(t *testing.T) {
	data := zipped(t, strings.Repeat(sample, 100))
	r, err := Text(bytes.NewReader(data[:len(data)-12]), "a.log.gz")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || !strings.HasPrefix(string(got), sample) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// TestErrorFile: the forms that torch.distributed.elastic writes (errors/error_handler.py), and what only looks like
// one.
func TestErrorFile(t *testing.T) {
	for in, want := range map[string]string{
		`{"message": {"message": "OutOfMemoryError: CUDA out of memory.", "extraInfo": {"py_callstack": "Traceback:\n  File \"a.py\", line 1, in f\nx.OutOfMemoryError: CUDA out of memory.\n", "timestamp": "1717784560"}, "errorCode": 1}}`: "[2024-06-07 18:22:40 UTC] Traceback:\n[2024-06-07 18:22:40 UTC]   File \"a.py\", line 1, in f\n[2024-06-07 18:22:40 UTC] x.OutOfMemoryError: CUDA out of memory.\n",
		`{"message": {"message": "KeyError: 'a'", "extraInfo": {"timestamp": 1717784560}}}`: "[2024-06-07 18:22:40 UTC] KeyError: 'a'\n",
		`{"message": "KeyError: 'a'"}`:                      "KeyError: 'a'\n",
		`{"message": {"message": "x", "extraInfo": null}}`:  "x\n",
		`{"message": 7, "level": "info"}`:                   `{"message": 7, "level": "info"}`,
		"{\"message\": \"a\"}\n{\"message\": \"b\"}\n":      "{\"message\": \"a\"}\n{\"message\": \"b\"}\n",
		`{"message": {"message": "cut off", "extraInfo": {`: `{"message": {"message": "cut off", "extraInfo": {`,
	} {
		r, err := Text(strings.NewReader(in), "attempt_0/1/error.json")
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if got, err := io.ReadAll(r); string(got) != want || err != nil {
			t.Errorf("%s:\n got %q\nwant %q, %v", in, got, want, err)
		}
	}
}

// TestList: torchrun's folder gives its files with their ranks, ten after nine; what is no log is left out.
func TestList(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write("none_x/attempt_0/0/stderr.log", "a")
	write("none_x/attempt_0/9/stderr.log", "a")
	write("none_x/attempt_0/10/stderr.log", "a")
	write("none_x/attempt_0/10/stdout.log", "")
	write("none_x/attempt_0/10/error.json", "{}")
	write("train-rank_3.log.gz", "a")
	write("slurm-77.out", "a")
	write("job.o123", "a")
	write("model.safetensors", "a")
	write("config.json", "{}")
	write("requirements.txt", "a")
	write(".git/HEAD.log", "a")
	write("empty/readme.md", "a")
	files, err := List([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range files {
		rel, _ := filepath.Rel(dir, f.Name)
		got = append(got, filepath.ToSlash(rel))
		want := map[string]int{"0": 0, "9": 9, "10": 10}[filepath.Base(filepath.Dir(f.Name))]
		if strings.Contains(rel, "attempt_") && f.Rank != want || strings.Contains(rel, "rank_3") && f.Rank != 3 ||
			strings.Contains(rel, "slurm") && f.Rank != -1 {
			t.Errorf("%s: rank %d", rel, f.Rank)
		}
	}
	want := []string{"job.o123", "none_x/attempt_0/0/stderr.log", "none_x/attempt_0/9/stderr.log",
		"none_x/attempt_0/10/stderr.log", "none_x/attempt_0/10/error.json", "slurm-77.out", "train-rank_3.log.gz"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if _, err := List([]string{filepath.Join(dir, "empty")}); err == nil ||
		!strings.Contains(err.Error(), "holds no logs") {
		t.Errorf("empty folder: %v", err)
	}
	if _, err := List([]string{filepath.Join(dir, "nothing.log")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// FuzzText: no bytes make the unpacking panic or hang, and an unpacked text never grows beyond what its packing can
// hold.
func FuzzText(f *testing.F) {
	f.Add([]byte(sample))
	f.Add(zipped(f, sample))
	f.Add(wideText(sample, binary.LittleEndian, true))
	f.Add([]byte("\xff\xfe\x00\xd8\x41"))
	f.Add([]byte(`{"message": {"message": "a", "extraInfo": {"py_callstack": "b", "timestamp": "1"}}}`))
	f.Add([]byte("BZh91AY&SY"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, name := range []string{"a.log", "error.json"} {
			r, err := Text(bytes.NewReader(data), name)
			if err != nil {
				continue
			}
			if _, err := io.Copy(io.Discard, io.LimitReader(r, 64<<20)); err != nil && err.Error() == "" {
				t.Fatal("an error without words")
			}
		}
	})
}

func TestPackedOverAndOver(t *testing.T) {
	packed := []byte("CUDA out of memory")
	for times := 1; times <= 40; times++ {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		if _, err := w.Write(packed); err != nil || w.Close() != nil {
			t.Fatal(err)
		}
		packed = b.Bytes()
		text, err := Text(bytes.NewReader(packed), "x.log")
		if times > maxPackings {
			if err == nil || !strings.Contains(err.Error(), "packed more than") {
				t.Errorf("%d times: %v", times, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if data, err := io.ReadAll(text); err != nil || string(data) != "CUDA out of memory" {
			t.Errorf("%d times: %q, %v", times, data, err)
		}
	}
}
