package model

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"oomguard/launcher/files"
)

// hubName is org/name or name, as huggingface_hub validates it (utils/_validators.py): no part may lead out of the
// cache's folder.
var hubName = regexp.MustCompile(`^[A-Za-z0-9_][\w.-]*(?:/[A-Za-z0-9_][\w.-]*)?$`)

// commitHash is the name of a snapshot's folder.
var commitHash = regexp.MustCompile(`^[0-9a-f]{40}$`)

// A HubModel names a model, or an adapter, on a Hugging Face hub.
type HubModel struct {
	Name     string // "meta-llama/Llama-3.1-8B"
	Revision string // branch, tag or commit; "" is main
}

// check refuses names and revisions that are none, and fills in the default revision.
func (m HubModel) check() (HubModel, error) {
	if !hubName.MatchString(m.Name) || strings.Contains(m.Name, "..") || strings.Contains(m.Name, "--") {
		return m, fmt.Errorf("%q is neither a folder nor a hub name such as org/name: give --model DIR, or --params "+
			"for a lower bound", m.Name)
	}
	m.Revision = cmp.Or(m.Revision, mainRevision)
	if !filepath.IsLocal(m.Revision) {
		return m, fmt.Errorf("model %q: revision %q is not the name of a branch, tag or commit", m.Name, m.Revision)
	}
	return m, nil
}

const mainRevision = "main"

// maxRefBytes is more than the commit hash has that a file of the cache's refs holds.
const maxRefBytes = 1 << 10

// FindCached finds the folder of a model in Hugging Face's local cache, so that Load can read it. It never touches the
// network and never takes another revision than the one asked for. cacheDir is the cache_dir that the training passes
// on ("": none), getenv its environment. The error says where it looked; it is fs.ErrNotExist when the model is not
// cached.
func FindCached(m HubModel, cacheDir string, getenv func(string) string) (string, error) {
	m, err := m.check()
	if err != nil {
		return "", err
	}
	name, revision, cache := m.Name, m.Revision, cmp.Or(cacheDir, hubCache(getenv))
	folder := filepath.Join(cache, "models--"+strings.ReplaceAll(name, "/", "--"))
	commit := revision
	if !commitHash.MatchString(revision) {
		text, err := files.Head(filepath.Join(folder, "refs", filepath.FromSlash(revision)), maxRefBytes)
		if err != nil {
			return "", notCached(name, revision, cache, err)
		}
		commit = strings.TrimSpace(string(text))
		if !commitHash.MatchString(commit) {
			return "", fmt.Errorf("model %q: %s holds no commit hash: download the model again, or give --params "+
				"for a lower bound",
				name, filepath.Join(folder, "refs", revision))
		}
	}
	if _, err := os.Stat(filepath.Join(folder, ".no_exist", commit, "config.json")); err == nil &&
		!hasFile(filepath.Join(folder, "snapshots", commit), adapterFile) {
		return "", fmt.Errorf("model %q (revision %s): the hub has no config.json for it, says the Hugging Face "+
			"cache %s: give --model DIR (--params N gives a lower bound)", name, revision, cache)
	}
	snapshot := filepath.Join(folder, "snapshots", commit)
	if _, err := os.Stat(filepath.Join(snapshot, "config.json")); err != nil && !hasFile(snapshot, adapterFile) {
		return "", notCached(name, revision, cache, err)
	}
	return snapshot, nil
}

// adapterFile says, instead of a config.json, that a folder holds an adapter.
const adapterFile = "adapter_config.json"

func hasFile(folder, name string) bool {
	_, err := os.Stat(filepath.Join(folder, name))
	return err == nil
}

func notCached(name, revision, cache string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("model %q (revision %s) is not in the Hugging Face cache %s (%w): download it first, or "+
			"give --model DIR (--params N gives a lower bound)",
			name, revision, cache, fs.ErrNotExist)
	}
	return fmt.Errorf("model %q in the Hugging Face cache: %w", name, err)
}

// hubCache is the folder of cached models: the first of the variables that huggingface_hub/constants.py and
// transformers read.
func hubCache(getenv func(string) string) string {
	for _, place := range []struct{ variable, below string }{
		{"HF_HUB_CACHE", ""},
		{"HUGGINGFACE_HUB_CACHE", ""},
		{"TRANSFORMERS_CACHE", ""}, // transformers 4
		{"HF_HOME", "hub"},
		{"XDG_CACHE_HOME", "huggingface/hub"},
	} {
		dir := getenv(place.variable)
		if dir == "" {
			continue
		}
		if rest, ok := strings.CutPrefix(dir, "~/"); ok {
			dir = filepath.Join(getenv("HOME"), rest)
		}
		return filepath.Join(dir, place.below)
	}
	return filepath.Join(getenv("HOME"), ".cache/huggingface/hub")
}
