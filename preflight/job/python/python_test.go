package python

import (
	"strings"
	"testing"
)

// show renders a resolved expression as Python would write it, for comparison.
func show(e *Expr) string {
	switch {
	case e == nil:
		return "absent"
	case e.Kind == Unknown, e.Kind == Operation, e.Kind == Index:
		return "unknown: " + e.String()
	case e.Kind == List:
		var items []string
		for _, item := range e.Items {
			items = append(items, show(item))
		}
		return "[" + strings.Join(items, ", ") + "]"
	case e.Kind == Dict:
		var items []string
		for i, item := range e.Items {
			items = append(items, show(e.Keys[i])+": "+show(item))
		}
		return "{" + strings.Join(items, ", ") + "}"
	}
	return e.String()
}

// valueOf resolves the name x at the end of a source.
func valueOf(t *testing.T, source string) string {
	t.Helper()
	f := Read([]byte(source+"\nprobe(x)\n"), "s.py")
	for _, problem := range f.Problems {
		t.Errorf("%q: problem: %v", source, problem)
	}
	calls := f.CallsOf("probe")
	if len(calls) != 1 {
		t.Fatalf("%d calls of probe", len(calls))
	}
	return show(Scope{File: f}.Resolve(calls[0].Args[0], calls[0].Place))
}

// The expected values are what CPython 3.12 prints for the same source, unknown where it depends on more than this
// file.
func TestValues(t *testing.T) {
	for _, row := range []struct{ source, want string }{
		{"x = 1_000", "1000"},
		{"x = 0x10", "16"},
		{"x = 0", "0"},
		{"x = 00", "0"},
		{"x = 5e-5", "5e-05"},
		{"x = 1e3", "1000"},
		{"x = 2j", "unknown: the number 2j"},
		{"x = 99999999999999999999", "unknown: the number 99999999999999999999"},
		{"x = 1 << 20", "1048576"},
		{"x = 4 * 1024", "4096"},
		{"x = 2 ** 13 - 1", "8191"},
		{"x = -2 ** 2", "-4"},
		{"x = 2 ** -1", "0.5"},
		{"x = -7 // 2", "-4"},
		{"x = -7 % 3", "2"},
		{"x = 7 / 2", "3.5"},
		{"x = 1 + 2 * 3", "7"},
		{"x = (1 + 2) * 3", "9"},
		{"x = 1 / 0", "unknown: an expression with /"},
		{"x = 10 ** 400", "unknown: an expression with **"},
		{"x = 'a' 'b' \"c\"", `"abc"`},
		{"x = ('a'\n  'b')", `"ab"`},
		{"x = 'a' + 'b'", `"ab"`},
		{`x = 'it\'s\n\x41\u00e9\101\q'`, `"it's\nAéA\\q"`},
		{`x = r'\d'`, `"\\d"`},
		{"x = '''a\n\"b\" # no comment'''", `"a\n\"b\" # no comment"`},
		{"x = b'a'", "unknown: bytes"},
		{"x = f'{a}'", "unknown: an f-string"},
		{`x = f"{a["k"]:>{w}} ' {b!r:'>10}"`, "unknown: an f-string"},
		{"x = 'a' f'{b}'", "unknown: an f-string"},
		{"x = True", "true"},
		{"x = not True", "false"},
		{"x = None", "None"},
		{"x = None or 512", "512"},
		{"x = 1 if True else 2", "1"},
		{"x = 1 if cuda() else 2", "unknown: depends on cuda(...)"},
		{"x = 'a' in ['a', 'b']", "true"},
		{"x = 'a' not in ('b',)", "true"},
		{"x = 3 is not None", "true"},
		{"x = 1 == 1.0", "true"},
		{"x = [1, 'a', torch.bfloat16,]", `[1, "a", torch.bfloat16]`},
		{"x = ()", "[]"},
		{"x = (1,)", "[1]"},
		{"x = 1, 2", "[1, 2]"},
		{"x = {'a': 1, 'b': {'c': None}}", `{"a": 1, "b": {"c": None}}`},
		{"x = {1, 2}", "[1, 2]"},
		{"x = [i for i in range(3) if i]", "unknown: a comprehension"},
		{"x = {i: j for i, j in y}", "unknown: a comprehension"},
		{"x = lambda a, b=2: a", "unknown: a lambda"},
		{"x = [1, 2, 3][1]", "2"},
		{"x = [1, 2, 3][1:]", "unknown: a slice"},
		{"x = {'a': 5}['a']", "5"},
		{"c = {'a': 5}\nx = c['a']", "5"},
		{"c = {'a': 5}\nc['a'] = 6\nx = c['a']", "unknown: c is changed in line 2"},
		{"import torch as t\nx = t.bfloat16", "torch.bfloat16"},
		{"from torch import bfloat16 as b\nx = b", "torch.bfloat16"},
		{"N = 4\nx = N * 1024", "4096"},
		{"x = 1\nx = 2", "2"},
		{"x = y = 3", "3"},
		{"x, y = 1, 2", "1"},
		{"x, y = f()", "unknown: part of f(...)"},
		{"x: int = 3", "3"},
		{"x = 1\nx += 1", "unknown: changed in place"},
		{"x = 1\nif cond:\n    x = 2", "unknown: x depends on a condition in line 3"},
		{"x = 1\nif cond:\n    pass\nelse:\n    x = 2", "unknown: x depends on a condition in line 5"},
		{"FLAG = True\nx = 1\nif FLAG:\n    x = 2", "2"},
		{"FLAG = False\nx = 1\nif FLAG:\n    x = 2", "1"},
		{"FLAG = False\nif FLAG:\n    x = 2\nelse:\n    x = 3", "3"},
		{"if a:\n    x = 1\nelif b:\n    x = 2\nx = 3", "3"},
		{"A = True\nif A:\n    y = 1\nif True:\n    x = 2", "2"}, // no elif of the one before
		{"if A:\n    y = 1\nif __name__ == '__main__':\n    x = 4", "4"},
		{"if __name__ == '__main__':\n    x = 4", "4"},
		{"x = getattr(torch, 'bfloat16')", "torch.bfloat16"},
		{"x = getattr(torch, pick())", "getattr(...)"},
		{"import torch\nx = 1 if torch.xpu.is_available() else 2", "2"},
		{"c = Config(a=1)\nx = c is not None", "true"},
		{"c = make()\nx = c is None", "unknown: an expression with is"},
		{"try:\n    import a\n    x = 1\nexcept ImportError:\n    x = 2",
			"unknown: x depends on a condition in line 5"},
		{"with open(f) as g:\n    x = 5", "5"},
		{"for x in range(3):\n    pass", "unknown: a loop's variable"},
		{"for i in range(3):\n    x = i", "unknown: x is assigned in a loop"},
		{"for i in range(3):\n    x = 5", "5"},
		{"def f():\n    x = 7\nx = 6", "6"},
		{"x = 6\ndef f():\n    global x\n    x = 7", "unknown: x is changed in line 4"},
		{"if y := 3: pass\nx = y", "3"},
		{"class C:\n    n: int = 8\nx = C.n", "8"},
		{"class C:\n    n: int = field(default=8, metadata={})\nc = C()\nx = c.n", "8"},
		{"@dataclass\nclass C:\n    n: int = 8\nc = C(n=9)\nx = c.n", "9"},
		{"class C:\n    n = 8\nc = C(9)\nx = c.n", "unknown: c.n depends on the arguments of C"},
		{"a = b()\nx = a.c", "unknown: a.c is an attribute of a value made at run time"},
		{"x = a \\\n  .b", "a.b"},
		{"x = 1; y = 2", "1"},
		{"x = x0 = 1 # comment = 2", "1"},
		{"\ufeffx = 1\r\n", "1"},
		{"match v:\n    case 1:\n        x = 1", "unknown: x depends on a condition in line 3"},
		{"match = 3\nx = match", "3"},
	} {
		if got := valueOf(t, row.source); got != row.want {
			t.Errorf("%q: got %s, want %s", row.source, got, row.want)
		}
	}
}

