package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// maxFileBytes bounds what is read of one configuration file. Real ones have a few kilobytes.
	maxFileBytes = 4 << 20
	// maxDepth bounds the nesting of a JSON document; a DeepSpeed configuration has at most five levels.
	maxDepth = 100
)

// readConfig reads a whole configuration file of text. shown is the file's name in messages.
func readConfig(path, shown string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: no such file; correct the name, or run oomguard in the folder it is relative to", shown)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", shown, err)
	case info.IsDir():
		return nil, fmt.Errorf("%s: is a directory; name the configuration file in it", shown)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: is not a regular file; reading it would take its content from the training, so store it in a file", shown)
	case info.Size() > maxFileBytes:
		return nil, fmt.Errorf("%s: has %d bytes, more than the %d MiB that a configuration may have; check that it is the right file",
			shown, info.Size(), maxFileBytes>>20)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", shown, err)
	}
	defer file.Close()
	// The limit holds also for a file that grows while it is read.
	data, err := io.ReadAll(io.LimitReader(file, maxFileBytes))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", shown, err)
	}
	if bad := firstInvalid(data); bad >= 0 {
		line, column := position(data, bad)
		return nil, fmt.Errorf("%s:%d:%d: is not UTF-8 text (byte 0x%02x); save it as UTF-8", shown, line, column, data[bad])
	}
	return data, nil
}

// firstInvalid is the offset of the first byte that is not part of UTF-8, or -1.
func firstInvalid(data []byte) int {
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size <= 1 {
			return i
		}
		i += size
	}
	return -1
}

// position turns an offset into a line and a column (in bytes), both counted from 1.
func position(data []byte, offset int) (line, column int) {
	before := data[:min(offset, len(data))]
	return bytes.Count(before, []byte("\n")) + 1, len(before) - bytes.LastIndexByte(before, '\n')
}

// A node is one value of a JSON document that knows where it stood. Methods of a nil node report absence.
type node struct {
	value any    // map[string]*node, []*node, string, json.Number, bool or nil
	path  string // dotted keys: "zero_optimization.stage"
	file  string // as the user named it
	line  int
}

// origin is the file and line of the value.
func (n *node) origin() string {
	return n.file + ":" + strconv.Itoa(n.line)
}

// parseJSON reads one strict JSON document, as Python's json module accepts it. Duplicate keys do not stop it (the last one
// wins, as in Python); they are returned as problems beside the document.
func parseJSON(data []byte, shown string) (doc *node, problems []error, err error) {
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

func (p *jsonParser) parse(path string, depth int) (*node, error) {
	token, err := p.tokens.Token()
	if err != nil {
		return nil, fmt.Errorf("%s: read JSON: %w", p.shown, err)
	}
	n := &node{value: token, path: path, file: p.shown, line: p.lineHere()}
	delim, nested := token.(json.Delim)
	if !nested {
		return n, nil
	}
	if depth == maxDepth {
		return nil, fmt.Errorf("%s:%d: is nested more than %d levels deep; check that it is the right file", p.shown, n.line, maxDepth)
	}
	if delim == '{' {
		n.value, err = p.object(path, depth)
	} else {
		n.value, err = p.array(path, depth)
	}
	if err != nil {
		return nil, err
	}
	_, err = p.tokens.Token() // the closing delimiter
	return n, err
}

func (p *jsonParser) array(path string, depth int) ([]*node, error) {
	var items []*node
	for p.tokens.More() {
		item, err := p.parse(path, depth+1)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

func (p *jsonParser) object(path string, depth int) (map[string]*node, error) {
	fields := map[string]*node{}
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
			p.problems = append(p.problems, fmt.Errorf("%s:%d: key %q was given before in line %d; keep one of them", p.shown, keyLine, key, before.line))
		}
		fields[key] = field
	}
	return fields, nil
}

// get follows keys into nested objects; nil when one of them is absent.
func (n *node) get(keys ...string) *node {
	for _, key := range keys {
		if n == nil {
			return nil
		}
		fields, _ := n.value.(map[string]*node)
		n = fields[key]
	}
	return n
}

// first is the first of several spellings that is present.
func (n *node) first(keys ...string) *node {
	for _, key := range keys {
		if found := n.get(key); found != nil {
			return found
		}
	}
	return nil
}

// auto reports whether the value is the word "auto", which a framework fills in.
func (n *node) auto() bool { return n != nil && n.value == "auto" }

// integer accepts whole numbers in any spelling, 5e8 and "3" included: DeepSpeed and HF coerce both.
func (n *node) integer() (int64, error) {
	var text string
	switch v := n.value.(type) {
	case json.Number:
		text = v.String()
	case string:
		text = v
	default:
		return 0, n.wrong("a whole number")
	}
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return i, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) >= math.MaxInt64 {
		return 0, n.wrong("a whole number")
	}
	return int64(f), nil
}

// float accepts any number.
func (n *node) float() (float64, error) {
	if number, ok := n.value.(json.Number); ok {
		if f, err := number.Float64(); err == nil {
			return f, nil
		}
	}
	return 0, n.wrong("a number")
}

// boolean accepts true, false and their spellings as words, which HF's fsdp_config uses.
func (n *node) boolean() (bool, error) {
	switch v := n.value.(type) {
	case bool:
		return v, nil
	case string:
		if b, ok := parseBool(v); ok {
			return b, nil
		}
	}
	return false, n.wrong("true or false")
}

// text is the value as one word; nested values have none.
func (n *node) text() (string, error) {
	switch v := n.value.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	case bool:
		return strconv.FormatBool(v), nil
	}
	return "", n.wrong("one word or number")
}

// walk visits a value and all that is nested in it.
func (n *node) walk(visit func(*node)) {
	visit(n)
	switch v := n.value.(type) {
	case map[string]*node:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			v[key].walk(visit)
		}
	case []*node:
		for _, item := range v {
			item.walk(visit)
		}
	}
}

// wrong says what stood there and what was needed.
func (n *node) wrong(need string) error {
	var got string
	switch v := n.value.(type) {
	case map[string]*node:
		got = "an object"
	case []*node:
		got = "a list"
	case nil:
		got = "null"
	default:
		got = fmt.Sprintf("%q", fmt.Sprint(v))
	}
	name := n.path
	if name == "" {
		name = "the document"
	}
	return fmt.Errorf("%s: %s is %s, need %s", n.origin(), name, got, need)
}

// parseBool reads the words that HfArgumentParser takes for a boolean.
func parseBool(word string) (value, ok bool) {
	switch strings.ToLower(word) {
	case "yes", "true", "t", "y", "1":
		return true, true
	case "no", "false", "f", "n", "0":
		return false, true
	}
	return false, false
}
