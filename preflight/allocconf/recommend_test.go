package allocconf

import (
	"strings"
	"testing"
)

type variables map[string]string

func (v variables) lookup(name string) (string, bool) {
	value, set := v[name]
	return value, set
}

// The variable that counts is that of section "Which variable is read": pytorch issues 183387 (2.9 ignores the new
// name) and 167659 (the old one stays an alias), and the order of c10/core/AllocatorConfig.cpp.
func TestSet(t *testing.T) {
	const on = "expandable_segments:True"
	for _, c := range []struct {
		name, version, value string
		env                  variables
		want                 string // VARIABLE=value, "" no change
		fails                string
	}{
		{"old torch", "2.6.0+cu124", on, nil, OldName + "=" + on, ""},
		{"2.9.1 ignores the new name", "2.9.1", on, nil, OldName + "=" + on, ""},
		{"new torch", "2.11.0", on, nil, NewName + "=" + on, ""},
		{"unknown torch", "", on, nil, OldName + "=" + on, ""},
		{"new torch, an empty old name shadows the new one", "2.12.0", on, variables{OldName: ""}, OldName + "=" + on,
			""},
		{"new torch, an empty ROCm name shadows the new one", "2.12.0", on, variables{ROCmName: ""}, OldName + "=" + on,
			""},
		{"set alike", "2.6.0", on, variables{OldName: on}, "", ""},
		{"set otherwise", "2.6.0", on, variables{OldName: "max_split_size_mb:64"}, "", "is not overruled"},
		{"set in a variable that this torch does not read", "2.6.0", on, variables{NewName: "max_split_size_mb:64"},
			OldName + "=" + on, ""},
		{"set in the variable that 2.9 ignores", "2.9.0", on, variables{NewName: on}, OldName + "=" + on, ""},
		{"lower case", "2.6.0", "expandable_segments:true", nil, "", "write expandable_segments:True"},
		{"too new an option", "2.0.1", on, nil, "", "does not know"},
		{"empty", "2.6.0", " ", nil, "", "empty"},
	} {
		got, err := Set(c.env.lookup, c.version, c.value)
		check(t, c.name, got, c.want)
		if (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.fails)
		}
		if got != nil {
			obeyed(t, c.name, c.env, c.version, *got)
		}
	}
}

func TestRecommend(t *testing.T) {
	const on = "expandable_segments:True"
	for _, c := range []struct {
		name, version string
		env           variables
		at            Place
		want, reason  string
	}{
		{"usual", "2.6.0+cu124", nil, Place{}, OldName + "=" + on, ""},
		{"newest", "2.15.0+cu130", nil, Place{}, NewName + "=" + on, ""},
		{"on already", "2.6.0", variables{OldName: on}, Place{}, "", "already"},
		{"on, where 2.9 ignores it", "2.9.1", variables{NewName: on}, Place{}, OldName + "=" + on, ""},
		{"beside what is set", "2.6.0", variables{OldName: "pinned_use_background_threads:True"}, Place{},
			OldName + "=" + on + ",pinned_use_background_threads:True", ""},
		{"off, and a size that would mean nothing", "2.12.0",
			variables{NewName: "max_split_size_mb:64,expandable_segments:False"}, Place{}, NewName + "=" + on, ""},
		{"a list in brackets stays whole", "2.6.0", variables{OldName: "roundup_power2_divisions:[256:1,>:8]"}, Place{},
			OldName + "=" + on + ",roundup_power2_divisions:[256:1,>:8]", ""},
		{"unknown torch", "", nil, Place{}, "", "not known"},
		{"too old", "2.0.1", nil, Place{}, "", "before 2.1"},
		{"CPU build", "2.6.0+cpu", nil, Place{}, "", "without CUDA"},
		{"ROCm 6", "2.6.0+rocm6.2", nil, Place{}, "", "ROCm"},
		{"ROCm 7", "2.10.0+rocm7.0", nil, Place{}, OldName + "=" + on, ""},
		{"WSL", "2.6.0", nil, Place{WSL: true}, "", "WSL"},
		{"MIG", "2.6.0", nil, Place{MIG: true}, "", "MIG"},
		{"shared tensors", "2.6.0", nil, Place{SharesTensors: true}, "", "share"},
		{"registered with NCCL", "2.6.0", variables{registerHook: "1"}, Place{}, "", "NCCL"},
		{"other backend", "2.6.0", variables{OldName: "backend:cudaMallocAsync"}, Place{}, "", "cudaMallocAsync"},
		{"malformed", "2.6.0", variables{OldName: "max_split_size_mb=64"}, Place{}, "", "not well formed"},
		{"no caching", "2.6.0", variables{NoCaching: "1"}, Place{}, "", NoCaching},
	} {
		got, reason := Recommend(c.env.lookup, c.version, c.at)
		check(t, c.name, got, c.want)
		if (reason == "") != (c.reason == "") || !strings.Contains(reason, c.reason) {
			t.Errorf("%s: reason %q, want %q", c.name, reason, c.reason)
		}
		if got != nil {
			obeyed(t, c.name, c.env, c.version, *got)
		}
	}
}

func check(t *testing.T, name string, got *Change, want string) {
	t.Helper()
	text := ""
	if got != nil {
		text = got.Variable + "=" + got.Value
		if got.Reason == "" {
			t.Errorf("%s: no reason", name)
		}
	}
	if text != want {
		t.Errorf("%s: got %q, want %q", name, text, want)
	}
}

// obeyed: torch obeys the setting after the change, and nothing is wrong with it.
func obeyed(t *testing.T, name string, env variables, version string, c Change) {
	t.Helper()
	after := variables{c.Variable: c.Value}
	for k, v := range env {
		if k != c.Variable {
			after[k] = v
		}
	}
	e, problems := Resolve(after.lookup, version, false)
	if e.Variable != c.Variable || !e.ExpandableSegments {
		t.Errorf("%s: torch would obey %s=%s", name, e.Variable, e.Text)
	}
	for _, p := range problems {
		if p.Severity == Fail {
			t.Errorf("%s: %s", name, p.Text)
		}
	}
}
