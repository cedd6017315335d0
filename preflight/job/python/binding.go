package python

import (
	"slices"
	"strings"
)

// Which assignment counts for a name at a place.

// isLocal reports whether a name is this file's own, seen from a place.
func (r *resolution) isLocal(name string, at Place) bool {
	for _, a := range r.File.byName[name] {
		if a.Key == nil && visible(a.Scope, at.Scope) {
			return true
		}
	}
	for scope := at.Scope; scope != ""; scope = outer(scope) {
		if r.File.params[scope+"\n"+name] != nil {
			return true
		}
	}
	return false
}

// visible reports whether code in scope sees the names of another: its own and the enclosing ones.
func visible(names, scope string) bool {
	return names == "" || names == scope || strings.HasPrefix(scope, names+".")
}

func outer(scope string) string {
	if i := strings.LastIndexByte(scope, '.'); i >= 0 {
		return scope[:i]
	}
	return ""
}

// assigned finds the value that a name has at a place: the innermost scope that binds it decides. In the same scope the
// last assignment before the place counts; an outer scope has run to its end. nil: this file assigns none; owner is
// then the function whose parameter it is, if any.
func (r *resolution) assigned(e *Expr, at Place) (value *Expr, owner *Function) {
	bound, owner, why := r.binding(e, at)
	switch {
	case why != nil:
		return why, nil
	case bound == nil:
		return nil, owner
	case bound.Loop && bound.Value.Kind != Literal:
		return unknown(e.Line, e.Text+" is assigned in a loop"), nil
	}
	return r.resolve(bound.Value, bound.Place), nil
}

// binding is the assignment that counts for a name at a place, or the function whose parameter it is; why says that
// none is certain.
func (r *resolution) binding(e *Expr, at Place) (bound *Assignment, owner *Function, why *Expr) {
	all := r.File.byName[e.Text]
	for scope := at.Scope; ; scope = outer(scope) {
		if last := lastIn(all, scope, at); last != nil {
			bound, why = r.value(last, e, all, at)
			return bound, nil, why
		}
		if fn := r.File.params[scope+"\n"+e.Text]; fn != nil {
			return nil, fn, nil
		}
		if scope == "" {
			return nil, nil, nil
		}
	}
}

// lastIn is the assignment in a scope that counts at a place.
func lastIn(all []*Assignment, scope string, at Place) *Assignment {
	var last *Assignment
	for _, a := range all {
		if a.Key == nil && a.Scope == scope && (scope != at.Scope || a.Line < at.Line) {
			last = a
		}
	}
	return last
}

// value is the assignment that counts, unless conditions, loops or other functions leave open which one does.
func (r *resolution) value(last *Assignment, e *Expr, all []*Assignment, at Place) (*Assignment, *Expr) {
	if line := r.File.rewritten; line > 0 && last.Scope == "" && r.Override == nil {
		return nil, unknown(e.Line, e.Text+" may be changed"+inLine(line))
	}
	for _, a := range all {
		elsewhere := a.global && a.Scope != at.Scope && a.Scope != last.Scope && visible(last.Scope, a.Scope)
		later := a.Key == nil && a.Scope == last.Scope && a.Line >= at.Line &&
			sharesLoop(a.Place, at) && !sharesLoop(last.Place, at)
		if elsewhere || later {
			return nil, unknown(e.Line, e.Text+" is changed"+inLine(a.Line))
		}
	}
	for i, a := range slices.Backward(all) {
		if a.Key != nil || a.Scope != last.Scope || a.Line > last.Line {
			continue
		}
		holds, known := r.holds(a.Place, at)
		switch {
		case !known:
			return nil, unknown(e.Line, e.Text+" depends on a condition"+inLine(a.Line))
		case !holds:
			continue
		case a.Value == nil:
			return nil, unknown(e.Line, e.Text+" has no value")
		case !within(a.Place, at) && boundBefore(all[:i], a):
			return nil, unknown(e.Line, "whether "+e.Text+" is assigned"+inLine(a.Line)+" is not known")
		}
		return a, nil
	}
	return nil, unknown(e.Line, e.Text+" depends on a condition")
}

// boundBefore reports whether the scope of an assignment gave its name another value before: that stays where the
// assignment does not run.
func boundBefore(earlier []*Assignment, a *Assignment) bool {
	return slices.ContainsFunc(earlier, func(b *Assignment) bool {
		other := b.Value != nil && !same(b.Value, a.Value)
		return other && b.Key == nil && b.Scope == a.Scope && !slices.Equal(b.blocks, a.blocks)
	})
}

func same(a, b *Expr) bool { return a.Kind == Literal && b.Kind == Literal && a.Value == b.Value }

// holds decides the conditions of an assignment that do not guard the place where it is used as well.
func (r *resolution) holds(a, at Place) (holds, known bool) {
	shared := 0
	for shared < len(a.Conditions) && shared < len(at.Conditions) && a.Scope == at.Scope &&
		a.Conditions[shared] == at.Conditions[shared] {
		shared++
	}
	a.Conditions = a.Conditions[shared:]
	known = true
	for _, c := range a.Conditions {
		truth, ok := false, false
		if c.Test != nil {
			where := a
			where.Conditions = nil
			truth, ok = Truth(r.resolve(c.Test, where))
		}
		if !ok {
			known = false
		} else if truth == c.Negated {
			return false, true
		}
	}
	return known, known
}
