package python

import "slices"

// A parser reads tokens into a File. Depth and condition stacks say where it is.
type parser struct {
	file      *File
	tokens    []token
	at        int
	strengths map[string]int
	depth     int
	broken    bool // the statement has a place that is not Python

	scope      []string
	conditions []Condition
	loop       bool
	blocks     []int     // loops and try bodies around this place
	clauses    int       // blocks and clauses so far
	tried      int       // try statements around this place
	function   *Function // that is being read
	class      *Class    // whose own body is being read
}

// Read reads source. It never fails: broken code is stepped over, line by line, and named in Problems. shown is the
// file's name.
func Read(data []byte, shown string) *File {
	lexed := lex(string(data), shown)
	p := &parser{file: &File{Name: shown, Problems: lexed.problems}, tokens: lexed.tokens, strengths: strengths()}
	for p.peek().kind != endToken {
		if p.peek().kind == dedentToken { // one without a block
			p.advance()
			continue
		}
		p.statement()
	}
	p.file.index()
	return p.file
}

func (p *parser) peek() token { return p.tokens[p.at] }

func (p *parser) advance() {
	if p.at < len(p.tokens)-1 {
		p.at++
	}
}

func (p *parser) isOp(text string) bool { t := p.peek(); return t.kind == opToken && t.text == text }

func (p *parser) isWord(text string) bool {
	t := p.peek()
	return t.kind == nameToken && t.text == text
}

// op takes an operator if it is next.
func (p *parser) op(text string) bool {
	if p.isOp(text) {
		p.advance()
		return true
	}
	return false
}

// word takes a keyword if it is next.
func (p *parser) word(text string) bool {
	if p.isWord(text) {
		p.advance()
		return true
	}
	return false
}

// lineEnds reports whether the logical line is over.
func (p *parser) lineEnds() bool {
	return slices.Contains([]tokenKind{newlineToken, indentToken, dedentToken, endToken}, p.peek().kind)
}

// closes reports whether a bracket or the line is over.
func (p *parser) closes() bool {
	return p.lineEnds() || p.isOp(")") || p.isOp("]") || p.isOp("}")
}

// ends reports whether an expression cannot go on here.
func (p *parser) ends() bool {
	return p.closes() || p.isOp(",") || p.isOp("=") || p.isOp(":") || p.isOp(";")
}

// skipItem steps to the comma or the end of the bracket that is open, over whole brackets.
func (p *parser) skipItem() {
	open := 0
	for !p.lineEnds() {
		switch t := p.peek(); {
		case t.kind != opToken:
		case t.text == "(" || t.text == "[" || t.text == "{":
			open++
		case t.text == ")" || t.text == "]" || t.text == "}":
			if open == 0 {
				return
			}
			open--
		case t.text == "," && open == 0:
			return
		}
		p.advance()
	}
}

// skipLine steps to the end of the logical line.
func (p *parser) skipLine() {
	for !p.lineEnds() {
		p.advance()
	}
}

func (p *parser) place(line int) Place {
	scope := ""
	for _, s := range p.scope {
		if scope != "" {
			scope += "."
		}
		scope += s
	}
	return Place{Line: line, Scope: scope, Conditions: slices.Clip(p.conditions), Loop: p.loop,
		blocks: slices.Clip(p.blocks)}
}

// sure reports whether what stands here runs whenever the module does.
func (p *parser) sure() bool {
	return len(p.scope) == 0 && len(p.conditions) == 0 && !p.loop && p.tried == 0
}

// expressions reads one expression or a tuple without brackets.
func (p *parser) expressions() *Expr {
	first := p.expression()
	if !p.isOp(",") {
		return first
	}
	tuple := &Expr{Kind: List, Line: first.Line, Items: []*Expr{first}}
	for p.op(",") {
		if p.ends() {
			break
		}
		tuple.Items = append(tuple.Items, p.expression())
	}
	return tuple
}

// assign records what is bound to a name, or to name[key].
func (p *parser) assign(target string, key, value *Expr, line int) {
	a := &Assignment{Place: p.place(line), Target: target, Key: key, Value: value}
	p.file.Assignments = append(p.file.Assignments, a)
}

// indexedRoot is a and "b" of a["b"]["c"]; "" when no plain name stands there.
func indexedRoot(e *Expr) (root string, key *Expr) {
	if e.Kind != Index {
		return "", nil
	}
	for e.Items[0].Kind == Index {
		e = e.Items[0]
	}
	if e.Items[0].Kind != Name {
		return "", nil
	}
	return e.Items[0].Text, e.Items[1]
}

// bind assigns a value to a target expression: a name, an attribute, name[key], or a tuple of them.
func (p *parser) bind(target, value *Expr) {
	if target.Kind == Name {
		p.assign(target.Text, nil, value, target.Line)
	}
	if root, key := indexedRoot(target); root != "" {
		if target.Items[0].Kind != Name { // a["b"]["c"] = value changes what stands under "b"
			value = unknown(target.Line, "changed in place")
		}
		p.assign(root, key, value, target.Line)
	}
	if target.Kind == Index && isGlobals(target.Items[0]) {
		p.file.rewritten = target.Line
	}
	if target.Kind == List {
		for i, item := range target.Items {
			part := unknown(value.Line, "part of "+value.String())
			part.Items, part.Value = []*Expr{value}, int64(i)
			if value.Kind == List && len(value.Items) == len(target.Items) {
				part = value.Items[i]
			}
			p.bind(item, part)
		}
	}
}
