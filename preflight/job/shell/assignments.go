package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// calculate follows (( )) and let: the assignments in it count, and where they cannot be computed their variables
// become unknown.
func (e *evaluator) calculate(c syntax.Command, x syntax.ArithmExpr) verdict {
	n, err := e.arithmetic(x, 0)
	if err != nil {
		e.forget(c)
		return maybe
	}
	return verdictOf(n != 0)
}

// forget makes the variables unknown that an arithmetic command changes.
func (e *evaluator) forget(c syntax.Command) {
	syntax.Walk(c, func(n syntax.Node) bool {
		var target syntax.ArithmExpr
		switch n := n.(type) {
		case *syntax.UnaryArithm:
			if n.Op == syntax.Inc || n.Op == syntax.Dec {
				target = n.X
			}
		case *syntax.BinaryArithm:
			if strings.HasSuffix(n.Op.String(), "=") {
				target = n.X
			}
		}
		if w, ok := target.(*syntax.Word); ok && w.Lit() != "" {
			e.assign(w.Lit(), []string{e.unknown(w, "it is computed")}, false)
		}
		return true
	})
}

// declare follows export, declare, local, readonly and typeset.
func (e *evaluator) declare(c *syntax.DeclClause) {
	export := c.Variant.Value == "export"
	own := c.Variant.Value == "local" || c.Variant.Value == "declare" || c.Variant.Value == "typeset"
	keyed := false
	for _, a := range c.Args {
		if a.Naked && a.Name == nil { // an option, or words that expand to assignments
			for _, word := range e.words([]*syntax.Word{a.Value}) {
				if strings.HasPrefix(word, "-") {
					export = export || strings.Contains(word, "x")
					keyed = keyed || strings.Contains(word, "A")
					own = own && !strings.Contains(word, "g")
				} else if name, value, ok := strings.Cut(word, "="); ok {
					e.assign(name, []string{value}, false)
					e.export(name, export)
				}
			}
			continue
		}
		e.declared(a, own, keyed)
		e.export(a.Name.Value, export)
	}
}

// declared follows one name of a declaration. A value is expanded before the name becomes the function's own.
func (e *evaluator) declared(a *syntax.Assign, own, keyed bool) {
	name := a.Name.Value
	if !a.Naked && a.Array == nil && a.Index == nil && !a.Append {
		value := e.text(a.Value)
		if own {
			e.local(name)
		}
		e.assign(name, []string{value}, false)
		return
	}
	if own {
		e.local(name)
	}
	if keyed {
		v := e.lookUp(name)
		v.keyed, v.array, v.set = true, true, true
		e.vars[name] = v
	}
	if !a.Naked {
		e.set(a)
	}
}

func (e *evaluator) export(name string, export bool) {
	v := e.lookUp(name)
	v.exported = v.exported || export
	e.vars[name] = v
}

// set follows one assignment.
func (e *evaluator) set(a *syntax.Assign) {
	name := a.Name.Value
	before := e.lookUp(name)
	if before.keyed && (a.Array != nil || a.Index != nil) {
		e.setKeys(a, before)
		return
	}
	if a.Array != nil {
		items := e.array(a.Array)
		if a.Append {
			items = append(append([]string(nil), before.items...), items...)
		}
		e.assign(name, items, true)
		return
	}
	value := e.text(a.Value)
	items := append([]string(nil), before.items...)
	switch {
	case a.Index != nil:
		index, err := e.arithmetic(a.Index, 0)
		if err != nil || index < 0 || index > int64(len(items)) {
			e.assign(name, []string{gap(gapText, "$"+name,
				"$"+name+" is not known: this array is not followed ("+e.at(a.Pos())+")")}, true)
			return
		}
		if index == int64(len(items)) {
			items = append(items, "")
		}
		if a.Append {
			value = items[index] + value
		}
		items[index] = limited(value)
		e.assign(name, items, true)
	case a.Append && before.set && len(items) > 0:
		items[0] = limited(items[0] + value)
		e.assign(name, items, before.array)
	default:
		e.assign(name, []string{value}, false)
	}
}

// array expands the items of an array; one with keys or indexes is not followed.
func (e *evaluator) array(a *syntax.ArrayExpr) []string {
	var words []*syntax.Word
	for _, item := range a.Elems {
		if item.Index != nil || item.Value == nil {
			return []string{e.unknown(a, "an array with indexes is not followed")}
		}
		words = append(words, item.Value)
	}
	return e.words(words)
}
