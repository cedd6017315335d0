package python

import (
	"fmt"
	"slices"
)

// statement reads one statement with its block.
func (p *parser) statement() {
	t := p.peek()
	switch {
	case t.kind == newlineToken:
		p.advance()
		return
	case t.kind == indentToken: // a block without a header
		p.advance()
		p.block()
		return
	case p.isOp("@"):
		p.decorated()
		return
	}
	if t.kind == nameToken && p.compound(t, nil) {
		return
	}
	p.simpleLine()
}

// compound reads a statement that has a block; false when the word begins none.
func (p *parser) compound(t token, decorators []*Expr) bool {
	if t.text == "async" {
		p.advance()
		t = p.peek()
	}
	switch t.text {
	case "def":
		p.def(decorators)
	case "class":
		p.classDef(decorators)
	case "if":
		p.conditional()
	case "while":
		p.advance()
		p.expression()
		p.looped()
	case "for":
		p.advance()
		loop := &Loop{Place: p.place(p.peek().line), Over: p.forTarget()}
		p.looped()
		loop.Last = p.tokens[max(p.at-1, 0)].line
		p.file.Loops = append(p.file.Loops, loop)
	case "with":
		p.with()
	case "try":
		p.advance()
		p.tried++
		p.counted()
		p.tried--
	case "finally":
		p.advance()
		p.suite()
	case "except":
		p.advance()
		p.exceptHeader()
		p.guarded(p.clause())
	case "else": // of a loop or a try
		p.advance()
		p.guarded(p.clause())
	case "match", "case":
		return p.match()
	default:
		return false
	}
	return true
}

// suite reads the colon and the block behind it.
func (p *parser) suite() {
	if !p.op(":") {
		p.brokenLine()
		if p.peek().kind != newlineToken {
			return
		}
	}
	if p.peek().kind != newlineToken {
		p.simpleLine()
		return
	}
	p.advance()
	if p.peek().kind == indentToken {
		p.advance()
		p.block()
	}
}

// block reads statements up to the dedent.
func (p *parser) block() {
	for {
		kind := p.peek().kind
		if kind == dedentToken {
			p.advance()
		}
		if kind == dedentToken || kind == endToken {
			return
		}
		p.statement()
	}
}

// brokenLine records a line that is not Python, and steps over it.
func (p *parser) brokenLine() {
	line := p.peek().line
	p.skipLine()
	p.broken = false
	if len(p.file.Problems) < maxProblems {
		p.file.Problems = append(p.file.Problems,
			fmt.Errorf("%s:%d: is not Python that can be read; correct it there", p.file.Name, line))
	}
}

// guarded reads a suite that runs only when the condition holds.
func (p *parser) guarded(c Condition) {
	before := p.conditions
	p.conditions = append(slices.Clip(before), c)
	p.suite()
	p.conditions = before
}

func (p *parser) looped() {
	before := p.loop
	p.loop = true
	p.counted()
	p.loop = before
}

// counted reads a suite that may not run, or not to its end.
func (p *parser) counted() {
	before := p.blocks
	p.clauses++
	p.blocks = append(slices.Clip(before), p.clauses)
	p.suite()
	p.blocks = before
}

// clause is the condition of a clause that has no test of its own.
func (p *parser) clause() Condition {
	p.clauses++
	return Condition{clause: p.clauses}
}

// conditional reads if, elif and else. The main guard is no condition: the script is what torchrun starts.
func (p *parser) conditional() {
	before := p.conditions
	for more := p.word("if"); more; more = p.word("elif") { // the if of the next statement is another one
		test := p.expression()
		if p.op(",") {
			p.brokenLine()
		}
		if isMainGuard(test) {
			p.suite()
		} else {
			p.guarded(Condition{Test: test})
		}
		p.conditions = append(slices.Clip(p.conditions), Condition{Test: test, Negated: true})
	}
	if p.isWord("else") {
		p.advance()
		p.suite()
	}
	p.conditions = before
}

func isMainGuard(test *Expr) bool {
	return test.Kind == Operation && test.Text == "==" && test.Items[0].Kind == Name && test.Items[0].Text == "__name__"
}

// forTarget reads `x in values`, and gives the values; nil where there are none.
func (p *parser) forTarget() *Expr {
	line := p.peek().line
	for !p.isWord("in") && !p.lineEnds() {
		if t := p.peek(); t.kind == nameToken {
			p.assign(t.text, nil, unknown(line, "a loop's variable"), line)
		}
		p.advance()
	}
	if p.word("in") {
		return p.expressions()
	}
	return nil
}

// with reads its items; the names they bind are unknown, except that the block always runs.
func (p *parser) with() {
	p.advance()
	for !p.lineEnds() && !p.isOp(":") {
		before := p.at
		if !p.op(",") && !p.op("(") && !p.op(")") {
			value := p.expression()
			if p.word("as") {
				p.bind(p.trailers(p.atom()), value)
			}
		}
		if p.at == before {
			break
		}
	}
	p.suite()
}

