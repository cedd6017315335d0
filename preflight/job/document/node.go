// Package document reads configuration files - JSON, and what else frameworks are configured in - into nodes that know
// where they stood, so that every setting read from one can name its file and line.
package document

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A Node is one value of a JSON document that knows where it stood. Methods of a nil node report absence.
type Node struct {
	Value any    // map[string]*Node, []*Node, string, json.Number, bool, Unresolved or nil
	Path  string // dotted keys: "zero_optimization.stage"
	File  string // as the user named it
	Line  int
	// Source is where the value came from when no line of a file gave it: "command line a.b=3". "" otherwise.
	Source string
	// Raw is a scalar as it was written; "" for JSON, but for the numbers that strict JSON lacks. It tells YAML's
	// unquoted NO, which is a boolean, from false.
	Raw string
}

// Origin is the file and line of the value, or its other source.
func (n *Node) Origin() string {
	if n.Source != "" {
		return n.Source
	}
	return n.File + ":" + strconv.Itoa(n.Line)
}

// Get follows keys into nested objects; nil when one of them is absent.
func (n *Node) Get(keys ...string) *Node {
	for _, key := range keys {
		if n == nil {
			return nil
		}
		fields, _ := n.Value.(map[string]*Node)
		n = fields[key]
	}
	return n
}

// First is the first of several spellings that is present.
func (n *Node) First(keys ...string) *Node {
	for _, key := range keys {
		if found := n.Get(key); found != nil {
			return found
		}
	}
	return nil
}

// Auto reports whether the value is the word "auto", which a framework fills in.
func (n *Node) Auto() bool { return n != nil && n.Value == "auto" }

// Integer accepts whole numbers in any spelling, 5e8 and "3" included: DeepSpeed and HF coerce both.
func (n *Node) Integer() (int64, error) {
	var text string
	switch v := n.Value.(type) {
	case json.Number:
		text = v.String()
	case string:
		text = v
	default:
		return 0, n.Wrong("a whole number")
	}
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return i, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) >= math.MaxInt64 {
		return 0, n.Wrong("a whole number")
	}
	return int64(f), nil
}

// Float accepts any number.
func (n *Node) Float() (float64, error) {
	switch v := n.Value.(type) {
	case json.Number:
		if f, err := v.Float64(); err == nil || math.IsInf(f, 0) { // 1e999 is infinite in Python too
			return f, nil
		}
	case string:
		if f, ok := notFinite(v); ok && n.Raw == v { // written without quotes
			return f, nil
		}
	}
	return 0, n.Wrong("a number")
}

// notFinite reads the infinities and not-a-number in the spellings of JSON as Python reads it, YAML and TOML.
func notFinite(word string) (float64, bool) {
	f, err := strconv.ParseFloat(strings.TrimPrefix(strings.Replace(strings.ToLower(word), ".", "", 1), "+"), 64)
	return f, math.IsInf(f, 0) || err == nil && math.IsNaN(f) // too large a number is an error and infinite
}

// Boolean accepts true, false and their spellings as words, which HF's fsdp_config uses.
func (n *Node) Boolean() (bool, error) {
	switch v := n.Value.(type) {
	case bool:
		return v, nil
	case string:
		if b, ok := ParseBool(v); ok {
			return b, nil
		}
	}
	return false, n.Wrong("true or false")
}

// Text is the value as one word; nested values have none.
func (n *Node) Text() (string, error) {
	switch v := n.Value.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	case bool:
		return strconv.FormatBool(v), nil
	}
	return "", n.Wrong("one word or number")
}

// Walk visits a value and all that is nested in it.
func (n *Node) Walk(visit func(*Node)) {
	visit(n)
	switch v := n.Value.(type) {
	case map[string]*Node:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			v[key].Walk(visit)
		}
	case []*Node:
		for _, item := range v {
			item.Walk(visit)
		}
	}
}

// Wrong says what stood there and what was needed.
func (n *Node) Wrong(need string) error {
	var got string
	switch v := n.Value.(type) {
	case map[string]*Node:
		got = "an object"
	case []*Node:
		got = "a list"
	case nil:
		got = "null"
	default:
		got = fmt.Sprintf("%q", fmt.Sprint(v))
	}
	name := n.Path
	if name == "" {
		name = "the document"
	}
	return fmt.Errorf("%s: %s is %s, need %s", n.Origin(), name, got, need)
}

// ParseBool reads the words that HfArgumentParser takes for a boolean.
func ParseBool(word string) (value, ok bool) {
	switch strings.ToLower(word) {
	case "yes", "true", "t", "y", "1":
		return true, true
	case "no", "false", "f", "n", "0":
		return false, true
	}
	return false, false
}

// Fields are the values of an object by key; ok is false for anything else.
func (n *Node) Fields() (fields map[string]*Node, ok bool) {
	if n == nil {
		return nil, false
	}
	fields, ok = n.Value.(map[string]*Node)
	return fields, ok
}

// Items are the values of a list; ok is false for anything else.
func (n *Node) Items() (items []*Node, ok bool) {
	if n == nil {
		return nil, false
	}
	items, ok = n.Value.([]*Node)
	return items, ok
}
