package model

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFindCached uses the layout that huggingface_hub writes: refs/<revision> names a commit, snapshots/<commit> holds
// the files.
func TestFindCached(t *testing.T) {
	const commit, other = "0123456789abcdef0123456789abcdef01234567", "89abcdef0123456789abcdef0123456789abcdef"
	home := t.TempDir()
	folder := filepath.Join(home, "hub/models--org--tiny")
	for file, text := range map[string]string{
		"refs/main": commit, "refs/pr/1": other + "\n", "refs/broken": "../../..",
		"snapshots/" + commit + "/config.json": tinyLlama,
	} {
		path := filepath.Join(folder, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	environments := []map[string]string{
		{"HF_HOME": home},
		{"HF_HUB_CACHE": filepath.Join(home, "hub"), "HF_HOME": "/elsewhere"},
		{"HF_HOME": "~/x", "HOME": filepath.Join(home, "y"), "HUGGINGFACE_HUB_CACHE": filepath.Join(home, "hub")},
	}
	for _, env := range environments {
		for _, revision := range []string{"", "main", commit} {
			dir, err := FindCached(HubModel{"org/tiny", revision}, "", func(name string) string { return env[name] })
			if err != nil {
				t.Errorf("%v %q: %v", env, revision, err)
				continue
			}
			if a, err := Load(dir); err != nil || a.Parameters() == 0 {
				t.Errorf("%v %q: %v", env, revision, err)
			}
		}
	}
	getenv := func(name string) string { return environments[0][name] }
	for _, test := range []struct {
		name, revision, want string
		missing              bool
	}{
		{"org/other", "", home, true},
		{"org/tiny", "v2", "revision v2", true},
		{"org/tiny", other, "not in the Hugging Face cache", true},
		{"org/tiny", "pr/1", "not in the Hugging Face cache", true}, // the commit is known, its files are not there
		{"org/tiny", "broken", "no commit hash", false},
		{"org/tiny", "../../secret", "revision", false},
		{"../tiny", "", "neither a folder nor a hub name", false},
		{"a/b/c", "", "neither a folder nor a hub name", false},
	} {
		_, err := FindCached(HubModel{test.name, test.revision}, "", getenv)
		if err == nil || !strings.Contains(err.Error(), test.want) || errors.Is(err, fs.ErrNotExist) != test.missing {
			t.Errorf("%s@%s: %v, want an error that says %q (missing: %v)", test.name, test.revision, err, test.want,
				test.missing)
		}
	}
	if dir := hubCache(func(name string) string { return map[string]string{"HOME": "/home/x"}[name] }); dir != "/home/x/.cache/huggingface/hub" {
		t.Errorf("default cache %s", dir)
	}
}
