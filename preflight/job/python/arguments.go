package python

import (
	"slices"
	"strconv"
)

// A Finding is what a file says of one thing: its value, that there is none, or nothing for sure. Only Open gives the
// value, so that whoever asks also says what becomes of an answer that the file leaves open.
type Finding struct{ value *Expr }

// Open is the value, nil when there surely is none. A value that the file leaves open goes to lost, as an Unknown with
// the reason, and nil is returned.
func (f Finding) Open(lost func(why *Expr)) *Expr {
	if f.value != nil && f.value.Kind == Unknown {
		lost(f.value)
		return nil
	}
	return f.value
}

// Arguments are what a call is given, or what a dict with texts for keys holds, as far as the file decides it. The
// values are resolved, and their lines are those in which they stand.
type Arguments struct {
	positional []*Expr
	entries    []Keyword // Value is nil for a name that is surely not given
	others     *Expr     // an Unknown: why more may be given, with what is passed on as its item; nil: these are all
	starred    bool      // those behind a *value: any position may be given
}

// Get is the argument of a name.
func (a Arguments) Get(name string) Finding { return a.At(-1, name) }

// At is an argument that may be given by name or by position (-1: by name only).
func (a Arguments) At(position int, name string) Finding {
	for _, k := range a.entries {
		if k.Name == name && (k.Value != nil || a.others == nil) {
			return Finding{k.Value}
		}
	}
	if position >= 0 && position < len(a.positional) {
		return Finding{a.positional[position]}
	}
	if slices.ContainsFunc(a.entries, func(k Keyword) bool { return k.Name == name }) && !a.starred {
		return Finding{}
	}
	return Finding{a.others}
}

// Each goes over the arguments that are given by name, values that are Unknown included; others hears why there may be
// more of them.
func (a Arguments) Each(each func(name string, value *Expr), others func(why *Expr)) {
	for _, k := range a.entries {
		if k.Value != nil {
			each(k.Name, k.Value)
		}
	}
	if a.others != nil {
		others(a.others)
	}
}

// put gives a name another value; nil takes it away.
func (a *Arguments) put(name string, value *Expr) {
	a.entries = slices.DeleteFunc(slices.Clone(a.entries), func(k Keyword) bool { return k.Name == name })
	if value != nil || a.others != nil {
		a.entries = append(a.entries, Keyword{name, value})
	}
}

// lose makes all names unknown but those of a few.
func (a *Arguments) lose(why *Expr, but []Keyword) {
	kept := make([]Keyword, len(a.entries))
	for i, k := range a.entries {
		kept[i] = Keyword{k.Name, why}
		if slices.ContainsFunc(but, func(each Keyword) bool { return each.Name == k.Name }) {
			kept[i] = k
		}
	}
	a.entries, a.others = kept, why
}

// merge puts other entries over these.
func (a *Arguments) merge(over Arguments) {
	before := a.others
	if over.others != nil {
		a.lose(over.others, over.entries)
	}
	for _, k := range over.entries {
		held := slices.ContainsFunc(a.entries, func(each Keyword) bool { return each.Name == k.Name })
		if k.Value != nil || !held && before == nil {
			a.put(k.Name, k.Value)
		}
	}
}

// Arguments reads what a call is given.
func (s Scope) Arguments(c *Call) Arguments { return (&resolution{Scope: s}).arguments(c) }

func (r *resolution) arguments(c *Call) Arguments {
	var below Arguments
	if made, from := r.partial(c); made != nil {
		below = r.arguments(from)
		if made.Kind == Invoke { // a partial of a partial
			first := r.arguments(made.Call)
			first.merge(below)
			below = first
		}
		below.positional = below.positional[min(1, len(below.positional)):] // the function itself
	}
	if c.over != nil {
		below = r.arguments(c.over)
	}
	all := r.written(c)
	below.positional = append(slices.Clip(below.positional), all.positional...)
	below.starred = below.starred || all.starred
	below.merge(all)
	return below
}

// written are the arguments of the call alone.
func (r *resolution) written(c *Call) Arguments {
	var all Arguments
	fixed := c.Args
	if c.Starred {
		fixed = fixed[:min(c.fixed, len(fixed))]
		all.starred, all.others = true, spread(c.Line, "*arguments", nil)
	}
	for _, e := range fixed {
		all.positional = append(all.positional, r.standing(e, c.Place))
	}
	for _, k := range c.named {
		if k.Name != "" {
			continue
		}
		inner := r.mapping(k.Value, c.Place)
		if inner.others != nil {
			all.others = inner.others
		}
		for _, each := range inner.entries {
			all.put(each.Name, each.Value)
		}
	}
	// Python refuses a name that is given twice: what is written out is in no dict beside it
	for _, k := range c.named {
		if k.Name != "" {
			all.put(k.Name, r.standing(k.Value, c.Place))
		}
	}
	return all
}

// partial is the call of functools.partial that a callee stands for.
func (r *resolution) partial(c *Call) (callee *Expr, from *Call) {
	if r.steps++; r.steps > maxSteps || c.Receiver != nil {
		return nil, nil
	}
	value, _ := r.assigned(&Expr{Kind: Name, Text: c.Callee, Line: c.Line}, c.Place)
	if value == nil || value.Kind != Invoke || len(value.Call.Args) == 0 ||
		!EndsIn(r.File.Qualified(value.Call.Callee), "functools.partial") {
		return nil, nil
	}
	return r.resolve(value.Call.Args[0], value.Call.Place), value.Call
}

// Callee is the qualified name of what a call calls, through names that stand for another (f = C, f =
// functools.partial(C, x=1)).
func (s Scope) Callee(c *Call) string {
	if _, bound := s.File.byName[c.Callee]; !bound || c.Receiver != nil {
		return s.File.Qualified(c.Callee)
	}
	r := &resolution{Scope: s}
	made, _ := r.partial(c)
	for depth := 0; made != nil && made.Kind == Invoke && len(made.Call.Args) > 0 && depth < maxCalls; depth++ {
		made = r.resolve(made.Call.Args[0], made.Call.Place)
	}
	if made != nil && made.Kind == Name {
		return made.Text
	}
	value, _ := r.assigned(&Expr{Kind: Name, Text: c.Callee, Line: c.Line}, c.Place)
	if value != nil && value.Kind == Name {
		return value.Text
	}
	return s.File.Qualified(c.Callee)
}

// standing resolves a value, and keeps the line in which it stands.
func (r *resolution) standing(e *Expr, at Place) *Expr {
	value := *r.resolve(e, at)
	if e != nil {
		value.Line = e.Line
	}
	return &value
}

// spread is why a dict that is passed on is not known; what is the expression.
func spread(line int, why string, what *Expr) *Expr {
	e := unknown(line, why)
	e.Value = passedOn{}
	if what != nil {
		e.Items = []*Expr{what}
	}
	return e
}

type passedOn struct{}

// PassedOn reports whether the reason of an Unknown is that arguments are passed on which may or may not hold what was
// asked for.
func (e *Expr) PassedOn() bool {
	_, yes := e.Value.(passedOn)
	return yes && e.Kind == Unknown
}

func inLine(line int) string { return " in line " + strconv.Itoa(line) }
