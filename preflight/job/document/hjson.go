package document

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// HJSON reads one Hjson document, which DeepSpeed takes for its configuration: JSON that may have comments (#, //, /*
// */), commas that are missing or too many, keys and texts without quotes, and texts of several lines between three
// single quotes. The braces around the whole may be left out. Duplicate keys are problems (DeepSpeed refuses them).
func HJSON(data []byte, shown string) (doc *Node, problems []error, err error) {
	p := &hjsonParser{data: bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")), shown: shown, line: 1}
	p.skip()
	switch {
	case p.at("{") || p.at("["):
		doc, err = p.value("", 0)
	case len(p.data) == p.pos:
		return nil, nil, p.fail("is empty")
	default:
		doc = &Node{File: shown, Line: p.line}
		doc.Value, err = p.object("", 0, false)
	}
	if err != nil {
		return nil, nil, err
	}
	if p.skip(); p.pos < len(p.data) {
		return nil, nil, p.fail("the document has ended, but more follows")
	}
	return doc, p.problems, nil
}

type hjsonParser struct {
	data     []byte
	shown    string
	pos      int
	line     int
	problems []error
}

func (p *hjsonParser) fail(format string, args ...any) error {
	_, column := position(p.data, p.pos)
	return fmt.Errorf("%s:%d:%d: broken JSON (as hjson reads it): %s; correct it there", p.shown, p.line, column,
		fmt.Sprintf(format, args...))
}

func (p *hjsonParser) at(text string) bool { return bytes.HasPrefix(p.data[p.pos:], []byte(text)) }

// advance moves over n bytes and counts their lines.
func (p *hjsonParser) advance(n int) []byte {
	over := p.data[p.pos : p.pos+n]
	p.line += bytes.Count(over, []byte("\n"))
	p.pos += n
	return over
}

// upTo is the number of bytes before any of the marks, or up to the end.
func (p *hjsonParser) upTo(marks string) int {
	if n := bytes.IndexAny(p.data[p.pos:], marks); n >= 0 {
		return n
	}
	return len(p.data) - p.pos
}

// skip moves over space and comments.
func (p *hjsonParser) skip() {
	for p.pos < len(p.data) {
		switch {
		case strings.IndexByte(" \t\r\n", p.data[p.pos]) >= 0:
			p.advance(1)
		case p.at("#"), p.at("//"):
			p.advance(p.upTo("\n"))
		case p.at("/*"):
			n := bytes.Index(p.data[p.pos:], []byte("*/"))
			if n < 0 {
				return // what follows is refused as a key or value
			}
			p.advance(n + len("*/"))
		default:
			return
		}
	}
}

func (p *hjsonParser) value(path string, depth int) (*Node, error) {
	if depth > maxDepth {
		return nil, Ours(fmt.Errorf("%s:%d: is nested more than %d levels deep; check that it is the right file",
			p.shown, p.line, maxDepth))
	}
	n := &Node{Path: path, File: p.shown, Line: p.line}
	var err error
	switch {
	case p.pos == len(p.data):
		return nil, p.fail("ends where a value should stand")
	case p.at("{"):
		p.advance(1)
		n.Value, err = p.object(path, depth, true)
	case p.at("["):
		p.advance(1)
		n.Value, err = p.array(path, depth)
	case p.at("'''"):
		n.Value, err = p.multiline()
	case p.at(`"`), p.at("'"):
		n.Value, err = p.quoted()
	default:
		n.Value, err = p.bare()
	}
	return n, err
}

// object reads pairs up to the closing brace, or to the end of the document when no brace was opened.
func (p *hjsonParser) object(path string, depth int, braces bool) (map[string]*Node, error) {
	fields := map[string]*Node{}
	start := p.line
	for {
		p.skip()
		switch {
		case p.pos == len(p.data) && braces:
			return nil, p.fail("ends before the brace of line %d is closed", start)
		case p.pos == len(p.data):
			return fields, nil
		case p.at("}") && braces:
			p.advance(1)
			return fields, nil
		}
		line := p.line
		key, err := p.key()
		if err != nil {
			return nil, err
		}
		p.skip()
		field, err := p.value(strings.TrimPrefix(path+"."+key, "."), depth+1)
		if err != nil {
			return nil, err
		}
		if before := fields[key]; before != nil {
			p.problems = append(p.problems,
				fmt.Errorf("%s:%d: key %q was given before in line %d; keep one of them", p.shown, line, key,
					before.Line))
		}
		fields[key] = field
		p.comma()
	}
}

func (p *hjsonParser) array(path string, depth int) ([]*Node, error) {
	items := []*Node{}
	start := p.line
	for {
		p.skip()
		switch {
		case p.pos == len(p.data):
			return nil, p.fail("ends before the bracket of line %d is closed", start)
		case p.at("]"):
			p.advance(1)
			return items, nil
		}
		item, err := p.value(path, depth+1)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
		p.comma()
	}
}

func (p *hjsonParser) comma() {
	if p.skip(); p.at(",") {
		p.advance(1)
	}
}

// key reads a key and the colon after it.
func (p *hjsonParser) key() (key string, err error) {
	if p.at(`"`) || p.at("'") {
		key, err = p.quoted()
	} else {
		key = string(p.advance(p.upTo(" \t\r\n,:[]{}")))
		if key == "" {
			err = p.fail("a key should stand here")
		}
	}
	if err != nil {
		return "", err
	}
	if p.skip(); !p.at(":") {
		return "", p.fail("a colon should follow the key %q", key)
	}
	p.advance(1)
	return key, nil
}

// quoted reads a text between quotes with the escapes of JSON.
func (p *hjsonParser) quoted() (string, error) {
	quote := p.data[p.pos]
	end := p.pos + 1
	for end < len(p.data) && p.data[end] != quote {
		if p.data[end] == '\n' {
			break
		}
		if p.data[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(p.data) || p.data[end] != quote {
		return "", p.fail("the quote is not closed in its line")
	}
	inside := string(p.data[p.pos+1 : end])
	if quote == '\'' {
		inside = strings.ReplaceAll(strings.ReplaceAll(inside, `\'`, `'`), `"`, `\"`)
	}
	// hjson takes control characters inside quotes, such as a tab, which JSON does not.
	inside = strings.ReplaceAll(inside, "\t", `\t`)
	var text string
	if err := json.Unmarshal([]byte(`"`+inside+`"`), &text); err != nil {
		return "", p.fail("the text in quotes has a wrong escape")
	}
	p.advance(end + 1 - p.pos)
	return text, nil
}

// multiline reads a text between three single quotes and takes off the indentation that its opening has.
func (p *hjsonParser) multiline() (string, error) {
	_, column := position(p.data, p.pos)
	n := bytes.Index(p.data[p.pos+3:], []byte("'''"))
	if n < 0 {
		return "", p.fail("''' is not closed")
	}
	text := strings.ReplaceAll(string(p.advance(n + 6)[3:n+3]), "\r", "")
	lines := strings.Split(text, "\n")
	for i := range lines[1:] {
		line := lines[i+1]
		indent := len(line) - len(strings.TrimLeft(line, " \t"))
		lines[i+1] = line[min(indent, column-1):]
	}
	if strings.TrimSpace(lines[0]) == "" {
		lines = lines[1:]
	}
	return strings.TrimSuffix(strings.Join(lines, "\n"), "\n"), nil
}

// literal is a number or word that ends at a mark or a comment; anything else without quotes is a text up to the end of
// its line.
var literal = regexp.MustCompile(`^(true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)[ \t]*(?:[,\]}#\r\n]|//|/\*|$)`)

// bare reads a value without quotes.
func (p *hjsonParser) bare() (any, error) {
	line := p.data[p.pos : p.pos+p.upTo("\n")]
	if found := literal.FindSubmatch(line); found != nil {
		word := string(p.advance(len(found[1])))
		switch word {
		case "null":
			return nil, nil
		case "true", "false":
			return strconv.ParseBool(word)
		}
		return json.Number(word), nil
	}
	text := strings.TrimSpace(string(line))
	if text == "" || strings.IndexByte("{}[],:", text[0]) >= 0 || !utf8.ValidString(text) {
		return nil, p.fail("a value should stand here")
	}
	p.advance(len(line))
	return text, nil
}
