package job

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"oomguard/preflight/job/document"
	"oomguard/preflight/job/python"
)

// value is what the option has in this run: the command line's word, or the default.
func (o *scriptOption) value(f *sourceFile) *python.Expr {
	r := f.text.r
	if word, origin, given := o.given(r); given {
		value, ok := o.convert(word)
		if !ok {
			return &python.Expr{Kind: python.Unknown, Line: o.line,
				Text: fmt.Sprintf("%s is %q, which is no value for it", origin, word)}
		}
		return &python.Expr{Kind: python.Literal, Line: o.line, Value: value, Text: origin}
	}
	if why := r.openWords(); why != "" { // it may be given all the same
		return &python.Expr{Kind: python.Unknown, Line: o.line, Text: why}
	}
	if o.hidden != "" {
		return &python.Expr{Kind: python.Unknown, Line: o.line, Text: o.hidden}
	}
	origin := fmt.Sprintf("default of %s in %s", o.names[len(o.names)-1], f.at(o.line))
	switch {
	case o.kind == asFlag || o.kind == asUnset:
		if o.fallback == nil {
			return &python.Expr{Kind: python.Literal, Line: o.line, Value: o.kind == asUnset, Text: origin}
		}
	case o.required:
		return &python.Expr{Kind: python.Unknown, Line: o.line, Text: o.names[len(o.names)-1] + " is not given"}
	case o.fallback == nil:
		return &python.Expr{Kind: python.Literal, Line: o.line, Text: origin}
	}
	value := *f.scope.Resolve(o.fallback, o.place)
	if value.Kind == python.Literal {
		value.Text = origin
	}
	return &value
}

// given finds the option among the script's words, and in the file of arguments that HfArgumentParser reads; the last
// one wins.
func (o *scriptOption) given(r *reader) (word, origin string, given bool) {
	for _, name := range o.names {
		if a, ok := r.args[plainName(name)]; ok && a.node != nil && len(a.list) == 1 {
			word, origin, given = a.text, a.origin, true
		}
	}
	words := r.job.ScriptArgs
	for i, each := range words {
		option, text, attached := strings.Cut(each, "=")
		shown := option
		if r.seen() != nil {
			option = r.seen().wholeOption(option)
		}
		negated := o.matches(strings.Replace(strings.Replace(option, "--no-", "--", 1), "--no_", "--", 1)) &&
			!o.matches(option)
		switch {
		case negated:
			word, origin, given = "false", "command line "+shown, true
		case !o.matches(option):
		case attached:
			word, origin, given = text, "command line "+shown, true
		case o.kind == asFlag || o.kind == asUnset || i+1 == len(words) || isOption(words[i+1]):
			word, origin, given = "", "command line "+shown, true
		default:
			word, origin, given = words[i+1], "command line "+shown, true
		}
	}
	return word, origin, given
}

// argumentKind is how HfArgumentParser and argparse take the option's words: a field whose default is a truth value may
// stand bare, and one whose default is a list takes several.
func (o *scriptOption) argumentKind(f *sourceFile) argumentKind {
	if o.kind == asFlag || o.kind == asUnset {
		return boolArgument
	}
	if o.fallback == nil {
		return wordArgument
	}
	value := f.scope.Resolve(o.fallback, o.place)
	if value.Kind == python.List {
		return listArgument
	}
	if _, isTruth := value.Value.(bool); isTruth && value.Kind == python.Literal {
		return boolArgument
	}
	return wordArgument
}

func (o *scriptOption) isGiven(r *reader) bool {
	_, _, given := o.given(r)
	return given
}

// convert makes a value of a word, as the option's type does.
func (o *scriptOption) convert(word string) (any, bool) {
	switch o.kind {
	case asInt:
		n, err := pythonInt(word)
		return int64(n), err == nil
	case asFloat:
		n, err := pythonFloat(word)
		return n, err == nil
	case asText:
		return word, true
	case asTruth:
		return word != "", true
	case asFlag, asUnset:
		if word == "" {
			return o.kind == asFlag, true
		}
	case byLook:
	}
	if n, err := strconv.ParseInt(strings.ReplaceAll(word, "_", ""), 10, 64); err == nil {
		return n, true
	}
	if n, err := pythonFloat(word); err == nil {
		return n, true
	}
	if word == "" {
		return true, true // a bare flag
	}
	if on, ok := document.ParseBool(word); ok && len(word) > 1 {
		return on, true
	}
	return word, true
}

// literalText writes a literal as an argument.
func literalText(value any) (string, bool) {
	switch v := value.(type) {
	case bool:
		return strconv.FormatBool(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64), true
	case string:
		return v, true
	}
	return "", false
}

// node turns a resolved value into a document's node, so that it is read like a file; ok is false when a part of it is
// not known.
func (f *sourceFile) node(e *python.Expr, path string, at python.Place) (n *document.Node, ok bool) {
	n = &document.Node{File: f.Name, Line: e.Line, Path: path}
	switch e.Kind {
	case python.Literal:
		n.Value = e.Value
		switch v := e.Value.(type) {
		case int64:
			n.Value = json.Number(strconv.FormatInt(v, 10))
		case float64:
			n.Value = json.Number(strconv.FormatFloat(v, 'g', -1, 64))
		}
		return n, true
	case python.Name:
		n.Value = e.Text
		return n, true
	case python.List:
		items := make([]*document.Node, len(e.Items))
		for i, item := range e.Items {
			if items[i], ok = f.node(f.scope.Resolve(item, at), path, at); !ok {
				return n, false
			}
		}
		n.Value = items
		return n, true
	case python.Dict:
		fields := map[string]*document.Node{}
		for i, key := range e.Keys {
			name, isText := literalString(key)
			if !isText {
				return n, false
			}
			if fields[name], ok = f.node(f.scope.Resolve(e.Items[i], at), strings.TrimPrefix(path+"."+name, "."),
				at); !ok {
				return n, false
			}
		}
		n.Value = fields
		return n, true
	case python.Unknown, python.Invoke, python.Operation, python.Index:
	}
	return n, false
}
