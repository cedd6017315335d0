package python

import (
	"slices"
	"strconv"
	"strings"
)

// index prepares the look-up of names.
func (f *File) index() {
	f.imports, f.byName, f.params = map[string]string{}, map[string][]*Assignment{}, map[string]*Function{}
	f.fields, f.aliases = map[string][]*Assignment{}, map[string][]*Assignment{}
	f.methods, f.passed = map[string][]*Call{}, map[string][]*Call{}
	for _, i := range f.Imports {
		switch {
		case i.Name == "*":
		case i.Name != "":
			f.imports[i.As] = i.Module + "." + i.Name
		case i.As != "":
			f.imports[i.As] = i.Module
		}
	}
	f.settleGlobals()
	for _, a := range f.Assignments {
		f.byName[a.Target] = append(f.byName[a.Target], a)
		if base, _ := cutLast(a.Target); base != "" {
			f.fields[base] = append(f.fields[base], a)
		}
		if a.Key == nil && a.Value != nil && a.Value.Kind == Name {
			f.aliases[a.Value.Text] = append(f.aliases[a.Value.Text], a)
		}
	}
	f.indexCalls()
	for _, fn := range f.Functions {
		for _, k := range fn.Parameters {
			f.params[joinScope(fn.Scope, fn.Name)+"\n"+k.Name] = fn
		}
	}
}

// A Scope resolves names as they are seen from one place in the file. Outside knows what the file does not, such as the
// command line behind args.lr; it may be nil. It returns nil for what it does not know.
type Scope struct {
	File    *File
	Outside func(dotted string, at Place) *Expr
	// Override wins over what the file assigns at module level: a script may let its command line replace its globals.
	// It returns nil for names that nothing replaces, and may be nil.
	Override func(name string) *Expr
	// Keeps reports whether a function of another module leaves what it is given as it is; it may be nil.
	Keeps func(qualified string) bool
}

// maxSteps bounds the names and operations that one value may follow.
const maxSteps = 1000

type resolution struct {
	Scope
	steps int
	depth int // functions that a thing was handed through
}

// Resolve follows names and computes with literals, as far as the file decides them. The result is a Literal, List,
// Dict, Invoke, a Name that belongs to another module (torch.bfloat16, by its qualified name), or Unknown with the
// reason.
func (s Scope) Resolve(e *Expr, at Place) *Expr {
	r := &resolution{Scope: s}
	return r.resolve(e, at)
}

// Holds decides a place's conditions: true when all hold, false when one does not; known is false when that is not
// decided.
func (s Scope) Holds(at Place) (holds, known bool) {
	known = true
	outside := at
	outside.Conditions = nil
	for _, c := range at.Conditions {
		truth, ok := false, false
		if c.Test != nil {
			truth, ok = Truth(s.Resolve(c.Test, outside))
		}
		switch {
		case !ok:
			known = false
		case truth == c.Negated:
			return false, true
		}
	}
	return known, known
}

// Truth is the truth value of a resolved expression.
func Truth(e *Expr) (truth, known bool) {
	if e == nil {
		return false, false
	}
	switch e.Kind {
	case Literal:
		switch v := e.Value.(type) {
		case nil:
			return false, true
		case bool:
			return v, true
		case int64:
			return v != 0, true
		case float64:
			return v != 0, true
		case string:
			return v != "", true
		}
	case List, Dict:
		return len(e.Items) > 0, true
	case Name, Invoke, Unknown, Operation, Index:
	}
	return false, false
}

func (r *resolution) resolve(e *Expr, at Place) *Expr {
	if e == nil {
		return unknown(at.Line, "no value")
	}
	if r.steps++; r.steps > maxSteps {
		return unknown(e.Line, "followed through too many names")
	}
	switch e.Kind {
	case Name:
		return r.name(e, at)
	case Operation:
		return r.operation(e, at)
	case List, Dict:
		items := make([]*Expr, len(e.Items))
		for i, item := range e.Items {
			items[i] = r.resolve(item, at)
		}
		return &Expr{Kind: e.Kind, Line: e.Line, Items: items, Keys: e.Keys}
	case Index:
		return r.indexed(e, at)
	case Invoke:
		return r.called(e, at)
	case Unknown, Literal:
	}
	return e
}

// called resolves the calls that say the same wherever an NVIDIA GPU trains, and getattr(torch, "bfloat16").
func (r *resolution) called(e *Expr, at Place) *Expr {
	qualified := r.File.Qualified(e.Call.Callee)
	switch args := e.Call.Args; {
	case len(args) == 1 && e.Call.over == nil && EndsIn(qualified, "dataclasses.replace", "copy.replace"):
		if made := r.returned(r.resolve(args[0], at)); made.Kind == Invoke {
			changed := *e.Call
			changed.Callee, changed.Receiver, changed.Args, changed.over = made.Call.Callee, made.Call.Receiver, nil,
				made.Call
			return &Expr{Kind: Invoke, Line: e.Line, Call: &changed}
		}
	case len(args) == 1 && EndsIn(qualified, "copy.copy", "copy.deepcopy"):
		return r.resolve(args[0], at)
	case len(args) == 0 && EndsIn(qualified, "torch.xpu.is_available", "torch.npu.is_available"):
		return &Expr{Kind: Literal, Line: e.Line, Value: false}
	case len(args) == 2 && e.Call.Callee == "getattr" && args[0].Kind == Name:
		attribute := r.resolve(args[1], at)
		if name, ok := attribute.Value.(string); ok && attribute.Kind == Literal {
			return r.resolve(&Expr{Kind: Name, Line: e.Line, Text: args[0].Text + "." + name}, at)
		}
	}
	return e
}

