package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// object is a JSON object whose members remember where they stand in the file.
type object struct {
	source  string
	file    []byte // the whole file, for positions
	members map[string]member
}

// member is one value of an object: its JSON text and the offset of its key in the file.
type member struct {
	text   json.RawMessage
	offset int
}

// parseObject reads the whole of data as one JSON object. Every error names source, the place and what to do.
func parseObject(data []byte, source string) (*object, error) {
	o := &object{source: source, file: data}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, fmt.Errorf("%s is empty: it should hold the JSON object of a model's config.json", source)
	}
	if bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) {
		return nil, fmt.Errorf("%s starts with a byte order mark, which transformers refuses: save it as plain UTF-8", source)
	}
	if at := firstInvalid(data); at >= 0 {
		return nil, fmt.Errorf("%s: byte 0x%02x is not UTF-8: save the file as UTF-8, or fetch it again if it is not text",
			o.place(at), data[at])
	}
	var whole json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil {
		at := len(data) // of a file that is cut off
		if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) && !strings.Contains(err.Error(), "unexpected end") {
			at = max(int(syntax.Offset)-1, 0) // Offset counts the offending byte
		}
		return nil, fmt.Errorf("%s: broken JSON: %w: correct the file, or copy config.json again from the model it belongs to",
			o.place(at), err)
	}
	if err := o.read(data, 0); err != nil {
		return nil, err
	}
	return o, nil
}

// nested is the object under key, or nil when it is absent or null.
func (o *object) nested(key string) (*object, error) {
	m, ok := o.members[key]
	if !ok || string(m.text) == "null" {
		return nil, nil
	}
	inner := &object{source: o.source, file: o.file}
	start := m.offset + bytes.Index(o.file[m.offset:], m.text)
	if err := inner.read(m.text, start); err != nil {
		return nil, err
	}
	return inner, nil
}

// read fills the members from text, well-formed JSON that begins at offset base of the file.
func (o *object) read(text []byte, base int) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	if start, err := decoder.Token(); err != nil || start != json.Delim('{') {
		return fmt.Errorf("%s: found %s, want a JSON object {...}", o.place(base), kind(bytes.TrimSpace(text)))
	}
	o.members = map[string]member{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return fmt.Errorf("%s: %w", o.place(base+int(decoder.InputOffset())), err)
		}
		key, _ := token.(string) // a key always is: the text is well-formed
		end := base + int(decoder.InputOffset())
		m := member{offset: bytes.LastIndexByte(o.file[:end-1], '"')}
		if err := decoder.Decode(&m.text); err != nil {
			return fmt.Errorf("%s: %w", o.place(end), err)
		}
		if earlier, twice := o.members[key]; twice && !sameJSON(earlier.text, m.text) {
			return fmt.Errorf("%s: key %q is here for the second time with another value (first at %s): delete the wrong one",
				o.place(m.offset), key, o.place(earlier.offset))
		}
		o.members[key] = m
	}
	return nil
}

// place renders an offset as file:line:column, columns counted in characters from 1.
func (o *object) place(offset int) string {
	before := o.file[:min(offset, len(o.file))]
	line := bytes.Count(before, []byte("\n")) + 1
	column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
	return fmt.Sprintf("%s:%d:%d", o.source, line, column)
}

// firstInvalid is the offset of the first byte that is not UTF-8, or -1.
func firstInvalid(data []byte) int {
	if utf8.Valid(data) {
		return -1
	}
	for at := 0; at < len(data); {
		r, size := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && size == 1 {
			return at
		}
		at += size
	}
	return -1
}

func sameJSON(a, b json.RawMessage) bool {
	var left, right bytes.Buffer
	return json.Compact(&left, a) == nil && json.Compact(&right, b) == nil && bytes.Equal(left.Bytes(), right.Bytes())
}

// kind names the type of a JSON value for people.
func kind(text []byte) string {
	names := map[byte]string{'{': "an object", '[': "a list", '"': "a string", 't': "true", 'f': "false", 'n': "null"}
	if len(text) > 0 {
		if name, ok := names[text[0]]; ok {
			return name
		}
	}
	return "a number"
}
