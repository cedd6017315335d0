package main

import (
	"fmt"
	"os"
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
