package checklists

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"

	"oomguard/launcher/fence"
)

// Run judges facts with every check that the list names and gives the results in the list's order; it never stops at
// the first failure. A check whose After failed or was skipped is skipped with that reason; an After that the list
// leaves out does not hold anything up.
//
// The error lists everything that is wrong with the list or the policy (an unknown check or threshold, a check named
// twice); nothing is judged then. It is never about the facts: those refusals are Outcome.Err.
func Run[F any](list List, checks []Check[F], facts F, p Policy) (Outcome, error) {
	if err := validate(list, checks, p); err != nil {
		return Outcome{}, fmt.Errorf("checklist %s: %w", list.Name, err)
	}
	entries := make(map[string]Entry, len(list.Entries))
	for _, e := range list.Entries {
		entries[e.ID] = e
	}
	// Verdicts before the severity cap decide what is blocked: facts that are missing stay missing when the list calls
	// it a warning.
	raw := make(map[string]Verdict, len(entries))
	titles := make(map[string]string, len(entries))
	for _, c := range checks {
		e, listed := entries[c.ID]
		if !listed {
			continue
		}
		titles[c.ID] = c.Title
		if v, blocked := blockedBy(c.After, raw); blocked {
			raw[c.ID] = v
		} else if slices.Contains(p.Skip, c.ID) {
			raw[c.ID] = Verdict{Skip, "skipped as the user asked",
				fmt.Sprintf("leave out --skip %s to have it judged", c.ID)}
		} else {
			raw[c.ID] = ask(c, facts, merge(c.Defaults, e.With))
		}
	}

	out := Outcome{Schema: Schema, List: list.Name, Results: make([]Result, 0, len(list.Entries)), Outcome: Pass,
		FailOn: p.failOn()}
	decides := map[string]bool{}
	for _, c := range checks {
		decides[c.ID] = c.Decides && (list.RequireAnswer || p.RequireAnswer)
	}
	for _, e := range list.Entries {
		r := Result{ID: e.ID, Title: titles[e.ID], Verdict: raw[e.ID]}
		if r.Status == Fail && e.Severity == Warn {
			r.Status = Warn
		}
		r.Waived = rank(r.Status) >= rank(Warn) && slices.Contains(p.Waive, e.ID)
		out.Results = append(out.Results, r)
		if decides[e.ID] && r.Status == Skip && !slices.Contains(p.Skip, e.ID) && !slices.Contains(p.Waive, e.ID) {
			out.Unanswered = append(out.Unanswered, e.ID)
		}
		out.Outcome = worse(out.Outcome, out.counts(r))
	}
	return out, nil
}

// ask puts the facts to one check. One that fails by a fault of ours has looked at nothing.
func ask[F any](c Check[F], facts F, with Params) Verdict {
	var v Verdict
	if fault := fence.Do("judging "+c.ID, func() { v = c.Judge(facts, with) }); fault != nil {
		return Verdict{Skip, fault.Error(), "report it; the other checks do not depend on it"}
	}
	fence.Garble("judging "+c.ID, &v.Detail)
	return v
}

// blockedBy is the verdict of a check that must come after others, when one of those did not come to a judgement it can
// build on.
func blockedBy(after []string, verdicts map[string]Verdict) (Verdict, bool) {
	for _, id := range after {
		v, listed := verdicts[id]
		if !listed || v.Status == Pass || v.Status == Warn {
			continue
		}
		how := "failed"
		if v.Status == Skip {
			how = "was skipped"
		}
		return Verdict{Skip, fmt.Sprintf("blocked by %s, which %s: %s", id, how, v.Detail), v.Remedy}, true
	}
	return Verdict{}, false
}

// merge is the thresholds a check is judged with.
func merge(defaults, with Params) Params {
	out := make(Params, len(defaults))
	maps.Copy(out, defaults)
	maps.Copy(out, with)
	return out
}

func (p Policy) failOn() Status {
	if p.FailOn == "" {
		return Fail
	}
	return p.FailOn
}

// rank orders statuses by how much they matter.
func rank(s Status) int { return slices.Index([]Status{Pass, Skip, Warn, Fail}, s) }

func worse(a, b Status) Status {
	if rank(b) > rank(a) {
		return b
	}
	return a
}

// counts is what a result means for the whole outcome: skips and waived results are as good as passes, and what refuses
// is a failure.
func (o Outcome) counts(r Result) Status {
	switch {
	case r.Waived || rank(r.Status) < rank(Warn):
		return Pass
	case rank(r.Status) >= rank(o.FailOn):
		return Fail
	}
	return r.Status
}

// ErrRefused is in the chain of every error of Outcome.Err.
var ErrRefused = errors.New("refused by the checklist")

// CheckError is one check that refuses.
type CheckError struct{ Result Result }

// Error says which check, what was found and needed, and what to do.
func (e *CheckError) Error() string {
	return fmt.Sprintf("%s: %s\n    do: %s", e.Result.ID, e.Result.Detail, e.Result.Remedy)
}

// Is makes errors.Is(err, ErrRefused) hold.
func (e *CheckError) Is(target error) bool { return target == ErrRefused }

// Err is nil, or a *multierror.Error of one *CheckError for every result that refuses, in the list's order.
func (o Outcome) Err() error {
	refused := &multierror.Error{ErrorFormat: func(errs []error) string {
		lines := []string{fmt.Sprintf("the checklist %s refuses (%d of %d checks):", o.List, len(errs), len(o.Results))}
		for _, err := range errs {
			lines = append(lines, "  "+err.Error())
		}
		return strings.Join(lines, "\n")
	}}
	for _, r := range o.Results {
		if o.counts(r) == Fail {
			refused.Errors = append(refused.Errors, &CheckError{r})
		}
	}
	return refused.ErrorOrNil()
}
