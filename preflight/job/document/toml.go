package document

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// TOML reads one TOML document. Duplicate keys are errors there, as in Python's tomllib; there are no problems beside
// the document.
func TOML(data []byte, shown string) (doc *Node, problems []error, err error) {
	// The syntax tree does not know which keys may be repeated; the decoder does.
	var whole map[string]any
	if err := toml.Unmarshal(data, &whole); err != nil && !tooLarge(err) {
		return nil, nil, tomlError(shown, err)
	}
	p := &tomlParser{data: data, shown: shown, line: 1}
	p.tree.Reset(data)
	doc = &Node{Value: map[string]*Node{}, File: shown, Line: 1}
	table := doc
	for p.tree.NextExpression() {
		expression := p.tree.Expression()
		switch expression.Kind {
		case unstable.Table:
			table = p.descend(doc, expression.Key())
		case unstable.ArrayTable:
			table = p.element(doc, expression.Key())
		case unstable.KeyValue:
			if err := p.pair(table, expression, 0); err != nil {
				return nil, nil, err
			}
		default: // comments
		}
	}
	if err := p.tree.Error(); err != nil {
		return nil, nil, tomlError(shown, err)
	}
	return doc, nil, nil
}

// tooLarge tells a number beyond Go's types, which Python reads.
func tooLarge(err error) bool {
	return strings.Contains(err.Error(), "too large to fit") || strings.Contains(err.Error(), "value out of range")
}

func tomlError(shown string, err error) error {
	var broken *toml.DecodeError
	if errors.As(err, &broken) {
		line, column := broken.Position()
		return fmt.Errorf("%s:%d:%d: broken TOML: %s; correct it there", shown, line, column,
			strings.TrimPrefix(broken.Error(), "toml: "))
	}
	return fmt.Errorf("%s: broken TOML: %s; correct it", shown, strings.TrimPrefix(err.Error(), "toml: "))
}

type tomlParser struct {
	data  []byte
	shown string
	tree  unstable.Parser
	line  int // of offset seen
	seen  int
}

// at is the line of a place in the document. Places come in order but for the key of a pair after its value, so that
// each line is counted about once.
func (p *tomlParser) at(offset uint32) int {
	here := int(offset)
	if here < p.seen {
		p.line -= bytes.Count(p.data[here:p.seen], []byte("\n"))
	} else {
		p.line += bytes.Count(p.data[p.seen:here], []byte("\n"))
	}
	p.seen = here
	return p.line
}

// descend follows the words of a dotted key, making the tables that are missing; in a list of tables it enters the
// last.
func (p *tomlParser) descend(from *Node, keys unstable.Iterator) *Node {
	for keys.Next() {
		from = p.child(from, keys.Node())
	}
	return from
}

func (p *tomlParser) child(from *Node, key *unstable.Node) *Node {
	from = lastTable(from)
	fields, _ := from.Value.(map[string]*Node)
	name := string(key.Data)
	if fields[name] == nil {
		fields[name] = &Node{Value: map[string]*Node{}, Path: strings.TrimPrefix(from.Path+"."+name, "."),
			File: p.shown, Line: p.at(key.Raw.Offset)}
	}
	return lastTable(fields[name])
}

func lastTable(n *Node) *Node {
	if items, ok := n.Value.([]*Node); ok && len(items) > 0 {
		return items[len(items)-1]
	}
	return n
}

// element adds one table to the list that [[key]] names.
func (p *tomlParser) element(doc *Node, keys unstable.Iterator) *Node {
	from := doc
	for keys.Next() {
		key := keys.Node()
		if key.Next() != nil {
			from = p.child(from, key)
			continue
		}
		fields, _ := from.Value.(map[string]*Node)
		name, line := string(key.Data), p.at(key.Raw.Offset)
		path := strings.TrimPrefix(from.Path+"."+name, ".")
		if fields[name] == nil {
			fields[name] = &Node{Value: []*Node{}, Path: path, File: p.shown, Line: line}
		}
		items, _ := fields[name].Value.([]*Node)
		table := &Node{Value: map[string]*Node{}, Path: path, File: p.shown, Line: line}
		fields[name].Value = append(items, table)
		from = table
	}
	return from
}

// pair adds key = value to a table.
func (p *tomlParser) pair(table *Node, expression *unstable.Node, depth int) error {
	keys := expression.Key()
	for keys.Next() {
		key := keys.Node()
		if key.Next() != nil {
			table = p.child(table, key)
			continue
		}
		name, line := string(key.Data), p.at(key.Raw.Offset)
		value, err := p.value(expression.Value(), strings.TrimPrefix(table.Path+"."+name, "."), line, depth)
		if err != nil {
			return err
		}
		fields, _ := table.Value.(map[string]*Node)
		fields[name] = value
	}
	return nil
}

// value converts what stands right of =. Lists and tables have no place of their own in the tree and get that of their
// key.
func (p *tomlParser) value(n *unstable.Node, path string, line, depth int) (*Node, error) {
	if depth > maxDepth {
		return nil, Ours(fmt.Errorf("%s:%d: is nested more than %d levels deep; check that it is the right file",
			p.shown, line, maxDepth))
	}
	out := &Node{Path: path, File: p.shown, Line: line, Raw: string(n.Data)}
	switch n.Kind {
	case unstable.Bool:
		out.Value = string(n.Data) == "true"
	case unstable.Integer, unstable.Float:
		if number, ok := number(string(n.Data)); ok {
			out.Value = number
		} else {
			out.Value = string(n.Data)
		}
	case unstable.Array:
		items := []*Node{}
		children := n.Children()
		for children.Next() {
			if children.Node().Kind == unstable.Comment {
				continue
			}
			item, err := p.value(children.Node(), path, line, depth+1)
			if err != nil {
				return nil, err
			}
			items = append(items, item)
		}
		out.Value = items
	case unstable.InlineTable:
		out.Value = map[string]*Node{}
		pairs := n.Children()
		for pairs.Next() {
			if pairs.Node().Kind != unstable.KeyValue {
				continue
			}
			if err := p.pair(out, pairs.Node(), depth+1); err != nil {
				return nil, err
			}
		}
	default: // strings and dates
		out.Value = string(n.Data)
	}
	return out, nil
}
