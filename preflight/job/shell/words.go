package shell

import (
	"bytes"
	"os/user"
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// fields collects the words into which one word of the script expands.
type fields struct {
	done    []string
	current strings.Builder
	open    bool // a word has begun
}

// add appends text that is not split.
func (f *fields) add(text string) {
	f.current.WriteString(text)
	f.open = true
}

func (f *fields) end() {
	if f.open {
		f.done = append(f.done, f.current.String())
	}
	f.current.Reset()
	f.open = false
}

// split appends the value of an unquoted expansion: blanks outside gaps end words.
func (f *fields) split(text string) {
	for text != "" {
		before, _, source, why, after, found := nextGap(text)
		for len(before) > 0 {
			blank := strings.IndexAny(before, " \t\n")
			if blank < 0 {
				f.add(before)
				break
			}
			if blank > 0 {
				f.add(before[:blank])
			}
			f.end()
			before = before[blank+1:]
		}
		if found {
			f.add(gap(gapWords, source, why))
		}
		text = after
	}
}

// words expands a list of words as for a command.
func (e *evaluator) words(list []*syntax.Word) []string {
	var all []string
	for _, w := range list {
		if e.spend(1) {
			break
		}
		if braces := *w; syntax.SplitBraces(&braces) && expands(&braces) {
			all = append(all, withKind(e.unknown(w, "a brace expansion is not followed"), gapWords))
			continue
		}
		f := &fields{}
		for i, part := range w.Parts {
			e.part(part, f, false, i == 0)
		}
		f.end()
		all = append(all, f.done...)
	}
	return all
}

// expands reports whether braces stand for several words: {a,b} and {1..3}, but not {a}.
func expands(w *syntax.Word) bool {
	for _, part := range w.Parts {
		if b, ok := part.(*syntax.BraceExp); ok && (b.Sequence || len(b.Elems) > 1) {
			return true
		}
	}
	return false
}

// text expands a word where nothing is split: an assignment, a default, a pattern.
func (e *evaluator) text(w *syntax.Word) string {
	if w == nil || e.spend(1) {
		return ""
	}
	f := &fields{}
	for i, part := range w.Parts {
		e.part(part, f, true, i == 0)
	}
	return limited(withKind(strings.Join(append(f.done, f.current.String()), " "), gapText))
}

func limited(text string) string {
	if len(text) > maxText {
		return gap(gapText, "...", "a value of the script grows beyond what is followed")
	}
	return text
}

// part expands one part of a word. quoted: nothing is split. first: a tilde in front stands for a home.
func (e *evaluator) part(p syntax.WordPart, f *fields, quoted, first bool) {
	if e.spend(1) {
		return
	}
	switch p := p.(type) {
	case *syntax.Lit:
		text := unescape(p.Value, "")
		if first {
			text = e.tilde(text)
		}
		f.add(text)
	case *syntax.SglQuoted:
		f.add(p.Value)
	case *syntax.DblQuoted:
		f.open = true
		for _, inner := range p.Parts {
			if lit, ok := inner.(*syntax.Lit); ok {
				f.add(unescape(lit.Value, "$`\"\\\n"))
				continue
			}
			if items, ok := e.list(inner); ok {
				if joined(inner) {
					items = []string{strings.Join(items, " ")}
				}
				for i, item := range items {
					if i > 0 {
						f.end()
					}
					f.add(withKind(item, gapText))
				}
				if len(items) == 0 && len(p.Parts) == 1 && f.current.Len() == 0 {
					f.open = false // "$@" without parameters is no word at all
				}
				continue
			}
			e.part(inner, f, true, false)
		}
	default:
		items, ok := e.list(p)
		if !ok {
			items = []string{limited(e.expansion(p))}
			e.spend(len(items[0]) / 64)
		}
		for i, item := range items {
			switch {
			case !quoted:
				if i > 0 {
					f.end()
				}
				f.split(item)
			case i > 0:
				f.add(" " + item)
			default:
				f.add(item)
			}
		}
	}
}

// list is the value of what expands to several words: $@, $*, ${A[@]}, ${A[@]:-...} not among them.
func (e *evaluator) list(p syntax.WordPart) ([]string, bool) {
	x, ok := p.(*syntax.ParamExp)
	if !ok || x.Excl || x.Length || x.Slice != nil || x.Repl != nil || x.Exp != nil || x.Param == nil {
		return nil, false
	}
	if x.Param.Value == "@" || x.Param.Value == "*" {
		e.spend(len(e.params))
		return e.params, true
	}
	if !everyItem(x.Index) {
		return nil, false
	}
	v := e.lookUp(x.Param.Value)
	if !v.set {
		return []string{e.unset(x)}, true
	}
	e.spend(len(v.items))
	return v.items, true
}

// joined reports "$*" and "${A[*]}", which in quotes are one word.
func joined(p syntax.WordPart) bool {
	x, ok := p.(*syntax.ParamExp)
	if !ok {
		return false
	}
	index, _ := x.Index.(*syntax.Word)
	return x.Param.Value == "*" || index != nil && index.Lit() == "*"
}

// everyItem reports an index [@] or [*].
func everyItem(index syntax.ArithmExpr) bool {
	w, ok := index.(*syntax.Word)
	return ok && (w.Lit() == "@" || w.Lit() == "*")
}

// unescape takes backslashes off; only before the given characters when there are some, and line continuations vanish.
func unescape(text, only string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) && (only == "" || strings.IndexByte(only, text[i+1]) >= 0) {
			i++
			if text[i] == '\n' {
				continue
			}
		}
		out.WriteByte(text[i])
	}
	return out.String()
}

