package job

import "slices"

// Sources, strongest first. Each is read once, in this order, and what a stronger one has said stays.
const (
	sourceFlags    = "oomguard's own flags"
	sourceCommand  = "the command"
	sourceScript   = "the script's arguments"
	sourceOwnFile  = "the settings of oomguard.yaml"
	sourceModel    = "the model's name and config"
	sourceDefaults = "the defaults"
	sourceDerived  = "what follows from the settings"
)

// A Precedence is one row of the order in which sources count.
type Precedence struct {
	Source string `json:"source"`
	Holds  string `json:"holds"` // what belongs to it
}

// Order lists the sources, strongest first.
func Order() []Precedence {
	return []Precedence{
		{sourceFlags, "flags in front of the command: --micro-batch 4"},
		{sourceCommand, "the launcher's words, its variables (PET_*, ACCELERATE_*) and files, and what stands " +
			"around it: srun, shell scripts"},
		{sourceScript, "the script's arguments and text, and the configuration files that they name, as the " +
			"framework weighs them"},
		{sourceOwnFile, "oomguard.yaml beside the job"},
		{sourceModel, "the model that the sources above name, and its config.json"},
		{sourceDefaults, "what the framework takes in the installed version when nobody says anything"},
		{sourceDerived, "what the other settings leave no choice about, and what is assumed"},
	}
}

// A Claim is what one source says about a setting.
type Claim struct {
	Source string `json:"source"` // of Order; "" outside of a reading
	Value  string `json:"value"`  // "unknown" when the source leaves it open
	Origin string `json:"origin"` // where it stands, or why it is open
	// Used: the setting is what this claim says.
	Used bool `json:"used"`
}

// A ledger knows whose turn it is.
type ledger struct{ source string }

// mostClaims bounds what is remembered of one setting.
const mostClaims = 50

// claims is what all sources have said about one setting.
type claims struct {
	ledger *ledger
	list   []Claim
}

// add writes down what the source says whose turn it is. used: it decides the setting from now on.
func (c *claims) add(value, origin string, used bool) {
	if c == nil || len(c.list) >= mostClaims {
		return
	}
	next := Claim{Source: c.ledger.source, Value: value, Origin: origin, Used: used}
	again := func(old Claim) bool { return old.Source == next.Source && old.Value == value && old.Origin == origin }
	if slices.ContainsFunc(c.list, again) {
		return
	}
	if used {
		for i := range c.list {
			c.list[i].Used = false
		}
	}
	c.list = append(c.list, next)
}

// Why lists what each source said about the setting with a key, in the order of reading; ok is false when there is no
// such key. The claim that is used is what the setting says.
func (j *Job) Why(key string) (list []Claim, ok bool) {
	j.eachFact(func(name string, f fact) {
		if name == key {
			list, ok = f.told(), true
		}
	})
	return list, ok
}
