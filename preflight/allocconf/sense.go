package allocconf

import "fmt"

// finding is a combination that PyTorch accepts and that does not do what it looks like.
type finding struct {
	holds   func(e Effective, v Version, wsl bool) bool
	problem func(e Effective) Problem
}

// sense judges well-formed settings together.
func (e Effective) sense(v Version, wsl bool) []Problem {
	var problems []Problem
	for _, f := range findings() {
		if f.holds(e, v, wsl) {
			problems = append(problems, f.problem(e))
		}
	}
	if e.async() {
		problems = append(problems, e.ignoredByAsync()...)
	}
	return problems
}

func findings() []finding {
	same := func(p Problem) func(Effective) Problem { return func(Effective) Problem { return p } }
	expandable := func(e Effective) bool { return e.Settings.On("expandable_segments") }
	return []finding{
		{func(e Effective, v Version, _ bool) bool { return expandable(e) && ignoredNewName(e.Variable, v) },
			same(Problem{Warn, NewName, "torch 2.9 ignores expandable_segments when it comes through " + NewName,
				"export the same setting as " + OldName + " too"})},
		{func(e Effective, _ Version, wsl bool) bool { return wsl && expandable(e) },
			same(Problem{Warn, "expandable_segments",
				"under WSL expandable segments are ignored or the first allocation fails with \"CUDA driver error: " +
					"unknown error\"", "remove expandable_segments:True"})},
		{func(e Effective, v Version, _ bool) bool {
			return expandable(e) && e.Settings["max_split_size_mb"] != "" && !crashesWithSplit(v)
		}, same(Problem{Warn, "max_split_size_mb", "max_split_size_mb means nothing with expandable_segments:True",
			"remove max_split_size_mb"})},
		{func(e Effective, v Version, _ bool) bool {
			return expandable(e) && e.Settings["max_split_size_mb"] != "" && crashesWithSplit(v)
		}, same(Problem{Fail, "max_split_size_mb",
			"max_split_size_mb together with expandable_segments:True crashes torch 2.1 and 2.2 " +
				"(\"!block->expandable_segment_ INTERNAL ASSERT FAILED\")",
			"remove max_split_size_mb"})},
		{func(e Effective, _ Version, _ bool) bool {
			return e.Settings["garbage_collection_threshold"] != "" && e.MemoryFraction >= 1 && !e.async()
		}, same(Problem{Warn, "garbage_collection_threshold",
			"garbage_collection_threshold has no effect unless a memory fraction is set, and none is set here",
			"remove it, or set a fraction (per_process_memory_fraction, torch 2.10 or newer, or " +
				"torch.cuda.set_per_process_memory_fraction in the script)"})},
		{func(e Effective, _ Version, _ bool) bool { return e.Settings["roundup_power2_divisions"] == "1" },
			same(Problem{Warn, "roundup_power2_divisions",
				"roundup_power2_divisions:1 rounds every allocation up to the next power of two: " +
					"up to twice the memory",
				"give 4 or 8, or remove it"})},
		{func(e Effective, _ Version, _ bool) bool { return e.async() },
			same(Problem{Warn, "backend", "backend:cudaMallocAsync leaves most memory statistics empty, and its " +
				"pool can hold memory that no request gets", "remove backend:cudaMallocAsync for training"})},
		{func(e Effective, _ Version, _ bool) bool { return e.MemoryFraction < 1 },
			func(e Effective) Problem {
				return Problem{Warn, "per_process_memory_fraction",
					fmt.Sprintf("per_process_memory_fraction:%s: each process may use %.0f %% of each GPU; the rest "+
						"is out of reach",
						e.Settings["per_process_memory_fraction"], 100*e.MemoryFraction),
					"remove it unless GPUs are shared on purpose"}
			}},
		{func(e Effective, _ Version, _ bool) bool {
			return e.Settings.On("throw_on_cudamalloc_oom") && e.MemoryFraction >= 1
		}, same(Problem{Info, "throw_on_cudamalloc_oom",
			"throw_on_cudamalloc_oom has a meaning only with a memory fraction below 1", "remove it"})},
		{func(e Effective, _ Version, _ bool) bool {
			return e.Settings["pinned_num_register_threads"] != "" && !e.Settings.On("pinned_use_cuda_host_register") &&
				!e.Settings.On("pinned_use_hip_host_register")
		}, same(Problem{Info, "pinned_num_register_threads",
			"pinned_num_register_threads has no effect without pinned_use_cuda_host_register:True",
			"add that option, or remove this one"})},
	}
}

// crashesWithSplit: the assert of pytorch issue 119452.
func crashesWithSplit(v Version) bool { return v.is(2, 1) || v.is(2, 2) }

func (e Effective) ignoredByAsync() []Problem {
	var problems []Problem
	for _, o := range options() {
		if o.nativeOnly && e.Settings[o.key] != "" {
			problems = append(problems, Problem{Warn, o.key, fmt.Sprintf("backend:cudaMallocAsync ignores %s", o.key),
				"remove one of the two"})
		}
	}
	return problems
}
