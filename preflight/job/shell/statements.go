package shell

import (
	"maps"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

func (e *evaluator) statements(list []*syntax.Stmt) {
	for _, s := range list {
		e.statement(s)
	}
}

func (e *evaluator) statement(s *syntax.Stmt) {
	if e.spend(1) {
		return
	}
	switch c := s.Cmd.(type) {
	case *syntax.CallExpr:
		e.call(c, s)
	case *syntax.DeclClause:
		e.declare(c)
	case *syntax.Block:
		e.statements(c.Stmts)
	case *syntax.Subshell:
		e.apart(func() { e.statements(c.Stmts) })
	case *syntax.TimeClause:
		if c.Stmt != nil {
			e.statement(c.Stmt)
		}
	case *syntax.CoprocClause:
		e.apart(func() { e.statement(c.Stmt) })
	case *syntax.FuncDecl:
		e.funcs[c.Name.Value] = c.Body
	case *syntax.BinaryCmd:
		e.chain(c)
	case *syntax.IfClause:
		e.either("the if of "+e.at(c.Pos()), ifBranches(c))
	case *syntax.ForClause:
		e.loop(c)
	case *syntax.WhileClause:
		e.either("the loop of "+e.at(c.Pos()), [][]*syntax.Stmt{c.Do})
	case *syntax.CaseClause:
		var branches [][]*syntax.Stmt
		for _, item := range c.Items {
			branches = append(branches, item.Stmts)
		}
		e.either("the case of "+e.at(c.Pos()), branches)
	case *syntax.ArithmCmd, *syntax.LetClause:
		e.forget(c)
	}
}

// chain follows a && b and pipes; what stands behind || runs only when something fails.
func (e *evaluator) chain(c *syntax.BinaryCmd) {
	switch c.Op {
	case syntax.AndStmt:
		e.statement(c.X)
		e.statement(c.Y)
	case syntax.OrStmt:
		e.statement(c.X)
		e.either("what follows || in "+e.at(c.Y.Pos()), [][]*syntax.Stmt{{c.Y}})
	default: // each side of a pipe is a shell of its own
		e.apart(func() { e.statement(c.X) })
		e.apart(func() { e.statement(c.Y) })
	}
}

// apart follows statements whose variables stay their own.
func (e *evaluator) apart(follow func()) {
	if e.spend(1 + len(e.vars)/8) {
		return
	}
	vars, dir, params, ended := e.vars, e.dir, e.params, e.ended
	e.vars = maps.Clone(vars)
	follow()
	e.vars, e.dir, e.params, e.ended = vars, dir, params, ended
}

func ifBranches(c *syntax.IfClause) [][]*syntax.Stmt {
	var branches [][]*syntax.Stmt
	for ; c != nil; c = c.Else {
		branches = append(branches, c.Then)
	}
	return branches
}

// either follows branches of which nobody knows whether they run: each starts from the same variables, and what any of them changes
// is unknown afterwards.
func (e *evaluator) either(where string, branches [][]*syntax.Stmt) {
	before, outer := maps.Clone(e.vars), e.branch
	if outer == "" {
		e.branch = "in " + where
	}
	changed := map[string]bool{}
	for _, branch := range branches {
		e.apart(func() {
			e.statements(branch)
			for name, v := range e.vars {
				if old, had := before[name]; !had || !same(old, v) {
					changed[name] = true
				}
			}
		})
	}
	e.branch = outer
	for name := range changed {
		e.assign(name, []string{gap(gapText, "$"+name, "$"+name+" is not known: it is set in "+where)}, false)
	}
}

func same(a, b variable) bool {
	if len(a.items) != len(b.items) || a.set != b.set || a.exported != b.exported {
		return false
	}
	for i := range a.items {
		if a.items[i] != b.items[i] {
			return false
		}
	}
	return true
}

// loop follows the body of a for once, with a variable that is known only when there is one value for it.
func (e *evaluator) loop(c *syntax.ForClause) {
	where := "the loop of " + e.at(c.Pos())
	if words, ok := c.Loop.(*syntax.WordIter); ok {
		items := e.words(words.Items)
		value := gap(gapText, "$"+words.Name.Value, "$"+words.Name.Value+" is not known: it changes in "+where)
		if len(items) == 1 {
			value = items[0]
		}
		e.assign(words.Name.Value, []string{value}, false)
	}
	e.either(where, [][]*syntax.Stmt{c.Do})
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
	for _, a := range c.Args {
		if a.Naked && a.Name == nil { // an option, or words that expand to assignments
			for _, word := range e.words([]*syntax.Word{a.Value}) {
				if strings.HasPrefix(word, "-") {
					export = export || strings.Contains(word, "x")
				} else if name, value, ok := strings.Cut(word, "="); ok {
					e.assign(name, []string{value}, false)
					e.export(name, export)
				}
			}
			continue
		}
		if !a.Naked {
			e.set(a)
		}
		e.export(a.Name.Value, export)
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
			e.assign(name, []string{gap(gapText, "$"+name, "$"+name+" is not known: this array is not followed ("+e.at(a.Pos())+")")}, true)
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
