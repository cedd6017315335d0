package allocconf

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Change is one variable to set before the command starts.
type Change struct {
	Variable, Value string
	Reason          string
}

// Place is what a recommendation depends on beside torch and the variables.
type Place struct {
	WSL bool
	// MIG: a GPU of the job is a slice of one.
	MIG bool
	// SharesTensors: processes of the job hand CUDA tensors to each other, as a trainer does to its inference engine.
	SharesTensors bool
}

// lookup finds a variable of the environment that the command will get.
type lookup func(string) (string, bool)

const (
	expandable = "expandable_segments"
	splitSize  = "max_split_size_mb"
	// registerHook makes NCCL register the allocator's segments, which it cannot do with expandable ones (pytorch issue
	// 165419).
	registerHook = "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK"
)

// variable is the name under which torch v is certain to obey a setting. The old name has remained an alias, the new
// one is ignored by some releases before 2.11 and shadowed wherever an older name is present.
func variable(env lookup, v Version) string {
	_, old := env(OldName)
	_, rocm := env(ROCmName)
	if v.Known && !v.before(2, 11) && !old && !rocm {
		return NewName
	}
	return OldName
}

// Set says what to change so that torch obeys value; nil: it does already. The error says what is wrong with the value,
// or that the user has set another one, which is not overruled.
func Set(env func(string) (string, bool), version, value string) (*Change, error) {
	v := parseVersion(version)
	if strings.TrimSpace(value) == "" {
		return nil, errors.New("an empty setting: give key:value, or leave the option out")
	}
	if _, problems := Parse(value, v); len(problems) > 0 {
		for _, p := range problems {
			if p.Severity == Fail {
				return nil, fmt.Errorf("%s; %s", p.Text, p.Remedy)
			}
		}
	}
	now, _ := Resolve(env, version, false)
	if now.Text != "" && !ignoredNewName(now.Variable, v) {
		if now.Text == value {
			return nil, nil
		}
		return nil, fmt.Errorf("%s=%s is set already and is not overruled; unset it, or change it there", now.Variable,
			now.Text)
	}
	return &Change{Variable: variable(env, v), Value: value, Reason: "given with --alloc-conf"}, nil
}

// Recommend says what to change for the least fragmentation: expandable_segments where they are known to work, beside
// what the user has set. A nil change comes with the reason why nothing is changed.
func Recommend(env func(string) (string, bool), version string, at Place) (change *Change, reason string) {
	v := parseVersion(version)
	now, problems := Resolve(env, version, at.WSL)
	for _, r := range reservations() {
		if r.holds(subject{env, v, version, at, now, problems}) {
			return nil, r.reason
		}
	}
	value, remark := with(now)
	name := variable(env, v)
	if now.Variable != "" && !ignoredNewName(now.Variable, v) {
		name = now.Variable
	}
	return &Change{
		Variable: name, Value: value,
		Reason: "segments that grow leave less memory unusable between blocks of different sizes" + remark,
	}, ""
}

// with adds expandable segments to a setting, and says what had to give way.
func with(now Effective) (value, remark string) {
	kept := []string{expandable + ":True"}
	pairs, _ := split(now.Text)
	for _, p := range pairs {
		switch p.key {
		case expandable:
			remark += fmt.Sprintf("; %s:%s was set", p.key, p.value)
		case splitSize:
			remark += fmt.Sprintf("; %s:%s means nothing with them and is left out", p.key, p.value)
		default:
			kept = append(kept, p.key+":"+p.value)
		}
	}
	return strings.Join(kept, ","), remark
}

type subject struct {
	env      lookup
	v        Version
	version  string
	at       Place
	now      Effective
	problems []Problem
}

// reservation is a reason not to recommend expandable segments.
type reservation struct {
	reason string
	holds  func(s subject) bool
}

func reservations() []reservation {
	return []reservation{
		{"expandable_segments is on already", func(s subject) bool { return s.now.ExpandableSegments }},
		{"the torch version that will run is not known, and one before 2.1 would die of expandable_segments (give " +
			"--versions torch=...)",
			func(s subject) bool { return !s.v.Known }},
		{"torch before 2.1 does not have expandable_segments", func(s subject) bool { return s.v.before(2, 1) }},
		{"this torch is built without CUDA", func(s subject) bool { return strings.HasSuffix(s.version, "+cpu") }},
		// CUDAAllocatorConfig.h: PYTORCH_C10_DRIVER_API_SUPPORTED or ROCm 7
		{"ROCm before 7.0 ignores expandable_segments", func(s subject) bool { return oldROCm(s.version) }},
		// pytorch issues 192330 and 112957
		{"under WSL expandable segments are ignored or the first allocation fails",
			func(s subject) bool { return s.at.WSL }},
		{"a GPU is a MIG slice, where drivers may not allow the memory mapping that expandable segments need",
			func(s subject) bool { return s.at.MIG }},
		// pytorch issues 130890, 165685, 198305
		{"processes of this job share CUDA tensors, which fails with expandable segments in many containers",
			func(s subject) bool { return s.at.SharesTensors }},
		{registerHook + " is set, and NCCL cannot register expandable segments", func(s subject) bool {
			value, _ := s.env(registerHook)
			on, err := strconv.ParseBool(value)
			return err == nil && on
		}},
		{"backend:cudaMallocAsync has a pool of its own", func(s subject) bool { return s.now.async() }},
		{"what is set is not well formed (see the check alloc-conf)", func(s subject) bool {
			for _, p := range s.problems {
				if p.Severity == Fail && p.Key != NoCaching {
					return true
				}
			}
			return false
		}},
		{NoCaching + " is set: there is no caching allocator to improve", func(s subject) bool {
			_, set := s.env(NoCaching)
			return set
		}},
	}
}

// oldROCm tells whether a version is of a ROCm build before 7.0 ("2.5.1+rocm6.2").
func oldROCm(version string) bool {
	_, rocm, found := strings.Cut(version, "+rocm")
	major, _, _ := strings.Cut(rocm, ".")
	n, err := strconv.Atoi(major)
	return found && (err != nil || n < 7)
}
