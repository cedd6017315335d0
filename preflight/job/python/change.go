package python

import (
	"slices"
	"strings"
)

// What a file does to a thing after it was made: cfg["a"] = 1, cfg.update(b), args.a = 1, setattr(args, "a", 1),
// tune(args).

// part says what of a thing changes: the items of a dict, or the attributes of an object.
type part int

const (
	items part = iota
	attributes
)

// A change is one statement that changes a thing.
type change struct {
	Place
	key    *Expr // which item or attribute; nil: see the others
	value  *Expr // its new value; nil: it is deleted
	weak   bool  // only where there is none (setdefault)
	clears bool
	merged *Call     // update(...)
	given  *Call     // a function that the thing is given to, which may change it
	thing  string    // the name by which it is given
	method *Function // of a class of the file, that is called on the thing
	whole  bool      // in a way that is not followed
}

// changes lists what the file does to the thing that a name stands for, in source order.
func (r *resolution) changes(name string, of part) []change {
	var all []change
	f := r.File
	if of == items {
		for _, a := range f.byName[name] {
			if a.Key != nil {
				all = append(all, change{Place: a.Place, key: a.Key, value: a.Value})
			}
		}
	} else {
		for _, a := range f.fields[name] {
			_, field := cutLast(a.Target)
			if field != "__dict__" {
				key := &Expr{Kind: Literal, Value: field, Line: a.Line}
				all = append(all, change{Place: a.Place, key: key, value: a.Value})
			} else {
				all = append(all, change{Place: a.Place, key: a.Key, value: a.Value, whole: a.Key == nil})
			}
		}
	}
	own := name
	if of == attributes {
		own = name + ".__dict__"
	}
	for _, c := range f.methods[own] {
		if found, changes := methodChange(c); changes {
			all = append(all, found)
		}
	}
	if of == attributes {
		for _, c := range f.methods[name] {
			_, method := cutLast(c.Callee)
			for _, fn := range f.Functions {
				if fn.Name == method && len(fn.Parameters) > 0 &&
					slices.ContainsFunc(f.Classes, func(class *Class) bool {
						return joinScope(class.Scope, class.Name) == fn.Scope
					}) {
					all = append(all, change{Place: c.Place, method: fn})
				}
			}
		}
	}
	for _, c := range f.passed[name] {
		if found, changes := r.passedChange(c, name, of); changes {
			all = append(all, found)
		}
	}
	slices.SortStableFunc(all, func(a, b change) int { return a.Line - b.Line })
	return all
}

// methodChange reads the methods of a dict.
func methodChange(c *Call) (found change, changes bool) {
	found = change{Place: c.Place}
	switch _, method := cutLast(c.Callee); {
	case method == "update":
		found.merged = c
	case method == "clear":
		found.clears = true
	case method == "pop" && len(c.Args) > 0:
		found.key = c.Args[0]
	case method == "setdefault" && len(c.Args) == 2:
		found.key, found.value, found.weak = c.Args[0], c.Args[1], true
	case method == "pop", method == "popitem", method == "setdefault":
		found.whole = true
	default:
		return found, false
	}
	return found, true
}

// harmless are functions of Python's own that do not change what they are given.
const harmless = ` print len str repr dict list tuple set frozenset sorted type isinstance iter enumerate id bool format
	any all sum min max zip map filter
	hasattr getattr hash vars json.dumps json.dump copy.copy copy.deepcopy pprint.pprint pprint.pformat
	functools.partial dataclasses.asdict
	dataclasses.replace `

// passedChange reads setattr(x, "a", 1), vars(x).update(...), and functions that are given the thing.
func (r *resolution) passedChange(c *Call, name string, of part) (found change, changes bool) {
	found = change{Place: c.Place}
	qualified := r.File.Qualified(c.Callee)
	switch {
	case EndsIn(qualified, "setattr", "__setattr__") && len(c.Args) == 3:
		found.key, found.value = c.Args[1], c.Args[2]
		return found, of == attributes && c.Args[0].Text == name
	case qualified == "vars" && of == attributes:
		for _, outer := range r.File.Calls {
			if outer.Receiver != nil && outer.Receiver.Kind == Invoke && outer.Receiver.Call == c &&
				outer.Line == c.Line {
				return methodChange(outer)
			}
		}
		return found, false
	case strings.Contains(harmless, " "+qualified+" "), r.Keeps != nil && r.Keeps(qualified):
		return found, false
	case r.File.Function(c.Callee) != nil:
		found.given, found.thing = c, name
		return found, true
	}
	found.whole = true
	_, bound := r.File.imports[strings.SplitN(c.Callee, ".", 2)[0]]
	bound = bound && !r.runs(c, name)
	isClass := r.File.Class(c.Callee) != nil
	return found, of == items && !bound && !isClass && c.Receiver == nil
}

// runs reports whether a call that is given a thing is given a function besides, which it may hand it to:
// Thread(target=f, args=(x,)).
func (r *resolution) runs(c *Call, name string) bool {
	return slices.ContainsFunc(c.Given(), func(e *Expr) bool {
		return e.Kind == Name && e.Text != name && !strings.Contains(e.Text, ".") && r.File.imports[e.Text] == "" &&
			!r.isLocal(e.Text, c.Place)
	})
}

