package allocconf

import (
	"maps"
	"strings"
	"testing"
)

// The exact texts are those of CUDAAllocatorConfig.cpp (to 2.8) and AllocatorConfig.cpp (from 2.9).
func TestParse(t *testing.T) {
	for _, c := range []struct {
		name, text, version string
		want                Settings
		severity            Severity // of the first problem, "" none
		say                 string   // part of its text
	}{
		{"empty", "", "2.6.0", Settings{}, "", ""},
		{"usual", "expandable_segments:True", "2.6.0+cu124", Settings{"expandable_segments": "True"}, "", ""},
		{"two, white space", " expandable_segments : True , garbage_collection_threshold:0.8 ", "2.6.0",
			Settings{"expandable_segments": "True", "garbage_collection_threshold": "0.8"}, "", ""},
		{"lower case, old", "expandable_segments:true", "2.6.0", Settings{}, Fail,
			"Expected a single True/False argument for expandable_segments"},
		{"lower case, new", "expandable_segments:true", "2.9.0", Settings{}, Fail, "in ConfigTokenizer but got 'true'"},
		{"equals sign", "expandable_segments=True", "2.6.0", Settings{}, Fail, "expects a colon"},
		{"too early", "expandable_segments:True", "2.0.1", Settings{}, Fail,
			"Unrecognized CachingAllocator option: expandable_segments"},
		{"misspelt, old", "expandeable_segments:True", "2.8.0", Settings{}, Fail,
			"Unrecognized CachingAllocator option: expandeable_segments"},
		{"misspelt, new", "expandeable_segments:True", "2.9.0", Settings{}, Fail,
			"Unrecognized key 'expandeable_segments' in CUDA allocator config."},
		{"unknown key, unknown torch", "new_thing:1", "", Settings{}, Warn, "no option known here"},
		{"malformed, unknown torch", "max_split_size_mb:big", "", Settings{}, Fail, "whole number"},
		{"a path", `C:\tools`, "2.0.0", Settings{}, Fail, "Unrecognized CachingAllocator option: C"},
		{"split too small", "max_split_size_mb:19", "2.6.0", Settings{}, Fail, "must be >= 20"},
		{"split at the bound", "max_split_size_mb:20", "2.6.0", Settings{"max_split_size_mb": "20"}, "", ""},
		{"split at the bound, old", "max_split_size_mb:20", "1.13.0", Settings{}, Fail, "out of bounds"},
		{"unit", "max_split_size_mb:512MB", "2.6.0", Settings{}, Fail, "512MB as 512"},
		{"negative", "max_split_size_mb:-1", "2.6.0", Settings{}, Fail, "2^64 - 1"},
		{"threshold 1", "garbage_collection_threshold:1.0", "2.6.0", Settings{}, Fail, "set it in (0.0, 1.0)"},
		{"fraction 1", "per_process_memory_fraction:1.0", "2.10.0", Settings{"per_process_memory_fraction": "1.0"}, "",
			""},
		{"fraction above", "per_process_memory_fraction:1.5", "2.10.0", Settings{}, Fail, "set it in [0.0, 1.0]"},
		{"not a number", "per_process_memory_fraction:nan", "2.10.0", Settings{}, Fail, "decimal number"},
		{"backend", "backend:async", "2.6.0", Settings{}, Fail, "options are native and cudaMallocAsync"},
		{"threads", "pinned_num_register_threads:3", "2.6.0", Settings{}, Fail, "has to be power of 2, got 3"},
		{"roundup list", "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", "2.6.0",
			Settings{"roundup_power2_divisions": "[256:1,512:2,1024:4,>:8]"}, "", ""},
		{"roundup interval", "roundup_power2_divisions:[300:1]", "2.6.0", Settings{}, Fail,
			"intervals have to be power of 2"},
		{"roundup divisions", "roundup_power2_divisions:3", "2.6.0", Settings{}, Fail,
			"divisions has to be power of 2"},
		{"open bracket", "roundup_power2_divisions:[256:1", "2.6.0", Settings{"roundup_power2_divisions": "[256:1"},
			Fail, "do not match"},
		{"trailing comma", "expandable_segments:True,", "2.9.0", Settings{"expandable_segments": "True"}, Fail,
			"Index out of bounds"},
		{"twice", "max_split_size_mb:32,max_split_size_mb:64", "2.6.0", Settings{"max_split_size_mb": "64"}, Warn,
			"last one counts"},
		{"segment size", "large_segment_size_mb:64,max_split_size_mb:32", "2.12.0",
			Settings{"large_segment_size_mb": "64", "max_split_size_mb": "32"}, Fail, "must be >= 64"},
	} {
		got, problems := Parse(c.text, parseVersion(c.version))
		if !maps.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
		checkFirst(t, c.name, problems, c.severity, c.say)
	}
}

