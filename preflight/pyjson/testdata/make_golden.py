"""Writes what Python's json module reads of many texts, good and bad: a line each, the text and its value or null, both as JSON.

    python3 make_golden.py > golden.jsonl
"""

import json
import random

TEXTS = [
    "NaN", "Infinity", "-Infinity", "-NaN", "+Infinity", "nan", "inf", "Inf", "Infinit", "Infinityy", "NaNs", "1NaN", "NaN1", "NaNNaN", "--Infinity", "- Infinity", "-", "N", "I", "-I",
    "[NaN, -Infinity]", "[NaN,]", "[NaN NaN]", "{NaN: 1}", "{Infinity: NaN}", '{"NaN": NaN}', '{"a": "NaN"}', '"NaN"', '"\\"NaN"', '"\\\\"NaN', '{"a": Infinity, "a": 2}', '{"a": 1, "a": NaN}',
    '{"a": 1, "a": {"b": 2}}', '{"a": {"b": 1}, "a": {"c": 2}}', '{"": 1, "": 2}', '{"\\u0061": 1, "a": 2}',
    "\ufeff1", "\ufeff{}", "", " ", "\n", "1 2", "{}}", "[1,2", '{"a": 1', '{"a" 1}', '{"a": 1,}', "[1,]", "[,1]", "// c\n1", "/* c */ 1", "# c\n1", "{'a': 1}", "{a: 1}", "True", "None", "true", "nul", "null",
    "0", "-0", "00", "01", "-01", "1.", ".5", "1.5", "1e5", "1E+5", "1e", "1e+", "0x10", "1_000", "1e999", "-1e999", "9" * 400, "0.1e-400", "1.0E5", "+1",
    '"\\ud800"', '"\\udc00\\ud800"', '"\\ud83d\\ude00"', '"\\u00g0"', '"\\u12"', '"\\x41"', '"\\a"', '"\\/"', '"a\nb"', '"a\tb"', '"a\x00b"', '"a\x1fb"', '"a\x7fb"', '"\u2028"', '"\u0085"', "\x0c1", "\u00a01", "\t\r\n 1 ",
    "[" * 300 + "]" * 300, '{"a":' * 300 + "1" + "}" * 300, '"unclosed', '"\\', "[1}", "{1: 2}", "{null: 2}", '{"a"}', '{"a":}', '{,}', "[[],{}]",
]
SEEDS = ['{"a": [0.0, Infinity], "b": {"c": -Infinity, "c": NaN}, "d": "x\\n\\ud800", "e": null}', '[{"k": 1e5}, -0.5, true, false, "\\"NaN\\""]', '{"time_step_limit": [0.0, Infinity], "x": -1}']
PIECES = ["NaN", "Infinity", "-Infinity", "-", ",", ":", "{", "}", "[", "]", '"', "\\", "0", "1", ".", "e", "+", " ", "\n", "true", "null", "\\u0041", "N", "I", "//", "'"]


def mutants(count):
    rnd = random.Random(1)
    for _ in range(count):
        text = list(rnd.choice(SEEDS))
        for _ in range(rnd.randint(1, 3)):
            at = rnd.randrange(len(text) + 1)
            match rnd.randrange(3):
                case 0:
                    text[at:at] = rnd.choice(PIECES)
                case 1:
                    del text[at : at + rnd.randint(1, 4)]
                case 2:
                    text[at : at + 1] = rnd.choice(PIECES)
        yield "".join(text)


def plain(value):
    """The value with numbers as their repr, so that the two sides need not agree on how to print them."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    try:
        return {"number": repr(float(value) + 0.0)}  # no negative zero
    except OverflowError:
        return {"number": "inf"}


for text in TEXTS + list(mutants(2000)):
    try:
        line = {"text": text, "value": plain(json.loads(text))}
    except ValueError:
        line = {"text": text, "refused": True}
    print(json.dumps(line))
