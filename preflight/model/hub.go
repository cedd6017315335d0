package model

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// hubName is org/name or name, as huggingface_hub validates it (utils/_validators.py): no part may lead out of the cache's folder.
var hubName = regexp.MustCompile(`^[A-Za-z0-9_][\w.-]*(?:/[A-Za-z0-9_][\w.-]*)?$`)

// commitHash is the name of a snapshot's folder.
var commitHash = regexp.MustCompile(`^[0-9a-f]{40}$`)

// FindCached finds the folder of a hub name such as "meta-llama/Llama-3.1-8B" in Hugging Face's local cache, so that Load can read it.
// It never touches the network and never takes another revision than the one asked for ("" is main). getenv gives the
// environment of the training command. The error says where it looked; it is fs.ErrNotExist when the model is not cached.
func FindCached(name, revision string, getenv func(string) string) (string, error) {
	if !hubName.MatchString(name) || strings.Contains(name, "..") || strings.Contains(name, "--") {
		return "", fmt.Errorf("%q is neither a folder nor a hub name such as org/name: give --model DIR, or the number of parameters with --params", name)
	}
	if revision == "" {
		revision = "main"
	}
	if !filepath.IsLocal(revision) {
		return "", fmt.Errorf("model %q: revision %q is not the name of a branch, tag or commit", name, revision)
	}
	cache := hubCache(getenv)
	folder := filepath.Join(cache, "models--"+strings.ReplaceAll(name, "/", "--"))
	commit := revision
	if !commitHash.MatchString(revision) {
		text, err := os.ReadFile(filepath.Join(folder, "refs", filepath.FromSlash(revision)))
		if err != nil {
			return "", notCached(name, revision, cache, err)
		}
		commit = strings.TrimSpace(string(text))
		if !commitHash.MatchString(commit) {
			return "", fmt.Errorf("model %q: %s holds no commit hash: download the model again, or give the number of parameters with --params",
				name, filepath.Join(folder, "refs", revision))
		}
	}
	snapshot := filepath.Join(folder, "snapshots", commit)
	if _, err := os.Stat(filepath.Join(snapshot, "config.json")); err != nil {
		return "", notCached(name, revision, cache, err)
	}
	return snapshot, nil
}

func notCached(name, revision, cache string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("model %q (revision %s) is not in the Hugging Face cache %s (%w): download it first, or give --model DIR or --params 7B",
			name, revision, cache, fs.ErrNotExist)
	}
	return fmt.Errorf("model %q in the Hugging Face cache: %w", name, err)
}

// hubCache is the folder of cached models: the first of the variables that huggingface_hub/constants.py and transformers read.
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
