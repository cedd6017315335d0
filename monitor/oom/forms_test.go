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

// form is one short log of testdata/forms: how one program says one thing, typed anew after its source or after public threads.
type form struct {
	name   string // file and description
	causes []Cause
	want   map[string]string // stage, rank, gpu, line of the first message, tried: as far as the form gives them
	text   string
}

// formTitle is the line between forms: -- cause[/cause...] key=value... | description --
var formTitle = regexp.MustCompile(`^-- (\S+)((?: \w+=\S+)*) \| (.+) --$`)

// fullCard is what {full} stands for in testdata/forms.
const fullCard = "CUDA out of memory. Tried to allocate 132.00 MiB. GPU 1 has a total capacity of 79.10 GiB of which 98.00 MiB is free. " +
	"Including non-PyTorch memory, this process has 78.89 GiB memory in use. Of the allocated memory 77.12 GiB is allocated by PyTorch, " +
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
			for c := range strings.SplitSeq(m[1], "/") {
				f.causes = append(f.causes, Cause(c))
			}
			if m[1] == string(HIPROCm) || m[1] == string(MPSXPU) || m[1] == string(JAXTF) {
				f.causes = []Cause{Cause(m[1])}
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

// TestForms: every form that programs give to their ends is judged right, with the rank, the GPU and the stage that it shows.
func TestForms(t *testing.T) {
	for _, f := range readForms(t) {
		log := scanText(t, f.text)
		d := Diagnose(log, NoFacts())
		if !slices.Contains(f.causes, d.Cause) {
			t.Errorf("%s: %s, want %v; %s", f.name, d.Cause, f.causes, d.Summary)
		}
		got := map[string]string{"rank": strconv.Itoa(d.Rank), "gpu": strconv.Itoa(d.GPU), "stage": d.Stage}
		for key, want := range f.want {
			if got[key] != want {
				t.Errorf("%s: %s %s, want %s", f.name, key, got[key], want)
			}
		}
	}
}
