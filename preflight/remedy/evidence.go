package remedy

import "slices"

// Evidence is what a post-mortem has found, in words.
type Evidence struct {
	Cause string
	// Findings are the reasons for the remedies that need one, by the names below.
	Findings map[string]string
	Asked    string // how much was asked for, "; here 2 GiB more was ..."; "" not known
	// Allocator is what the allocator of the torch that died can be told.
	Allocator Allocator
}

// Allocator says which settings of PyTorch's caching allocator work where a run died.
type Allocator struct {
	HIP          bool
	Old          bool   // a torch without expandable segments, that is before 2.1
	NoExpandable string // why expandable segments must not be advised; "" nothing is known against them
}

// The findings of a post-mortem that remedies ask for.
const (
	BadAllocConf   = "bad-alloc-conf"  // PyTorch does not accept its allocator setting
	Strangers      = "strangers"       // other processes hold memory of the GPU
	Fraction       = "fraction"        // a memory fraction was the limit
	GradientsKept  = "gradients-kept"  // where they should have been gone
	Holes          = "holes"           // cached memory could not be joined
	SegmentsOff    = "segments-off"    // the allocator has a setting against holes that is not on
	AsyncAllocator = "async-allocator" // the cudaMallocAsync backend is in use
	Leak           = "leak"            // memory grew from step to step
	Killed         = "killed"          // how the host's memory ran out
)

// finding is the reason that a post-mortem has found; "" it has not.
func (c Case) finding(name string) string {
	if c.Evidence == nil {
		return ""
	}
	return c.Evidence.Findings[name]
}

// Advice is one remedy of a post-mortem.
type Advice struct {
	ID, Why, How, Cost string
	Components         []string
	ChangesJob         bool
}

// Advise lists the remedies for a cause of death, cheapest first; without a job's numbers.
func Advise(c Case) []Advice {
	var list []Advice
	for _, r := range Rows() {
		if c.Evidence == nil || !slices.Contains(r.Causes, c.Evidence.Cause) {
			continue
		}
		a := Advice{ID: r.ID, Why: r.Why, Cost: r.Price.Text(), Components: r.Components, ChangesJob: r.ChangesJob()}
		if r.Why == "" {
			a.Why = c.finding(r.Finding)
		}
		if r.Asked {
			a.Why += c.Evidence.Asked
		}
		ok := (r.Finding == "" || c.finding(r.Finding) != "") && (r.Unless == "" || c.finding(r.Unless) == "")
		if r.ChangesJob() {
			a.How, ok = r.Listing(c)
		} else {
			a.How = r.How(c)
		}
		if ok {
			list = append(list, a)
		}
	}
	return list
}
