"""Writes what PyYAML's safe_load and tomllib read of many texts, good and bad: a line each, the text and its value, both as JSON.

    pip install pyyaml==6.0.4
    python3 make_golden.py yaml > yaml.jsonl
    python3 make_golden.py toml > toml.jsonl
"""

import datetime
import json
import random
import sys
import tomllib

SCALARS = """1 1e5 1e-5 2e-5 1.0e5 1.0e+5 1.5E-3 010 -010 08 0o17 0b11 -0b11 0x1F -0x1f 1_000 1_0.5 .5 5. -.5 +1 +1.5 -0 1:30 -1:30 190:20:30 1:30.5 1:60 01:30 .inf -.inf +.inf .Inf .INF .iNf .nan .NaN
.NAN inf nan NaN Infinity y n Y N yes no on off Yes NO On OFF TRUE true tRue ~ null Null NULL nUll None 2001-01-01 2001-1-1 2001-12-14t21:59:43.10-05:00 0 00 0_1 1__0 _1 1_ 0x_F 0b 0x 1e 1.e+3 .e5 . - -- 0b2
0xg 12e03 -2E+05 1,000 4k 0.1.2 685_230 02472256 0xA 190:20:30.15 bf16 a/b a:b a#b 'yes' "1" '1' "\\n" 'it''s' !!str 1 !!int "3" !!float 1 !!bool "yes" !!null "" 99999999999999999999 1e400 0777 0o 1e+5 1.e5
5e8 0. 00.5 +.5 1.5.5 --1 @a `a %a &a *a !a |a ,a [ ] { } "a 'a a" a' - ? : 1: 123e 0e0 !!python/tuple [1] !!python/name:os.system !!set {a} !!omap [] !!binary aGk= !!timestamp 2001-01-01 !foo 1""".replace("\n", " ")

YAML = [
    "", "# c\n", "---\n", "...", "---\na: 1\n...\n", "a: 1\n---\nb: 2\n", "a: 1\n...\nb: 2", "%YAML 1.1\n---\na: 1\n", "%YAML 1.2\n---\na: 1\n", "\ufeffa: 1\n", "a: 1\nb: 2\na: 3\n", "a: {x: 1}\na: {y: 2}\n", "{a: 1, a: 2}",
    "base: &b {x: 1, y: 2}\nuse:\n  <<: *b\n  y: 3\n", "base: &b {x: 1}\nc: &c {x: 2, z: 3}\nuse:\n  <<: [*b, *c]\n", "a: &x 1\nb: *x\n", "a: *x\n", "a: &x 1\nb: &x 2\nc: *x\n", "<<: {a: 1}\na: 2\n", "<<: 3\n",
    "a:\n  <<: {x: 1}\n  <<: {x: 2, y: 3}\n", "'<<': {a: 1}\n", "a: &a [*a]\n", "? a\n: 1\n", "? [a]\n: 1\n", "? {a: 1}\n: 1\n", "1: a\n", "1.5: a\n", "a:\n- 1\n- 2\n", "a:\n  - 1\n  -\n  - [1, [2]]\n",
    "a: |\n  x\n  y\n", "a: >\n  x\n  y\n\n  z\n", "a: |-\n  x\n", "a: >+\n  x\n\n", "a: |2\n   x\n", "a:\tb\n", "\ta: 1\n", "a: 1\n\tb: 2\n", "a: 1\t# c\n", "a:  b \n", "a: b: c\n", "a: 'b\n  c'\n", 'a: "b\\\n  c"\n', 'a: "\\x41\\u00e9\\q"\n', 'a: "\\/"\n', "a: [1, 2\n",
    "a: [1,2,]\n", "a: [,]\n", "a: {x, y: }\n", "a: {x: 1,}\n", "{a: 1}\n", '{"a":1}\n', '{"a": 1, "b": [true, null]}', "[a, b]: 1\n", "a: 1\n b: 2\n", "  a: 1\nb: 2\n", "- a\n- b\n", "a\n", "1\n", "a: b #c\n", "a: b#c\n", "a: #c\n", "a:#c\n",
    "a: http://x:1/y\n", "a: C:\\x\n", "a: @b\n", "a: `b`\n", "a: %b\n", "a: !x b\n", "a: !!python/tuple [1, 2]\n", "a: !!python/object/apply:os.system ['x']\n", "a: \x01\n", "a: \x7f\n", "a: \u0085b\n", "a: \u2028b\n", "a: \u00e9\n",
    "a: ''\n", 'a: ""\n', "a: '''\n", "a:\n  b:\n    c: 1\n   d: 2\n", "a: - b\n", "a: -b\n", "a: ?b\n", "a: *\n", "a: &\n", "a: &x\n", "a: [a: 1, b]\n", "a: {b: {c: 1}}\n", "a : 1\n", "'a' : 1\n", '"a": 1\n', "a: 1\r\nb: 2\r\n", "a: 1\rb: 2\n", "- - 1\n  - 2\n",
    "a: !!int 010\n", "a: !!float 1e3\n", "a: !!str\n", "a: !!int x\n", "a: ${oc.env:X}\n", "a: ${b}\n", "a: $b\n", "a: {{ b }}\n", "a: ???\n", "a: [???]\n", "x: 0x1F\ny: 0b101\nz: 1:30\n", "=: 1\n", "a: =\n", "a: << \n", "key: <<\n", "- <<\n",
    "&a a: 1\nb: *a\n", "*a : 1\n", "a: 1\n#\n\n\nb: 2", "!!map {a: 1}", "!!seq [1]", "a: >\n\n", "a: |\n", "--- a\n", "--- {a: 1}\n", "--- |\n  x\n", "a: b\n  c\n", "a:\n  b\n  c\n", "a: 'x' y\n", "a: \"x\" y\n", "[]", "{}", "a: [\n1,\n2\n]\n", "a: [\n1,\n2]\n", "a:\n- b:\n  - c\n",
] + [f"a: {s}\n" for s in SCALARS.split(" ")] + [f"[{s}]\n" for s in SCALARS.split(" ")]

