package document

import (
	"fmt"
	"strings"
	"testing"
)

// The results are those of OmegaConf 2.3 (from_dotlist, merge) and of Hydra 1.3's override grammar.
func TestOverride(t *testing.T) {
	const base = "a:\n  b: 1\n  l: [1, 2]\nopt: {x: 1}\nt: text\n"
	for _, c := range []struct{ word, want string }{
		{"a.b=4", `{"a":{"b":4,"l":[1,2]},"opt":{"x":1},"t":"text"}`},
		{"a.l[1]=no", `{"a":{"b":1,"l":[1,false]},"opt":{"x":1},"t":"text"}`},
		{"a.l=[q]", `{"a":{"b":1,"l":["q"]},"opt":{"x":1},"t":"text"}`},
		{"opt={y: 2}", `{"a":{"b":1,"l":[1,2]},"opt":{"x":1,"y":2},"t":"text"}`},
		{"+n.m=2e-5", `{"a":{"b":1,"l":[1,2]},"n":{"m":2e-5},"opt":{"x":1},"t":"text"}`},
		{"~a", `{"opt":{"x":1},"t":"text"}`},
		{"t.u=null", `{"a":{"b":1,"l":[1,2]},"opt":{"x":1},"t":{"u":null}}`},
		{"t", `{"a":{"b":1,"l":[1,2]},"opt":{"x":1},"t":null}`},
	} {
		doc, _, _ := YAML([]byte(base), "f")
		if err := Override(doc, c.word); err != nil {
			t.Errorf("%s: %v", c.word, err)
		}
		if got := written(doc); got != c.want {
			t.Errorf("%s: got %s, want %s", c.word, got, c.want)
		}
	}
	for _, word := range []string{"=3", "~gone", "a.l[7]=1", "a.b=[1"} {
		doc, _, _ := YAML([]byte(base), "f")
		if err := Override(doc, word); err == nil {
			t.Errorf("%s: no error", word)
		}
	}
	doc, _, _ := YAML([]byte(base), "f")
	if err := Override(doc, "opt={y: {z: 2}}"); err != nil {
		t.Fatal(err)
	}
	if at := doc.At("opt.y.z"); at.Origin() != "command line opt={y: {z: 2}}" || at.Path != "opt.y.z" {
		t.Errorf("got %s at %s", at.Origin(), at.Path)
	}
	if at := doc.At("opt.x"); at.Origin() != "f:4" {
		t.Errorf("merged value comes from %s", at.Origin())
	}
}

// Interpolation as in OmegaConf 2.3's manual.
func TestInterpolate(t *testing.T) {
	env := func(name string) (string, bool) { return "/home/x", name == "HOME" }
	for _, c := range []struct{ text, want string }{
		{"a: 3\nb: ${a}\nc: n${a}m", `{"a":3,"b":3,"c":"n3m"}`},
		{"a: {b: [1, {c: x}]}\nd: ${a.b[1].c}\ne: ${a.b.0}", `{"a":{"b":[1,{"c":"x"}]},"d":"x","e":1}`},
		{"a: {b: 1, c: '${.b}', d: {e: '${..b}'}}", `{"a":{"b":1,"c":1,"d":{"e":1}}}`},
		{"h: ${oc.env:HOME}/m\nn: ${oc.env:NONE,4}", `{"h":"/home/x/m","n":4}`},
		{"s: ${oc.select:x.y,8}\nt: ${oc.select:x}\nu: ${oc.select:s}", `{"s":8,"t":null,"u":8}`},
		{"k: b\nb: 2\nv: ${${k}}", `{"b":2,"k":"b","v":2}`},
		{"a: ${b}\nb: ${a}", `{"a":"?it refers to itself through a","b":"?it refers to itself through a"}`},
		{"a: ${b}\nb: {c: '${a}'}", `{"a":{"c":"?it refers to itself through a"},"b":{"c":"?it refers to itself through a"}}`},
		{"b: {c: '${b}'}", `{"b":{"c":"?it refers to itself through b.c"}}`},
		{"a: ${gone.x}\nb: ${now:%Y}\nc: ${x",
			`{"a":"?there is no gone.x","b":"?the program's own resolver now","c":"?${ is not closed"}`},
	} {
		doc, _, err := YAML([]byte(c.text), "f")
		if err != nil {
			t.Fatal(err)
		}
		Interpolate(doc, env)
		if got := written(doc); got != c.want {
			t.Errorf("%q: got %s, want %s", c.text, got, c.want)
		}
	}
	text := "a0: [1, 1, 1]\n"
	for i := 1; i < 40; i++ {
		text += fmt.Sprintf("a%d: ['${a%d}', '${a%d}']\n", i, i-1, i-1)
	}
	doc, _, _ := YAML([]byte(text), "f")
	Interpolate(doc, env)
	if _, bad := doc.At("a39[0]").Value.(Unresolved); !bad {
		t.Error("references that double 39 times are not stopped")
	}
}

// Short forms as jsonargparse 4.37's manual describes them.
func TestSetArgument(t *testing.T) {
	doc, _, _ := YAML([]byte("s: {class_path: m.FSDP, init_args: {a: 1}}\nt: ddp\nn: 1"), "f")
	for _, word := range []string{"s.b=2", "t.c=[x]", "n=3", "o=AdamW", "o.lr=1e-4", "train.n=no"} {
		path, text, _ := strings.Cut(word, "=")
		if err := SetArgument(doc, path, text, "command line --"+word); err != nil {
			t.Fatal(err)
		}
	}
	want := `{"n":3,"o":{"class_path":"AdamW","init_args":{"lr":1e-4}},"s":{"class_path":"m.FSDP","init_args":{"a":1,"b":2}},"t":{"class_path":"ddp","init_args":{"c":["x"]}},"train":{"n":false}}`
	if got := written(doc); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if name, arguments := Class(doc.Get("s")); name != "FSDP" || arguments.Get("b") == nil {
		t.Errorf("class %s %v", name, arguments)
	}
}

func FuzzOverride(f *testing.F) {
	f.Add("a.b[0].c=1", "~a")
	f.Add("+x={y: ${a}}", "a=[${.x}]")
	f.Add("a[0]=&x [*x]", "=")
	f.Fuzz(func(_ *testing.T, first, second string) {
		doc, _, _ := YAML([]byte("a: [1, {b: '${x}'}]\nx: {class_path: c}"), "f")
		for _, word := range []string{first, second} {
			if err := Override(doc, word); err == nil {
				path, text, _ := strings.Cut(word, "=")
				_ = SetArgument(doc, path, text, word) // refusing is fine, a panic is not
			}
		}
		Interpolate(doc, func(string) (string, bool) { return "", false })
		written(doc)
	})
}