// showArguments shows what a call is given by name; three dots stand for what may be given besides.
func showArguments(s Scope, c *Call) string {
	var got []string
	s.Arguments(c).Each(func(name string, value *Expr) { got = append(got, name+"="+show(value)) },
		func(*Expr) { got = append(got, "...") })
	return strings.Join(got, " ")
}

// TestKeywordsStored: what name["key"] = value puts into a dict counts until it is handed over.
func TestKeywordsStored(t *testing.T) {
	for assignments, want := range map[string]string{
		"k = dict(a=1)":                                                 "a=1",
		"k = {'a': 1}\nk['b'] = 2":                                      "a=1 b=2",
		"k = {'a': 1}\nk['a'] = 2":                                      "a=2",
		"k = {'a': 1}\nk[name] = 2":                                     "a=unknown: may be changed in line 2 ...",
		"k = {'a': 1}\nif f():\n    k['a'] = 2":                         "a=unknown: may be changed in line 3",
		"k = {'a': 1}\nif False:\n    k['a'] = 2":                       "a=1",
		"k = {'a': 1}\nif True:\n    k['a'] = 2\nelse:\n    k['a'] = 3": "a=2",
	} {
		f := Read([]byte(assignments+"\nload(**k)\nk['a'] = 9\n"), "s.py")
		if got := showArguments(Scope{File: f}, f.CallsOf("load")[0]); got != want {
			t.Errorf("%q: %q, want %q", assignments, got, want)
		}
	}
}