func checkFirst(t *testing.T, name string, problems []Problem, severity Severity, say string) {
	t.Helper()
	switch {
	case severity == "" && len(problems) > 0:
		t.Errorf("%s: %v", name, problems)
	case severity != "" && (len(problems) == 0 || problems[0].Severity != severity ||
		!strings.Contains(problems[0].Text, say)):
		t.Errorf("%s: got %v, want %s %q", name, problems, severity, say)
	}
	for _, p := range problems {
		if p.Remedy == "" || p.Text == "" {
			t.Errorf("%s: problem without text or remedy: %+v", name, p)
		}
	}
}

func TestSuggestsTheNearestKey(t *testing.T) {
	_, problems := Parse("expandeable_segments:True", parseVersion("2.6.0"))
	if len(problems) != 1 || problems[0].Remedy != "write expandable_segments" {
		t.Errorf("got %v", problems)
	}
}

func TestResolve(t *testing.T) {
	type env map[string]string
	const on = "expandable_segments:True"
	for _, c := range []struct {
		name     string
		env      env
		version  string
		wsl      bool
		variable string
		expand   bool
		fraction float64
		severity Severity
		say      string
	}{
		{"nothing", env{}, "2.6.0", false, "", false, 1, "", ""},
		{"old name", env{OldName: on}, "2.6.0", false, OldName, true, 1, "", ""},
		{"new name too early", env{NewName: on}, "2.6.0", false, "", false, 1, Warn,
			"does not know PYTORCH_ALLOC_CONF"},
		{"new name in 2.9", env{NewName: on}, "2.9.1", false, NewName, false, 1, Warn, "2.9 ignores"},
		{"old name in 2.9", env{OldName: on}, "2.9.1", false, OldName, true, 1, "", ""},
		{"new name in 2.11", env{NewName: on}, "2.11.0", false, NewName, true, 1, "", ""},
		{"both alike", env{OldName: on, NewName: on}, "2.9.1", false, OldName, true, 1, "", ""},
		{"both, different", env{OldName: "max_split_size_mb:64", NewName: on}, "2.12.0", false, OldName, false, 1, Warn,
			"read first"},
		{"empty shadows", env{OldName: "", NewName: on}, "2.12.0", false, OldName, false, 1, Warn, "set to nothing"},
		{"ROCm", env{ROCmName: on}, "2.6.0", false, ROCmName, true, 1, "", ""},
		{"no caching", env{NoCaching: "1"}, "2.6.0", false, "", false, 1, Fail, "switches the caching allocator off"},
		{"WSL", env{OldName: on}, "2.6.0", true, OldName, false, 1, Warn, "under WSL"},
		{"split beside expandable", env{OldName: on + ",max_split_size_mb:64"}, "2.6.0", false, OldName, true, 1, Warn,
			"means nothing"},
		{"split beside expandable, crash", env{OldName: on + ",max_split_size_mb:64"}, "2.2.1", false, OldName, true, 1,
			Fail, "INTERNAL ASSERT"},
		{"threshold alone", env{OldName: "garbage_collection_threshold:0.8"}, "2.6.0", false, OldName, false, 1, Warn,
			"no effect unless"},
		{"threshold with fraction", env{OldName: "garbage_collection_threshold:0.8,per_process_memory_fraction:0.5"},
			"2.10.0", false, OldName, false, 0.5, Warn, "50 %"},
		{"roundup 1", env{OldName: "roundup_power2_divisions:1"}, "2.6.0", false, OldName, false, 1, Warn,
			"up to twice"},
		{"async", env{OldName: "backend:cudaMallocAsync," + on}, "2.6.0", false, OldName, false, 1, Warn,
			"cudaMallocAsync"},
	} {
		lookup := func(name string) (string, bool) { v, ok := c.env[name]; return v, ok }
		e, problems := Resolve(lookup, c.version, c.wsl)
		if e.Variable != c.variable || e.ExpandableSegments != c.expand || e.MemoryFraction != c.fraction {
			t.Errorf("%s: got %+v", c.name, e)
		}
		checkFirst(t, c.name, problems, c.severity, c.say)
	}
}

func TestParseVersion(t *testing.T) {
	for text, want := range map[string]string{"2.6.0+cu124": "2.6.0", "2.12.0.dev20260101": "2.12.0", "1.13": "1.13.0",
		"2.9.0a0+git12": "2.9.0", "": "unknown", "main": "unknown", "2": "unknown"} {
		if got := parseVersion(text).String(); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

// FuzzParse: no text panics, and what is accepted without a failure is accepted again when written back.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"expandable_segments:True", "roundup_power2_divisions:[256:1,>:8]", "a=b,", "[[",
		"max_split_size_mb:1e99", ":,:"} {
		f.Add(s, "2.6.0")
		f.Add(s, "")
	}
	f.Fuzz(func(t *testing.T, text, version string) {
		settings, problems := Parse(text, parseVersion(version))
		for _, p := range problems {
			if p.Severity == Fail {
				return
			}
		}
		var parts []string
		for k, v := range settings {
			parts = append(parts, k+":"+v)
		}
		again, _ := Parse(strings.Join(parts, ","), parseVersion(version))
		if !maps.Equal(settings, again) {
			t.Errorf("%q: %v, then %v", text, settings, again)
		}
	})
}
