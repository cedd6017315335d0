package document

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Scalar reads the text of an override as YAML, as OmegaConf and jsonargparse do: "4" is a number, "[a, b]" a list,
// "null" nothing. origin says where the text stood: "command line batch_size=4".
func Scalar(text, path, origin string) (*Node, error) {
	value, _, err := YAML([]byte(text), origin)
	// stands for what a shell script leaves open, which package shell explains; no YAML has it
	if strings.Contains(text, "\x00") {
		value, err = &Node{Value: text, Raw: text}, nil
	}
	if err != nil {
		// A text that is no YAML at all (a pattern, a template) is the word itself for all that reads it here.
		value = &Node{Value: text, Raw: text}
	}
	place(value, path, origin)
	return value, err
}

// place gives a value and all inside it the path and the origin of the override that brought it.
func place(n *Node, path, origin string) {
	n.Walk(func(each *Node) {
		each.Path = strings.Trim(path+"."+each.Path, ".")
		each.Source, each.File, each.Line = origin, "", 0
	})
}

// Set puts a value into the tree at a dotted path ("a.b[0].c", "a.b.0.c"), making the objects that are missing. Where
// an object stands and an object is given, the two are merged, as OmegaConf does; anything else is replaced.
func Set(root *Node, path, text, origin string) error {
	value, err := Scalar(text, path, origin)
	if err != nil {
		return err
	}
	return Put(root, path, value)
}

// Put is Set with a value that is a node already.
func Put(root *Node, path string, value *Node) error {
	steps := pathSteps(path)
	if len(steps) == 0 {
		return fmt.Errorf("%s: an override needs a key before =", value.Origin())
	}
	at := root
	for _, step := range steps[:len(steps)-1] {
		next := at.step(step)
		if next == nil || !next.nested() {
			next = &Node{Value: map[string]*Node{}, Path: strings.TrimPrefix(at.Path+"."+step, "."),
				Source: value.Source, File: value.File, Line: value.Line}
			if err := at.put(step, next); err != nil {
				return err
			}
		}
		at = next
	}
	last := steps[len(steps)-1]
	if before := at.step(last); before != nil {
		value = Merge(before, value)
	}
	return at.put(last, value)
}

// Delete takes a value out of the tree and reports whether it was there.
func Delete(root *Node, path string) bool {
	steps := pathSteps(path)
	if len(steps) == 0 {
		return false
	}
	at := root
	for _, step := range steps[:len(steps)-1] {
		at = at.step(step)
	}
	if at == nil || at.step(steps[len(steps)-1]) == nil {
		return false
	}
	fields, ok := at.Value.(map[string]*Node)
	delete(fields, steps[len(steps)-1])
	return ok
}

// At follows a dotted path, list indexes included; nil when it leads nowhere.
func (n *Node) At(path string) *Node {
	for _, step := range pathSteps(path) {
		n = n.step(step)
	}
	return n
}

// Merge lays one tree over another: objects key by key, anything else replaced as a whole. Neither is changed.
func Merge(base, over *Node) *Node {
	if base == nil || over == nil {
		return cmp.Or(over, base)
	}
	below, isObject := base.Value.(map[string]*Node)
	above, overIsObject := over.Value.(map[string]*Node)
	if !isObject || !overIsObject {
		return over
	}
	merged := *base
	fields := maps.Clone(below)
	for key, value := range above {
		fields[key] = Merge(below[key], value)
	}
	merged.Value = fields
	return &merged
}

// index is a list index at the end of a step: layers[3].
var index = regexp.MustCompile(`\[([^\[\]]*)\]`)

func pathSteps(path string) []string {
	path = index.ReplaceAllString(path, ".$1")
	return slices.DeleteFunc(strings.Split(path, "."), func(step string) bool { return step == "" })
}

func (n *Node) nested() bool {
	switch n.Value.(type) {
	case map[string]*Node, []*Node:
		return true
	}
	return false
}

// step is the value below one key or index; nil when there is none.
func (n *Node) step(name string) *Node {
	if n == nil {
		return nil
	}
	if items, ok := n.Value.([]*Node); ok {
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(items) {
			return items[i]
		}
		return nil
	}
	return n.Get(name)
}

func (n *Node) put(name string, value *Node) error {
	switch v := n.Value.(type) {
	case map[string]*Node:
		v[name] = value
	case []*Node:
		i, err := strconv.Atoi(name)
		if err != nil || i < 0 || i >= len(v) {
			return fmt.Errorf("%s: %q is not an index of %s, which has %d values", value.Origin(), name, n.Path, len(v))
		}
		v[i] = value
	case nil:
		n.Value = map[string]*Node{name: value}
	default:
		return fmt.Errorf("%s: %s is not an object, so nothing can be set below it", value.Origin(), n.Path)
	}
	return nil
}

// Override applies one word of the command line in the grammar of OmegaConf and Hydra to the tree: k=v sets, +k=v and
// ++k=v set also what is not there, ~k takes away. A word without = sets nothing (null), as in OmegaConf.from_dotlist.
func Override(root *Node, word string) error {
	origin := "command line " + word
	if path, ok := strings.CutPrefix(word, "~"); ok {
		path, _, _ = strings.Cut(path, "=")
		if !Delete(root, path) {
			return fmt.Errorf("%s: there is no %s to take away", origin, path)
		}
		return nil
	}
	path, text, _ := strings.Cut(strings.TrimLeft(word, "+"), "=")
	return Set(root, path, text, origin)
}
