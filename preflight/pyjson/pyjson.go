// Package pyjson reads JSON as Python's json module does, which the training programs read theirs with: NaN, Infinity
// and -Infinity are numbers, of equal keys the last one counts. Everything else that Python refuses is refused, as
// encoding/json does too: a byte order mark, control characters in texts, comments, commas too many.
package pyjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
)

// A Text is a JSON text of which encoding/json can read every part.
type Text struct {
	// Strict is the text with each number that strict JSON lacks as an empty list of the same length, so that places
	// stay what they were.
	Strict []byte
	odd    map[int]string // those numbers, by their offset
}

// numbers are those that strict JSON lacks.
var numbers = []string{"NaN", "Infinity", "-Infinity"}

// MaxDepth is how deep Python reads nested values before it gives up (sys.getrecursionlimit).
const MaxDepth = 1000

// An Error says where a text is no JSON.
type Error struct {
	Offset int // of the byte that is wrong; the length of a text that ends too early
	Err    error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Read checks a text. Its error is an *Error.
func Read(data []byte) (Text, error) {
	t := Text{Strict: data, odd: map[int]string{}}
	inText := false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case !inText && (c == 'N' || c == 'I' || c == '-'):
			i += max(0, t.replace(data, i)-1)
		}
	}
	if err := validate(t.Strict); err != nil {
		return Text{}, err
	}
	return t, nil
}

// replace puts an empty list, which fits nowhere but in the place of a value, where such a number begins, and returns
// its length.
func (t *Text) replace(data []byte, at int) int {
	for _, n := range numbers {
		if !bytes.HasPrefix(data[at:], []byte(n)) {
			continue
		}
		if len(t.odd) == 0 {
			t.Strict = bytes.Clone(data)
		}
		t.odd[at] = n
		copy(t.Strict[at:], "[]")
		for i := at + len("[]"); i < at+len(n); i++ {
			t.Strict[i] = ' '
		}
		return len(n)
	}
	return 0
}

func validate(text []byte) error {
	var whole json.RawMessage
	err := json.Unmarshal(text, &whole)
	if err == nil {
		return nil
	}
	at := len(text)
	if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) && syntax.Error() != "unexpected end of JSON input" {
		at = max(int(syntax.Offset)-1, 0) // the offset counts the offending byte as read
	}
	return &Error{Offset: at, Err: err}
}

// Number returns the number that strict JSON lacks and that begins at an offset, "" for none.
func (t Text) Number(offset int) string { return t.odd[offset] }

// IsNumber tells whether a value's text is one of the numbers that strict JSON lacks.
func IsNumber(text string) bool { return slices.Contains(numbers, text) }
