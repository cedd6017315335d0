package shell

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// A verdict is how a command ends, as far as the text of the script tells.
type verdict int8

const (
	maybe   verdict = iota // a test whose operands are not known
	no                     // a test that does not hold
	yes                    // a test that holds
	program                // a program was started; launch scripts count on its success
)

func verdictOf(holds bool) verdict {
	if holds {
		return yes
	}
	return no
}

func (v verdict) not() verdict {
	if v == yes || v == no {
		return verdictOf(v == no)
	}
	return maybe
}

// condition follows the statements between if and then; the last one decides.
func (e *evaluator) condition(list []*syntax.Stmt) verdict {
	v := maybe
	for _, s := range list {
		v = e.verdict(s)
	}
	if v == program {
		return maybe
	}
	return v
}

// verdict follows a statement and tells how it ends.
func (e *evaluator) verdict(s *syntax.Stmt) verdict {
	if e.spend(1) {
		return maybe
	}
	v := program
	switch c := s.Cmd.(type) {
	case *syntax.TestClause:
		v = e.test(c.X, 0)
	case *syntax.ArithmCmd:
		v = e.calculate(c, c.X)
	case *syntax.BinaryCmd:
		v = e.chain(c)
	case *syntax.CallExpr:
		switch words, ok := e.testWords(c); {
		case ok && words[0] == "getopts":
			v = e.getopts(words)
		case ok:
			v = e.testCommand(words)
		default:
			e.call(c, s)
			if name := c.Args; len(name) > 0 && (name[0].Lit() == "echo" || name[0].Lit() == "printf") {
				v = yes
			}
		}
	case nil:
		e.fileOnly(s)
	default:
		e.plain(s)
	}
	if s.Negated {
		return v.not()
	}
	return v
}

// testWords are the expanded words of a command that only decides: [ ... ], test, true, false, and getopts where no
// words are left for it.
func (e *evaluator) testWords(c *syntax.CallExpr) ([]string, bool) {
	if len(c.Args) == 0 || len(c.Assigns) > 0 {
		return nil, false
	}
	switch name := c.Args[0].Lit(); name {
	case "[", "test", "true", "false", ":", "getopts":
		var words []string
		e.asked(func() { words = e.words(c.Args) })
		for i := range words {
			words[i] = e.emptied(words[i])
		}
		return words, true
	}
	return nil, false
}

// emptied is a word of a test as the shell makes it, unless a script that could not be read may have set what is set
// nowhere.
func (e *evaluator) emptied(text string) string {
	if e.blind {
		return text
	}
	return without(text)
}

// asked expands words of a test. A variable that is set nowhere is empty there, which is what most tests ask about,
// unless a script that could not be read may have set it.
func (e *evaluator) asked(expand func()) {
	before := e.testing
	e.testing = !e.blind
	expand()
	e.testing = before
}

// testCommand decides [ a = b ] and its relatives, of up to four words.
func (e *evaluator) testCommand(words []string) verdict {
	name, words := words[0], words[1:]
	switch name {
	case "true", ":":
		return yes
	case "false":
		return no
	case "[":
		if len(words) == 0 || words[len(words)-1] != "]" {
			return maybe
		}
		words = words[:len(words)-1]
	}
	if slices.ContainsFunc(words, Several) {
		return maybe
	}
	switch {
	case len(words) > 1 && words[0] == "!":
		return e.testCommand(append([]string{"test"}, words[1:]...)).not()
	case len(words) == 0:
		return no
	case len(words) == 1:
		return known(words[0], func(w string) verdict { return verdictOf(w != "") })
	case len(words) == 2:
		return e.unary(words[0], words[1])
	case len(words) == 3:
		return e.compare(words[1], words[0], words[2])
	}
	return maybe
}

// known decides a text, unless a part of it is not known.
func known(text string, decide func(string) verdict) verdict {
	if _, unknown := Unknown(text); unknown {
		return maybe
	}
	return decide(text)
}

// unary decides a test of one operand; files are not looked at.
func (e *evaluator) unary(op, text string) verdict {
	switch op {
	case "-z", "-n":
		if before, _, _, _, after, found := nextGap(text); found && before+after != "" {
			return verdictOf(op == "-n") // a part of it is known, and not empty
		}
		return known(text, func(text string) verdict { return verdictOf((text == "") == (op == "-z")) })
	case "-v":
		return known(text, func(name string) verdict {
			if set := e.lookUp(name).set; set || !e.blind {
				return verdictOf(set)
			}
			return maybe
		})
	}
	return maybe
}

