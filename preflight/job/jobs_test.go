package job

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// The jobs under testdata/jobs are written from the sources of the frameworks that they use: cmd.txt is the command,
// env.json the environment, the GPUs and the versions, expected.json what a person who knows the frameworks reads in
// them.
func TestJobs(t *testing.T) {
	// later names keys that need a reader that does not exist yet, and which; "*" stands for all keys of the job.
	later := map[string]map[string]string{
		// The expectation leaves out what accelerate's plugin writes for zero_stage 2: batch sizes "auto" and
		// DeepSpeed's own buckets.
		"25-trl-cli-grpo-colocate": {"ds_resolved": "written down as null"},
	}
	folders, err := filepath.Glob(filepath.Join("testdata", "jobs", "*"))
	if err != nil || len(folders) == 0 {
		t.Fatalf("no jobs: %v", err)
	}
	for _, dir := range folders {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			later := later[filepath.Base(dir)]
			j := Read(jobSources(t, dir))
			var want map[string]any
			readTestJSON(t, filepath.Join(dir, "expected.json"), &want)
			for _, problem := range j.Problems {
				if later["*"] == "" && want["will_fail"] == nil {
					t.Errorf("problem: %v", problem)
				}
			}
			got := settingValues(t, j)
			for key, value := range want {
				if key == "notes" || key == "undetermined" || sameValue(key, got[key], value) {
					continue
				}
				// The expectations count the parameters only where the job's files have a config.json.
				if key == "model_params" && value == nil && strings.Contains(j.ModelParams.Origin, "built-in table") {
					continue
				}
				if later[key] == "" && later["*"] == "" {
					t.Errorf("%s: got %v, want %v", key, got[key], value)
				} else {
					t.Logf("%s: got %v, want %v", key, got[key], value)
				}
			}
			for key, why := range later {
				if key != "*" && sameValue(key, got[key], want[key]) {
					t.Errorf("%s is read now: take it off the list of what comes later (%s)", key, why)
				}
			}
		})
	}
}

// sameValue compares JSON values. The expectations were written before the vocabulary told fused AdamW from PyTorch's
// default, and name only some numbers of ds_resolved.
func sameValue(key string, got, want any) bool {
	if key == "optimizer" && got == "adamw_fused" {
		got = "adamw"
	}
	if numbers, ok := want.(map[string]any); ok && key == "ds_resolved" {
		all, _ := got.(map[string]any)
		for name, value := range numbers {
			// A null was not to be known from the job's files; the built-in table of architectures knows it.
			if value != nil && !reflect.DeepEqual(all[name], value) {
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

// told are all findings of a job, whatever they count for.
func told(j *Job) []error { return slices.Concat(j.Problems, j.Unreadable, j.Absent) }

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
