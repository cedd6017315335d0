package checklists

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"
)

// validate finds everything that keeps a list, a policy and a set of checks from meaning anything together.
func validate[F any](list List, checks []Check[F], p Policy) error {
	errs := &multierror.Error{ErrorFormat: joinErrors}
	known := map[string]Params{}
	var ids []string
	for _, c := range checks {
		if _, twice := known[c.ID]; twice {
			errs.Errors = append(errs.Errors, fmt.Errorf("check %s is built in twice", c.ID))
		}
		for _, id := range c.After {
			// Checks are judged in the order in which they are built in, so this also excludes circles.
			if _, earlier := known[id]; !earlier {
				errs.Errors = append(errs.Errors,
					fmt.Errorf("check %s comes after %s, which is not built in before it", c.ID, id))
			}
		}
		known[c.ID] = c.Defaults
		ids = append(ids, c.ID)
	}
	unknown := func(where, id string) {
		if _, ok := known[id]; !ok {
			errs.Errors = append(errs.Errors,
				fmt.Errorf("%s: no check %q; known: %s", where, id, strings.Join(ids, ", ")))
		}
	}
	seen := map[string]bool{}
	for _, e := range list.Entries {
		where := list.at(e)
		unknown(where, e.ID)
		if seen[e.ID] {
			errs.Errors = append(errs.Errors, fmt.Errorf("%s: check %s is listed twice", where, e.ID))
		}
		seen[e.ID] = true
		if e.Severity != Fail && e.Severity != Warn {
			errs.Errors = append(errs.Errors,
				fmt.Errorf("%s: severity of %s is %q; it is fail or warn", where, e.ID, e.Severity))
		}
		errs.Errors = append(errs.Errors, unknownParams(where, e, known)...)
	}
	for _, id := range p.Skip {
		unknown("skip", id)
	}
	for _, id := range p.Waive {
		unknown("waive", id)
	}
	if f := p.failOn(); f != Fail && f != Warn {
		errs.Errors = append(errs.Errors, fmt.Errorf("fail on %q: it is fail or warn", f))
	}
	return errs.ErrorOrNil()
}

func unknownParams(where string, e Entry, known map[string]Params) []error {
	defaults, ok := known[e.ID]
	if !ok {
		return nil
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(e.With)) {
		if _, ok := defaults[name]; !ok {
			names := strings.Join(slices.Sorted(maps.Keys(defaults)), ", ")
			if names == "" {
				names = "none"
			}
			errs = append(errs, fmt.Errorf("%s: check %s has no threshold %q; it has: %s", where, e.ID, name, names))
		}
	}
	return errs
}

func joinErrors(errs []error) string {
	lines := make([]string, len(errs))
	for i, err := range errs {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "; ")
}