const script = `#!/usr/bin/env python
"""A docstring with 'quotes'."""
from __future__ import annotations
import os, torch.nn as nn
from transformers import (
    AutoModelForCausalLM as Auto,
    TrainingArguments,  # comment
)

BATCH = 4

@dataclass
class Args(TrainingArguments):
    lr: float = 1e-4
    name: Optional[str] = field(default=None, metadata={"help": "x = y"})
    required: int

    def method(self, a, b=2):
        return self.make(a)

async def main(batch=BATCH, *rest, steps: int = 10, **more) -> None:
    model = Auto.from_pretrained("x", torch_dtype=torch.bfloat16).to("cuda")
    if use_lora:
        model = get_peft_model(model, LoraConfig(r=8, target_modules=["q", "v"]))
    for i in range(3):
        with torch.autocast("cuda", dtype=torch.bfloat16), ctx():
            train(model, *rest, **more)
    return Trainer(model, args=TrainingArguments(
        output_dir=f"out/{batch}",
        per_device_train_batch_size=batch,
        fsdp="full_shard auto_wrap",
    )).train(resume=[x for x in y if x])

main(8)
`

func TestStructure(t *testing.T) {
	f := Read([]byte(script), "s.py")
	if len(f.Problems) > 0 {
		t.Fatal(f.Problems)
	}
	if !f.ImportsModule("torch") || !f.ImportsModule("transformers") || f.ImportsModule("trl") {
		t.Errorf("imports: %v", f.Imports)
	}
	scope := Scope{File: f}
	one := func(name string) *Call {
		t.Helper()
		calls := f.CallsOf(name)
		if len(calls) != 1 {
			t.Fatalf("%d calls of %s", len(calls), name)
		}
		return calls[0]
	}
	load := one("AutoModelForCausalLM.from_pretrained")
	if load.Line != 22 || load.Scope != "main" || show(load.arg(0, "name")) != `"x"` ||
		show(scope.Resolve(load.keyword("torch_dtype"), load.Place)) != "torch.bfloat16" {
		t.Errorf("from_pretrained: %+v", load)
	}
	if to := one(".to"); to.Receiver == nil || to.Receiver.Call != load || show(to.Args[0]) != `"cuda"` {
		t.Errorf("to: %+v", to)
	}
	lora := one("LoraConfig")
	if len(lora.Conditions) != 1 || lora.Conditions[0].Test.String() != "use_lora" ||
		show(lora.keyword("target_modules")) != `["q", "v"]` {
		t.Errorf("LoraConfig: %+v", lora)
	}
	if auto := one("torch.autocast"); !auto.Loop || len(auto.Conditions) != 0 {
		t.Errorf("autocast: %+v", auto)
	}
	train := f.CallsOf("train")[0]
	if got := showArguments(scope, train); !train.Starred || !strings.HasSuffix(got, "...") {
		t.Errorf("train is given %s: %+v", got, train)
	}
	args := one("TrainingArguments")
	if args.Line != 28 || show(scope.Resolve(args.keyword("per_device_train_batch_size"), args.Place)) != "8" {
		t.Errorf("TrainingArguments in line %d: %v", args.Line,
			show(scope.Resolve(args.keyword("per_device_train_batch_size"), args.Place)))
	}
	class := f.Class("Args")
	if class == nil || len(class.Bases) != 1 || len(class.Fields) != 3 || len(class.Decorators) != 1 ||
		class.Fields[2].Value != nil {
		t.Fatalf("class: %+v", class)
	}
	fn := f.Function("main")
	if fn == nil || len(fn.Parameters) != 2 || len(fn.Returns) != 1 || fn.Parameters[1].Name != "steps" ||
		show(fn.Parameters[1].Value) != "10" {
		t.Errorf("main: %+v", fn)
	}
	if f.Function("method") != nil {
		t.Error("a method is no function of the module")
	}
}

func TestKeywordsOfDict(t *testing.T) {
	f := Read([]byte("cfg = dict(a=1, b='x')\nmore = {'c': 2}\ntrain(**cfg, **more, d=3)\n"), "s.py")
	if got := showArguments(Scope{File: f}, f.CallsOf("train")[0]); got != `a=1 b="x" c=2 d=3` {
		t.Errorf("got %s", got)
	}
}

