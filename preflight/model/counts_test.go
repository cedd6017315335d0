package model

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

func readJSON(t testing.TB, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// TestPublishedModels compares with the exact counts of published models; each file names the source of its number.
func TestPublishedModels(t *testing.T) {
	files, err := filepath.Glob("known/*.json")
	if err != nil || len(files) < 115 {
		t.Fatalf("found %d configs (%v)", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			var model struct {
				Config json.RawMessage
				Params struct{ Total int64 }
			}
			readJSON(t, file, &model)
			a, err := Parse(model.Config, file)
			if err != nil {
				t.Fatal(err)
			}
			if got := a.Parameters(); got != model.Params.Total {
				t.Errorf("counted %d parameters, want %d (%+d)", got, model.Params.Total, got-model.Params.Total)
			}
		})
	}
}

// TestSyntheticModels compares with random architectures that transformers 5.12.1 counted on the meta device.
func TestSyntheticModels(t *testing.T) {
	var file struct {
		Models []struct {
			Name   string
			Config json.RawMessage
			Total  int64
		}
	}
	readJSON(t, "testdata/synthetic.json", &file)
	for _, model := range file.Models {
		t.Run(model.Name, func(t *testing.T) {
			a, err := Parse(model.Config, model.Name)
			if err != nil {
				t.Fatal(err)
			}
			if got := a.Parameters(); got != model.Total {
				t.Errorf("counted %d parameters, want %d (%+d)", got, model.Total, got-model.Total)
			}
		})
	}
}
