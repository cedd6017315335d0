package shell

import (
	"maps"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

func (e *evaluator) statements(list []*syntax.Stmt) {
	for _, s := range list {
		e.statement(s)
	}
}

func (e *evaluator) statement(s *syntax.Stmt) { e.verdict(s) }

// plain follows a statement that is not asked how it ends.
func (e *evaluator) plain(s *syntax.Stmt) {
	switch c := s.Cmd.(type) {
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
	case *syntax.IfClause:
		e.choose(c)
	case *syntax.ForClause:
		e.loop(c)
	case *syntax.WhileClause:
		e.while(c)
	case *syntax.CaseClause:
		e.match(c)
	case *syntax.LetClause:
		for _, x := range c.Exprs {
			e.calculate(c, x)
		}
	}
}

// chain follows a && b, a || b and pipes. What stands behind a test is followed as the test decides; what stands behind
// a program is followed with && only.
func (e *evaluator) chain(c *syntax.BinaryCmd) verdict {
	switch c.Op {
	case syntax.AndStmt, syntax.OrStmt:
		first, skips := e.verdict(c.X), verdictOf(c.Op == syntax.OrStmt)
		switch {
		case first == skips:
			return skips
		case first == skips.not(), first == program && c.Op == syntax.AndStmt:
			return e.verdict(c.Y)
		}
		e.either("what follows "+c.Op.String()+" in "+e.at(c.Y.Pos()), [][]*syntax.Stmt{{c.Y}}, false)
		return maybe
	default: // each side of a pipe is a shell of its own
		if e.output != nil {
			e.pipe(c)
			return program
		}
		e.apart(func() { e.statement(c.X) })
		e.apart(func() { e.statement(c.Y) })
		return program
	}
}

// apart follows statements whose variables stay their own.
func (e *evaluator) apart(follow func()) {
	if e.spend(1 + len(e.vars)/8) {
		return
	}
	vars, dir, params, ended, leave := e.vars, e.dir, e.params, e.ended, e.leave
	e.vars = maps.Clone(vars)
	follow()
	e.doubt = e.doubt || e.leave != ""
	e.vars, e.dir, e.params, e.ended, e.leave = vars, dir, params, ended, leave
}

// choose follows an if: the branch that its tests choose, or all that may be chosen.
func (e *evaluator) choose(c *syntax.IfClause) {
	where := "the if of " + e.at(c.Pos())
	var open [][]*syntax.Stmt
	for ; c != nil; c = c.Else {
		v := yes // the else has no condition
		if len(c.Cond) > 0 {
			v = e.condition(c.Cond)
		}
		switch {
		case v == yes && len(open) == 0:
			e.statements(c.Then)
			return
		case v == yes:
			e.either(where, append(open, c.Then), true)
			return
		case v == maybe:
			open = append(open, c.Then)
		}
	}
	if len(open) > 0 {
		e.either(where, open, false)
	}
}

// match follows a case in the same way.
func (e *evaluator) match(c *syntax.CaseClause) {
	where, text := "the case of "+e.at(c.Pos()), e.operand(c.Word)
	var open [][]*syntax.Stmt
	for _, item := range c.Items {
		v := no
		for _, p := range item.Patterns {
			v = both(false, v, e.matches(text, p))
		}
		if item.Op != syntax.Break { // ;& and ;;& go on with the next one
			v = both(true, v, maybe)
		}
		switch {
		case v == yes && len(open) == 0:
			e.statements(item.Stmts)
			return
		case v == yes:
			e.either(where, append(open, item.Stmts), true)
			return
		case v == maybe:
			open = append(open, item.Stmts)
		}
	}
	if len(open) > 0 {
		e.either(where, open, false)
	}
}

// either follows branches of which nobody knows whether they run; one: one of them does. Each starts from the same
// variables, and what differs is unknown afterwards.
func (e *evaluator) either(where string, branches [][]*syntax.Stmt, one bool) {
	outer := e.branch
	if outer == "" {
		e.branch = "in " + where
	}
	before := 0
	if e.output != nil {
		before = e.output.text.Len()
	}
	var outcomes []map[string]variable
	if !one {
		outcomes = append(outcomes, maps.Clone(e.vars))
	}
	for _, branch := range branches {
		e.apart(func() {
			if e.statements(branch); !e.ended {
				outcomes = append(outcomes, e.vars)
			}
		})
	}
	e.branch = outer
	if e.output != nil && e.output.text.Len() > before {
		e.output.fail("it is written in " + where)
	}
	if len(outcomes) == 0 { // every branch ends the script
		e.ended = true
		return
	}
	names := map[string]bool{}
	for _, vars := range outcomes {
		for name := range vars {
			names[name] = true
		}
	}
	e.spend(len(names) / 8)
	for name := range names {
		e.join(name, where, outcomes)
	}
}

// join stores what a variable holds after branches: its value where it is the same in all, and otherwise what they have
// in common.
func (e *evaluator) join(name, where string, outcomes []map[string]variable) {
	lookUp := func(vars map[string]variable) variable {
		if v, ok := vars[name]; ok {
			return v
		}
		return e.inherited(name)
	}
	first := lookUp(outcomes[0])
	differs, array, exported := false, first.array, first.exported
	common := first.items
	for _, vars := range outcomes[1:] {
		v := lookUp(vars)
		if same(first, v) {
			continue
		}
		differs, array, exported = true, array && v.array, exported || v.exported
		common = common[:commonItems(common, v.items)]
	}
	if !differs {
		e.vars[name] = first
		return
	}
	unknown := gap(gapText, "$"+name, "$"+name+" is not known: it is set in "+where)
	if array {
		e.vars[name] = variable{items: append(slices.Clone(common), withKind(unknown, asWords)), array: true, set: true,
			exported: exported}
		return
	}
	e.vars[name] = variable{items: []string{commonWords(name, lookUp, outcomes) + unknown}, set: true,
		exported: exported}
}

func commonItems(a, b []string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// commonWords are the words with which a text begins in all outcomes.
func commonWords(name string, lookUp func(map[string]variable) variable, outcomes []map[string]variable) string {
	common := ""
	for i, vars := range outcomes {
		v := lookUp(vars)
		if v.array || len(v.items) == 0 {
			return ""
		}
		text := v.items[0] + " "
		if i == 0 {
			common = text
		}
		n := 0
		for n < len(common) && n < len(text) && common[n] == text[n] {
			n++
		}
		common = common[:strings.LastIndexByte(common[:n], ' ')+1]
	}
	if strings.Count(common, string(gapEdge))%2 == 1 { // it would end within a gap
		return ""
	}
	return common
}

func same(a, b variable) bool {
	if len(a.items) != len(b.items) || !slices.Equal(a.keys, b.keys) || a.set != b.set || a.exported != b.exported {
		return false
	}
	for i := range a.items {
		if a.items[i] != b.items[i] {
			return false
		}
	}
	return true
}