func (p *parser) exceptHeader() {
	p.op("*")
	for !p.lineEnds() && !p.isOp(":") {
		p.advance()
	}
}

// match reads `match x:` and `case pattern:`, which are plain names in other lines.
func (p *parser) match() bool {
	word := p.peek().text
	end := p.at
	for k := p.tokens[end].kind; k != newlineToken && k != endToken; k = p.tokens[end].kind {
		end++
	}
	header := end > p.at+2 && p.tokens[end-1].kind == opToken && p.tokens[end-1].text == ":" && end+1 < len(p.tokens) &&
		p.tokens[end+1].kind == indentToken
	if !header {
		return false
	}
	p.at = end - 1
	if word == "case" {
		p.guarded(p.clause())
	} else {
		p.suite()
	}
	return true
}

// simpleLine reads the statements of one line, which semicolons separate.
func (p *parser) simpleLine() {
	for {
		p.broken = false
		line := p.peek().line
		p.simple(line)
		if p.op(";") && !p.lineEnds() {
			continue
		}
		if p.broken || !p.lineEnds() {
			p.brokenLine()
		}
		if p.peek().kind == newlineToken {
			p.advance()
		}
		return
	}
}

func (p *parser) simple(line int) {
	switch {
	case p.lineEnds():
	case p.word("import"):
		p.importModules(line)
	case p.word("from"):
		p.importFrom(line)
	case p.word("return"):
		if p.lineEnds() || p.isOp(";") {
			return
		}
		value := p.expressions()
		if p.function != nil {
			p.function.Returns = append(p.function.Returns, value)
			p.function.ends = append(p.function.ends, p.place(line))
		}
	case p.word("pass"), p.word("break"), p.word("continue"):
	case p.word("del"):
		p.deleted(line)
	case p.word("global"), p.word("nonlocal"):
		for !p.lineEnds() && !p.isOp(";") {
			if t := p.peek(); t.kind == nameToken && !p.previousIsDot() {
				p.declare(t.text, line)
			}
			p.advance()
		}
	case p.word("raise"), p.word("assert"):
		for !p.lineEnds() && !p.isOp(";") {
			before := p.at
			if !p.op(",") && !p.word("from") {
				p.expression()
			}
			if p.at == before {
				return
			}
		}
	default:
		p.assignment(line)
	}
}

func (p *parser) previousIsDot() bool {
	t := p.tokens[max(0, p.at-1)]
	return t.kind == opToken && t.text == "."
}

// declare makes a name unknown: another scope may change it.
func (p *parser) declare(name string, line int) {
	p.assign(name, nil, unknown(line, "changed in another scope"), line)
	p.file.Assignments[len(p.file.Assignments)-1].declared = true
}

// deleted reads del a, b["c"], d.e.
func (p *parser) deleted(line int) {
	for !p.lineEnds() && !p.isOp(";") {
		before := p.at
		if !p.op(",") {
			p.remove(p.expression(), line)
		}
		if p.at == before {
			return
		}
	}
}

func (p *parser) remove(target *Expr, line int) {
	switch {
	case target.Kind == Name:
		p.assign(target.Text, nil, unknown(line, "deleted"), line)
	case target.Kind == Index && target.Items[0].Kind == Name:
		p.assign(target.Items[0].Text, target.Items[1], nil, line)
	case target.Kind == List:
		for _, item := range target.Items {
			p.remove(item, line)
		}
	}
}

// assignment reads an expression, or what is bound to targets.
func (p *parser) assignment(line int) {
	targets := []*Expr{p.expressions()}
	switch {
	case p.op(":"): // an annotation
		p.expression()
		var value *Expr
		if p.op("=") {
			value = p.expressions()
		}
		if value != nil || p.class != nil {
			if targets[0].Kind == Name {
				p.assign(targets[0].Text, nil, value, line)
			}
		}
	case p.isOp("="):
		for p.op("=") {
			targets = append(targets, p.expressions())
		}
		value := targets[len(targets)-1]
		for _, target := range targets[:len(targets)-1] {
			p.bind(target, value)
		}
	case p.augmented():
		changed := unknown(line, "changed in place")
		changed.Value = p.tokens[p.at-1].text
		changed.Items = []*Expr{p.expressions()}
		p.bind(targets[0], changed)
	}
}

// augmented takes += and its like.
func (p *parser) augmented() bool {
	t := p.peek()
	n := len(t.text)
	if t.kind != opToken || n < 2 || t.text[n-1] != '=' {
		return false
	}
	switch t.text {
	case "==", "!=", "<=", ">=", ":=":
		return false
	}
	p.advance()
	return true
}
