package python

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// maxDepth bounds the nesting of expressions; CPython's own parser stops at 200.
const maxDepth = 200

// unknown is an expression that is not followed.
func unknown(line int, why string) *Expr { return &Expr{Kind: Unknown, Line: line, Text: why} }

// strengths is Python's table of binary operators: the higher binds the stronger. "not" is what "not in" starts with.
func strengths() map[string]int {
	table := map[string]int{}
	for i, row := range []string{"or", "and", "in is not < > == >= <= !=", "|", "^", "&", "<< >>", "+ -",
		"* / // % @"} {
		for op := range strings.FieldsSeq(row) {
			table[op] = i + 1
		}
	}
	return table
}

// The strengths that are not only a comparison of two numbers.
const (
	weakest   = 1
	ofNot     = 3 // as a prefix, not binds what comparisons bind
	ofCompare = 3
)

// expression reads one expression, a ternary or a lambda at most; `*x`, `x := y` and `yield` are read where they may
// stand.
func (p *parser) expression() *Expr {
	line := p.peek().line
	p.depth++
	defer func() { p.depth-- }()
	switch {
	case p.depth > maxDepth:
		p.skipItem()
		return unknown(line, "nested too deeply")
	case p.word("lambda"):
		e := unknown(line, "a lambda")
		if body, plain := p.lambda(); plain {
			e.Items = []*Expr{body} // for field(default_factory=lambda: [...])
		}
		return e
	case p.word("yield"):
		p.word("from")
		if !p.ends() {
			p.expressions()
		}
		return unknown(line, "a yield")
	case p.op("*"), p.op("**"):
		p.expression()
		return unknown(line, "a starred value")
	}
	before := len(p.file.Calls)
	e := p.binary(weakest)
	if p.op(":=") {
		value := p.expression()
		if e.Kind == Name {
			p.assign(e.Text, nil, value, line)
		}
		return value
	}
	if !p.word("if") {
		return e
	}
	chosen := len(p.file.Calls)
	test := p.binary(weakest)
	if !p.word("else") {
		return unknown(line, "a filter")
	}
	guard(p.file.Calls[before:chosen], Condition{Test: test})
	chosen = len(p.file.Calls)
	other := p.expression()
	guard(p.file.Calls[chosen:], Condition{Test: test, Negated: true})
	return &Expr{Kind: Operation, Text: "if", Line: line, Items: []*Expr{test, e, other}}
}

// guard puts calls that were read already behind a condition.
func guard(calls []*Call, c Condition) {
	for _, call := range calls {
		call.Conditions = append(slices.Clip(call.Conditions), c)
	}
}

// lambda reads the body, and reports whether it has no parameters.
func (p *parser) lambda() (body *Expr, plain bool) {
	plain = p.isOp(":")
	for !p.op(":") && !p.closes() {
		if p.op(",") || p.op("=") || p.op("/") || p.op("*") {
			continue
		}
		before := p.at
		p.expression()
		if p.at == before {
			return nil, false
		}
	}
	return p.expression(), plain
}

// binary reads a chain of operators that bind at least as strongly as given.
func (p *parser) binary(strength int) *Expr {
	line := p.peek().line
	e := p.prefixed(strength)
	for chain := 0; ; chain++ {
		found, op := p.operator()
		if found < strength {
			return e
		}
		p.at += len(strings.Fields(op))
		right := p.binary(found + 1)
		if chain >= maxDepth {
			e = unknown(line, "a long chain of operators")
			continue
		}
		e = &Expr{Kind: Operation, Text: op, Line: line, Items: []*Expr{e, right}}
	}
}

// prefixed reads an operand with what may stand in front of it.
func (p *parser) prefixed(strength int) *Expr {
	line := p.peek().line
	if strength > ofNot || !p.word("not") {
		return p.unary()
	}
	p.depth++
	defer func() { p.depth-- }()
	if p.depth > maxDepth {
		p.skipItem()
		return unknown(line, "nested too deeply")
	}
	return &Expr{Kind: Operation, Text: "not", Line: line, Items: []*Expr{p.binary(ofCompare)}}
}

// operator is the binary operator that comes next, two words for some, and how strongly it binds; 0 when none comes.
func (p *parser) operator() (strength int, op string) {
	t := p.peek()
	if t.kind != opToken && t.kind != nameToken {
		return 0, ""
	}
	switch strength = p.strengths[t.text]; {
	case t.text == "is" && p.nextIs("not"):
		return strength, "is not"
	case t.text == "not" && p.nextIs("in"):
		return strength, "not in"
	case t.text == "not":
		return 0, ""
	}
	return strength, t.text
}

