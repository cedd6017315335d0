package shell

import (
	"bytes"
	"path"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/expand"
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
		before, kind, source, why, after, found := nextGap(text)
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
			f.add(gap(asWords(kind), source, why))
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
			if !bounded(&braces) {
				all = append(all, withKind(e.unknown(w, "this brace expansion is not followed"), asWords))
				continue
			}
			for _, one := range expand.Braces(&braces) {
				all = append(all, e.fields(one)...)
			}
			continue
		}
		all = append(all, e.fields(w)...)
	}
	return all
}

// fields expands one word into those that it stands for.
func (e *evaluator) fields(w *syntax.Word) []string {
	if e.spend(1) {
		return nil
	}
	f := &fields{}
	for i, part := range w.Parts {
		e.part(part, f, false, i == 0)
	}
	f.end()
	return f.done
}

// maxBraces bounds the words for which braces may stand.
const maxBraces = 500

// bounded reports whether braces stand for few words: those within each other, and sequences of small numbers,
// multiply.
func bounded(w *syntax.Word) bool {
	count := 1
	for _, part := range w.Parts {
		b, ok := part.(*syntax.BraceExp)
		if !ok {
			continue
		}
		for _, element := range b.Elems {
			if !bounded(element) {
				return false
			}
			n, err := strconv.Atoi(element.Lit())
			if b.Sequence && (err != nil || n > maxBraces || n < -maxBraces) {
				return false
			}
			for _, inner := range element.Parts {
				if _, nested := inner.(*syntax.BraceExp); nested {
					return false
				}
			}
		}
		if size := len(b.Elems); b.Sequence {
			first, _ := strconv.Atoi(b.Elems[0].Lit())
			last, _ := strconv.Atoi(b.Elems[1].Lit())
			count *= max(first, last) - min(first, last) + 1
		} else {
			count *= size
		}
		if count > maxBraces {
			return false
		}
	}
	return true
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
	return limited(withKind(strings.Join(append(f.done, f.current.String()), " "), asText))
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
		text := p.Value
		if p.Dollar {
			text = strings.ReplaceAll(escaped(text), `\'`, "'")
		}
		f.add(text)
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
					if joined(inner) {
						item = withKind(item, asText)
					}
					f.add(item)
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
	if !ok || x.Length || x.Repl != nil || x.Exp != nil || x.Param == nil {
		return nil, false
	}
	if x.Param.Value == "@" || x.Param.Value == "*" {
		e.spend(len(e.params))
		return e.items(x, append([]string{e.in.Script}, e.params...), 1)
	}
	if !everyItem(x.Index) {
		return nil, false
	}
	v := e.lookUp(x.Param.Value)
	e.spend(len(v.items))
	switch {
	case !v.set:
		return []string{withKind(e.unset(x), asWords)}, !x.Excl
	case x.Excl:
		return v.keys, v.keyed
	}
	return e.items(x, v.items, 0)
}

// items are those of a list that ${@:2} or ${A[@]:1:3} takes; without a slice, all from the first one.
func (e *evaluator) items(x *syntax.ParamExp, list []string, first int) ([]string, bool) {
	if x.Excl {
		return nil, false
	}
	if x.Slice == nil {
		return list[first:], true
	}
	from, err := e.arithmetic(x.Slice.Offset, 0)
	size := int64(len(list))
	if from < 0 {
		from += size
	}
	to := size
	if x.Slice.Length != nil && err == nil {
		var length int64
		if length, err = e.arithmetic(x.Slice.Length, 0); length < size {
			to = min(size, from+length)
		}
	}
	if slices.ContainsFunc(list, Several) { // nobody knows which item stands where
		return []string{withKind(e.unknown(x, "the list is not known"), asWords)}, true
	}
	if err != nil || from < 0 || from > size || to < from {
		return nil, err == nil
	}
	return list[from:to], true
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

// tilde resolves ~ and ~/; whoever reads the script knows other people's homes.
func (e *evaluator) tilde(text string) string {
	if !strings.HasPrefix(text, "~") {
		return text
	}
	name, rest, _ := strings.Cut(text[1:], "/")
	home := ""
	if name == "" {
		home = e.scalar("HOME")
	} else if e.in.Home != nil {
		home = e.in.Home(name)
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
	switch {
	case e.testing:
		return ""
	case e.strict:
		return e.unknown(x, "it is not set, and set -u ends the script there")
	case e.blind:
		return e.unknown(x, "it is set neither in the script nor in the environment, and a script that may set it "+
			"could not be read")
	case x.Param == nil || byLauncher(x.Param.Value):
		return e.unknown(x, "the scheduler or launcher sets it")
	}
	return withKind(e.unknown(x, "it is set neither in the script nor in the environment"),
		func(byte) byte { return gapUnset })
}

// byLauncher names variables that are set where the command really runs, whatever the environment says here.
func byLauncher(name string) bool {
	for _, prefix := range []string{"SLURM_", "OMPI_", "PMI_", "PMIX_", "PALS_", "FLUX_", "MV2_", "PBS_", "LSB_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	switch name {
	case "RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
		"MASTER_PORT":
		return true
	}
	return false
}

// join resolves a path against a folder, which may be "" for the reader's own.
func join(dir, name string) string {
	if strings.HasPrefix(name, "/") || strings.HasPrefix(name, "\x00") {
		return name
	}
	return path.Join(dir, name)
}