// tilde resolves ~ and ~/; other people's homes are looked up in the user database.
func (e *evaluator) tilde(text string) string {
	if !strings.HasPrefix(text, "~") {
		return text
	}
	name, rest, _ := strings.Cut(text[1:], "/")
	home := ""
	if name == "" {
		home = e.scalar("HOME")
	} else if u, err := user.Lookup(name); err == nil {
		home = u.HomeDir
	}
	if home == "" {
		return text
	}
	return strings.TrimSuffix(home+"/"+rest, "/")
}

func (e *evaluator) scalar(name string) string {
	if v := e.lookUp(name); v.set && len(v.items) > 0 {
		return v.items[0]
	}
	return ""
}

// source is the text of a part of the script as it was written, on one line.
func source(node syntax.Node) string {
	var out bytes.Buffer
	if err := syntax.NewPrinter(syntax.SingleLine(true)).Print(&out, node); err != nil {
		return "..."
	}
	text := strings.Join(strings.Fields(out.String()), " ")
	if len(text) > 80 {
		text = strings.ToValidUTF8(text[:77], "") + "..."
	}
	return text
}

// unknown makes a gap for a part of the script.
func (e *evaluator) unknown(node syntax.Node, why string) string {
	text := source(node)
	return gap(gapText, text, text+" is not known: "+why+" ("+e.at(node.Pos())+")")
}

func (e *evaluator) unset(x *syntax.ParamExp) string {
	if e.testing {
		return ""
	}
	return e.unknown(x, "it is set neither in the script nor in the environment")
}

// substitution follows the few command substitutions that only work on text: where a script finds its own folder.
func (e *evaluator) substitution(x *syntax.CmdSubst) string {
	const why = "it is the output of a command, and nothing is run"
	if folder, ok := e.folder(x.Stmts); ok {
		return folder
	}
	if len(x.Stmts) != 1 {
		return e.unknown(x, why)
	}
	stmt := x.Stmts[0]
	words := slices.DeleteFunc(e.simple(stmt), func(word string) bool { return word == "--" })
	switch {
	case len(words) == 2 && words[0] == "dirname":
		return path.Dir(words[1])
	case len(words) == 2 && words[0] == "basename":
		return path.Base(words[1])
	case len(words) == 2 && (words[0] == "realpath" || words[0] == "readlink") || len(words) == 3 && words[0] == "readlink" && words[1] == "-f":
		return join(e.dir, words[len(words)-1])
	case len(words) >= 2 && words[0] == "echo" && !strings.HasPrefix(words[1], "-"):
		return strings.Join(words[1:], " ")
	case isPwd(words):
		return join(e.dir, ".")
	}
	return e.unknown(x, why)
}

// folder follows cd FOLDER && pwd, also with ; in between and what the two may carry (cd -- FOLDER >/dev/null 2>&1; pwd -P).
func (e *evaluator) folder(list []*syntax.Stmt) (string, bool) {
	if len(list) == 1 {
		if chain, ok := list[0].Cmd.(*syntax.BinaryCmd); ok && chain.Op == syntax.AndStmt {
			list = []*syntax.Stmt{chain.X, chain.Y}
		}
	}
	if len(list) != 2 {
		return "", false
	}
	cd := slices.DeleteFunc(e.simple(list[0]), func(word string) bool { return word == "--" || word == "-P" || word == "-L" })
	if len(cd) != 2 || cd[0] != "cd" || cd[1] == "-" || !isPwd(e.simple(list[1])) {
		return "", false
	}
	return join(e.dir, cd[1]), true
}

func isPwd(words []string) bool {
	return len(words) == 1 && words[0] == "pwd" || len(words) == 2 && words[0] == "pwd" && (words[1] == "-P" || words[1] == "-L")
}

// simple is the command of a statement when it is nothing but words; nil otherwise.
func (e *evaluator) simple(stmt *syntax.Stmt) []string {
	call, ok := stmt.Cmd.(*syntax.CallExpr)
	if !ok || len(call.Assigns) > 0 || stmt.Negated || stmt.Background {
		return nil
	}
	for _, redirect := range stmt.Redirs {
		if redirect.Op != syntax.RdrOut && redirect.Op != syntax.DplOut && redirect.Op != syntax.RdrAll { // 2>/dev/null, >/dev/null 2>&1
			return nil
		}
	}
	return e.words(call.Args)
}

// join resolves a path against a folder, which may be "" for the reader's own.
func join(dir, name string) string {
	if strings.HasPrefix(name, "/") || strings.HasPrefix(name, "\x00") {
		return name
	}
	return path.Join(dir, name)
}