// compare decides a test of two operands that are compared as they stand.
func (e *evaluator) compare(op, a, b string) verdict {
	return known(a, func(a string) verdict {
		return known(b, func(b string) verdict {
			switch op {
			case "=", "==":
				return verdictOf(a == b)
			case "!=":
				return verdictOf(a != b)
			}
			x, errX := strconv.ParseInt(strings.TrimSpace(a), 10, 64)
			y, errY := strconv.ParseInt(strings.TrimSpace(b), 10, 64)
			holds, ok := map[string]bool{"-eq": x == y, "-ne": x != y, "-lt": x < y, "-le": x <= y, "-gt": x > y,
				"-ge": x >= y}[op]
			if !ok || errX != nil || errY != nil {
				return maybe
			}
			return verdictOf(holds)
		})
	})
}

// test decides [[ ]].
func (e *evaluator) test(x syntax.TestExpr, depth int) verdict {
	if depth > maxExpression || e.spend(1) {
		return maybe
	}
	switch x := x.(type) {
	case *syntax.Word:
		return e.unary("-n", e.operand(x))
	case *syntax.ParenTest:
		return e.test(x.X, depth+1)
	case *syntax.UnaryTest:
		if x.Op == syntax.TsNot {
			return e.test(x.X, depth+1).not()
		}
		return e.unary(x.Op.String(), e.operand(x.X))
	case *syntax.BinaryTest:
		if x.Op == syntax.AndTest || x.Op == syntax.OrTest {
			return both(x.Op == syntax.AndTest, e.test(x.X, depth+1), e.test(x.Y, depth+1))
		}
		if x.Op == syntax.TsMatch || x.Op == syntax.TsMatchShort {
			return e.matches(e.operand(x.X), x.Y)
		}
		if x.Op == syntax.TsReMatch {
			return e.matchesExpression(e.operand(x.X), x.Y)
		}
		if x.Op == syntax.TsNoMatch {
			return e.matches(e.operand(x.X), x.Y).not()
		}
		return e.compare(x.Op.String(), e.operand(x.X), e.operand(x.Y))
	}
	return maybe
}

// both joins two verdicts by && or ||: one alone may decide.
func both(and bool, a, b verdict) verdict {
	decides := verdictOf(!and)
	switch {
	case a == decides || b == decides:
		return decides
	case a == maybe || b == maybe:
		return maybe
	}
	return decides.not()
}

func (e *evaluator) operand(x syntax.TestExpr) string {
	text := ""
	if w, ok := x.(*syntax.Word); ok {
		e.asked(func() { text = e.emptied(e.text(w)) })
	} else {
		text = gap(gapText, "...", "this kind of test is not followed")
	}
	return text
}

// matchesExpression decides [[ text =~ expression ]] where the expression is written out without quotes or backslashes.
func (e *evaluator) matchesExpression(text string, x syntax.TestExpr) verdict {
	w, ok := x.(*syntax.Word)
	if !ok || w.Lit() == "" || strings.Contains(w.Lit(), `\`) {
		return maybe
	}
	expr, err := regexp.CompilePOSIX(w.Lit())
	if err != nil {
		return maybe
	}
	return known(text, func(text string) verdict { return verdictOf(expr.MatchString(text)) })
}

// matches decides whether a text matches a pattern of [[ == ]] or case; what is quoted there stands for itself.
func (e *evaluator) matches(text string, x syntax.TestExpr) verdict {
	word, ok := x.(*syntax.Word)
	if !ok {
		return maybe
	}
	literal, glob := e.operand(word), false
	for _, part := range word.Parts {
		lit, plain := part.(*syntax.Lit)
		glob = glob || plain && strings.ContainsAny(lit.Value, "*?[")
	}
	if !glob {
		return e.compare("=", text, literal)
	}
	if literal == "*" {
		return yes
	}
	return known(text, func(text string) verdict {
		expr, ok := compile(literal, 0, "(?s)^", "$")
		if !ok {
			return maybe
		}
		return verdictOf(expr.MatchString(text))
	})
}