// happens reports whether what stands at a place has been done to a name before another place, from where the name was
// bound; certain is false when that is open.
func (r *resolution) happens(p, from, at Place, name string) (happens, certain bool) {
	if p.Scope != from.Scope && p.Scope != at.Scope && r.binds(name, p.Scope) || !visible(from.Scope, p.Scope) {
		return false, true // another thing of that name
	}
	if p.Scope != from.Scope && p.Scope != at.Scope {
		return true, false // a function's body runs when it is called
	}
	again := sharesLoop(p, at)
	if p.Scope == from.Scope && p.Line < from.Line {
		return false, true
	}
	if p.Scope == at.Scope && p.Line >= at.Line {
		return again, false
	}
	holds, known := r.holds(p, at)
	if known && !holds {
		return false, true
	}
	return true, known && within(p, at)
}

// binds reports whether a scope has a variable of its own by that name.
func (r *resolution) binds(name, scope string) bool {
	for ; scope != ""; scope = outer(scope) {
		if r.File.params[scope+"\n"+name] != nil {
			return true
		}
		for _, a := range r.File.byName[name] {
			if a.Key == nil && a.Scope == scope {
				return true
			}
		}
	}
	return false
}

// within reports whether the loops and try blocks around p are around another place too, so that p has run when that is
// reached.
func within(p, at Place) bool {
	if p.Scope != at.Scope {
		return len(p.blocks) == 0
	}
	return len(p.blocks) <= len(at.blocks) && slices.Equal(p.blocks, at.blocks[:len(p.blocks)])
}

// sharesLoop reports whether a loop is around both places, so that the later one has run when the earlier one is
// reached again.
func sharesLoop(a, b Place) bool {
	inLoops := a.Loop && b.Loop && len(a.blocks) > 0 && len(b.blocks) > 0
	return inLoops && a.Scope == b.Scope && a.blocks[0] == b.blocks[0]
}

// apply does a change to what is known of a thing.
func (r *resolution) apply(all *Arguments, c change, certain bool, of part) {
	why := spread(c.Line, "may be changed"+inLine(c.Line), nil)
	if c.key != nil {
		name, text := r.text(c.key, c.Place)
		switch {
		case !text:
			all.lose(why, nil)
		case !certain:
			all.put(name, why)
		case c.weak && all.Get(name).value != nil:
		case c.value == nil:
			all.put(name, nil)
		default:
			all.put(name, r.standing(c.value, c.Place))
		}
		return
	}
	switch {
	case c.clears && certain:
		*all = Arguments{}
	case c.merged != nil:
		r.update(all, c.merged, certain, why)
	case c.given != nil || c.method != nil:
		r.inside(all, c, of)
	default:
		all.lose(why, nil)
	}
}

// update does x.update(other, a=1).
func (r *resolution) update(all *Arguments, c *Call, certain bool, why *Expr) {
	given := r.arguments(c)
	given.positional = nil
	if len(c.Args) > 0 {
		over := given
		given = r.mapping(c.Args[0], c.Place)
		given.merge(over)
	}
	if certain {
		all.merge(given)
		return
	}
	if given.others != nil {
		all.lose(why, nil)
	}
	for _, k := range given.entries {
		all.put(k.Name, why)
	}
}

// inside does what a function of the file may do to a thing that it is given.
func (r *resolution) inside(all *Arguments, by change, of part) {
	fn, starred := by.method, false
	if fn == nil {
		fn, starred = r.File.Function(by.given.Callee), by.given.Starred
	}
	c := by.Place
	if r.steps += 10; r.steps > maxSteps {
		all.lose(spread(c.Line, "followed through too many functions", nil), nil)
		return
	}
	r.depth++
	defer func() { r.depth-- }()
	if r.depth > maxCalls || starred {
		all.lose(spread(c.Line, "may be changed"+inLine(c.Line), nil), nil)
		return
	}
	var names []string
	if by.method != nil {
		names = []string{fn.Parameters[0].Name}
	} else {
		names = parametersFor(fn, by.given, by.thing)
	}
	own := joinScope(fn.Scope, fn.Name)
	for _, name := range names {
		for _, each := range r.changes(name, of) {
			if visible(own, each.Scope) {
				r.apply(all, each, false, of)
			}
		}
	}
}

// maxCalls bounds how many functions may hand a thing on.
const maxCalls = 3

// parametersFor are the parameters of a function that a call gives the thing of a name.
func parametersFor(fn *Function, c *Call, name string) []string {
	var names []string
	for i, k := range fn.Parameters {
		if e := c.arg(i, k.Name); e != nil && e.Kind == Name && e.Text == name {
			names = append(names, k.Name)
		}
	}
	return names
}

func cutLast(dotted string) (base, name string) {
	if i := strings.LastIndexByte(dotted, '.'); i >= 0 {
		return dotted[:i], dotted[i+1:]
	}
	return "", dotted
}

// Attributes reads what the file sets on the object that a name stands for, before a place; what the object was made
// with is not among them.
func (s Scope) Attributes(name string, at Place) Arguments {
	r := &resolution{Scope: s}
	var all Arguments
	bound, owner, _ := r.binding(&Expr{Kind: Name, Text: name, Line: at.Line}, at)
	var from Place
	switch {
	case owner != nil:
		from = Place{Scope: joinScope(owner.Scope, owner.Name), Line: owner.Line}
	case bound != nil:
		from = bound.Place
		if bound.Value != nil && bound.Value.Kind == Name {
			all = s.Attributes(bound.Value.Text, bound.Place)
		}
	}
	for _, alias := range r.aliases(name, bound) {
		for _, c := range r.changes(alias, attributes) {
			if happens, certain := r.happens(c.Place, from, at, alias); happens {
				r.apply(&all, c, certain && alias == name, attributes)
			}
		}
	}
	return all
}
