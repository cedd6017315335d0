package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"oomguard/launcher/fence"
)

// maxYAMLNodes bounds what a document may grow to when its aliases are written out: a few lines of nested aliases stand
// for billions of values. Configurations have some hundred.
const maxYAMLNodes = 1 << 17

// YAML reads one YAML document with the habits of PyYAML, which the frameworks read it with: yes, no, on and off are
// booleans, anchors are written out and << merges them, the last of duplicate keys wins. Different from PyYAML, 2e-5 is
// a number, as it was meant, and of several documents the first is read; that is a problem.
func YAML(data []byte, shown string) (doc *Node, problems []error, err error) {
	// the library panics on some broken documents that it should refuse
	if fault := fence.Do("parsing YAML", func() { doc, problems, err = parseYAML(data, shown) }); fault != nil {
		return nil, nil, Ours(fmt.Errorf("%s: broken YAML: %s; correct the file", shown, fault.What))
	}
	return doc, problems, err
}

func parseYAML(data []byte, shown string) (doc *Node, problems []error, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(withoutDirectives(data)))
	var root yaml.Node
	err = decoder.Decode(&root)
	if escaped := bytes.Contains(data, []byte(`\/`)); err != nil && escaped &&
		strings.Contains(err.Error(), "unknown escape character") {
		// as JSON may write it, and PyYAML reads it
		return parseYAML(bytes.ReplaceAll(data, []byte(`\/`), []byte("/")), shown)
	}
	if errors.Is(err, io.EOF) {
		return &Node{File: shown, Line: 1}, nil, nil
	} else if err != nil {
		return nil, nil, yamlError(shown, err)
	}
	p := &yamlParser{shown: shown, open: map[*yaml.Node]bool{}}
	if doc, err = p.convert(&root, "", 0); err != nil {
		return nil, nil, err
	}
	var next yaml.Node
	if err := decoder.Decode(&next); err == nil {
		p.problem(&next, "a second document starts; only the first is read, and PyYAML refuses such a file: keep one")
	} else if !errors.Is(err, io.EOF) {
		return nil, nil, yamlError(shown, err)
	}
	return doc, p.problems, nil
}

// withoutDirectives makes a comment of a directive such as the one that names the version of YAML: PyYAML reads all
// versions alike and passes over what it does not know, the library does not. The directive for tags means the same to
// both.
func withoutDirectives(data []byte) []byte {
	data = bytes.Clone(data)
	for at := 0; at < len(data); {
		line := data[at:]
		switch {
		case bytes.HasPrefix(line, []byte("%")) && !bytes.HasPrefix(line, []byte("%TAG")):
			data[at] = '#'
		case bytes.HasPrefix(line, []byte("%")):
		case !bytes.HasPrefix(line, []byte("#")) && len(bytes.TrimSpace(firstLine(line))) > 0:
			return data
		}
		at += len(firstLine(line))
	}
	return data
}

// firstLine is the text up to its first newline, with it.
func firstLine(text []byte) []byte {
	if i := bytes.IndexByte(text, '\n'); i >= 0 {
		return text[:i+1]
	}
	return text
}

// yamlPlace is how the library names the line of an error.
var yamlPlace = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

func yamlError(shown string, err error) error {
	text := err.Error()
	place := shown
	if found := yamlPlace.FindStringSubmatch(text); found != nil {
		text = text[len(found[0]):]
		if found[1] != "" {
			place += ":" + found[1]
		}
	}
	return fmt.Errorf("%s: broken YAML: %s; correct it there (indent with spaces, quote text that has : or #)", place,
		text)
}

type yamlParser struct {
	shown    string
	count    int
	open     map[*yaml.Node]bool // anchored values that are being written out
	problems []error
}

func (p *yamlParser) problem(at *yaml.Node, format string, args ...any) {
	p.problems = append(p.problems, fmt.Errorf("%s:%d: "+format, append([]any{p.shown, at.Line}, args...)...))
}

func (p *yamlParser) fail(at *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("%s:%d: "+format, append([]any{p.shown, at.Line}, args...)...)
}

func (p *yamlParser) convert(n *yaml.Node, path string, depth int) (*Node, error) {
	if p.count++; p.count > maxYAMLNodes {
		return nil, Ours(p.fail(n, "has more than %d values when its aliases are written out; check that it is the "+
			"right file", maxYAMLNodes))
	}
	if depth > maxDepth {
		return nil, Ours(p.fail(n, "is nested more than %d levels deep; check that it is the right file", maxDepth))
	}
	out := &Node{Path: path, File: p.shown, Line: n.Line}
	var err error
	switch n.Kind {
	case yaml.DocumentNode:
		return p.convert(n.Content[0], path, depth)
	case yaml.AliasNode:
		if p.open[n.Alias] {
			return nil, p.fail(n, "*%s stands inside the value that it names; take it out", n.Value)
		}
		return p.convert(n.Alias, path, depth+1)
	case yaml.ScalarNode:
		out.Raw = n.Value
		out.Value = p.scalar(n)
		return out, nil
	default: // what has values inside
	}
	if tag := n.ShortTag(); n.Style&yaml.TaggedStyle != 0 &&
		!slices.Contains([]string{"!!seq", "!!map", "!!set", "!!omap", "!!pairs"}, tag) {
		p.problem(n, "tag %s is not read, and yaml.safe_load refuses it", tag)
	}
	p.open[n] = true
	defer delete(p.open, n)
	if n.Kind == yaml.SequenceNode {
		out.Value, err = p.sequence(n, path, depth)
	} else {
		out.Value, err = p.mapping(n, path, depth)
	}
	return out, err
}

