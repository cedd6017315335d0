package document

import (
	"fmt"
	"strings"
	"testing"
)

func TestLines(t *testing.T) {
	for _, c := range []struct {
		text, path, want string
		parse            parser
	}{
		{"a: 1\nb:\n  - x\n  - y: 2\n", "b.1.y", "f:4", YAML},
		{"base: &b\n  x: 1\nuse:\n  <<: *b\n", "use.x", "f:2", YAML},
		{"[t]\n# c\nx = 1\n\ny = [\n1,\n2]\n", "t.y[1]", "f:5", TOML},
		{"# c\n{\n  a: {\n    b: 1\n  }\n  c: 2\n}", "c", "f:6", HJSON},
		{"{\n\"a\": {\n\"b\": 1}}", "a.b", "f:3", JSON},
	} {
		doc, _, err := c.parse([]byte(c.text), "f")
		if err != nil {
			t.Fatal(err)
		}
		if got := doc.At(c.path); got == nil || got.Origin() != c.want {
			t.Errorf("%s: got %v, want %s", c.path, got, c.want)
		}
	}
}

// laughs is a document whose aliases stand for 10^9 values.
func laughs() string {
	text := "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for i := 1; i < 9; i++ {
		text += fmt.Sprintf("a%d: &a%d [%s]\n", i, i,
			strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 10), ","))
	}
	return text
}

func TestBroken(t *testing.T) {
	for _, c := range []struct {
		name, text, want string
		parse            parser
	}{
		{"tab", "a: 1\n\tb: 2\n", "f:2: broken YAML", YAML},
		{"bracket", "a: [1, 2\nb: 3\n", "broken YAML", YAML},
		{"laughs", laughs(), "aliases are written out", YAML},
		{"alias of itself", "a: &a\n  b: *a\n", "f:2: *a stands inside", YAML},
		{"merge of a word", "a:\n  <<: 3\n", "f:2: << needs an object", YAML},
		{"deep", strings.Repeat("[", 150) + strings.Repeat("]", 150), "levels deep", YAML},
		{"control character", "a: \x01\n", "broken YAML", YAML},
		{"table twice", "[a]\nx=1\n[a]\ny=1\n", "f:3", TOML},
		{"no value", "[a]\nx=\n", "f:2", TOML},
		{"deep list", "x=" + strings.Repeat("[", 150) + strings.Repeat("]", 150), "levels deep", TOML},
		{"open brace", "{\na: 1\n", "the brace of line 1", HJSON},
		{"open quote", "{\na: \"x\n}", "f:2:4: broken JSON (as hjson reads it): the quote is not closed", HJSON},
		{"more", "{}\n{}", "f:2:1", HJSON},
		{"deep braces", strings.Repeat("[", 150), "levels deep", HJSON},
		{"strict", "{\"a\": 1,}", "strict JSON has no comments and no trailing commas", JSON},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, _, err := c.parse([]byte(c.text), "f"); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestProblems(t *testing.T) {
	for _, c := range []struct {
		text, want string
		parse      parser
	}{
		{"a: 1\n---\nb: 2\n", "a second document starts", YAML},
		{"a: !!python/tuple 1\n", "f:1: tag", YAML},
		{"? [a]\n: 1\n", "a key is a list", YAML},
		{"{a: 1\na: 2}", `f:2: key "a" was given before`, HJSON},
	} {
		_, problems, err := c.parse([]byte(c.text), "f")
		if err != nil || len(problems) != 1 || !strings.Contains(problems[0].Error(), c.want) {
			t.Errorf("%q: got %v %v, want %s", c.text, problems, err, c.want)
		}
	}
}

func TestEncoded(t *testing.T) {
	if data, ok := Encoded("eyJ6ZXJvIjogMX0="); !ok || string(data) != `{"zero": 1}` {
		t.Errorf("got %q %t", data, ok)
	}
	for _, word := range []string{"ds.json", "configs", ""} {
		if _, ok := Encoded(word); ok {
			t.Errorf("%q is no document", word)
		}
	}
}

func seeds(f *testing.F, texts ...string) {
	f.Helper()
	for _, text := range texts {
		f.Add([]byte(text))
	}
}

// maxFuzzBytes keeps fuzzing going: Go shortens every text that reaches new code by trying all its parts, which are
// n*n/2, and of a text with 2 KiB that takes the whole minute. The long and the deep ones are in TestBroken.
const maxFuzzBytes = 256

// check reads a document in one format; what it accepts must be whole: every value with a place, and a bounded number
// of them.
func check(t *testing.T, parse parser, data []byte) *Node {
	t.Helper()
	if len(data) > maxFuzzBytes {
		return nil
	}
	doc, _, err := parse(data, "f")
	if (doc == nil) != (err != nil) {
		t.Fatalf("document %v, error %v", doc, err)
	}
	if err != nil {
		return nil
	}
	count := 0
	doc.Walk(func(n *Node) {
		if count++; n.Origin() == "" || n.Line < 1 && n.Source == "" {
			t.Fatalf("%s has no place", n.Path)
		}
	})
	if count > 2*maxYAMLNodes+len(data) {
		t.Fatalf("%d values from %d bytes", count, len(data))
	}
	return doc
}

func FuzzYAML(f *testing.F) {
	seeds(f, "a: 1\nb: [x, &n {y: ${a}}]\nc: *n\n<<: *n\n---\n", "a: &a [*a]", "? [1]\n: 2", "\tx", "a: !!binary x",
		laughs()[:60])
	f.Fuzz(func(t *testing.T, data []byte) {
		if doc := check(t, YAML, data); doc != nil {
			Interpolate(doc, func(string) (string, bool) { return "${a}", true })
		}
	})
}

func FuzzTOML(f *testing.F) {
	seeds(f, "a.b = 1\n[t]\nx = [1, {y = \"\"}]\n[[l]]\n[[l.m]]\n[l.n]\n", "x = 1979-05-27T07:32:00Z\ny=inf",
		"[a]\n[a.b]\nc=1\n[[a.b]]")
	f.Fuzz(func(t *testing.T, data []byte) { check(t, TOML, data) })
}

func FuzzHJSON(f *testing.F) {
	seeds(f, "{a: 1, /* */ b: text\n'c': '''\n x\n'''}", "a: [1 2\n]", "{\"a\": \"\\u00e9\"}", "# x\n", "/*", "{a:'\\")
	f.Fuzz(func(t *testing.T, data []byte) { check(t, HJSON, data) })
}
