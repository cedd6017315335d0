package pickle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// operations are the opcodes of all protocols but STOP (Lib/pickletools.py). Extension registry (EXT1..4), persistent
// ids and out-of-band buffers are not data of the file: they become Objects.
var operations = [256]func(*loader) error{
	// frames and protocol
	0x80: func(l *loader) error { _, err := l.byte(); return err },  // PROTO
	0x95: func(l *loader) error { _, err := l.uint(8); return err }, // FRAME

	// constants
	'N':  func(l *loader) error { l.push(0); return nil },
	0x88: func(l *loader) error { l.push(value(Bool, 1)); return nil },
	0x89: func(l *loader) error { l.push(value(Bool, 0)); return nil },

	// numbers
	'K':  func(l *loader) error { n, err := l.uint(1); l.pushInt(int64(n)); return err },
	'M':  func(l *loader) error { n, err := l.uint(2); l.pushInt(int64(n)); return err },
	'J':  func(l *loader) error { n, err := l.uint(4); l.pushInt(int64(int32(n))); return err },
	0x8a: func(l *loader) error { return l.long(1) },
	0x8b: func(l *loader) error { return l.long(4) },
	'I':  (*loader).textInt,
	'L':  (*loader).textInt,
	'F':  (*loader).textFloat,
	'G':  (*loader).binFloat,

	// text
	'S':  (*loader).textString,
	'V':  (*loader).textUnicode,
	'T':  func(l *loader) error { return l.text(String, 4) }, // BINSTRING: Python 2's str
	'U':  func(l *loader) error { return l.text(String, 1) },
	'X':  func(l *loader) error { return l.text(String, 4) },
	0x8c: func(l *loader) error { return l.text(String, 1) },
	0x8d: func(l *loader) error { return l.text(String, 8) },
	'B':  func(l *loader) error { return l.text(Bytes, 4) },
	'C':  func(l *loader) error { return l.text(Bytes, 1) },
	0x8e: func(l *loader) error { return l.text(Bytes, 8) },
	0x96: func(l *loader) error { return l.text(Bytes, 8) }, // BYTEARRAY8

	// containers
	'(':  func(l *loader) error { l.push(value(mark, 0)); return nil },
	']':  func(l *loader) error { l.pushItems(List, nil); return nil },
	')':  func(l *loader) error { l.pushItems(Tuple, nil); return nil },
	'}':  func(l *loader) error { l.pushItems(Dict, nil); return nil },
	0x8f: func(l *loader) error { l.pushItems(Set, nil); return nil },
	'l':  func(l *loader) error { return l.collect(List) },
	't':  func(l *loader) error { return l.collect(Tuple) },
	'd':  func(l *loader) error { return l.collect(Dict) },
	0x91: func(l *loader) error { return l.collect(Set) }, // FROZENSET
	0x85: func(l *loader) error { return l.tuple(1) },
	0x86: func(l *loader) error { return l.tuple(2) },
	0x87: func(l *loader) error { return l.tuple(3) },
	'a':  func(l *loader) error { return l.add(1, List) },
	's':  func(l *loader) error { return l.add(2, Dict) },
	'e':  func(l *loader) error { return l.addAll(List) },
	'u':  func(l *loader) error { return l.addAll(Dict) },
	0x90: func(l *loader) error { return l.addAll(Set) },

	// stack and memo
	'0':  (*loader).drop,
	'1':  func(l *loader) error { _, err := l.popMark(); return err },
	'2':  (*loader).duplicate,
	'p':  func(l *loader) error { return l.numbered(l.put) },
	'g':  func(l *loader) error { return l.numbered(l.get) },
	'q':  func(l *loader) error { return l.indexed(1, l.put) },
	'r':  func(l *loader) error { return l.indexed(4, l.put) },
	'h':  func(l *loader) error { return l.indexed(1, l.get) },
	'j':  func(l *loader) error { return l.indexed(4, l.get) },
	0x94: func(l *loader) error { return l.put(int64(len(l.memo) + len(l.far))) }, // MEMOIZE

	// what only Python could build
	'c':  (*loader).global,
	0x93: (*loader).stackGlobal,
	'i':  (*loader).instance,
	'o':  (*loader).object,
	'R':  func(l *loader) error { return l.construct(1) },
	0x81: func(l *loader) error { return l.construct(1) }, // NEWOBJ
	0x92: func(l *loader) error { return l.construct(2) }, // NEWOBJ_EX
	'b':  (*loader).drop,                                  // BUILD: the state of an object
	'P':  func(l *loader) error { _, err := l.line(); l.pushText(Object, nil); return err },
	'Q':  func(l *loader) error { _, err := l.pop(); l.pushText(Object, nil); return err },
	0x82: func(l *loader) error { _, err := l.uint(1); l.pushText(Object, nil); return err },
	0x83: func(l *loader) error { _, err := l.uint(2); l.pushText(Object, nil); return err },
	0x84: func(l *loader) error { _, err := l.uint(4); l.pushText(Object, nil); return err },
	0x97: func(l *loader) error { l.pushText(Object, nil); return nil }, // NEXT_BUFFER
	0x98: func(*loader) error { return nil },                            // READONLY_BUFFER
}

