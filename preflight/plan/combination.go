package plan

import (
	"fmt"
	"slices"
	"sort"

	"oomguard/preflight/estimate"
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

// prices order combinations. They are ranks, not measurements: what changes nothing is cheaper than what costs time, that is cheaper than
// what needs other hardware or changes the training, whose prices exceed those of all before them together.
var prices = map[string]int{
	"amp": 1, "fused-loss": 1, "grad-accum": 2, "checkpointing": 4, "sharding": 4, "optimizer-8bit": 6, "offload": 12, "model-parallel": 20,
	"lora": 40, "shorter-seq": 60,
}

// most remedies of one combination: people undo more than that.
const mostCombined = 4

// pick is a candidate and which of its changes, mildest first.
type pick struct {
	candidate candidate
	strength  int
}

// combined is a job after a list of picks.
type combined struct {
	estimate *estimate.Estimate
	ids, how []string
}

// Combine finds the cheapest set of remedies with which the job fits; when none does, the set of all that apply, with Fits false. It is nil
// when the job fits as it is, its device is unknown, or too little is known of it to say that anything fits.
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
	return &Combination{IDs: c.ids, How: c.how, DeviceBytes: c.estimate.PerGPU.DeviceBytes, TotalBytes: c.estimate.GPU.TotalBytes, Fits: fits(c.estimate)}
}

// applicable are the candidates that offer a change for this job.
func applicable(in estimate.Input) []candidate {
	var out []candidate
	for _, c := range candidates {
		if len(c.offer(situation{in: in})) > 0 {
			out = append(out, c)
		}
	}
	return out
}

// bySum lists the sets of at most mostCombined candidates, the cheapest first.
func bySum(list []candidate) [][]candidate {
	sets := [][]candidate{{}}
	for _, c := range list {
		for _, set := range sets {
			if len(set) < mostCombined {
				sets = append(sets, append(slices.Clone(set), c))
			}
		}
	}
	sets = sets[1:]
	sum := func(set []candidate) (n int) {
		for _, c := range set {
			n += prices[c.id]
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

// strongest tries a set with the strongest change of each member.
func strongest(in estimate.Input, set []candidate) ([]pick, bool) {
	var picks []pick
	for _, c := range set {
		picks = append(picks, pick{c, -1})
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

// combine applies picks one after the other. It fails when one does not apply after those before it, or the estimate refuses the job.
func combine(in estimate.Input, picks []pick) (combined, bool) {
	var done combined
	for _, p := range picks {
		changes := p.candidate.offer(situation{in: in})
		n := p.strength
		if n < 0 {
			n = len(changes) - 1
		}
		if n < 0 || n >= len(changes) {
			return done, false
		}
		in.Job = changes[n].job
		done.ids, done.how = append(done.ids, p.candidate.id), append(done.how, changes[n].how)
	}
	e, err := estimate.Run(in)
	done.estimate = e
	return done, err == nil
}

// everything applies all candidates that can still be applied and lower the need, each at its strongest.
func everything(in estimate.Input, list []candidate) combined {
	var picks []pick
	var best combined
	for _, c := range list {
		next := append(slices.Clone(picks), pick{c, -1})
		done, ok := combine(in, next)
		if ok && (best.estimate == nil || done.estimate.PerGPU.DeviceBytes < best.estimate.PerGPU.DeviceBytes) {
			picks, best = next, done
		}
	}
	return best
}
