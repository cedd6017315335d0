package checklists

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"oomguard/launcher/files"
)

// files is a readFile over a few texts.
type lists map[string]string

func (f lists) read(name string, _ int64) ([]byte, error) {
	text, ok := f[name]
	if !ok {
		return nil, fmt.Errorf("open %s: %w", name, fs.ErrNotExist)
	}
	return []byte(text), nil
}

func TestLoadBuiltin(t *testing.T) {
	for _, name := range Builtin() {
		list, err := Load(name, lists{}.read)
		if err != nil {
			t.Fatal(err)
		}
		if list.Name != name || list.Title == "" || len(list.Entries) == 0 {
			t.Errorf("%s: %+v", name, list)
		}
		for _, e := range list.Entries {
			if e.Severity != Fail && e.Severity != Warn {
				t.Errorf("%s: %s has severity %q", name, e.ID, e.Severity)
			}
		}
	}
}

func TestLoadExtends(t *testing.T) {
	f := lists{
		"lists/base.yaml": "title: Base\nchecks:\n  - {id: a, severity: warn, with: {low: 1, high: 2}}\n  - id: b\n " +
			" - id: c\n",
		"lists/team.yaml": "extends: base.yaml\nchecks:\n  - id: a\n    with: {high: 5}\n  - {id: d, severity: " +
			"warn}\n  - {id: b, severity: warn}\ndrop: [c]\n",
		"lists/own.yaml": "name: ours\ntitle: Ours\nextends: team.yaml\n",
	}
	list, err := Load("lists/own.yaml", f.read)
	if err != nil {
		t.Fatal(err)
	}
	want := List{Name: "ours", Title: "Ours", Extends: "team.yaml", Entries: []Entry{
		{"a", Warn, Params{"low": 1, "high": 5}, "lists/team.yaml:3"},
		{"b", Warn, Params{}, "lists/team.yaml:6"},
		{"d", Warn, nil, "lists/team.yaml:5"},
	}}
	if !reflect.DeepEqual(list, want) {
		t.Errorf("got  %+v\nwant %+v", list, want)
	}
	if base, err := Load("lists/team.yaml", f.read); err != nil || base.Name != "team" || base.Title != "Base" {
		t.Errorf("name from the file, title from the base: %+v, %v", base, err)
	}
}

func TestLoadExtendsBuiltin(t *testing.T) {
	base, err := Load("pretraining", nil)
	if err != nil {
		t.Fatal(err)
	}
	last := base.Entries[len(base.Entries)-1].ID
	list, err := Load("dir/team.yaml", lists{"dir/team.yaml": "extends: pretraining\ndrop: [" + last + "]"}.read)
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Entries) != len(base.Entries)-1 {
		t.Errorf("%d entries, the base has %d", len(list.Entries), len(base.Entries))
	}
}

func TestRequireAnswerIsInherited(t *testing.T) {
	f := lists{
		"own.yaml":  "extends: ci\n",
		"mild.yaml": "extends: ci\nrequire_answer: false\n",
		"hard.yaml": "require_answer: true\nchecks:\n  - id: a\n",
	}
	for name, want := range map[string]bool{"pretraining": false, "ci": true, "own.yaml": true, "mild.yaml": false,
		"hard.yaml": true} {
		if list, err := Load(name, f.read); err != nil || list.RequireAnswer != want {
			t.Errorf("%s: %v, %v", name, list.RequireAnswer, err)
		}
	}
}