func TestOutside(t *testing.T) {
	f := Read([]byte("args = parser.parse_args()\nif args.big:\n    probe(args.n)\nargs.n = 3\nprobe(args.n)\n"),
		"s.py")
	scope := Scope{File: f, Outside: func(name string, _ Place) *Expr {
		switch name {
		case "args.n":
			return &Expr{Kind: Literal, Value: int64(1)}
		case "args.big":
			return &Expr{Kind: Literal, Value: false}
		}
		return nil
	}}
	calls := f.CallsOf("probe")
	for i, want := range []string{"1", "3"} {
		if got := show(scope.Resolve(calls[i].Args[0], calls[i].Place)); got != want {
			t.Errorf("call %d: got %s, want %s", i, got, want)
		}
	}
	if holds, known := scope.Holds(calls[0].Place); holds || !known {
		t.Errorf("the condition holds %v, known %v", holds, known)
	}
	if holds, known := scope.Holds(calls[1].Place); !holds || !known {
		t.Errorf("no condition holds %v, known %v", holds, known)
	}
}

// Broken code costs the line, not the file.
func TestBrokenCode(t *testing.T) {
	for _, row := range []struct{ name, source, problem string }{
		{"bracket", "f(1,\nimport os\nprobe(3)\n", `s.py:1: "(" is never closed`},
		{"bracket at a def", "x = [1,\n\ndef g():\n    pass\nprobe(3)\n", `s.py:1: "[" is never closed`},
		{"stray", "f)\nprobe(3)\n", `s.py:1: ")" closes nothing`},
		{"string", "x = 'abc\nprobe(3)\n", "s.py:1: string is never closed"},
		{"print", "print 'a'\nprobe(3)\n", "s.py:1: is not Python that can be read"},
		{"magic", "!pip install x\nprobe(3)\n", "s.py:1: is not Python that can be read"},
		{"conflict", "<<<<<<< HEAD\nprobe(3)\n", "s.py:1: is not Python that can be read"},
		{"indentation", "if a:\n        b\n    c\nprobe(3)\n", "s.py:3: indentation matches no line before"},
		{"nesting", strings.Repeat("(", 5000) + "1" + strings.Repeat(")", 5000) + "\nprobe(3)\n", ""},
		{"minus", "x = " + strings.Repeat("-", 5000) + "1\nprobe(3)\n", ""},
		{"not", "x = " + strings.Repeat("not ", 5000) + "1\nprobe(3)\n", ""},
		{"power", "x = " + strings.Repeat("2**", 5000) + "1\nprobe(3)\n", ""},
		{"ternaries", "x = " + strings.Repeat("1 if a else ", 5000) + "1\nprobe(3)\n", ""},
		{"latin-1", "x = '\xe9'\nprobe(3)\n", ""},
		{"operators", "x = " + strings.Repeat("1 + ", 5000) + "1\nprobe(3)\n", ""},
	} {
		f := Read([]byte(row.source), "s.py")
		text := ""
		for _, problem := range f.Problems {
			text += problem.Error() + "\n"
		}
		if !strings.Contains(text, row.problem) || row.problem == "" && text != "" && row.name != "nesting" {
			t.Errorf("%s: problems %q, want %q", row.name, text, row.problem)
		}
		if calls := f.CallsOf("probe"); len(calls) != 1 || show(calls[0].Args[0]) != "3" {
			t.Errorf("%s: the line after is lost (%d calls)", row.name, len(calls))
		}
	}
	if f := Read([]byte("x = '''abc\nprobe(3)\n"), "s.py"); len(f.Problems) != 1 {
		t.Errorf("open triple quotes: %v", f.Problems)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(script)
	f.Add("x = f'{a[\"b\"]:{c}}' + '''d\n'''\nif a: b = 1\nelse: c(*d, **e)\n")
	f.Add("class A(B):\n  x: int = 1\n  def f(self, *, a=[i for i in b]): return a[1:2, ::3]\n")
	f.Add("(((((\ndef f(:\n\tmatch x:\n  case [a, *b]: lambda: (yield)\n@d\n\\\n")
	f.Add("with (a as b, c() as d): pass\ntry: 1\nexcept* E as e: x = y = z\nfinally: del a.b\nglobal q\n")
	f.Fuzz(func(t *testing.T, source string) {
		file := Read([]byte(source), "s.py")
		scope := Scope{File: file}
		for _, c := range file.Calls {
			if c.Line < 1 {
				t.Errorf("%s is in line %d", c.Callee, c.Line)
			}
			scope.Holds(c.Place)
			scope.Arguments(c)
			for _, e := range c.Args {
				if got := scope.Resolve(e, c.Place); got == nil {
					t.Error("nil value")
				}
			}
		}
		for _, a := range file.Assignments {
			if got := scope.Resolve(a.Value, a.Place); got.Kind == Operation || got.Kind == Index {
				t.Errorf("%s is not resolved: %s", a.Target, got)
			}
		}
	})
}

func BenchmarkRead(b *testing.B) {
	source := []byte(strings.Repeat(script, 100))
	b.SetBytes(int64(len(source)))
	for b.Loop() {
		Read(source, "s.py")
	}
}
