package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"oomguard/preflight/model"
)

// TestReadme: exit statuses, commands and model types of the README are those of the program.
func TestReadme(t *testing.T) {
	data, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	readme := string(data)
	for _, code := range []int{exitRefused, exitCannotStart, exitNotExecutable, exitNotFound} {
		if !strings.Contains(readme, fmt.Sprintf("; %d ", code)) {
			t.Errorf("README.md does not explain status %d", code)
		}
	}
	for _, name := range commandNames(newApp(environment{})) {
		if !strings.Contains(readme, "`oomguard "+name) && !strings.Contains(readme, "`"+name+"`") {
			t.Errorf("README.md does not list the command %s", name)
		}
	}
	if list := strings.Join(model.Types(), " "); !strings.Contains(strings.Join(strings.Fields(readme), " "), list) {
		t.Errorf("README.md does not list the model types as %s", list)
	}
}

// TestArchitecture: the page names every package, and every path that it names is there.
func TestArchitecture(t *testing.T) {
	root := filepath.Join("..", "..")
	data, err := os.ReadFile(filepath.Join(root, "docs", "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	err = filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		name, relErr := filepath.Rel(root, path)
		if err != nil || relErr != nil || !entry.IsDir() {
			return err
		}
		if base := filepath.Base(path); name != "." &&
			(strings.HasPrefix(base, ".") || base == "testdata" || base == "bin") {
			return filepath.SkipDir
		}
		if found, err := filepath.Glob(filepath.Join(path, "*.go")); err == nil && len(found) > 0 &&
			!strings.Contains(page, name) {
			t.Errorf("docs/ARCHITECTURE.md does not name the package %s", name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range strings.FieldsFunc(page, func(c rune) bool { return strings.ContainsRune(" `,;:()\n", c) }) {
		top, _, deep := strings.Cut(word, "/")
		if !deep || top != "cmd" && top != "preflight" && top != "launcher" && top != "monitor" && top != "docs" {
			continue
		}
		if _, err := os.Stat(filepath.Join(root, strings.TrimSuffix(word, "."))); err != nil {
			t.Errorf("docs/ARCHITECTURE.md names %s, which is not there", word)
		}
	}
}

// TestReadmeExamples: the commands that the README shows with their output print those very lines.
func TestReadmeExamples(t *testing.T) {
	data, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	model := llama8B(t)
	exe := program(t)
	examples := 0
	var out string
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		words, isCommand := strings.CutPrefix(line, "$ oomguard ")
		switch {
		case isCommand:
			examples++
			cmd := exec.Command(exe, strings.Fields(strings.ReplaceAll(words, "./llama-3-8b", model))...)
			cmd.Env = append(os.Environ(), "NO_COLOR=1")
			text, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%s: %v\n%s", line, err, text)
			}
			out = string(text)
		case line == "```":
			out = ""
		case out != "" && line != "..." && !strings.Contains(out, line):
			t.Errorf("README.md shows %q, which is not in\n%s", line, out)
		}
	}
	if examples < 2 {
		t.Errorf("found %d examples: the test looks at the wrong thing", examples)
	}
}

// llama8B is a folder with the published config.json of Llama-3-8B.
func llama8B(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("../../preflight/model/known/meta-llama__Meta-Llama-3-8B.json")
	if err != nil {
		t.Fatal(err)
	}
	var published struct {
		Config json.RawMessage `json:"config"`
	}
	if err := json.Unmarshal(data, &published); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), published.Config, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}
