package python

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// quoted reads a string literal whose prefix has been read.
func (l *lexer) quoted(prefix string) {
	line := l.line
	quote := l.src[l.at : l.at+1]
	if triple := strings.Repeat(quote, 3); strings.HasPrefix(l.src[l.at:], triple) {
		quote = triple
	}
	start := l.at + len(quote)
	formatted := strings.ContainsAny(prefix, "ft")
	end, closed := -1, false
	if formatted {
		end, closed = formattedEnd(l.src, start, quote)
	}
	if !closed {
		end, closed = plainEnd(l.src, start, quote)
	}
	body := l.src[start:end]
	l.at = end
	if closed {
		l.at += len(quote)
	} else {
		l.problem(line, "string is never closed; close it there")
	}
	t := token{stringToken, "", line}
	switch {
	case formatted:
		t.kind, t.text = opaqueToken, "an f-string"
	case strings.Contains(prefix, "b"):
		t.kind, t.text = opaqueToken, "bytes"
	case strings.Contains(prefix, "r"):
		t.text = body
	default:
		t.text = unescape(body)
	}
	l.tokens = append(l.tokens, t)
	l.line += strings.Count(body, "\n")
}

// plainEnd finds the closing quote; without one, the end of the line, or of the file for triple quotes.
func plainEnd(src string, start int, quote string) (end int, closed bool) {
	for i := start; i < len(src); i++ {
		switch {
		case src[i] == '\\':
			i++
		case src[i] == '\n' && len(quote) == 1:
			return i, false
		case strings.HasPrefix(src[i:], quote):
			return i, true
		}
	}
	return len(src), false
}

// maxFields bounds the nesting of strings in replacement fields in strings ...
const maxFields = 16

// formattedEnd finds the closing quote of an f-string, in whose replacement fields the same quotes may stand (since
// Python 3.12).
func formattedEnd(src string, start int, quote string) (end int, closed bool) {
	return formattedEndAt(src, start, quote, 0)
}

func formattedEndAt(src string, start int, quote string, depth int) (end int, closed bool) {
	if depth == maxFields {
		return start, false
	}
	for i := start; i < len(src); i++ {
		switch {
		case src[i] == '\\':
			i++
		case src[i] == '\n' && len(quote) == 1:
			return i, false
		case strings.HasPrefix(src[i:], quote):
			return i, true
		case strings.HasPrefix(src[i:], "{{"):
			i++
		case src[i] == '{':
			after, ok := fieldEnd(src, i+1, depth)
			if !ok {
				return i, false
			}
			i = after
		}
	}
	return len(src), false
}

// fieldEnd finds the closing brace of a replacement field. After the colon of its format, quotes mean nothing.
func fieldEnd(src string, start, depth int) (end int, ok bool) {
	brackets, format := 0, false
	const longest = 1024 // fields of real code have a few words; a longer one is broken code, and costs no more time
	src = src[:min(len(src), start+longest)]
	for i := start; i < len(src); i++ {
		switch c := src[i]; {
		case c == '}' && brackets == 0:
			return i, true
		case c == '{' || (c == '(' || c == '[') && !format:
			brackets++
		case c == '}' || (c == ')' || c == ']') && !format:
			brackets--
		case c == ':' && brackets == 0:
			format = true
		case (c == '"' || c == '\'') && !format:
			quote := src[i : i+1]
			if triple := strings.Repeat(quote, 3); strings.HasPrefix(src[i:], triple) {
				quote = triple
			}
			inner, closed := formattedEndAt(src, i+len(quote), quote, depth+1)
			if !closed {
				return i, false
			}
			i = inner + len(quote) - 1
		}
	}
	return len(src), false
}

// unescape decodes the escapes of an ordinary string; unknown ones stay as they are, as in Python.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			out.WriteByte(s[i])
			continue
		}
		i++
		switch c := s[i]; c {
		case '\n':
		case '\\', '\'', '"':
			out.WriteByte(c)
		case 'n', 't', 'r', 'a', 'b', 'f', 'v':
			out.WriteByte("\n\t\r\a\b\f\v"[strings.IndexByte("ntrabfv", c)])
		case 'x', 'u', 'U':
			i += writeRune(&out, s[i+1:], map[byte]int{'x': 2, 'u': 4, 'U': 8}[c], 16, s[i-1:i+1])
		case '0', '1', '2', '3', '4', '5', '6', '7':
			digits := 1
			for digits < 3 && i+digits < len(s) && s[i+digits] >= '0' && s[i+digits] <= '7' {
				digits++
			}
			i += writeRune(&out, s[i:], digits, 8, "") - 1
		default:
			out.WriteByte('\\')
			out.WriteByte(c)
		}
	}
	return out.String()
}

// writeRune decodes the first digits of s and returns how many bytes it took; otherwise it writes raw and takes none.
func writeRune(out *strings.Builder, s string, digits, base int, raw string) int {
	if len(s) >= digits {
		if n, err := strconv.ParseUint(s[:digits], base, 32); err == nil && n <= utf8.MaxRune {
			out.WriteRune(rune(n))
			return digits
		}
	}
	out.WriteString(raw)
	return 0
}
