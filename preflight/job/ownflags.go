package job

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// oomguard's own flags are offered first, so that whatever is derived follows them, and nothing takes their place
// later: Setting.replace and what stands here know them by their origin.

// CheckFlags judges the values of oomguard's flags by themselves; its errors are those that Read would record.
func CheckFlags(flags map[string]string) error {
	r := &reader{src: Sources{Flags: flags}, job: &Job{}, versions: map[string]string{}}
	r.readOwnFlags()
	return errors.Join(r.job.Problems...)
}

// readOwnFlags reads oomguard's flags, the strongest source.
func (r *reader) readOwnFlags() {
	keys := Keys()
	for _, k := range keys {
		text, given := r.src.Flags[k.Flag]
		if !given {
			continue
		}
		if err := k.give(r, "--"+k.Flag, text, ownFlag+k.Flag); err != nil {
			r.problem(err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.src.Flags)) {
		if !slices.ContainsFunc(keys, func(k Key) bool { return k.Flag == name }) {
			r.problem(fmt.Errorf("--%s is not a job setting; known: %s", name, knownKeys(keys)))
		}
	}
	r.claimAdapter()
}

// claimAdapter: an own flag for an adapter says that one is trained, unless --method says otherwise.
func (r *reader) claimAdapter() {
	if parts := r.adapter.ownParts(); len(parts) > 0 {
		r.job.Method.Offer("lora", parts[0].Origin)
	}
}

// ownMethod is the kind of adapter that claimAdapter could not tell yet: what is frozen below it decides.
func (r *reader) ownMethod(kind string) {
	if m := &r.job.Method; m.own() && m.Origin != ownFlag+"method" {
		m.Value = kind
	}
}

// ownRanks reports whether own flags say how many processes there are: then they count, not what a launcher says of all
// together.
func (r *reader) ownRanks() bool { return r.job.NNodes.own() || r.job.NProc.own() }

func knownKeys(keys []Key) string {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.Flag
	}
	return strings.Join(names, ", ")
}
