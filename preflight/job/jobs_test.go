package job

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// The jobs under testdata/jobs are written from the sources of the frameworks that they use: cmd.txt is the command, env.json the
// environment, the GPUs and the versions, expected.json what a person who knows the frameworks reads in them. Model names are
// replaced by local folders, because hub names are not resolved yet.
func TestJobs(t *testing.T) {
	// later names keys that need the issue "every launcher and config format", and why.
	tests := []struct {
		folder string
		later  map[string]string
	}{
		{"01-hf-torchrun-zero3-auto", nil},
		{"02-trl-sft-torchrun-fsdp1", map[string]string{"fused_loss": "defaults of TRL", "activation_offload": "defaults of TRL"}},
		{"37-hf-local-adapter-resume", map[string]string{
			"model": "base of an adapter's folder", "model_params": "base of an adapter's folder", "method": "adapter_config.json", "lora": "adapter_config.json",
			"param_dtype": "adapter_config.json", "base_dtype": "text of the script", "packing": "text of the script",
		}},
		{"38-prequantized-bnb4-lora", map[string]string{
			"precision": "defaults of TRL", "checkpointing": "defaults of TRL", "packing": "defaults of TRL", "fused_loss": "defaults of TRL", "activation_offload": "defaults of TRL",
		}},
		{"41-hf-v5-json-args-single-gpu", nil},
		{"44-torchrun-env-nproc-and-abbrev", nil},
	}
	for _, tt := range tests {
		t.Run(tt.folder, func(t *testing.T) {
			dir := filepath.Join("testdata", "jobs", tt.folder)
			j := Read(jobSources(t, dir))
			for _, problem := range j.Problems {
				t.Errorf("problem: %v", problem)
			}
			got := settingValues(t, j)
			var want map[string]any
			readTestJSON(t, filepath.Join(dir, "expected.json"), &want)
			for key, value := range want {
				if tt.later[key] == "" && !sameValue(key, got[key], value) {
					t.Errorf("%s: got %v, want %v", key, got[key], value)
				}
			}
			for key, why := range tt.later {
				if sameValue(key, got[key], want[key]) {
					t.Errorf("%s is read now: take it off the list of what comes later (%s)", key, why)
				}
			}
		})
	}
}

// sameValue compares JSON values. The expectations were written before the vocabulary told fused AdamW from PyTorch's default, and
// name only some numbers of ds_resolved.
func sameValue(key string, got, want any) bool {
	if key == "optimizer" && got == "adamw_fused" {
		got = "adamw"
	}
	if numbers, ok := want.(map[string]any); ok && key == "ds_resolved" {
		all, _ := got.(map[string]any)
		for name, value := range numbers {
			if !reflect.DeepEqual(all[name], value) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(got, want)
}

func jobSources(t testing.TB, dir string) Sources {
	t.Helper()
	var env struct {
		GPUs     int               `json:"gpus"`
		Env      map[string]string `json:"env"`
		Versions map[string]string `json:"versions"`
	}
	readTestJSON(t, filepath.Join(dir, "env.json"), &env)
	command, err := os.ReadFile(filepath.Join(dir, "cmd.txt"))
	if err != nil {
		t.Fatal(err)
	}
	return Sources{Argv: shellWords(string(command)), Dir: dir, GPUs: env.GPUs, CPUs: 4, Versions: env.Versions,
		Getenv: func(name string) string { return env.Env[name] }}
}

// shellWords splits at spaces outside double quotes.
func shellWords(line string) []string {
	var words []string
	for i, part := range strings.Split(strings.TrimSpace(line), `"`) {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}

func readTestJSON(t testing.TB, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}

// settingValues are the values of a job as explain prints them in JSON.
func settingValues(t testing.TB, j *Job) map[string]any {
	t.Helper()
	data, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	var settings map[string]struct {
		Value  any    `json:"value"`
		Origin string `json:"origin"`
	}
	if err := json.Unmarshal(data, &settings); err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	for key, setting := range settings {
		values[key] = setting.Value
		if setting.Origin == "" {
			t.Errorf("%s has no origin", key)
		}
	}
	return values
}
