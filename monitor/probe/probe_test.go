package probe

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestInstall(t *testing.T) {
	dir := t.TempDir()
	if err := Install(dir); err != nil {
		t.Fatal(err)
	}
	if err := Install(dir); err != nil {
		t.Errorf("a second time: %v", err)
	}
	modes := map[string]os.FileMode{
		"pylib": 0o700, "pylib/sitecustomize.py": 0o600, "pylib/_oomguard_start.py": 0o600,
		"pylib/_oomguard_probe": 0o700, "pylib/_oomguard_probe/__init__.py": 0o600,
	}
	for name, want := range modes {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%q: %v, %v; want mode %o", name, info, err, want)
		}
	}
	if err := Install(filepath.Join(dir, "missing")); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("a folder that does not exist: %v", err)
	}
}

func TestEnv(t *testing.T) {
	table := []struct {
		name       string
		base, want []string
	}{
		{"empty", nil, []string{"PYTHONPATH=/d/pylib", "OOMGUARD_PROBE_DIR=/d"}},
		{"existing path", []string{"PYTHONPATH=/a:/b", "X=1=2"},
			[]string{"X=1=2", "PYTHONPATH=/d/pylib:/a:/b", "OOMGUARD_PROBE_DIR=/d"}},
		{"an empty path would become the working directory", []string{"PYTHONPATH="},
			[]string{"PYTHONPATH=/d/pylib", "OOMGUARD_PROBE_DIR=/d"}},
		{
			"the user's switches stay, those of an outer run go",
			[]string{"OOMGUARD_PROBE=0", "OOMGUARD_MAXBYTES=1", "OOMGUARD_OWNER=1/2/3/4", "OOMGUARD_PROBE_DIR=/old"},
			[]string{"OOMGUARD_PROBE=0", "OOMGUARD_MAXBYTES=1", "PYTHONPATH=/d/pylib", "OOMGUARD_PROBE_DIR=/d"},
		},
	}
	for _, row := range table {
		if got := Env(row.base, "/d"); !slices.Equal(got, row.want) {
			t.Errorf("%s: got %q, want %q", row.name, got, row.want)
		}
	}
}

func TestReadFileNeverFails(t *testing.T) {
	good := `{"e":"hello","q":1}` + "\n"
	table := []struct {
		name, text string
		events     int
		lost       int64
	}{
		{"empty", "", 0, 0},
		{"whole", good + `{"e":"w","q":2}` + "\n", 2, 0},
		{"last line cut", good + `{"e":"w","q`, 1, 1},
		{"last line whole but without end", good + `{"e":"w","q":2}`, 2, 0},
		{"damaged line fills the gap", good + "\xff\x00{\n" + `{"e":"w","q":3}` + "\n", 2, 1},
		{"gap", good + `{"e":"w","q":9}` + "\n", 2, 7},
		{"wrong types", good + `{"e":7}` + "\n" + `[]` + "\n" + `{"e":"w","q":"x"}` + "\n", 1, 3},
		{"starts again after exec", good + `{"e":"w","q":2}` + "\n" + good + `{"e":"w","q":2}` + "\n", 4, 0},
		{"unknown fields and kinds", good + `{"e":"new","q":2,"later":{"x":[1]}}` + "\n", 2, 0},
		{"line too long", good + strings.Repeat("x", 3*maxLineBytes) + "\n" + `{"e":"w","q":3}` + "\n", 2, 1},
	}
	for _, row := range table {
		path := filepath.Join(t.TempDir(), "rank-0.0.1.jsonl")
		if err := os.WriteFile(path, []byte(row.text), 0o600); err != nil {
			t.Fatal(err)
		}
		events, lost, err := ReadFile(path)
		if err != nil || len(events) != row.events || lost != row.lost {
			t.Errorf("%s: %d events, %d lost, %v; want %d and %d", row.name, len(events), lost, err, row.events,
				row.lost)
		}
	}
	for _, path := range []string{t.TempDir(), filepath.Join(t.TempDir(), "missing")} {
		if _, _, err := ReadFile(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func FuzzReadFile(f *testing.F) {
	f.Add([]byte(`{"e":"hello","q":1,"rank":3}` + "\n" + `{"e":"w","q":2,"pa":123}` + "\n" + `{"e"`))
	f.Add([]byte("\n\n{}\n\xff\xfe\n" + `{"e":"w","q":-9223372036854775808}` + "\n" +
		`{"e":"w","q":9223372036854775807}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "rank-0.0.1.jsonl")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, lost, err := ReadFile(path); err != nil || lost < 0 {
			t.Fatalf("lost %d, %v", lost, err)
		}
	})
}
