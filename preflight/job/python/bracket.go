package python

import "strings"

// list reads (...) or [...]: a group, a tuple, a list or a comprehension.
func (p *parser) list() *Expr {
	open := p.peek()
	p.advance()
	e := &Expr{Kind: List, Line: open.line}
	commas := 0
	p.each(func() {
		e.Items = append(e.Items, p.expression())
		if p.comprehension() {
			e.Kind, e.Text = Unknown, "a comprehension"
		}
	}, &commas)
	if open.text == "(" && len(e.Items) == 1 && commas == 0 && e.Kind == List {
		return e.Items[0]
	}
	if e.Kind == Unknown {
		return unknown(open.line, e.Text)
	}
	return e
}

// dict reads {...}: a dict, a set or a comprehension.
func (p *parser) dict() *Expr {
	open := p.peek()
	p.advance()
	e := &Expr{Kind: Dict, Line: open.line}
	var set []*Expr
	commas := 0
	p.each(func() {
		if p.op("**") {
			e.Keys, e.Items = append(e.Keys, nil), append(e.Items, p.expression())
			return
		}
		key := p.expression()
		if p.op(":") {
			e.Keys, e.Items = append(e.Keys, key), append(e.Items, p.expression())
		} else {
			set = append(set, key)
		}
		if p.comprehension() {
			e.Kind, e.Text = Unknown, "a comprehension"
		}
	}, &commas)
	switch {
	case e.Kind == Unknown:
		return unknown(open.line, e.Text)
	case len(set) > 0:
		return &Expr{Kind: List, Line: open.line, Items: set}
	}
	return e
}

// comprehension steps over `for x in y if z` and reports whether one stood there.
func (p *parser) comprehension() bool {
	found := false
	for p.word("async") || p.isWord("for") || p.isWord("if") {
		found = true
		if p.word("if") {
			p.binary(weakest)
			continue
		}
		p.word("for")
		for open := 0; !p.lineEnds() && (open > 0 || !p.isWord("in") && !p.closes()); p.advance() {
			switch p.peek().text {
			case "(", "[":
				open++
			case ")", "]":
				open--
			}
		}
		p.word("in")
		p.binary(weakest)
	}
	return found
}

// each reads the items of a bracket that has just been opened, up to and with its end. What is no item is stepped over.
func (p *parser) each(item func(), commas *int) {
	for !p.closes() {
		if p.op(",") {
			*commas++
			continue
		}
		before := p.at
		item()
		if p.at == before || !p.isOp(",") && !p.closes() {
			p.broken = true
			p.skipItem()
		}
	}
	if p.isOp(")") || p.isOp("]") || p.isOp("}") {
		p.advance()
	}
}

// trailers reads calls, indexes and attributes behind an atom.
func (p *parser) trailers(e *Expr) *Expr {
	for {
		t := p.peek()
		switch {
		case p.op("."):
			e = p.attribute(e, p.peek())
		case p.isOp("("):
			e = p.call(e)
		case p.op("["):
			index := &Expr{Kind: Index, Line: t.line, Items: []*Expr{e}}
			commas := 0
			p.each(func() {
				for p.op(":") { // a slice
					index.Kind, index.Text = Unknown, "a slice"
				}
				if !p.closes() && !p.isOp(",") {
					index.Items = append(index.Items, p.expression())
				}
				for p.op(":") {
					index.Kind, index.Text = Unknown, "a slice"
					if !p.closes() && !p.isOp(",") && !p.isOp(":") {
						p.expression()
					}
				}
			}, &commas)
			if len(index.Items) != 2 || index.Kind == Unknown {
				index = unknown(t.line, "a slice")
			}
			e = index
		default:
			return e
		}
	}
}

func (p *parser) attribute(e *Expr, name token) *Expr {
	if name.kind != nameToken {
		p.broken = true
		return unknown(name.line, "broken code")
	}
	p.advance()
	if e.Kind == Name && len(e.Text) < maxDotted {
		return &Expr{Kind: Name, Line: e.Line, Text: e.Text + "." + name.text}
	}
	// An attribute of something that is not a name: ".weight", and what it belongs to.
	return &Expr{Kind: Operation, Line: e.Line, Text: "." + name.text, Items: []*Expr{e}}
}

// maxDotted bounds the length of a dotted name, so that a file of dots costs no more than its size.
const maxDotted = 500

// call reads the arguments of a call.
func (p *parser) call(callee *Expr) *Expr {
	c := &Call{Place: p.place(callee.Line)}
	switch {
	case callee.Kind == Name:
		c.Callee = callee.Text
	case callee.Kind == Operation && strings.HasPrefix(callee.Text, "."):
		c.Callee, c.Receiver = callee.Text, callee.Items[0]
		c.Line = p.peek().line
	default:
		c.Receiver = callee
	}
	p.advance()
	commas := 0
	p.each(func() {
		line := p.peek().line
		if p.op("**") {
			c.named = append(c.named, Keyword{"", p.expression()})
			return
		}
		if p.op("*") {
			if !c.Starred {
				c.Starred, c.fixed = true, len(c.Args)
			}
			p.expression()
			return
		}
		if t := p.peek(); t.kind == nameToken && !isKeyword(t.text) && p.at+1 < len(p.tokens) &&
			p.tokens[p.at+1].kind == opToken && p.tokens[p.at+1].text == "=" {
			p.advance()
			p.advance()
			c.named = append(c.named, Keyword{t.text, p.expression()})
			return
		}
		value := p.expression()
		if p.comprehension() {
			value = unknown(line, "a comprehension")
		}
		c.Args = append(c.Args, value)
	}, &commas)
	p.file.Calls = append(p.file.Calls, c)
	return &Expr{Kind: Invoke, Line: c.Line, Call: c}
}
