package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"oomguard/preflight/pyjson"
)

// object is a JSON object whose members remember where they stand in the file.
type object struct {
	source  string
	file    []byte      // the whole file, for positions
	strict  pyjson.Text // the same for Go's decoder
	members map[string]member
}

// member is one value of an object: its JSON text, and the offsets of its key and of itself in the file.
type member struct {
	text          json.RawMessage
	offset, start int
}

// parseObject reads the whole of data as one JSON object. Every error names source, the place and what to do.
func parseObject(data []byte, source string) (*object, error) {
	o := &object{source: source, file: data}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, fmt.Errorf("%s is empty: it should hold the JSON object of a model's config.json", source)
	}
	if bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) {
		return nil, fmt.Errorf("%s starts with a byte order mark, which transformers refuses: save it as plain UTF-8",
			source)
	}
	if at := firstInvalid(data); at >= 0 {
		return nil, fmt.Errorf("%s: byte 0x%02x is not UTF-8: save the file as UTF-8, or fetch it again if it is "+
			"not text",
			o.place(at), data[at])
	}
	text, err := pyjson.Read(data)
	if err != nil {
		at := 0
		if broken := (*pyjson.Error)(nil); errors.As(err, &broken) {
			at = broken.Offset
		}
		return nil, fmt.Errorf("%s: broken JSON: %w: correct the file, or copy config.json again from the model it "+
			"belongs to",
			o.place(at), err)
	}
	o.strict = text
	if err := o.read(0, len(data)); err != nil {
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
	inner := &object{source: o.source, file: o.file, strict: o.strict}
	if err := inner.read(m.start, m.start+len(m.text)); err != nil {
		return nil, err
	}
	return inner, nil
}

// read fills the members from the well-formed JSON between two offsets of the file. Of equal keys the last one counts,
// as in Python.
func (o *object) read(from, to int) error {
	decoder := json.NewDecoder(bytes.NewReader(o.strict.Strict[from:to]))
	if start, err := decoder.Token(); err != nil || start != json.Delim('{') {
		return fmt.Errorf("%s: found %s, want a JSON object {...}", o.place(from),
			kind(bytes.TrimSpace(o.file[from:to])))
	}
	o.members = map[string]member{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return fmt.Errorf("%s: %w", o.place(from+int(decoder.InputOffset())), err)
		}
		key, _ := token.(string) // a key always is: the text is well-formed
		end := from + int(decoder.InputOffset())
		m := member{offset: bytes.LastIndexByte(o.file[:end-1], '"')}
		var text json.RawMessage
		if err := decoder.Decode(&text); err != nil {
			return fmt.Errorf("%s: %w", o.place(end), err)
		}
		m.start = from + int(decoder.InputOffset()) - len(text)
		m.text = o.file[m.start : m.start+len(text)]
		if number := o.strict.Number(m.start); number != "" {
			m.text = json.RawMessage(number)
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
