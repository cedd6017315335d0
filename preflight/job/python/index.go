package python

import "strings"

// settleGlobals marks the assignments by which functions set variables of the module, and forgets declarations of names
// that a function only reads.
func (f *File) settleGlobals() {
	declared, set := map[string]bool{}, map[string]bool{}
	for _, a := range f.Assignments {
		key := a.Scope + "\n" + a.Target
		declared[key] = declared[key] || a.declared
		set[key] = set[key] || !a.declared && a.Key == nil
	}
	kept := f.Assignments[:0]
	for _, a := range f.Assignments {
		key := a.Scope + "\n" + a.Target
		if a.declared && !set[key] {
			continue
		}
		a.global = declared[key] && !a.declared && a.Key == nil
		kept = append(kept, a)
	}
	f.Assignments = kept
}

// indexCalls finds the calls of each object's methods, and those that are given it.
func (f *File) indexCalls() {
	for _, c := range f.Calls {
		if c.Callee == "exec" {
			f.rewritten = c.Line
		}
		if base, _ := cutLast(c.Callee); base != "" && c.Receiver == nil {
			f.methods[base] = append(f.methods[base], c)
		}
		if c.Receiver != nil {
			f.changedInside(c)
		}
		for _, e := range c.Args {
			f.pass(e, c)
		}
		for _, k := range c.named {
			if k.Name != "" {
				f.pass(k.Value, c)
			}
		}
	}
}

// changedInside notes a["b"].update(...) as a change of what stands under "b", and what writes any global.
func (f *File) changedInside(c *Call) {
	if _, changes := methodChange(c); !changes {
		return
	}
	if root, key := indexedRoot(c.Receiver); root != "" {
		changed := &Assignment{Place: c.Place, Target: root, Key: key, Value: unknown(c.Line, "changed in place")}
		f.byName[root] = append(f.byName[root], changed)
	}
	if isGlobals(c.Receiver) {
		f.rewritten = c.Line
	}
}

func isGlobals(e *Expr) bool { return e.Kind == Invoke && e.Call.Callee == "globals" }

func (f *File) pass(e *Expr, c *Call) {
	switch e.Kind {
	case Name:
		f.passed[e.Text] = append(f.passed[e.Text], c)
	case List, Dict:
		for _, item := range e.Items {
			f.pass(item, c)
		}
	case Unknown, Literal, Invoke, Operation, Index:
	}
}

// doubt says why an attribute may be another than what this scope gives it: another function sets it, or setattr does.
func (r *resolution) doubt(e *Expr, at Place, owner *Function) *Expr {
	base, field := cutLast(e.Text)
	if base == "" || owner != nil || r.depth > 0 {
		return nil
	}
	bound, _, _ := r.binding(&Expr{Kind: Name, Text: base, Line: e.Line}, at)
	from := Place{}
	if bound != nil {
		from = bound.Place
	} else if fn := r.parameterOf(base, at.Scope); fn != nil {
		from = Place{Scope: joinScope(fn.Scope, fn.Name), Line: fn.Line}
	}
	r.depth++
	defer func() { r.depth-- }()
	var all Arguments
	for _, c := range r.changes(base, attributes) {
		// an assignment that this place sees as such
		if c.key != nil && visible(c.Scope, at.Scope) && r.isPlain(base, c) {
			continue
		}
		if happens, _ := r.happens(c.Place, from, at, base); happens {
			r.apply(&all, c, false, attributes)
		}
	}
	if why := all.Get(field).value; why != nil {
		return unknown(e.Line, strings.Replace(why.Text, "may be changed", e.Text+" may be changed", 1))
	}
	return nil
}

// isPlain reports whether a change is an assignment, not setattr.
func (r *resolution) isPlain(base string, c change) bool {
	for _, a := range r.File.fields[base] {
		if a.Line == c.Line && a.Scope == c.Scope {
			return true
		}
	}
	return false
}

func (r *resolution) parameterOf(name, scope string) *Function {
	for ; scope != ""; scope = outer(scope) {
		if fn := r.File.params[scope+"\n"+name]; fn != nil {
			return fn
		}
	}
	return nil
}