func (p *parser) nextIs(word string) bool {
	return p.at+1 < len(p.tokens) && p.tokens[p.at+1].kind == nameToken && p.tokens[p.at+1].text == word
}

func (p *parser) unary() *Expr {
	line := p.peek().line
	var signs []string
	for p.isOp("-") || p.isOp("+") || p.isOp("~") {
		signs = append(signs, p.peek().text)
		p.advance()
	}
	awaits := p.word("await")
	e := p.trailers(p.atom())
	if p.op("**") {
		p.depth++
		if p.depth > maxDepth {
			p.skipItem()
			e = unknown(line, "nested too deeply")
		} else {
			e = &Expr{Kind: Operation, Text: "**", Line: line, Items: []*Expr{e, p.unary()}}
		}
		p.depth--
	}
	switch {
	case awaits:
		return unknown(line, "an awaited value")
	case len(signs) > maxDepth:
		return unknown(line, "nested too deeply")
	}
	for _, sign := range slices.Backward(signs) {
		e = &Expr{Kind: Operation, Text: sign, Line: line, Items: []*Expr{e}}
	}
	return e
}

// atom reads a literal, a name or a bracket.
func (p *parser) atom() *Expr {
	t := p.peek()
	switch {
	case t.kind == numberToken:
		p.advance()
		return number(t)
	case t.kind == stringToken, t.kind == opaqueToken:
		return p.strings()
	case t.kind == nameToken && !isKeyword(t.text):
		p.advance()
		return name(t)
	case p.isOp("("), p.isOp("["):
		return p.list()
	case p.isOp("{"):
		return p.dict()
	case p.op("..."):
		return unknown(t.line, "an ellipsis")
	}
	// Not an expression: the caller steps over it.
	p.broken = true
	return unknown(t.line, "broken code")
}

// name is a name, or one of the three words that are literals.
func name(t token) *Expr {
	switch t.text {
	case "True", "False":
		return &Expr{Kind: Literal, Line: t.line, Value: t.text == "True"}
	case "None":
		return &Expr{Kind: Literal, Line: t.line}
	}
	return &Expr{Kind: Name, Line: t.line, Text: t.text}
}

// isKeyword: words that cannot be a name.
func isKeyword(word string) bool {
	switch word {
	case "if", "else", "elif", "for", "in", "is", "and", "or", "not", "as", "from", "async", "await", "yield", "lambda":
		return true
	}
	return isStatementWord(word)
}

// number reads 1_000, 0x10, 5e-5; imaginary and broken ones, and integers beyond 64 bits, are unknown.
func number(t token) *Expr {
	text := strings.ReplaceAll(t.text, "_", "")
	if n, err := strconv.ParseInt(strings.TrimLeft(text, "0"), 10, 64); err == nil {
		return &Expr{Kind: Literal, Line: t.line, Value: n}
	}
	if strings.Trim(text, "0") == "" {
		return &Expr{Kind: Literal, Line: t.line, Value: int64(0)}
	}
	if n, err := strconv.ParseInt(text, 0, 64); err == nil {
		return &Expr{Kind: Literal, Line: t.line, Value: n}
	}
	// ParseFloat also reads hexadecimal floats, which Python does not have.
	if f, err := strconv.ParseFloat(text, 64); err == nil && !strings.ContainsAny(text, "xXpP") && !math.IsInf(f, 0) {
		if strings.ContainsAny(text, ".eE") {
			return &Expr{Kind: Literal, Line: t.line, Value: f}
		}
	}
	return unknown(t.line, "the number "+shorten(t.text))
}

func shorten(s string) string {
	const longest = 40
	if len(s) > longest {
		return strings.ToValidUTF8(s[:longest], "") + "..."
	}
	return s
}

// strings joins adjacent string literals.
func (p *parser) strings() *Expr {
	first := p.peek()
	var text strings.Builder
	opaque := ""
	for t := p.peek(); t.kind == stringToken || t.kind == opaqueToken; t = p.peek() {
		if t.kind == opaqueToken {
			opaque = t.text
		}
		text.WriteString(t.text)
		p.advance()
	}
	if opaque != "" {
		return unknown(first.line, opaque)
	}
	return &Expr{Kind: Literal, Line: first.line, Value: text.String()}
}
