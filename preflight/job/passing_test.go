package job

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// TestPassing reads scripts that pass arguments in every way that Python has. What the text decides is known, and what
// it does not decide is unknown, with the file and line that leave it open.
func TestPassing(t *testing.T) {
	archives, err := filepath.Glob(filepath.Join("testdata", "passing", "*.txtar"))
	if err != nil || len(archives) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, name := range archives {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		kind := strings.TrimSuffix(filepath.Base(name), ".txtar")
		frame := string(archive.Files[0].Data)
		right, wrong, lost := 0, 0, 0
		for _, f := range archive.Files[1:] {
			t.Run(kind+"/"+f.Name, func(t *testing.T) {
				_, wants, _ := strings.Cut(f.Name, ": ")
				script := strings.Replace(frame, "BODY\n", string(f.Data), 1)
				files := map[string]string{"train.py": script}
				settings := scriptJob(t, files, 2, versions2025, "torchrun --nproc_per_node 2 train.py").Settings()
				for want := range strings.FieldsSeq(wants) {
					key, value, _ := strings.Cut(want, "=")
					switch n := find(settings, key); {
					case value == "?" && n.Known:
						wrong++
						t.Errorf("%s: got %s (%s), which the text does not decide", key, n.Value, n.Origin)
					case value == "?" && !strings.Contains(n.Origin, "train.py"):
						t.Errorf("%s is unknown for no reason that names a place: %s", key, n.Origin)
					case value == "?":
						right++
					case !n.Known:
						lost++
						t.Errorf("%s: got unknown (%s), want %s", key, n.Origin, value)
					case n.Value != value:
						wrong++
						t.Errorf("%s: got %s (%s), want %s", key, n.Value, n.Origin, value)
					default:
						right++
					}
				}
			})
		}
		t.Logf("%s: %d right, %d wrong, %d lost of %d scripts", kind, right, wrong, lost, len(archive.Files)-1)
	}
}

func find(settings []Named, key string) Named {
	for _, n := range settings {
		if n.Key == key {
			return n
		}
	}
	return Named{Key: key}
}
