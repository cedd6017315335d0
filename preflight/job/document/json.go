package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// JSON reads one strict JSON document, as Python's json module accepts it. Duplicate keys do not stop it (the last one
// wins, as in Python); they are returned as problems beside the document.
func JSON(data []byte, shown string) (doc *Node, problems []error, err error) {
	if bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) {
		return nil, nil, fmt.Errorf("%s: starts with a byte order mark, which Python's json refuses; save it without one", shown)
	}
	var whole json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil {
		return nil, nil, syntaxError(data, shown, err)
	}
	p := &jsonParser{data: data, shown: shown, tokens: json.NewDecoder(bytes.NewReader(data)), line: 1}
	p.tokens.UseNumber()
	doc, err = p.parse("", 0)
	return doc, p.problems, err
}

func syntaxError(data []byte, shown string, err error) error {
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return fmt.Errorf("%s: read JSON: %w", shown, err)
	}
	// The offset counts the offending byte as read.
	line, column := position(data, max(0, int(syntax.Offset)-1))
	return fmt.Errorf("%s:%d:%d: broken JSON: %w; correct it there (strict JSON has no comments and no trailing commas)", shown, line, column, err)
}

type jsonParser struct {
	data     []byte
	shown    string
	tokens   *json.Decoder
	line     int // of offset seen
	seen     int
	problems []error
}

// lineHere counts the lines up to the decoder's position; it moves forward only, so a document is counted once.
func (p *jsonParser) lineHere() int {
	here := int(p.tokens.InputOffset())
	p.line += bytes.Count(p.data[p.seen:here], []byte("\n"))
	p.seen = here
	return p.line
}

func (p *jsonParser) parse(path string, depth int) (*Node, error) {
	token, err := p.tokens.Token()
	if err != nil {
		return nil, fmt.Errorf("%s: read JSON: %w", p.shown, err)
	}
	n := &Node{Value: token, Path: path, File: p.shown, Line: p.lineHere()}
	delim, nested := token.(json.Delim)
	if !nested {
		return n, nil
	}
	if depth == maxDepth {
		return nil, fmt.Errorf("%s:%d: is nested more than %d levels deep; check that it is the right file", p.shown, n.Line, maxDepth)
	}
	if delim == '{' {
		n.Value, err = p.object(path, depth)
	} else {
		n.Value, err = p.array(path, depth)
	}
	if err != nil {
		return nil, err
	}
	_, err = p.tokens.Token() // the closing delimiter
	return n, err
}

func (p *jsonParser) array(path string, depth int) ([]*Node, error) {
	var items []*Node
	for p.tokens.More() {
		item, err := p.parse(path, depth+1)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

func (p *jsonParser) object(path string, depth int) (map[string]*Node, error) {
	fields := map[string]*Node{}
	for p.tokens.More() {
		token, err := p.tokens.Token()
		if err != nil {
			return nil, fmt.Errorf("%s: read JSON: %w", p.shown, err)
		}
		key, _ := token.(string) // the decoder has checked that keys are strings
		keyLine := p.lineHere()
		field, err := p.parse(strings.TrimPrefix(path+"."+key, "."), depth+1)
		if err != nil {
			return nil, err
		}
		if before := fields[key]; before != nil {
			p.problems = append(p.problems, fmt.Errorf("%s:%d: key %q was given before in line %d; keep one of them", p.shown, keyLine, key, before.Line))
		}
		fields[key] = field
	}
	return fields, nil
}
