package checklists

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// document is one checklist file before what it extends is known.
type document struct {
	file                 string
	name, title, extends string
	requireAnswer        *bool   // nil when the file does not say
	entries              []Entry // Severity "" when the file does not say
	drop                 []dropped
}

type dropped struct {
	id     string
	origin string
}

// parse reads one YAML document. It walks the nodes itself instead of decoding into a struct, so that every error names
// file, line and the fields that are known.
func parse(file string, data []byte) (document, error) {
	doc := document{file: file}
	if !utf8.Valid(data) {
		return doc, fmt.Errorf("%s: not UTF-8 text; a checklist is a YAML file", file)
	}
	var root yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	if err := decoder.Decode(&root); errors.Is(err, io.EOF) {
		return doc, fmt.Errorf("%s: empty; a checklist has at least \"checks\" or \"extends\"", file)
	} else if err != nil {
		return doc, fmt.Errorf("%s: %w", file, err)
	}
	if err := decoder.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return doc, fmt.Errorf("%s: more than one YAML document; keep one checklist a file", file)
	}
	fields, err := doc.mapping(root.Content[0], "a checklist", "name", "title", "extends", "require_answer", "checks",
		"drop")
	if err != nil {
		return doc, err
	}
	for _, f := range []struct {
		name string
		to   *string
	}{{"name", &doc.name}, {"title", &doc.title}, {"extends", &doc.extends}} {
		if n := fields[f.name]; n != nil {
			if *f.to, err = doc.text(n, f.name); err != nil {
				return doc, err
			}
		}
	}
	if n := fields["require_answer"]; n != nil {
		if doc.requireAnswer, err = doc.yesNo(n, "require_answer"); err != nil {
			return doc, err
		}
	}
	if err := doc.readChecks(fields["checks"]); err != nil {
		return doc, err
	}
	if err := doc.readDrop(fields["drop"]); err != nil {
		return doc, err
	}
	return doc, doc.notEmpty()
}

func (d *document) notEmpty() error {
	if len(d.entries) == 0 && d.extends == "" {
		return fmt.Errorf("%s: no checks; list some under \"checks\" or say which list it extends", d.file)
	}
	if len(d.drop) > 0 && d.extends == "" {
		return fmt.Errorf("%s: drop without extends; leave the check out of checks: instead", d.drop[0].origin)
	}
	return nil
}

func (d *document) readChecks(n *yaml.Node) error {
	items, err := d.sequence(n, "checks")
	if err != nil {
		return err
	}
	seen := map[string]string{}
	for _, item := range items {
		e, err := d.entry(item)
		if err != nil {
			return err
		}
		if first, twice := seen[e.ID]; twice {
			return fmt.Errorf("%s: check %s is listed twice (first at %s)", e.Origin, e.ID, first)
		}
		seen[e.ID] = e.Origin
		d.entries = append(d.entries, e)
	}
	return nil
}

func (d *document) readDrop(n *yaml.Node) error {
	items, err := d.sequence(n, "drop")
	if err != nil {
		return err
	}
	for _, item := range items {
		id, err := d.text(item, "drop")
		if err != nil {
			return err
		}
		d.drop = append(d.drop, dropped{id, d.at(item)})
	}
	return nil
}

// entry reads {id, severity, with}.
func (d *document) entry(n *yaml.Node) (Entry, error) {
	e := Entry{Origin: d.at(n)}
	fields, err := d.mapping(n, "a check", "id", "severity", "with")
	if err != nil {
		return e, err
	}
	if fields["id"] == nil {
		return e, d.errorf(n, "a check without id")
	}
	if e.ID, err = d.text(fields["id"], "id"); err != nil {
		return e, err
	}
	if s := fields["severity"]; s != nil {
		text, err := d.text(s, "severity")
		if err != nil {
			return e, err
		}
		if e.Severity = Status(text); e.Severity != Fail && e.Severity != Warn {
			return e, d.errorf(s, "severity %q of %s; it is fail or warn", text, e.ID)
		}
	}
	if fields["with"] != nil {
		e.With, err = d.params(fields["with"])
	}
	return e, err
}