TOML = [
    "", "a = 1", "a = 1 # c", "a = 01", "a = +1", "a = 1_000", "a = 1__0", "a = _1", "a = 0x1F", "a = 0o17", "a = 0b11", "a = 0X1f", "a = 1.5", "a = .5", "a = 5.", "a = 1e5", "a = 1E-5", "a = 1.e5", "a = inf", "a = -inf", "a = +nan", "a = Inf", "a = true", "a = True",
    "a = 'x'", 'a = "x\\n\\u00e9"', 'a = "\\x41"', 'a = "\\e"', 'a = """\nx\n  y"""', "a = '''\nx'''", 'a = """x\\\n   y"""', 'a = "x\ny"', "a = 'x\ny'", "a = []", "a = [1, 2,]", "a = [1,, 2]", "a = [1, 'x']", "a = [\n1, # c\n2\n]", "a = {x = 1}", "a = {x = 1,}", "a = {x = 1\n}",
    "a = {}", "a.b = 1\na.c = 2", "a = 1\na = 2", "a = 1\na.b = 2", "[a]\nb = 1\n[a]\nc = 2", "[a]\n[a.b]\n[a]", "[a.b]\n[a]\nc = 1", "[[a]]\nb = 1\n[[a]]\nb = 2", "[a]\n[[a]]", "a = []\n[[a]]", "a = {b = 1}\n[a.c]", "a.b = 1\n[a]", "[a]\nb.c = 1\n[a.b]", "[a.b.c]\n[a]\nb.d = 1",
    "'a b' = 1", '"a" = 1', '"" = 1', "= 1", "a", "a =", "a = 1 b = 2", "[a", "[]", "[a.]", "a.b", "\ufeffa = 1", "a = 1979-05-27", "a = 1979-05-27T07:32:00Z", "a = 1979-05-27 07:32:00", "a = 07:32:00", "a = 1979-13-01", "a = 07:32", "a\t=\t1", "a = 1\r\nb = 2", "a = 1\rb = 2", "a = \x01",
    "a = '\x01'", "# \x01", "a = 99999999999999999999", "a = 9223372036854775808", "a = 1e400", "a-b_c = 1", "a.1 = 2", "1 = 2", "1.2 = 3", "3.14159 = 'pi'", "\u00e9 = 1", "a = 'x' 'y'", "a = \"\"\"\"\"\"\"", "a = ''''x'''", "[a]b = 1", "[ a . b ]\nc = 1", "a . b = 1", "a = 0.0", "a = -0", "a = -0.0",
    "a = 1.0_0", "a = 1_.0", "a = 0_1", "a = +0x1", "[[a.b]]\nc = 1\n[a]\nd = 2", "[[a]]\n[a.b]\nc=1\n[[a]]\n[a.b]\nc=2", "a = [{x = 1}, {x = 2}]", "a = [[1], [2, 3]]", "training.seq_len = 1\n[training]\nsteps = 1", "[x]\ny = {a.b = 1, a.c = 2}", "a = {b = {c = 1}}\na.d = 2",
]
PIECES = [":", " ", "\n", "  ", "-", "[", "]", "{", "}", ",", "'", '"', "#", "a", "1", "0", ".", "e", "_", "&x ", "*x", "<<", "!!str ", "|", ">", "~", "yes", "=", "\t", "x: 1", "- ", "[t]", "inf"]


def mutants(texts, count):
    rnd = random.Random(1)
    for _ in range(count):
        text = list(rnd.choice(texts))
        for _ in range(rnd.randint(1, 2)):
            at = rnd.randrange(len(text) + 1)
            if rnd.random() < 0.7:
                text[at:at] = rnd.choice(PIECES)
            else:
                del text[at : at + rnd.randint(1, 3)]
        yield "".join(text)


def plain(value):
    """Numbers as their repr; keys and dates as their text; what settings never are as null."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float):
        try:
            return {"number": repr(float(value) + 0.0)}
        except OverflowError:
            return {"number": "inf"}
    if isinstance(value, datetime.date | datetime.datetime | datetime.time):
        return {"date": str(value)}
    return {"other": str(type(value))}


def main(kind):
    if kind == "yaml":
        import yaml

        texts, read = YAML, yaml.safe_load
    else:
        texts, read = TOML, tomllib.loads
    for text in texts + list(mutants(texts, 1500)):
        try:
            line = {"text": text, "value": plain(read(text))}
        except Exception:  # of any kind: PyYAML lets IndexError, KeyError and others out
            line = {"text": text, "refused": True}
        print(json.dumps(line))


main(sys.argv[1])
