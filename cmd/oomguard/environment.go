package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"oomguard/monitor/probe"
	"oomguard/monitor/report"
	"oomguard/preflight"
	"oomguard/preflight/allocconf"
)

// reasons are the variables that the command may be given, and why. The README lists them.
func reasons() map[string]string {
	const demo = "the demo without a GPU: freed memory goes back to the system at once, so that resident memory " +
		"follows the tensors"
	return map[string]string{
		"PYTHONPATH":         "its first folder holds the probe, which each rank loads when it imports torch",
		"OOMGUARD_PROBE_DIR": "where each rank's probe writes what it sees",
		"OOMGUARD_SINGLE": "a single process, as plain Python, has neither RANK nor LOCAL_RANK, and is the " +
			"one rank all the same",
		"OOMGUARD_OWNER":         "it is that of an oomguard around this one",
		"MALLOC_MMAP_THRESHOLD_": demo,
		"MALLOC_TRIM_THRESHOLD_": demo,
		"OOMGUARD_RESET_PEAKS":   "oomguard demo: the kernel's peak of the resident memory is reset for each stage",
		allocconf.OldName:        "--alloc-conf",
		allocconf.NewName:        "--alloc-conf",
	}
}

// commandEnv is the environment of the command; probeDir "" is without the probe.
func (s *session) commandEnv(probeDir string) []string {
	env := s.env.environ
	if s.advice.AllocConf != "" {
		env = append(slices.Clone(env), s.advice.AllocConf) // the last of a name wins
	}
	if probeDir != "" {
		env = probe.Env(env, probeDir)
		if s.advice.Single {
			env = append(env, "OOMGUARD_SINGLE=1")
		}
	}
	return slices.Concat(env, s.options.environ)
}

// changes says what differs between our own environment and the command's, which is what is, not what was meant. A
// setting that was asked for with --alloc-conf and is not made is told too.
func changes(ours, commands []string, alloc report.EnvChange) []report.EnvChange {
	before, after := variables(ours), variables(commands)
	out := []report.EnvChange{}
	for name, value := range after {
		old, had := before[name]
		switch {
		case !had:
			out = append(out, report.EnvChange{Name: name, Change: report.EnvAdded, Value: value,
				Reason: reasons()[name]})
		case old != value:
			out = append(out, report.EnvChange{Name: name, Change: report.EnvChanged, Value: value,
				Reason: reasons()[name]})
		}
	}
	for name := range before {
		if _, has := after[name]; !has {
			out = append(out, report.EnvChange{Name: name, Change: report.EnvRemoved, Reason: reasons()[name]})
		}
	}
	if i := slices.IndexFunc(out, func(c report.EnvChange) bool { return c.Name == alloc.Name }); i >= 0 {
		out[i].Reason = alloc.Reason
	} else if alloc.Name != "" {
		out = append(out, alloc)
	}
	slices.SortFunc(out, func(a, b report.EnvChange) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// variables takes an environment apart; the last of a name wins, as it does for the command.
func variables(environ []string) map[string]string {
	out := map[string]string{}
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok {
			out[name] = value
		}
	}
	return out
}

// setAllocConf does what --alloc-conf asks for: it returns the environment with the setting, and what was changed or
// why not. Without it nothing is touched, which is the zero change.
func setAllocConf(env environment, c *cli.Context, p *prepared) (environment, report.EnvChange, error) {
	wanted, torch := c.String("alloc-conf"), p.job.Versions["torch"]
	var change *allocconf.Change
	var kept string
	switch wanted {
	case allocConfKeep:
		return env, report.EnvChange{}, nil
	case allocConfRecommend:
		change, kept = allocconf.Recommend(env.lookup, torch, p.allocPlace())
	default:
		var err error
		if change, err = allocconf.Set(env.lookup, torch, wanted); err != nil {
			return env, report.EnvChange{}, usagef("--alloc-conf %s: %w", wanted, err)
		}
		kept = "it is set so already"
	}
	if change == nil {
		now, _ := allocconf.Resolve(env.lookup, torch, false)
		name := now.Variable
		if name == "" {
			name = allocconf.OldName
		}
		return env, report.EnvChange{Name: name, Change: report.EnvKept, Value: now.Text, Reason: kept}, nil
	}
	env.environ = append(slices.Clone(env.environ), change.Variable+"="+change.Value) // the last of a name wins
	return env, report.EnvChange{Name: change.Variable, Change: report.EnvAdded, Value: change.Value,
		Reason: change.Reason}, nil
}

// allocPlace is what a recommendation of allocator settings depends on.
func (p *prepared) allocPlace() allocconf.Place {
	var at allocconf.Place
	if host, err := preflight.GatherHost("/"); err == nil {
		at.WSL = host.WSL
	}
	for _, d := range p.visible {
		at.MIG = at.MIG || d.MIG
	}
	task := p.job.Task.Or("")
	at.SharesTensors = task == "grpo" || task == "ppo" // their inference engines get the weights from the trainer
	return at
}