// name resolves a dotted name: an assignment, a field of a class, what Outside says, a parameter, or an import.
func (r *resolution) name(e *Expr, at Place) *Expr {
	if r.Override != nil {
		if found := r.Override(e.Text); found != nil {
			return found
		}
	}
	found, owner := r.assigned(e, at)
	if why := r.doubt(e, at, owner); why != nil {
		return why
	}
	if found != nil {
		return found
	}
	if field := r.field(e, at); field != nil {
		return field
	}
	if r.Outside != nil {
		if found := r.Outside(e.Text, at); found != nil {
			return found
		}
	}
	if owner != nil {
		return r.parameter(owner, e)
	}
	if first, _, dotted := strings.Cut(e.Text, "."); dotted && r.isLocal(first, at) {
		return unknown(e.Line, e.Text+" is an attribute of a value made at run time")
	}
	return &Expr{Kind: Name, Line: e.Line, Text: r.File.Qualified(e.Text)}
}

// field resolves Config.lr, and cfg.lr after cfg = Config(...), for a class of this file; nil when it is neither.
func (r *resolution) field(e *Expr, at Place) *Expr {
	cut := strings.LastIndexByte(e.Text, '.')
	if cut < 0 {
		return nil
	}
	base, name := &Expr{Kind: Name, Line: e.Line, Text: e.Text[:cut]}, e.Text[cut+1:]
	class := r.File.Class(base.Text)
	var call *Call
	if class == nil {
		value, _ := r.assigned(base, at)
		if value == nil || value.Kind != Invoke {
			return nil
		}
		if call = value.Call; EndsIn(r.File.Qualified(call.Callee), "types.SimpleNamespace", "argparse.Namespace") {
			return r.arguments(call).Get(name).value
		}
		if class = r.File.Class(call.Callee); class == nil {
			return nil
		}
		if line := r.File.setAtStart(class, name); line > 0 {
			return unknown(e.Line, e.Text+" is set"+inLine(line))
		}
	}
	if call != nil {
		given := r.arguments(call)
		if value := given.Get(name).value; value != nil {
			return value
		}
		if len(given.positional) > 0 {
			return unknown(e.Line, e.Text+" depends on the arguments of "+call.Callee)
		}
	}
	for _, f := range slices.Backward(class.Fields) {
		if f.Target == name && f.Value != nil {
			return r.resolve(FieldDefault(r.File, f.Value), f.Place)
		}
	}
	return nil
}

// setAtStart is the line in which a class sets an attribute when an object is made; 0 when it does not.
func (f *File) setAtStart(class *Class, name string) int {
	for _, a := range f.Assignments {
		base, field := cutLast(a.Target)
		start := strings.TrimPrefix(a.Scope, joinScope(class.Scope, class.Name)+".")
		if base == "self" && field == name && (start == "__init__" || start == "__post_init__") {
			return a.Line
		}
	}
	return 0
}

// FieldDefault is the default inside dataclasses.field(default=...), also that of a factory that is a lambda.
func FieldDefault(f *File, e *Expr) *Expr {
	if e != nil && e.Kind == Invoke && EndsIn(f.Qualified(e.Call.Callee), "field", "Field") {
		if value := e.Call.keyword("default"); value != nil {
			return value
		}
		if made := e.Call.keyword("default_factory"); made != nil && made.Kind == Unknown && len(made.Items) == 1 {
			return made.Items[0] // lambda: [...]
		}
	}
	return e
}

// parameter resolves a function's parameter when the file calls the function in one place.
func (r *resolution) parameter(owner *Function, e *Expr) *Expr {
	if given, place := r.given(owner, e); given != nil {
		return r.resolve(given, place)
	}
	return unknown(e.Line, e.Text+" is a parameter of "+owner.Name)
}

// given is what a parameter is given, or its default, and where that stands; nil when the file does not call the
// function in one place.
func (r *resolution) given(owner *Function, e *Expr) (value *Expr, place Place) {
	var only *Call
	for _, c := range r.File.Calls {
		if c.Callee == owner.Name {
			if only != nil {
				return nil, Place{}
			}
			only = c
		}
	}
	if only == nil || only.Starred || only.keyword("") != nil || len(r.File.passed[owner.Name]) > 0 {
		return nil, Place{}
	}
	for i, k := range owner.Parameters {
		if k.Name != e.Text {
			continue
		}
		if given := only.arg(i, k.Name); given != nil {
			return given, only.Place
		}
		return k.Value, owner.Place
	}
	return nil, Place{}
}

// indexed resolves literal["key"] and literal[0], and what name["key"] = value changed since.
func (r *resolution) indexed(e *Expr, at Place) *Expr {
	key := r.resolve(e.Items[1], at)
	fail := unknown(e.Line, e.String())
	if key.Kind != Literal {
		return fail
	}
	if name := e.Items[0]; name.Kind == Name {
		for _, a := range r.File.byName[name.Text] {
			if a.Key == nil {
				continue
			}
			if changed := r.resolve(a.Key, a.Place); changed.Kind != Literal || changed.Value == key.Value {
				return unknown(e.Line, name.Text+" is changed in line "+strconv.Itoa(a.Line))
			}
		}
	}
	switch base := r.resolve(e.Items[0], at); base.Kind {
	case Dict:
		for i, k := range base.Keys {
			if k != nil && k.Kind == Literal && k.Value == key.Value {
				return base.Items[i]
			}
		}
	case List:
		if i, ok := key.Value.(int64); ok && i >= 0 && i < int64(len(base.Items)) {
			return base.Items[i]
		}
	case Unknown, Literal, Name, Invoke, Operation, Index:
	}
	return fail
}
