package plan

import (
	"fmt"
	"slices"
	"sort"

	"oomguard/preflight/estimate"
	"oomguard/preflight/remedy"
)

// Combination is a set of remedies and what the job needs with all of them.
type Combination struct {
	IDs []string `json:"ids"` // in the order of Remedies
	How []string `json:"how"`
	// DeviceBytes is what the device then needs at its highest stage, TotalBytes what it has.
	DeviceBytes int64 `json:"device_bytes"`
	TotalBytes  int64 `json:"total_bytes"`
	Fits        bool  `json:"fits"`
}

// most remedies of one combination: people undo more than that.
const mostCombined = 4

// pick is a remedy and which of its changes, mildest first.
type pick struct {
	row      remedy.Row
	strength int
}

// combined is a job after a list of picks.
type combined struct {
	estimate *estimate.Estimate
	ids, how []string
}

// Combine finds the cheapest set of remedies with which the job fits; when none does, the set of all that apply, with
// Fits false. It is nil when the job fits as it is, its device is unknown, or too little is known of it to say that
// anything fits.
func Combine(in estimate.Input) (*Combination, error) {
	now, err := estimate.Run(in)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	if now.Fits == nil || *now.Fits {
		return nil, nil
	}
	useful := applicable(in)
	all := everything(in, useful)
	if all.estimate == nil || all.estimate.Fits == nil {
		return nil, nil
	}
	if fits(all.estimate) { // else no part of it does
		for _, set := range bySum(useful) {
			if c, ok := strongest(in, set); ok {
				return relax(in, c).result(), nil
			}
		}
	}
	return all.result(), nil
}

func fits(e *estimate.Estimate) bool { return e.Fits != nil && *e.Fits }

func (c combined) result() *Combination {
	return &Combination{IDs: c.ids, How: c.how, DeviceBytes: c.estimate.PerGPU.DeviceBytes,
		TotalBytes: c.estimate.GPU.TotalBytes, Fits: fits(c.estimate)}
}

// weighable are the changes whose effect the estimate can tell.
func weighable(in estimate.Input, row remedy.Row) []remedy.Offer {
	return slices.DeleteFunc(row.Offers(Case(in)), func(o remedy.Offer) bool { return o.Apply == nil })
}

// applicable are the remedies that offer a change for this job.
func applicable(in estimate.Input) []remedy.Row {
	return slices.DeleteFunc(remedy.JobRows(), func(r remedy.Row) bool { return len(weighable(in, r)) == 0 })
}

// bySum lists the sets of at most mostCombined remedies that can be used together, the cheapest first.
func bySum(list []remedy.Row) [][]remedy.Row {
	sets := [][]remedy.Row{{}}
	for _, r := range list {
		for _, set := range sets {
			if len(set) < mostCombined && !conflicts(r, set) {
				sets = append(sets, append(slices.Clone(set), r))
			}
		}
	}
	sets = sets[1:]
	sum := func(set []remedy.Row) (n int) {
		for _, r := range set {
			n += r.Price.Rank
		}
		return n
	}
	sort.SliceStable(sets, func(i, j int) bool {
		if a, b := sum(sets[i]), sum(sets[j]); a != b {
			return a < b
		}
		return len(sets[i]) < len(sets[j])
	})
	return sets
}

func conflicts(r remedy.Row, set []remedy.Row) bool {
	return slices.ContainsFunc(set, func(other remedy.Row) bool { return remedy.Conflict(r, other) })
}

// strongest tries a set with the strongest change of each member.
func strongest(in estimate.Input, set []remedy.Row) ([]pick, bool) {
	var picks []pick
	for _, r := range set {
		picks = append(picks, pick{r, -1})
	}
	done, ok := combine(in, picks)
	return picks, ok && fits(done.estimate)
}

// relax makes the members milder, one after the other, as long as the job fits. The picks fit.
func relax(in estimate.Input, picks []pick) combined {
	for i := range picks {
		for strength := 0; ; strength++ {
			milder := slices.Clone(picks)
			milder[i].strength = strength
			done, ok := combine(in, milder)
			if !ok { // no such change: the strongest stays
				break
			}
			if fits(done.estimate) {
				picks = milder
				break
			}
		}
	}
	done, _ := combine(in, picks)
	return done
}

// combine applies picks one after the other. It fails when one does not apply after those before it, or the estimate
// refuses the job.
func combine(in estimate.Input, picks []pick) (combined, bool) {
	var done combined
	for _, p := range picks {
		changes := weighable(in, p.row)
		n := p.strength
		if n < 0 {
			n = len(changes) - 1
		}
		if n < 0 || n >= len(changes) {
			return done, false
		}
		in.Job = withOffer(in.Job, changes[n])
		done.ids, done.how = append(done.ids, p.row.ID), append(done.how, changes[n].Do)
	}
	e, err := estimate.Run(in)
	done.estimate = e
	return done, err == nil
}

// everything applies all remedies that can still be applied and lower the need, each at its strongest.
func everything(in estimate.Input, list []remedy.Row) combined {
	var picks []pick
	var best combined
	for _, r := range list {
		if slices.ContainsFunc(picks, func(p pick) bool { return remedy.Conflict(r, p.row) }) {
			continue
		}
		next := append(slices.Clone(picks), pick{r, -1})
		done, ok := combine(in, next)
		if ok && (best.estimate == nil || done.estimate.PerGPU.DeviceBytes < best.estimate.PerGPU.DeviceBytes) {
			picks, best = next, done
		}
	}
	return best
}
