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
		e.forget(c)
	}
}

// chain follows a && b, a || b and pipes. What stands behind a test is followed as the test decides; what stands behind a program is
// followed with && only.
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

// either follows branches of which nobody knows whether they run; one: one of them does. Each starts from the same variables, and what
// differs is unknown afterwards.
func (e *evaluator) either(where string, branches [][]*syntax.Stmt, one bool) {
	outer := e.branch
	if outer == "" {
		e.branch = "in " + where
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

// join stores what a variable holds after branches: its value where it is the same in all, and otherwise what they have in common.
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
		e.vars[name] = variable{items: append(slices.Clone(common), withKind(unknown, gapWords)), array: true, set: true, exported: exported}
		return
	}
	e.vars[name] = variable{items: []string{commonWords(name, lookUp, outcomes) + unknown}, set: true, exported: exported}
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
	e.either(where, [][]*syntax.Stmt{c.Do}, false)
	e.leave = ""
}

// maxRounds bounds how often a while is followed; those that take words off the command line need one round a word.
const maxRounds = 200

// while follows a loop round by round as long as its condition is known, and otherwise its body as what may run.
func (e *evaluator) while(c *syntax.WhileClause) {
	vars, params, commands := maps.Clone(e.vars), e.params, len(e.script.Commands)
	doubt := e.doubt
	e.doubt = false
	done := e.rounds(c)
	e.leave, e.doubt = "", doubt || !done && e.doubt
	if done {
		return
	}
	e.vars, e.params, e.script.Commands = vars, params, e.script.Commands[:commands]
	e.condition(c.Cond)
	e.either("the loop of "+e.at(c.Pos()), [][]*syntax.Stmt{c.Do}, false)
	e.leave = ""
}

// rounds reports whether the loop could be followed to its end.
func (e *evaluator) rounds(c *syntax.WhileClause) bool {
	for range maxRounds {
		v := e.condition(c.Cond)
		if c.Until {
			v = v.not()
		}
		if v != yes {
			return v == no
		}
		e.statements(c.Do)
		if e.doubt || e.steps > maxSteps {
			return false
		}
		if e.ended || e.leave == "break" || e.leave == "return" {
			return true
		}
		e.leave = ""
	}
	return false
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
