package monitor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"oomguard/launcher/files"
)

// inTemp makes private folders go to a folder of the test's own, beside shared memory.
func inTemp(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	return dir
}

func aPrivate(t *testing.T, base string, store *Store) *Private {
	t.Helper()
	p, err := newPrivate(base, store)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestFindPrivate: only what this package can have made, for this user and for this run, is a run's private folder.
func TestFindPrivate(t *testing.T) {
	tmp := inTemp(t)
	store, other := newStore(t), newStore(t)
	own := aPrivate(t, tmp, store)
	make := func(dir string, mode os.FileMode, run string) string {
		dir = filepath.Join(tmp, dir)
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "lock"), nil, 0o600),
			os.WriteFile(filepath.Join(dir, "run"), []byte(run), 0o600), os.Chmod(dir, mode)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	link := filepath.Join(tmp, "oomguard-99")
	if err := os.Symlink(own.Dir, link); err != nil {
		t.Fatal(err)
	}
	nothing := filepath.Join(tmp, "oomguard-5")
	if err := os.Mkdir(nothing, 0o700); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct{ dir, want string }{
		"its own":            {own.Dir, ""},
		"another run's":      {make("oomguard-1", 0o700, other.Dir), "of another run"},
		"a run that is gone": {make("oomguard-2", 0o700, "/nowhere"), "of another run"},
		"open to the group":  {make("oomguard-3", 0o750, store.Dir), "open to others"},
		"another name":       {make("oomguard-runs", 0o700, store.Dir), "is not where"},
		"a name with more":   {make("oomguard-1x", 0o700, store.Dir), "is not where"},
		"in a folder below":  {make("sub/oomguard-1", 0o700, store.Dir), "is not where"},
		"says nothing":       {nothing, "does not say"},
		"a link to its own":  {link, "symbolic link"},
		"gone":               {filepath.Join(tmp, "oomguard-4"), "no such file"},
		"a root":             {"/", "is not where"},
		"nothing":            {"", "is not where"},
		"the base":           {tmp, "is not where"},
		"relative":           {filepath.Base(own.Dir), "is not where"},
		"the run folder":     {store.Dir, "is not where"},
		"dots out of the base": {filepath.Join(tmp, "sub") + "/../../" + filepath.Base(tmp) + "/oomguard-1x",
			"is not where"},
	}
	if os.Geteuid() == 0 {
		foreign := make("oomguard-6", 0o700, store.Dir)
		if err := os.Chown(foreign, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		cases["another user's"] = struct{ dir, want string }{foreign, "another user"}
	}
	for name, c := range cases {
		p, err := FindPrivate(store, c.dir)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
		if err == nil {
			_ = p.Close()
		}
	}
	if _, err := FindPrivate(store, filepath.Join(tmp, "oomguard-4")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that is gone: %v", err)
	}
}

// TestPrivateLife: the folder is its owner's until that is gone, however it went; then in use as long as a rank or the
// relay writes.
func TestPrivateLife(t *testing.T) {
	tmp := inTemp(t)
	store := newStore(t)
	owner := aPrivate(t, tmp, store)
	dir := owner.Dir
	reader, err := FindPrivate(store, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	state := func() (bool, bool) { return reader.Owned(), reader.Used() }
	if owned, used := state(); !owned || !used {
		t.Errorf("with its owner: owned %v, used %v", owned, used)
	}
	rank, err := owner.folder.Append("rank-0.0.5.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(files.Share(rank), owner.Close()); err != nil { // as when the owner was killed
		t.Fatal(err)
	}
	if owned, used := state(); owned || !used {
		t.Errorf("with a rank: owned %v, used %v", owned, used)
	}
	swept := 0
	sweepIn([]string{tmp}, func(*Private, *Store) { swept++ })
	if err := rank.Close(); err != nil {
		t.Fatal(err)
	}
	if owned, used := state(); owned || used {
		t.Errorf("left over: owned %v, used %v", owned, used)
	}
	if _, err := os.Stat(dir); err != nil || swept > 0 {
		t.Errorf("a folder in use was swept (%d): %v", swept, err)
	}
	if err := reader.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}

// TestRemoveAnotherFolder: what has taken the name of a private folder meanwhile is not removed.
func TestRemoveAnotherFolder(t *testing.T) {
	tmp := inTemp(t)
	p := aPrivate(t, tmp, newStore(t))
	if err := errors.Join(os.Rename(p.Dir, p.Dir+"-old"), os.Mkdir(p.Dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := p.Remove(); err == nil {
		t.Error("another folder was removed")
	}
	if _, err := os.Stat(p.Dir); err != nil {
		t.Error(err)
	}
}

// TestSweepPrivate: left-overs go after their content was brought into their runs; nothing else does.
func TestSweepPrivate(t *testing.T) {
	tmp := inTemp(t)
	store, lives := newStore(t), newStore(t)
	left, live, orphan := aPrivate(t, tmp, store), aPrivate(t, tmp, lives),
		aPrivate(t, tmp, &Store{Dir: filepath.Join(tmp, "no run")})
	begin(t, store)
	for name, text := range map[string]string{
		"rank-0.0.5.jsonl": `{"e":"hello","q":1,"rank":0,"pid":5}` + "\n" +
			`{"e":"exc","q":2,"type":"E","msg":"topsecretvalue"}` + "\n" + `{"torn`,
		"other.jsonl": "not ours\n", "output.log": "the end: topsecretvalue\n",
	} {
		if err := os.WriteFile(filepath.Join(left.Dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	strange := filepath.Join(tmp, "oomguard-77")
	if err := errors.Join(os.Mkdir(strange, 0o700), left.Close(), orphan.Close()); err != nil {
		t.Fatal(err)
	}
	scrub := NewScrubber([]string{"HF_TOKEN=topsecretvalue"}, nil)
	sweepIn([]string{tmp}, func(p *Private, to *Store) {
		if _, err := p.Adopt(to, scrub, func(path string) string {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Error(err)
			}
			return string(data)
		}); err != nil {
			t.Error(err)
		}
	})
	for dir, there := range map[string]bool{left.Dir: false, orphan.Dir: false, live.Dir: true, strange: true} {
		if _, err := os.Stat(dir); (err == nil) != there {
			t.Errorf("%s: %v, should be there: %v", dir, err, there)
		}
	}
	output, err := store.ReadFile(OutputFile, 100)
	if err != nil || string(output) != "the end: "+Redacted+"\n" {
		t.Errorf("output %q, %v", output, err)
	}
	rec, err := Load(store)
	if err != nil || len(rec.Ranks) != 1 || rec.Ranks[0].Exception == nil ||
		rec.Ranks[0].Exception.Message != Redacted {
		t.Errorf("%v %+v", err, rec)
	}
	if names := store.stageFiles(); len(names) != 1 {
		t.Errorf("adopted %q", names)
	}
}

// TestCopierOutlivesItsFolder: when somebody takes the private folder away while the run goes on, what known ranks
// write is recorded all the same, and the report says what is missing.
func TestCopierOutlivesItsFolder(t *testing.T) {
	store, dir := newStore(t), t.TempDir()
	rank, err := os.Create(filepath.Join(dir, "rank-0.0.5.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer rank.Close()
	c := newCopier(dir, store, nil)
	for i, text := range []string{`{"e":"hello","q":1,"rank":0,"pid":5}` + "\n", `{"e":"bye","q":2,"st":3}` + "\n"} {
		if _, err := rank.WriteString(text); err != nil {
			t.Fatal(err)
		}
		c.poll()
		if i == 0 {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}
	}
	notes := strings.Join(c.close(), "\n")
	if rec, err := Load(store); err != nil || len(rec.Ranks) != 1 || !rec.Ranks[0].Ended {
		t.Errorf("%v %+v", err, rec)
	}
	if !strings.Contains(notes, "took the private folder") || strings.Contains(notes, "no such file") {
		t.Errorf("notes %q", notes)
	}
}
