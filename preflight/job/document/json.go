package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"oomguard/preflight/pyjson"
)

// JSON reads one JSON document as Python's json module does: see pyjson. There are no problems beside the document.
func JSON(data []byte, shown string) (doc *Node, problems []error, err error) {
	if bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) {
		return nil, nil, fmt.Errorf("%s: starts with a byte order mark, which Python's json refuses; save it "+
			"without one", shown)
	}
	text, err := pyjson.Read(data)
	if err != nil {
		return nil, nil, syntaxError(data, shown, err)
	}
	p := &jsonParser{data: data, text: text, shown: shown, tokens: json.NewDecoder(bytes.NewReader(text.Strict)),
		line: 1}
	p.tokens.UseNumber()
	doc, err = p.parse("", 0)
	return doc, nil, err
}

func syntaxError(data []byte, shown string, err error) error {
	var syntax *pyjson.Error
	if !errors.As(err, &syntax) {
		return fmt.Errorf("%s: read JSON: %w", shown, err)
	}
	line, column := position(data, min(syntax.Offset, max(0, len(data)-1)))
	return fmt.Errorf("%s:%d:%d: broken JSON: %w; correct it there (strict JSON has no comments and "+
		"no trailing commas)", shown, line, column, err)
}

type jsonParser struct {
	data   []byte
	text   pyjson.Text
	shown  string
	tokens *json.Decoder
	line   int // of offset seen
	seen   int
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
	if number := p.text.Number(int(p.tokens.InputOffset()) - 1); number != "" {
		n.Value, n.Raw = number, number
		_, err = p.tokens.Token() // of the empty list in its place
		return n, err
	}
	if depth == pyjson.MaxDepth {
		return nil, fmt.Errorf("%s:%d: is nested more than %d levels deep, which Python refuses; check that it is "+
			"the right file", p.shown, n.Line, pyjson.MaxDepth)
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
		field, err := p.parse(strings.TrimPrefix(path+"."+key, "."), depth+1)
		if err != nil {
			return nil, err
		}
		fields[key] = field // of equal keys the last one counts
	}
	return fields, nil
}
