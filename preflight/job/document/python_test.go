package document

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"testing"
)

// TestAgainstPython compares with what Python's own modules read (make_golden.py beside each table).
func TestAgainstPython(t *testing.T) {
	for _, c := range []struct {
		golden string
		parse  parser
	}{
		{filepath.Join("..", "..", "pyjson", "testdata", "golden.jsonl"), JSON},
	} {
		data, err := os.ReadFile(c.golden)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(bytes.NewReader(data))
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var want struct {
				Text    string
				Value   any
				Refused bool
			}
			if err := json.Unmarshal(lines.Bytes(), &want); err != nil {
				t.Fatal(err)
			}
			doc, problems, err := c.parse([]byte(want.Text), "f")
			if refused := err != nil || len(problems) > 0; refused != want.Refused {
				t.Errorf("%.200q: refused by Python %t, here: %v %v", want.Text, want.Refused, err, problems)
				continue
			}
			if !want.Refused && !reflect.DeepEqual(valued(t, doc), valued(t, want.Value)) {
				t.Errorf("%.200q: read as %v, by Python as %v", want.Text, valued(t, doc), want.Value)
			}
		}
	}
}

// valued brings both sides into one form: numbers are float64, infinite ones and those that are none are texts of their own.
func valued(t *testing.T, v any) any {
	t.Helper()
	switch v := v.(type) {
	case *Node:
		if f, err := v.Float(); err == nil {
			return strconv.FormatFloat(f+0, 'g', -1, 64)
		}
		return valued(t, v.Value)
	case map[string]*Node:
		out := map[string]any{}
		for key, field := range v {
			out[key] = valued(t, field)
		}
		return out
	case []*Node:
		out := []any{}
		for _, item := range v {
			out = append(out, valued(t, item))
		}
		return out
	case map[string]any:
		if text, ok := v["number"].(string); ok && len(v) == 1 {
			f, err := strconv.ParseFloat(text, 64)
			if err != nil {
				t.Fatal(err)
			}
			return strconv.FormatFloat(f, 'g', -1, 64)
		}
		out := map[string]any{}
		for key, field := range v {
			out[key] = valued(t, field)
		}
		return out
	case []any:
		out := []any{}
		for _, item := range v {
			out = append(out, valued(t, item))
		}
		return out
	case json.Number:
		t.Fatalf("%s is no number", v)
	}
	return v
}
