package shell

import (
	"maps"
	"slices"

	"mvdan.cc/sh/v3/syntax"
)

// maxRounds bounds how often the body of a loop is followed; a while that takes words off the command line needs one
// round a word.
const maxRounds = 200

// loop follows a for. Its commands are those of its body, followed once with a variable that is known only when there
// is one value for it; what its variables hold behind it is found by following it round by round.
func (e *evaluator) loop(c *syntax.ForClause) {
	where := "the loop of " + e.at(c.Pos())
	var next func() bool // starts the next round
	var name string
	value, runs := "", false
	switch l := c.Loop.(type) {
	case *syntax.WordIter:
		items := e.words(l.Items)
		if l.InPos.Line() == 0 && len(l.Items) == 0 { // for x; do: the parameters
			items = e.params
		}
		name, runs = l.Name.Value, len(items) > 0 && !slices.ContainsFunc(items, Several)
		value = gap(gapText, "$"+name, "$"+name+" is not known: it changes in "+where)
		if runs && !slices.ContainsFunc(items, func(item string) bool { return item != items[0] }) {
			value = items[0]
		}
		if runs || len(items) == 0 {
			next = func() bool {
				if len(items) == 0 {
					return false
				}
				e.assign(name, items[:1], false)
				items = items[1:]
				return true
			}
		}
	case *syntax.CStyleLoop:
		next = e.counted(l)
	}
	vars, params := maps.Clone(e.vars), e.params
	if e.output == nil {
		e.body(c, where, name, value, runs)
		e.repeated(c, next, vars, params)
		return
	}
	if next == nil || !e.everyRound(next, c.Do) {
		e.output.fail("it is written in " + where)
	}
}

// body follows a loop's body for its commands.
func (e *evaluator) body(c *syntax.ForClause, where, name, value string, runs bool) {
	if e.forget(c); name != "" {
		e.assign(name, []string{value}, false)
	}
	if runs {
		e.statements(c.Do)
	} else {
		e.either(where, [][]*syntax.Stmt{c.Do}, false)
	}
	e.leave = ""
}

// repeated follows a loop round by round for its variables; where that cannot be done, they stay as following its body
// once left them.
func (e *evaluator) repeated(c *syntax.ForClause, next func() bool, vars map[string]variable, params []string) {
	if next == nil || e.ended {
		return
	}
	once, onceParams, commands, doubt := e.vars, e.params, len(e.script.Commands), e.doubt
	e.vars, e.params, e.doubt = vars, params, false
	if !e.everyRound(next, c.Do) {
		e.vars, e.params, e.ended = once, onceParams, false
	}
	e.doubt = doubt
	e.script.Commands = e.script.Commands[:commands]
}

// everyRound follows every round, and reports whether that could be done.
func (e *evaluator) everyRound(next func() bool, body []*syntax.Stmt) bool {
	for range maxRounds {
		if !next() {
			return true
		}
		e.statements(body)
		if e.doubt || e.steps > maxSteps {
			return false
		}
		if e.ended || e.leave == "break" || e.leave == "return" {
			e.leave = ""
			return true
		}
		e.leave = ""
	}
	return false
}

// counted starts the rounds of for ((...)); nil where it is not followed.
func (e *evaluator) counted(l *syntax.CStyleLoop) func() bool {
	first, broken := true, false
	return func() bool {
		step := l.Post
		if first {
			step = l.Init
		}
		first = false
		if step != nil {
			if _, err := e.arithmetic(step, 0); err != nil {
				broken = true
			}
		}
		if broken || l.Cond == nil {
			e.doubt = true
			return true // not followed: the round that begins says so
		}
		n, err := e.arithmetic(l.Cond, 0)
		if err != nil {
			e.doubt = true
			return true
		}
		return n != 0
	}
}

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
	e.output.fail("it is written in the loop of " + e.at(c.Pos()))
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
