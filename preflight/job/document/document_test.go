package document

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
)

// written is a tree as JSON, whose objects are sorted by key.
func written(n *Node) string {
	data, err := json.Marshal(bare(n))
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func bare(n *Node) any {
	switch v := n.Value.(type) {
	case map[string]*Node:
		out := map[string]any{}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			out[key] = bare(v[key])
		}
		return out
	case []*Node:
		out := []any{}
		for _, item := range v {
			out = append(out, bare(item))
		}
		return out
	case Unresolved:
		return "?" + v.Why
	}
	return n.Value
}

type parser func([]byte, string) (*Node, []error, error)

// The values are what Python reads: yaml.safe_load (PyYAML 6.0.2), tomllib (3.11), hjson 3.1.0.
func TestParsers(t *testing.T) {
	for _, c := range []struct {
		name, text, want string
		parse            parser
	}{
		{"booleans of YAML 1.1", "a: no\nb: 'no'\nc: NO\nd: on\ne: y\nf: !!str no",
			`{"a":false,"b":"no","c":false,"d":true,"e":"y","f":"no"}`, YAML},
		{"numbers", "a: 1_000\nb: 0x10\nc: 5e8\nd: 2e-5\ne: .5\nf: '3'\ng: .inf\nh: -7",
			`{"a":1000,"b":16,"c":5e8,"d":2e-5,"e":0.5,"f":"3","g":".inf","h":-7}`, YAML},
		{"nothing", "a:\nb: ~\nc: null\nd: ''", `{"a":null,"b":null,"c":null,"d":""}`, YAML},
		{"anchors and merges", "base: &b {x: 1, y: 2}\nuse:\n  y: 3\n  <<: *b\nlist:\n  <<: [{x: 7}, *b]",
			`{"base":{"x":1,"y":2},"list":{"x":7,"y":2},"use":{"x":1,"y":3}}`, YAML},
		{"empty", "# nothing\n", `null`, YAML},
		{"tables", "a.b = 1\n[t]\nx = \"q\\n\"\n[t.u]\ny = [1, 2.5, {z = true}]\n[[l]]\nn = 1\n[[l]]\nn = " +
			"0x1F\n[l.deep]\nm = 1979-05-27",
			`{"a":{"b":1},"l":[{"n":1},{"deep":{"m":"1979-05-27"},"n":31}],"t":{"u":{"y":[1,2.5,{"z":true}]},"x":"q\n"}}`, TOML},
		{"comments and commas", "{\n# one\n\"a\": 1, // two\n/* three\n */ b: [1, 2, 3,],\nc: text, with # all\nd: " +
			"true # word\ne: 'it\\'s'\n}",
			`{"a":1,"b":[1,2,3],"c":"text, with # all","d":true,"e":"it's"}`, HJSON},
		{"DeepSpeed with a trailing comma",
			"{\n// two of three\n\"train_batch_size\": 512,\n\"fp16\": {\"enabled\": true, },\n}",
			`{"fp16":{"enabled":true},"train_batch_size":512}`, HJSON},
		{"without braces", "a: 5e8\nb: free text # kept\nc: '''\n   two\n   lines\n   '''\n",
			`{"a":5e8,"b":"free text # kept","c":"two\nlines"}`, HJSON},
		{"lines instead of commas", "{a: [\n1\n2\n]\nb: null}", `{"a":[1,2],"b":null}`, HJSON},
	} {
		t.Run(c.name, func(t *testing.T) {
			doc, problems, err := c.parse([]byte(c.text), "f")
			if err != nil || len(problems) > 0 {
				t.Fatal(err, problems)
			}
			if got := written(doc); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}
