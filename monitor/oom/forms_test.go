package oom

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// form is one short log of testdata/forms: how one program says one thing, typed anew after its source or after public
// threads.
type form struct {
	name   string // file and description
	causes []Cause
	// stage, rank, gpu, and the first message's numbers as printed, without the space: as far as the form gives them
	want map[string]string
	text string
}

// formTitle is the line between forms: -- cause[/cause...] key=value... | description --
var formTitle = regexp.MustCompile(`^-- (\S+)((?: \w+=\S+)*) \| (.+) --$`)

// closeSlashes keeps together the causes that have a slash in their name.
var closeSlashes = strings.NewReplacer(string(HIPROCm), "hip:rocm", string(MPSXPU), "mps:xpu", string(JAXTF), "jax:tf")

// fullCard is what {full} stands for in testdata/forms.
const fullCard = "CUDA out of memory. Tried to allocate 132.00 MiB. GPU 1 has a total capacity of 79.10 GiB of " +
	"which 98.00 MiB is free. " +
	"Including non-PyTorch memory, this process has 78.89 GiB memory in use. Of the allocated memory 77.12 GiB is " +
	"allocated by PyTorch, " +
	"and 165.81 MiB is reserved by PyTorch but unallocated."

func readForms(t testing.TB) []form {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "forms", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatal("no forms", err)
	}
	var forms []form
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, text, _ := strings.Cut(string(data), "\n") // the first line says what the file is about
		for line := range strings.Lines(text) {
			m := formTitle.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
			if m == nil {
				if len(forms) == 0 {
					t.Fatalf("%s: text before the first title", file)
				}
				forms[len(forms)-1].text += strings.ReplaceAll(line, "{full}", fullCard)
				continue
			}
			f := form{name: filepath.Base(file) + ": " + m[3], want: map[string]string{}}
			for c := range strings.SplitSeq(closeSlashes.Replace(m[1]), "/") {
				f.causes = append(f.causes, Cause(strings.ReplaceAll(c, ":", "/")))
			}
			for pair := range strings.FieldsSeq(m[2]) {
				key, value, _ := strings.Cut(pair, "=")
				f.want[key] = value
			}
			forms = append(forms, f)
		}
	}
	return forms
}

// TestForms: every form that programs give to their ends is judged right, with the rank, the GPU and the stage that it
// shows.
func TestForms(t *testing.T) {
	for _, f := range readForms(t) {
		log := scanText(t, f.text)
		d := Diagnose(log, NoFacts())
		none := d.Cause == NoCause && slices.Contains(f.causes, NotOOM) // the forms do not tell another cause from none
		if !slices.Contains(f.causes, d.Cause) && !none {
			t.Errorf("%s: %s, want %v; %s", f.name, d.Cause, f.causes, d.Summary)
		}
		got := map[string]string{"rank": strconv.Itoa(d.Rank), "gpu": strconv.Itoa(d.GPU), "stage": d.Stage}
		checkNumbers(t, f, log)
		for key, value := range got {
			if want, ok := f.want[key]; ok && value != want {
				t.Errorf("%s: %s %s, want %s", f.name, key, value, want)
			}
		}
	}
}

// checkNumbers compares what a form says of its first message, such as tried=2.00GiB.
func checkNumbers(t *testing.T, f form, log *Log) {
	t.Helper()
	numbers := map[string]func(Message) int64{
		"tried": func(m Message) int64 { return m.TriedBytes }, "total": func(m Message) int64 { return m.TotalBytes },
		"free":  func(m Message) int64 { return m.FreeBytes },
		"alloc": func(m Message) int64 { return m.AllocatedBytes },
	}
	for key, number := range numbers {
		printed, ok := f.want[key]
		if !ok {
			continue
		}
		digits := strings.TrimRight(printed, "bytesKMGTiB")
		want := parseSize(digits, printed[len(digits):])
		if len(log.Messages) == 0 || number(log.Messages[0]) != want {
			t.Errorf("%s: %s is not %s (%d): %+v", f.name, key, printed, want, log.Messages)
		}
	}
}
