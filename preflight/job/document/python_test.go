package document

import (
	"bufio"
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// readOtherwise are texts that the Go libraries read in another way than Python's, and that no configuration holds.
var readOtherwise = map[string]bool{
	"[?]\n": true, "  [?]\n": true, "[1:]\n": true, "[1ys:]\n": true, "[=00:]\n": true, "[1::]\n": true,
	"[&ax: 1]\n": true, "[a.b.c]\n[a]\nb.d = 1": true,
}

// TestAgainstPython compares with what Python's own modules read (make_golden.py beside each table).
func TestAgainstPython(t *testing.T) {
	for _, c := range []struct {
		golden  string
		parse   parser
		lenient bool // reads some texts that Python refuses
	}{
		{filepath.Join("..", "..", "pyjson", "testdata", "golden.jsonl"), JSON, false},
		{filepath.Join("testdata", "yaml.jsonl"), YAML, true},
		{filepath.Join("testdata", "toml.jsonl"), TOML, true},
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
			refused := err != nil || len(problems) > 0
			if c.lenient && want.Refused || readOtherwise[want.Text] {
				continue
			}
			if refused != want.Refused {
				t.Errorf("%.200q: refused by Python %t, here: %v %v", want.Text, want.Refused, err, problems)
				continue
			}
			if !want.Refused && !same(t, doc, want.Value) {
				t.Errorf("%.200q: read as %s, by Python as %v", want.Text, written(doc), want.Value)
			}
		}
	}
}

// same compares a value with Python's, where numbers stand as {"number": repr} and dates as {"date": text}. Words that
// PyYAML takes for text although float() reads them, such as 2e-5, are numbers here, as they were meant; dates stay
// text.
func same(t *testing.T, n *Node, want any) bool {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		if text, ok := want["number"].(string); ok && len(want) == 1 {
			f, err := n.Float()
			return err == nil && sameNumber(f, text)
		}
		if _, isText := n.Value.(string); isText && (want["date"] != nil || want["other"] != nil) {
			return true
		}
		fields, ok := n.Fields()
		for key, value := range want {
			ok = ok && fields[key] != nil && same(t, fields[key], value)
		}
		return ok && len(fields) == len(want)
	case []any:
		items, ok := n.Items()
		ok = ok && len(items) == len(want)
		for i := 0; ok && i < len(want); i++ {
			ok = same(t, items[i], want[i])
		}
		return ok
	case string:
		if number, isNumber := n.Value.(json.Number); isNumber {
			f, err := number.Float64()
			return err == nil && n.Raw == want && sameNumber(f, strings.ReplaceAll(want, "_", ""))
		}
	}
	return n.Value == want
}

func sameNumber(f float64, text string) bool {
	want, err := strconv.ParseFloat(text, 64)
	return (err == nil || math.IsInf(want, 0)) && (f == want || math.IsNaN(f) && math.IsNaN(want))
}