func (d *document) params(n *yaml.Node) (Params, error) {
	fields, err := d.mapping(n, "with")
	if err != nil {
		return nil, err
	}
	params := make(Params, len(fields))
	for name, v := range fields {
		x, err := strconv.ParseFloat(resolved(v).Value, 64)
		if err != nil || resolved(v).Kind != yaml.ScalarNode || math.IsNaN(x) || math.IsInf(x, 0) || x < 0 {
			return nil, d.errorf(v, "threshold %s is not a number from 0 up", name)
		}
		params[name] = x
	}
	return params, nil
}

// mapping gives a mapping's values by key; it refuses repeated keys and, when some are given, keys that are not known.
func (d *document) mapping(n *yaml.Node, what string, known ...string) (map[string]*yaml.Node, error) {
	n = resolved(n)
	if n.Kind != yaml.MappingNode {
		return nil, d.errorf(n, "%s must be a mapping (name: value)", what)
	}
	fields := make(map[string]*yaml.Node, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if len(known) > 0 && !slices.Contains(known, key.Value) {
			return nil, d.errorf(key, "unknown field %q in %s; known: %s", key.Value, what, strings.Join(known, ", "))
		}
		if fields[key.Value] != nil {
			return nil, d.errorf(key, "field %q twice in %s", key.Value, what)
		}
		fields[key.Value] = n.Content[i+1]
	}
	return fields, nil
}

// sequence gives a list's items; a missing or empty field has none.
func (d *document) sequence(n *yaml.Node, what string) ([]*yaml.Node, error) {
	if n == nil || resolved(n).Tag == "!!null" {
		return nil, nil
	}
	if n = resolved(n); n.Kind != yaml.SequenceNode {
		return nil, d.errorf(n, "%s must be a list (lines that begin with -)", what)
	}
	return n.Content, nil
}

func (d *document) text(n *yaml.Node, what string) (string, error) {
	if n = resolved(n); n.Kind != yaml.ScalarNode || n.Value == "" {
		return "", d.errorf(n, "%s must be a word", what)
	}
	return n.Value, nil
}

func (d *document) yesNo(n *yaml.Node, what string) (*bool, error) {
	var yes bool
	if n = resolved(n); n.Tag != "!!bool" || n.Decode(&yes) != nil {
		return nil, d.errorf(n, "%s must be true or false", what)
	}
	return &yes, nil
}

func (d *document) at(n *yaml.Node) string { return fmt.Sprintf("%s:%d", d.file, n.Line) }

func (d *document) errorf(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("%s: %s", d.at(n), fmt.Sprintf(format, args...))
}

// resolved follows a YAML alias.
func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// applyTo puts what the file says on top of the entries it inherits.
func (d document) applyTo(list List) (List, error) {
	list.Entries = slices.Clone(list.Entries)
	for _, gone := range d.drop {
		i := slices.IndexFunc(list.Entries, func(e Entry) bool { return e.ID == gone.id })
		if i < 0 {
			return List{}, fmt.Errorf("%s: drop names %q, which %s does not have", gone.origin, gone.id, d.extends)
		}
		list.Entries = slices.Delete(list.Entries, i, i+1)
	}
	for _, e := range d.entries {
		i := slices.IndexFunc(list.Entries, func(b Entry) bool { return b.ID == e.ID })
		if i < 0 {
			if e.Severity == "" {
				e.Severity = Fail
			}
			list.Entries = append(list.Entries, e)
			continue
		}
		base := list.Entries[i]
		if e.Severity == "" {
			e.Severity = base.Severity
		}
		e.With = merge(base.With, e.With)
		list.Entries[i] = e
	}
	return list, nil
}
