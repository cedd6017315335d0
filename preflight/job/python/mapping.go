package python

import "slices"

// mapping reads a dict whose keys are texts: what it holds where it is used.
func (r *resolution) mapping(e *Expr, at Place) Arguments {
	if e == nil {
		return Arguments{others: spread(at.Line, "no value", nil)}
	}
	if r.steps++; r.steps > maxSteps {
		return Arguments{others: spread(e.Line, "followed through too many names", e)}
	}
	switch {
	case e.Kind == Name:
		return r.namedMapping(e, at)
	case e.Kind == Dict:
		return r.display(e, at)
	case e.Kind == Operation && e.Text == "|":
		all := r.mapping(e.Items[0], at)
		all.merge(r.mapping(e.Items[1], at))
		return all
	case e.Kind == Operation && e.Text == "if":
		if truth, known := Truth(r.resolve(e.Items[0], at)); known {
			return r.mapping(e.Items[map[bool]int{true: 1, false: 2}[truth]], at)
		}
	case e.Kind == Invoke:
		return r.calledMapping(e, at)
	}
	return r.undecided(e, at)
}

// undecided is a mapping of which nothing is known, unless the expression resolves to a dict after all.
func (r *resolution) undecided(e *Expr, at Place) Arguments {
	value := r.resolve(e, at)
	if value.Kind == Dict && e.Kind != Dict {
		return r.display(value, at)
	}
	return Arguments{others: spread(e.Line, value.String(), e)}
}

// display reads {"a": 1, **other}: what stands later wins.
func (r *resolution) display(e *Expr, at Place) Arguments {
	var all Arguments
	for i, key := range e.Keys {
		if key == nil {
			all.merge(r.mapping(e.Items[i], at))
			continue
		}
		if name, text := r.text(key, at); text {
			all.put(name, r.standing(e.Items[i], at))
		} else {
			all.lose(spread(e.Line, "a key that is decided when it runs", e), nil)
		}
	}
	return all
}

func (r *resolution) text(e *Expr, at Place) (text string, ok bool) {
	value := r.resolve(e, at)
	if value.Kind == Literal {
		text, ok = value.Value.(string)
	}
	return text, ok
}

// calledMapping reads dict(a, b=1), copies, and what a function of the file returns.
func (r *resolution) calledMapping(e *Expr, at Place) Arguments {
	c := e.Call
	base, method := cutLast(c.Callee)
	switch {
	case c.Callee == "dict" && len(c.Args) <= 1 && !c.Starred:
		given := r.arguments(c)
		given.positional = nil
		if len(c.Args) == 0 {
			return given
		}
		all := r.mapping(c.Args[0], at)
		all.merge(given)
		return all
	case method == "copy" && base != "" && len(c.Args) == 0:
		return r.mapping(&Expr{Kind: Name, Text: base, Line: e.Line}, at)
	case EndsIn(r.File.Qualified(c.Callee), "copy.copy", "copy.deepcopy") && len(c.Args) > 0:
		return r.mapping(c.Args[0], at)
	}
	if value, end := r.result(c); value != nil {
		return r.mapping(value, end)
	}
	return r.undecided(e, at)
}

// result is the only value that a function of the file returns, and the place where it does; nil when there is more to
// it.
func (r *resolution) result(c *Call) (value *Expr, end Place) {
	fn := r.File.Function(c.Callee)
	if fn == nil || c.Receiver != nil || len(fn.Decorators) > 0 || len(fn.Returns) != 1 || len(fn.ends) != 1 {
		return nil, Place{}
	}
	if end = fn.ends[0]; len(end.Conditions) > 0 || len(end.blocks) > 0 || r.rebound(c.Callee) {
		return nil, Place{}
	}
	end.Line++ // what stands in its own line has run
	return fn.Returns[0], end
}

// returned follows a call into functions of the file, as far as each returns one value.
func (r *resolution) returned(e *Expr) *Expr {
	for depth := 0; e.Kind == Invoke && e.Call.over == nil && depth < maxCalls; depth++ {
		value, end := r.result(e.Call)
		if value == nil {
			break
		}
		e = r.resolve(value, end)
	}
	return e
}

// Returned follows a call into functions of the file, as far as each returns one value; anything else stays.
func (s Scope) Returned(e *Expr) *Expr { return (&resolution{Scope: s}).returned(e) }

// rebound reports whether a function's name is given to something else too.
func (r *resolution) rebound(name string) bool {
	count := 0
	for _, fn := range r.File.Functions {
		if fn.Name == name && fn.Scope == "" {
			count++
		}
	}
	return count > 1 || len(r.File.byName[name]) > 0
}

// namedMapping reads the dict that a name stands for, with what the file does to it before a place.
func (r *resolution) namedMapping(e *Expr, at Place) Arguments {
	if r.Override != nil && r.Override(e.Text) != nil {
		return r.undecided(e, at)
	}
	bound, owner, why := r.binding(e, at)
	var all Arguments
	var from Place
	switch {
	case why != nil:
		return Arguments{others: spread(e.Line, why.Text, e)}
	case owner != nil:
		given, place := r.given(owner, e)
		if given == nil {
			return Arguments{others: spread(e.Line, e.Text+" is a parameter of "+owner.Name, e)}
		}
		all, from = r.mapping(given, place), Place{Scope: joinScope(owner.Scope, owner.Name), Line: owner.Line}
	case bound == nil:
		return r.undecided(e, at)
	case bound.Value.Kind == Unknown && bound.Value.Value == "|=":
		before := bound.Place
		all = r.mapping(&Expr{Kind: Name, Text: e.Text, Line: e.Line}, before)
		all.merge(r.mapping(bound.Value.Items[0], bound.Place))
		from = bound.Place
	default:
		all, from = r.mapping(bound.Value, bound.Place), bound.Place
		if others := all.others; others != nil && len(others.Items) > 0 && bound.Value.Kind != Dict {
			all.others = spread(others.Line, others.Text, others.Items[0])
		}
	}
	for _, name := range r.aliases(e.Text, bound) {
		for _, c := range r.changes(name, items) {
			happens, certain := r.happens(c.Place, from, at, name)
			if happens {
				r.apply(&all, c, certain && name == e.Text, items)
			}
		}
	}
	return all
}

// aliases are the names under which the file knows the thing that a name stands for, its own last.
func (r *resolution) aliases(name string, bound *Assignment) []string {
	var names []string
	if bound != nil && bound.Value != nil && bound.Value.Kind == Name {
		names = append(names, bound.Value.Text)
	}
	for _, a := range r.File.aliases[name] {
		if a.Target != name && !slices.Contains(names, a.Target) {
			names = append(names, a.Target)
		}
	}
	return append(names, name)
}

// Mapping reads a dict whose keys are texts.
func (s Scope) Mapping(e *Expr, at Place) Arguments { return (&resolution{Scope: s}).mapping(e, at) }
