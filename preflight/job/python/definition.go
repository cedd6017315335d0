package python

import "slices"

// decorated reads decorators and what they decorate.
func (p *parser) decorated() {
	var decorators []*Expr
	for p.op("@") {
		decorators = append(decorators, p.expression())
		if p.peek().kind != newlineToken {
			p.brokenLine()
		}
		for p.peek().kind == newlineToken {
			p.advance()
		}
	}
	p.broken = false
	if t := p.peek(); t.kind == nameToken && p.compound(t, decorators) {
		return
	}
}

// inside reads a block in a scope of its own, where no loop or condition around it counts: it runs when it is called.
func (p *parser) inside(name string, fn *Function, class *Class) {
	before := *p
	p.scope = append(slices.Clip(before.scope), name)
	p.function, p.class, p.loop, p.blocks = fn, class, false, nil
	p.suite()
	p.scope, p.function, p.class, p.loop, p.blocks = before.scope, before.function, before.class, before.loop,
		before.blocks
}

func (p *parser) def(decorators []*Expr) {
	p.advance()
	fn := &Function{Place: p.place(p.peek().line), Name: p.peek().text, Decorators: decorators}
	if p.peek().kind != nameToken {
		p.brokenLine()
		return
	}
	p.advance()
	if p.isOp("[") { // type parameters
		p.list()
	}
	if p.op("(") {
		commas := 0
		p.each(func() { p.parameter(fn) }, &commas)
	}
	if p.op("->") {
		p.expression()
	}
	p.file.Functions = append(p.file.Functions, fn)
	p.inside(fn.Name, fn, nil)
}

func (p *parser) parameter(fn *Function) {
	if p.op("/") {
		return
	}
	starred := p.op("*") || p.op("**")
	t := p.peek()
	if t.kind != nameToken {
		return
	}
	p.advance()
	k := Keyword{Name: t.text}
	if p.op(":") {
		p.expression()
	}
	if p.op("=") {
		k.Value = p.expression()
	}
	if !starred {
		fn.Parameters = append(fn.Parameters, k)
	}
}

func (p *parser) classDef(decorators []*Expr) {
	p.advance()
	class := &Class{Place: p.place(p.peek().line), Name: p.peek().text, Decorators: decorators}
	if p.peek().kind != nameToken {
		p.brokenLine()
		return
	}
	p.advance()
	if p.isOp("[") {
		p.list()
	}
	if p.isOp("(") {
		bases := p.call(&Expr{Kind: Name, Text: "class " + class.Name, Line: class.Line}).Call
		p.file.Calls = p.file.Calls[:len(p.file.Calls)-1]
		for _, base := range bases.Args {
			if base.Kind == Name {
				class.Bases = append(class.Bases, base.Text)
			}
		}
	}
	p.file.Classes = append(p.file.Classes, class)
	first := len(p.file.Assignments)
	p.inside(class.Name, nil, class)
	own := joinScope(class.Scope, class.Name)
	for _, a := range p.file.Assignments[first:] {
		if a.Scope == own && a.Key == nil {
			class.Fields = append(class.Fields, a)
		}
	}
}

func joinScope(outer, name string) string {
	if outer == "" {
		return name
	}
	return outer + "." + name
}

func (p *parser) dotted() string {
	name := ""
	for p.isOp(".") || p.isOp("...") {
		name += p.peek().text
		p.advance()
	}
	for t := p.peek(); t.kind == nameToken && t.text != "import" && t.text != "as" &&
		len(name) < maxDotted; t = p.peek() {
		name += t.text
		p.advance()
		if !p.isOp(".") {
			break
		}
		p.advance()
		name += "."
	}
	return name
}

func (p *parser) alias(fallback string) string {
	if p.word("as") && p.peek().kind == nameToken {
		fallback = p.peek().text
		p.advance()
	}
	return fallback
}

func (p *parser) importModules(line int) {
	for !p.lineEnds() && !p.isOp(";") {
		module := p.dotted()
		p.file.Imports = append(p.file.Imports, Import{Module: module, As: p.alias(""), Line: line, Sure: p.sure()})
		if !p.op(",") {
			return
		}
	}
}

func (p *parser) importFrom(line int) {
	module := p.dotted()
	if !p.word("import") {
		p.broken = true
		return
	}
	if p.op("*") {
		p.file.Imports = append(p.file.Imports, Import{Module: module, Name: "*", Line: line, Sure: p.sure()})
		return
	}
	bracket := p.op("(")
	for t := p.peek(); t.kind == nameToken; t = p.peek() {
		p.advance()
		p.file.Imports = append(p.file.Imports,
			Import{Module: module, Name: t.text, As: p.alias(t.text), Line: line, Sure: p.sure()})
		if !p.op(",") {
			break
		}
	}
	if bracket {
		p.op(")")
	}
}
