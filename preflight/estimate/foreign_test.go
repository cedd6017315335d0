package estimate

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"oomguard/preflight/job"
)

// Whatever is read by name of a program that nobody knows, and whatever model it is given, it never "fits": what it
// holds besides is not known.
func TestUnknownProgramsNeverFit(t *testing.T) {
	folders, err := filepath.Glob(filepath.Join("..", "job", "testdata", "jobs", "foreign-*"))
	if err != nil || len(folders) < 30 {
		t.Fatalf("%d jobs: %v", len(folders), err)
	}
	tried := 0
	for _, dir := range folders {
		command, err := os.ReadFile(filepath.Join(dir, "cmd.txt"))
		if err != nil {
			t.Fatal(err)
		}
		for _, flags := range []map[string]string{nil, {"params": "1M"}, {"model": "openai-community/gpt2"},
			{"params": "1M", "micro-batch": "1", "seq-len": "16"}} {
			j := job.Read(job.Sources{Argv: strings.Fields(string(command)), Dir: dir, GPUs: 8, Flags: flags})
			if j.Framework.Known || j.Architecture == nil {
				continue
			}
			tried++
			e, err := Run(Input{Job: j, Model: j.Architecture, Hardware: h100(), Options: DefaultOptions()})
			if err != nil {
				continue
			}
			if e.Fits != nil && *e.Fits {
				text, _ := json.Marshal(e.PerGPU)
				t.Errorf("%s %v: fits: %s", filepath.Base(dir), flags, text)
			}
		}
	}
	if tried < 100 {
		t.Errorf("only %d estimates tried", tried)
	}
}

func h100() Hardware {
	return Hardware{Kind: "cuda", Name: "H100 SXM 80GB", Count: 8, TotalBytes: 79 << 30, ContextBytes: -1,
		NCCLBytes: -1}
}