// long reads LONG1 and LONG4: a length and a little-endian number in two's complement.
func (l *loader) long(size int) error {
	n, err := l.uint(size)
	if err != nil {
		return err
	}
	raw, err := l.take(n)
	if err != nil {
		return err
	}
	if len(raw) <= 8 {
		var wide [8]byte
		copy(wide[:], raw)
		if len(raw) > 0 && raw[len(raw)-1]&0x80 != 0 {
			for i := len(raw); i < 8; i++ {
				wide[i] = 0xff
			}
		}
		l.pushInt(int64(binary.LittleEndian.Uint64(wide[:])))
		return nil
	}
	// Beyond 64 bits: near enough as a float. Only the leading bytes count for it.
	exponent := 0
	if len(raw) > 16 {
		exponent = 8 * (len(raw) - 16)
		raw = raw[len(raw)-16:]
	}
	number := 0.0
	for _, b := range slices.Backward(raw) {
		number = number*256 + float64(b)
	}
	if raw[len(raw)-1]&0x80 != 0 {
		number -= math.Ldexp(1, 8*len(raw))
	}
	l.pushFloat(math.Ldexp(number, exponent))
	return nil
}

// textInt reads INT and LONG: "5", "5L", and 00 and 01, which are the booleans of protocol 0.
func (l *loader) textInt() error {
	line, err := l.line()
	if err != nil {
		return err
	}
	switch line {
	case "00":
		l.push(value(Bool, 0))
		return nil
	case "01":
		l.push(value(Bool, 1))
		return nil
	}
	digits := strings.TrimSuffix(strings.TrimSpace(line), "L")
	if n, err := strconv.ParseInt(digits, 10, 64); err == nil {
		l.pushInt(n)
		return nil
	}
	const longest = 1000 // digits: beyond any size or address
	if whole, ok := new(big.Int).SetString(digits[:min(len(digits), longest)], 10); ok {
		f, _ := new(big.Float).SetInt(whole).Float64()
		l.pushFloat(f)
		return nil
	}
	return fmt.Errorf("%q is no whole number", shorten(line))
}

func (l *loader) textFloat() error {
	line, err := l.line()
	if err != nil {
		return err
	}
	f, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return fmt.Errorf("%q is no number", shorten(line))
	}
	l.pushFloat(f)
	return nil
}

func (l *loader) binFloat() error {
	raw, err := l.take(8)
	if err != nil {
		return err
	}
	l.pushFloat(math.Float64frombits(binary.BigEndian.Uint64(raw)))
	return nil
}

func (l *loader) text(kind Kind, size int) error {
	n, err := l.uint(size)
	if err != nil {
		return err
	}
	raw, err := l.take(n)
	if err != nil {
		return err
	}
	l.pushText(kind, raw)
	return nil
}

// textString reads STRING: a quoted Python literal.
func (l *loader) textString() error {
	line, err := l.line()
	if err != nil {
		return err
	}
	line = strings.TrimSpace(line)
	if len(line) < 2 || line[0] != line[len(line)-1] || line[0] != '\'' && line[0] != '"' {
		return fmt.Errorf("%q is no quoted text", shorten(line))
	}
	l.pushText(String, unescape(line[1:len(line)-1], true))
	return nil
}

// textUnicode reads UNICODE, which is in Python's raw-unicode-escape.
func (l *loader) textUnicode() error {
	line, err := l.line()
	if err != nil {
		return err
	}
	l.pushText(String, unescape(line, false))
	return nil
}

// simpleEscapes are what one letter behind a backslash stands for, escapeDigits the hexadecimal digits of those that
// have some.
var (
	simpleEscapes = map[byte]byte{'n': '\n', 't': '\t', 'r': '\r', '\\': '\\', '\'': '\'', '"': '"', 'a': 7, 'b': 8,
		'f': 12, 'v': 11}
	escapeDigits = map[byte]int{'u': 4, 'U': 8}
)

// unescape resolves backslashes: all of Python's when full, else only \u and \U. What is no valid escape stays as it
// is.
func unescape(text string, full bool) []byte {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c != '\\' || i+1 == len(text) {
			if c >= utf8.RuneSelf && !full { // raw-unicode-escape is Latin-1 beside its escapes
				out = utf8.AppendRune(out, rune(c))
				continue
			}
			out = append(out, c)
			continue
		}
		next := text[i+1]
		n := escapeDigits[next]
		if full && next == 'x' {
			n = 2
		}
		if n > 0 && i+2+n <= len(text) {
			if code, err := strconv.ParseUint(text[i+2:i+2+n], 16, 32); err == nil {
				if next == 'x' {
					out = append(out, byte(code))
				} else {
					out = utf8.AppendRune(out, rune(code))
				}
				i += 1 + n
				continue
			}
		}
		if plain, ok := simpleEscapes[next]; full && ok {
			out = append(out, plain)
			i++
			continue
		}
		out = append(out, c)
	}
	return out
}

func shorten(text string) string {
	const longest = 40
	if len(text) > longest {
		return text[:longest] + "..."
	}
	return text
}
