package allocconf

import "fmt"

// The variables that torch may read.
const (
	OldName  = "PYTORCH_CUDA_ALLOC_CONF"
	NewName  = "PYTORCH_ALLOC_CONF"
	ROCmName = "PYTORCH_HIP_ALLOC_CONF"
	// NoCaching switches the caching allocator off, whatever its value.
	NoCaching = "PYTORCH_NO_CUDA_MEMORY_CACHING"
)

// Effective is the setting that torch will obey.
type Effective struct {
	Variable string // "" none is set
	Text     string
	Settings Settings
	// MemoryFraction of each GPU that the process may use, 1 unless set.
	MemoryFraction float64
	// ExpandableSegments tells whether they will really be on.
	ExpandableSegments bool
}

// Resolve finds the variable that counts for this torch version ("" unknown), reads it, and judges whether it makes
// sense. wsl tells whether the program runs under the Windows Subsystem for Linux.
func Resolve(env func(string) (string, bool), version string, wsl bool) (Effective, []Problem) {
	v := parseVersion(version)
	e := Effective{MemoryFraction: 1, Settings: Settings{}}
	problems := cachingOff(env)
	variable, shadowed := choose(env, v)
	problems = append(problems, shadowed...)
	if variable == "" {
		return e, problems
	}
	e.Variable = variable
	e.Text, _ = env(variable)
	var bad []Problem
	e.Settings, bad = Parse(e.Text, v)
	problems = append(problems, bad...)
	if f, ok := e.Settings.Number("per_process_memory_fraction"); ok {
		e.MemoryFraction = f
	}
	e.ExpandableSegments = e.Settings.On("expandable_segments") && !wsl && !e.async() && !ignoredNewName(variable, v)
	return e, append(problems, e.sense(v, wsl)...)
}

func (e Effective) async() bool {
	return e.Settings["backend"] == "cudaMallocAsync" || e.Settings["backend"] == "hipMallocAsync"
}

func cachingOff(env func(string) (string, bool)) []Problem {
	value, set := env(NoCaching)
	if !set {
		return nil
	}
	return []Problem{{Fail, NoCaching,
		fmt.Sprintf("%s=%s switches the caching allocator off: every allocation goes to the driver, and no estimate "+
			"of reserved memory holds", NoCaching, value),
		"unset " + NoCaching}}
}

// names are the variables that torch v reads, in the order in which it looks: the first that is present counts, even if
// it is empty. PYTORCH_ALLOC_CONF came with 2.9 (c10/core/AllocatorConfig.cpp); before, only the older names existed.
func names(v Version) []string {
	if v.before(2, 9) {
		return []string{OldName, ROCmName}
	}
	return []string{OldName, ROCmName, NewName}
}

func choose(env func(string) (string, bool), v Version) (variable string, problems []Problem) {
	var text string
	for _, name := range names(v) {
		other, set := env(name)
		switch {
		case !set:
		case variable == "":
			variable, text = name, other
		case text == "" && other != "":
			problems = append(problems, Problem{Warn, name,
				fmt.Sprintf("%s is set to nothing, and an empty variable counts: %s=%s is ignored", variable, name,
					other), "unset " + variable})
		case other != text:
			problems = append(problems, Problem{Warn, name,
				fmt.Sprintf("%s=%s is ignored: %s=%s is read first, and they are not joined", name, other, variable,
					text),
				"set one of them, or both alike"})
		}
	}
	if text, set := env(NewName); set && v.before(2, 9) {
		problems = append(problems, Problem{Warn, NewName,
			fmt.Sprintf("torch %s does not know %s: %q has no effect", v, NewName, text),
			"set " + OldName + " instead"})
	}
	return variable, problems
}

// ignoredNewName: 2.9 does not pass the new variable on to the CUDA allocator's own options (pytorch issue 183387).
func ignoredNewName(variable string, v Version) bool { return variable == NewName && v.is(2, 9) }
