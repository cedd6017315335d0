package document

import (
	"maps"
	"slices"
	"strings"
)

// Unresolved is the value of a node whose ${...} leads nowhere: Text says why. It is no text, number or boolean, so
// that who reads it reports it instead of taking it for a value.
type Unresolved struct {
	Text string // as it was written
	Why  string
}

// String is what messages show.
func (u Unresolved) String() string { return u.Text + " (" + u.Why + ")" }

// maxInterpolations bounds how many references stand inside each other, and how many one text has.
const maxInterpolations = 32

// Interpolate replaces the references in the texts of a tree in place, with the rules of OmegaConf: ${a.b} and ${a[0]}
// from the root, ${.a} and ${..a} from where they stand, ${oc.env:NAME,default} and ${oc.select:a.b,default}. A text
// that is one reference gets the value with its type. What leads nowhere, in a circle, or to a resolver of the
// program's own becomes Unresolved.
func Interpolate(root *Node, getenv func(string) (string, bool)) {
	i := &interpolation{root: root, getenv: getenv, open: map[*Node]bool{}}
	root.Walk(func(n *Node) { i.resolve(n) })
}

type interpolation struct {
	root   *Node
	getenv func(string) (string, bool)
	open   map[*Node]bool // being resolved
	work   int
}

// maxInterpolationWork bounds the values that the references of one document lead to: a few that are nested stand for
// billions.
const maxInterpolationWork = 1 << 15

// resolve replaces the references of one node.
func (i *interpolation) resolve(n *Node) {
	text, ok := n.Value.(string)
	if !ok || !strings.Contains(text, "${") {
		return
	}
	i.open[n] = true
	value, why := i.expand(n, text, 0)
	delete(i.open, n)
	if why != "" {
		value = Unresolved{Text: text, Why: why}
	}
	n.Value = value
}

// expand is the value of a text with references; why says what cannot be resolved.
func (i *interpolation) expand(n *Node, text string, depth int) (value any, why string) {
	if depth > maxInterpolations {
		return nil, "references are nested too deeply"
	}
	var out strings.Builder
	for rest := text; ; {
		before, after, found := strings.Cut(rest, "${")
		out.WriteString(before)
		if !found {
			return out.String(), ""
		}
		inside, after, closed := cutBrace(after)
		if !closed {
			return nil, "${ is not closed"
		}
		value, why := i.reference(n, inside, depth)
		if why != "" {
			return nil, why
		}
		if out.Len() == 0 && rest == text && after == "" {
			return value, "" // the whole text is one reference and keeps its type
		}
		word, err := (&Node{Value: value}).Text()
		if err != nil && value != nil {
			return nil, "${" + inside + "} is not one word"
		}
		if out.Len()+len(word) > maxFileBytes {
			return nil, "the text becomes too long"
		}
		out.WriteString(word)
		rest = after
	}
}

// cutBrace splits at the brace that closes an opened reference.
func cutBrace(text string) (inside, after string, ok bool) {
	depth := 1
	for i, c := range text {
		switch c {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return text[:i], text[i+1:], true
			}
		}
	}
	return "", "", false
}

// reference is the value that the words between ${ and } name.
func (i *interpolation) reference(n *Node, inside string, depth int) (value any, why string) {
	if strings.Contains(inside, "${") {
		expanded, why := i.expand(n, inside, depth+1)
		if why != "" {
			return nil, why
		}
		inside, _ = expanded.(string)
	}
	resolver, arguments, isResolver := strings.Cut(inside, ":")
	if !isResolver {
		return i.follow(n, inside, depth)
	}
	name, fallback, hasFallback := strings.Cut(arguments, ",")
	name = strings.TrimSpace(name)
	switch resolver {
	case "oc.env", "env":
		if text, set := i.getenv(name); set {
			return i.typed(text, hasFallback), ""
		}
		why = "the environment has no " + name
	case "oc.select":
		if value, why = i.follow(n, name, depth); why == "" {
			return value, ""
		}
	default:
		return nil, "the program's own resolver " + resolver
	}
	if hasFallback {
		return i.typed(strings.TrimSpace(fallback), true), ""
	}
	if resolver == "oc.select" {
		return nil, ""
	}
	return nil, why
}

// typed gives a default its type; a variable of the environment stays a text (OmegaConf 2.1 and later), which every
// reader here takes for the number that it spells.
func (i *interpolation) typed(text string, typed bool) any {
	if !typed {
		return text
	}
	value, err := Scalar(text, "", "")
	if err != nil {
		return text
	}
	return value.Value
}

// follow is the value at a path, from the root or, with dots in front, from the object that holds n.
func (i *interpolation) follow(n *Node, path string, depth int) (value any, why string) {
	from := i.root
	if dots := len(path) - len(strings.TrimLeft(path, ".")); dots > 0 {
		steps := pathSteps(n.Path)
		from = i.root.At(strings.Join(steps[:max(0, len(steps)-dots)], "."))
		path = path[dots:]
	}
	target := from.At(path)
	switch {
	case target == nil:
		return nil, "there is no " + path
	case i.open[target]:
		return nil, "it refers to itself through " + path
	case len(i.open) > maxInterpolations:
		return nil, "references are nested too deeply"
	}
	copied, why := i.copyResolved(target)
	if why != "" {
		return nil, why
	}
	if u, bad := copied.Value.(Unresolved); bad {
		return nil, u.Why
	}
	return copied.Value, ""
}

// copyResolved resolves what a reference leads to, with all inside it, and copies it: a value that two places share
// could be made to hold itself by a reference inside.
func (i *interpolation) copyResolved(target *Node) (copied *Node, why string) {
	if i.open[target] {
		return nil, "it refers to itself through " + target.Path
	}
	if i.work++; i.work > maxInterpolationWork {
		return nil, "the references of the document lead to too many values"
	}
	i.resolve(target)
	out := *target
	switch v := target.Value.(type) {
	case map[string]*Node:
		fields := make(map[string]*Node, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if fields[key], why = i.copyResolved(v[key]); why != "" {
				return nil, why
			}
		}
		out.Value = fields
	case []*Node:
		items := make([]*Node, len(v))
		for at := range v {
			if items[at], why = i.copyResolved(v[at]); why != "" {
				return nil, why
			}
		}
		out.Value = items
	}
	return &out, ""
}