func (p *yamlParser) sequence(n *yaml.Node, path string, depth int) ([]*Node, error) {
	items := make([]*Node, 0, len(n.Content))
	for _, c := range n.Content {
		item, err := p.convert(c, path, depth+1)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

// mapping converts the pairs of n: its own keys win over merged ones, wherever << stands.
func (p *yamlParser) mapping(n *yaml.Node, path string, depth int) (map[string]*Node, error) {
	fields := map[string]*Node{}
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		switch {
		case key.Kind != yaml.ScalarNode:
			p.problem(key, "a key is a list or an object; it is left out, since settings have names")
			continue
		case key.Value == "<<" && plain(key):
			merged = append(merged, value)
			continue
		}
		field, err := p.convert(value, strings.TrimPrefix(path+"."+key.Value, "."), depth+1)
		if err != nil {
			return nil, err
		}
		fields[key.Value] = field // of equal keys the last one counts
	}
	for _, m := range merged {
		if err := p.merge(fields, m, path, depth); err != nil {
			return nil, err
		}
	}
	return fields, nil
}

// merge adds what << names: an object or a list of objects, of which the first that has a key gives it.
func (p *yamlParser) merge(fields map[string]*Node, from *yaml.Node, path string, depth int) error {
	if from.Kind == yaml.SequenceNode {
		for _, item := range from.Content {
			if err := p.merge(fields, item, path, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	node, err := p.convert(from, path, depth+1)
	if err != nil {
		return err
	}
	more, ok := node.Value.(map[string]*Node)
	if !ok {
		return p.fail(from, "<< needs an object with keys, such as an alias of one")
	}
	for key, field := range more {
		if fields[key] == nil {
			fields[key] = field
		}
	}
	return nil
}

// plain reports whether a scalar stands without quotes and without a tag of its own.
func plain(n *yaml.Node) bool {
	const marked = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle |
		yaml.TaggedStyle
	return n.Style&marked == 0
}

// scalar gives a word its type.
func (p *yamlParser) scalar(n *yaml.Node) any {
	if plain(n) {
		if b, ok := yaml11Bool(n.Value); ok {
			return b
		}
		if number, ok := sexagesimal(n.Value); ok {
			return number
		}
		if yamlText.MatchString(n.Value) {
			return n.Value
		}
	}
	switch tag := n.ShortTag(); tag {
	case "!!null":
		return nil
	case "!!bool":
		if b, ok := yaml11Bool(n.Value); ok {
			return b
		}
	case "!!int", "!!float":
		if number, ok := number(n.Value); ok {
			return number
		}
	case "!!str", "!!timestamp", "!!binary", "!!merge":
	default:
		p.problem(n, "tag %s is not read; the value is taken as text", tag)
	}
	return n.Value
}

// yaml11Bool reads the booleans of YAML 1.1 in the spellings of PyYAML's resolver (y and n alone are text there).
func yaml11Bool(word string) (value, ok bool) {
	switch word {
	case "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON":
		return true, true
	case "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF":
		return false, true
	}
	return false, false
}

// sexagesimals are the numbers of YAML 1.1 to the base of 60, of which 1:30 is 90; yamlText looks like a number and is
// none to PyYAML.
var (
	sexagesimals = regexp.MustCompile(`^[-+]?(?:[1-9][0-9_]*(?::[0-5]?[0-9])+|[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*)$`)
	yamlText     = regexp.MustCompile(`^[-+]?0(?:[0-9_]*[89][0-9_]*|[oO].*)$`)
)

func sexagesimal(word string) (json.Number, bool) {
	if !sexagesimals.MatchString(word) {
		return "", false
	}
	digits := strings.ReplaceAll(strings.TrimLeft(word, "+-"), "_", "")
	sum := 0.0
	for part := range strings.SplitSeq(digits, ":") {
		f, err := strconv.ParseFloat(part, 64)
		if err != nil {
			return "", false
		}
		sum = 60*sum + f
	}
	if strings.HasPrefix(word, "-") {
		sum = -sum
	}
	return json.Number(strconv.FormatFloat(sum, 'g', -1, 64)), true
}

// number brings the spellings of YAML and TOML (1_000, +1, 0x10, 0o17, .5, 5.) into that of JSON. Infinities and
// not-a-number have none and stay text.
func number(text string) (json.Number, bool) {
	digits := strings.ReplaceAll(text, "_", "")
	if i, err := strconv.ParseInt(digits, 0, 64); err == nil {
		return json.Number(strconv.FormatInt(i, 10)), true
	}
	f, err := strconv.ParseFloat(digits, 64)
	if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
		return "", false
	}
	if json.Valid([]byte(digits)) {
		return json.Number(digits), true
	}
	return json.Number(strconv.FormatFloat(f, 'g', -1, 64)), true
}