func TestLoadErrors(t *testing.T) {
	tests := []struct {
		name, yaml string
		want       []string
	}{
		{"empty", "", []string{"empty"}},
		{"only comments", "# nothing\n", []string{"empty"}},
		{"no checks", "name: x\n", []string{"no checks"}},
		{"null", "~\n", []string{"must be a mapping"}},
		{"not a mapping", "- a\n- b\n", []string{":1", "must be a mapping"}},
		{"syntax", "checks:\n  - id: a\n bad\n", []string{"yaml: line "}},
		{"unknown field", "chekcs:\n  - id: a\n",
			[]string{":1", `unknown field "chekcs"`, "known: name, title, extends, require_answer, checks, drop"}},
		{"unknown field of a check", "checks:\n  - id: a\n    sevrity: warn\n",
			[]string{":3", `"sevrity"`, "known: id, severity, with"}},
		{"field twice", "checks:\n  - id: a\n    id: b\n", []string{":3", `field "id" twice`}},
		{"check twice", "checks:\n  - id: a\n  - id: a\n", []string{":3", "check a is listed twice", "team.yaml:2"}},
		{"no id", "checks:\n  - severity: warn\n", []string{":2", "without id"}},
		{"check is a word", "checks: [a]\n", []string{":1", "must be a mapping"}},
		{"checks is a word", "checks: a\n", []string{":1", "checks must be a list"}},
		{"severity", "checks:\n  - id: a\n    severity: error\n",
			[]string{":3", `severity "error" of a`, "fail or warn"}},
		{"threshold is a word", "checks:\n  - id: a\n    with: {x: many}\n",
			[]string{":3", "threshold x is not a number"}},
		{"threshold is not finite", "checks:\n  - id: a\n    with: {x: NaN}\n", []string{":3", "threshold x"}},
		{"threshold is negative", "checks:\n  - id: a\n    with: {x: -1}\n", []string{":3", "from 0 up"}},
		{"title is a list", "title: [a]\nchecks:\n  - id: a\n", []string{":1", "title must be a word"}},
		{"drop without extends", "checks:\n  - id: a\ndrop: [b]\n", []string{":3", "drop without extends"}},
		{"drop of what is not there", "extends: pretraining\ndrop: [nope]\n",
			[]string{":2", `drop names "nope"`, "pretraining does not have"}},
		{"extends itself", "extends: team.yaml\n", []string{"extends itself", "team.yaml -> team.yaml"}},
		{"extends nothing there", "extends: other.yaml\n",
			[]string{"team.yaml extends other.yaml", "built-in ones are: ", "pretraining"}},
		{"require_answer is a word", "require_answer: perhaps\nchecks:\n  - id: a\n",
			[]string{":1", "require_answer must be true or false"}},
		{"two documents", "checks:\n  - id: a\n---\nchecks: []\n", []string{"more than one"}},
		{"not UTF-8", "title: \xff\xfe\n", []string{"not UTF-8"}},
		{"alias to itself", "checks: &x\n  - *x\n", []string{"team.yaml"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Load("team.yaml", lists{"team.yaml": tt.yaml}.read)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range append(tt.want, "team.yaml") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
		})
	}
}

func TestLoadUnreadable(t *testing.T) {
	dir := t.TempDir()
	huge := filepath.Join(dir, "huge.yaml")
	if err := os.WriteFile(huge, []byte(strings.Repeat("#", maxFileBytes+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(huge, files.Read); err == nil || !strings.Contains(err.Error(), "more than 1 MiB") {
		t.Errorf("a huge file: %v", err)
	}
	if _, err := Load(dir, files.Read); err == nil || !strings.Contains(err.Error(), "must be a readable YAML file") {
		t.Errorf("a directory: %v", err)
	}
	_, err := Load(filepath.Join(dir, "none"), files.Read)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "built-in ones are: ") {
		t.Errorf("a missing file: %v", err)
	}
}

func FuzzLoad(f *testing.F) {
	builtinText, err := builtin.ReadFile("pretraining.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(builtinText))
	for _, seed := range []string{
		"", "~", "[]", "extends: pretraining\ndrop: [shm]\n", "extends: fuzz.yaml\n", "checks: &x\n  - *x\n",
		"checks:\n  - &a {id: a, with: {x: 1}}\n  - *a\n", "checks:\n  - id: !!binary aGk=\n", "a: &a [*a]\n",
		"? {a: b}\n: c\n", "<<: {name: x}\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, err := Load("fuzz.yaml", lists{"fuzz.yaml": text}.read)
		if err != nil {
			if !strings.Contains(err.Error(), "fuzz.yaml") {
				t.Errorf("error does not name the file: %v", err)
			}
			return
		}
		if list.Name == "" {
			t.Error("a list without name")
		}
		seen := map[string]bool{}
		for _, e := range list.Entries {
			if e.ID == "" || seen[e.ID] || (e.Severity != Fail && e.Severity != Warn) || e.Origin == "" {
				t.Errorf("bad entry %+v in %q", e, text)
			}
			seen[e.ID] = true
		}
	})
}
