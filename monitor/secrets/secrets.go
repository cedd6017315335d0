// Package secrets takes secrets out of everything that is written down or shown: command lines, environments and texts.
// A secret is known by its name (names.go), by its form (shapes.go), or by what it looks like (values.go).
package secrets

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// Redacted stands where a secret was.
const Redacted = "[redacted]"

// Scrubber removes secrets from texts: those that it has learned from an environment and a command line wherever they
// stand, and those that a text gives away itself. A nil Scrubber has learned none.
type Scrubber struct {
	replace *strings.Replacer
}

// The shortest secret that is replaced wherever it occurs: shorter ones would blot out ordinary words. They go where
// they were given.
const (
	minSecret = 6
	minWord   = 10 // of one that is a plain word or a number itself
)

// New learns the secrets of an environment ("NAME=value") and of a command line.
func New(environ, argv []string) *Scrubber {
	secrets := map[string]bool{}
	learn := func(value string) {
		if len(value) < minSecret || len(value) < minWord && worded(value) &&
			!strings.ContainsAny(value, "0123456789") || path(value) {
			return
		}
		secrets[value] = true
		// the same inside a JSON string, where quotes and backslashes are escaped
		if quoted, err := json.Marshal(value); err == nil {
			secrets[string(quoted[1:len(quoted)-1])] = true
		}
	}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if judge(name, value) {
			learn(value)
		}
		byName(byShape(value, learn), learn)
	}
	(&command{found: learn}).words(argv, 0)
	ordered := make([]string, 0, len(secrets))
	for s := range secrets {
		ordered = append(ordered, s)
	}
	// longest first: a secret that holds another one goes as a whole
	slices.SortFunc(ordered, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	pairs := make([]string, 0, 2*len(ordered))
	for _, s := range ordered {
		pairs = append(pairs, s, Redacted)
	}
	return &Scrubber{replace: strings.NewReplacer(pairs...)}
}

// Text returns text without secrets.
func (s *Scrubber) Text(text string) string {
	if s != nil && s.replace != nil {
		text = s.replace.Replace(text)
	}
	return byOption(byList(byName(byShape(text, nil), nil), nil))
}

// Args returns the words of a command line without secrets.
func (s *Scrubber) Args(argv []string) []string {
	out := (&command{found: func(string) {}}).words(argv, 0)
	for i, w := range out {
		if s != nil && s.replace != nil {
			out[i] = s.replace.Replace(w)
		}
	}
	return out
}

// JSON cleans the strings in a text of JSON, or of lines of it, and nothing else: a secret of digits must not be cut
// out of a number, and names of fields stay. What is no JSON is cleaned as a text.
func (s *Scrubber) JSON(data []byte) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(data) {
		out.Write(s.jsonLine(line))
	}
	return out.Bytes()
}

func (s *Scrubber) jsonLine(line []byte) []byte {
	if text := string(line); s.Text(text) == text {
		return line
	}
	if !json.Valid(line) {
		return []byte(s.Text(string(line))) // damaged: nothing in it will be read as a number
	}
	var out bytes.Buffer
	name := ""
	for i := 0; i < len(line); {
		if line[i] != '"' {
			out.WriteByte(line[i])
			i++
			continue
		}
		end := stringEnd(line, i)
		var value string
		if err := json.Unmarshal(line[i:end], &value); err != nil { // it is valid
			return []byte(s.Text(string(line)))
		}
		rest := bytes.TrimLeft(line[end:], " \t")
		switch clean := s.field(name, value); {
		case len(rest) > 0 && rest[0] == ':':
			name = value
			out.Write(line[i:end])
		case clean == value:
			out.Write(line[i:end])
			name = ""
		default:
			quoted, err := json.Marshal(clean)
			if err != nil {
				quoted = []byte(`"` + Redacted + `"`)
			}
			out.Write(quoted)
			name = ""
		}
		i = end
	}
	return out.Bytes()
}

func (s *Scrubber) field(name, value string) string {
	if name != "" && judge(name, value) && judgeName(name) == strong {
		return Redacted
	}
	return s.Text(value)
}

// stringEnd is the place behind the closing quote of the JSON string that begins at i.
func stringEnd(line []byte, i int) int {
	for i++; i < len(line) && line[i] != '"'; i++ {
		if line[i] == '\\' {
			i++
		}
	}
	return min(i+1, len(line))
}
