package python

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind int

const (
	endToken tokenKind = iota
	nameToken
	numberToken
	stringToken // text is the decoded value
	opaqueToken // bytes, f-strings and t-strings: values that are not read; text says what it is
	opToken
	newlineToken // end of a logical line
	indentToken
	dedentToken
)

type token struct {
	kind tokenKind
	text string
	line int
}

// A lexer cuts source into tokens in one pass. It never fails: what Python would refuse becomes a problem and is
// stepped over.
type lexer struct {
	src      string
	at, line int
	brackets []token // that are open
	indents  []int
	tokens   []token
	problems []error
	shown    string
	fresh    bool // a logical line begins here
}

// maxProblems bounds how many broken places of one file are told.
const maxProblems = 5

func lex(src, shown string) *lexer {
	src = strings.TrimPrefix(src, "\ufeff")
	src = strings.ReplaceAll(strings.ReplaceAll(src, "\r\n", "\n"), "\r", "\n")
	l := &lexer{src: src, line: 1, indents: []int{0}, shown: shown, fresh: true}
	for l.at < len(l.src) {
		if l.fresh {
			l.indentation()
			continue
		}
		l.next()
	}
	if len(l.brackets) > 0 {
		l.unclosed()
	}
	l.endLine()
	for range l.indents[1:] {
		l.add(dedentToken, "")
	}
	l.add(endToken, "")
	return l
}

func (l *lexer) problem(line int, format string, args ...any) {
	if len(l.problems) < maxProblems {
		l.problems = append(l.problems, fmt.Errorf("%s:%d: %s", l.shown, line, fmt.Sprintf(format, args...)))
	}
}

func (l *lexer) add(kind tokenKind, text string) {
	l.tokens = append(l.tokens, token{kind, text, l.line})
}

func (l *lexer) endLine() {
	if n := len(l.tokens); n > 0 && l.tokens[n-1].kind != newlineToken && l.tokens[n-1].kind != dedentToken &&
		l.tokens[n-1].kind != indentToken {
		l.add(newlineToken, "")
	}
}

// indentation reads the blanks in front of a line and compares them with the lines before. Lines without code do not
// count.
func (l *lexer) indentation() {
	width := l.blanks()
	l.fresh = false
	if rest := l.src[l.at:]; rest == "" || rest[0] == '#' || rest[0] == '\n' {
		return
	}
	top := func() int { return l.indents[len(l.indents)-1] }
	for width < top() {
		l.indents = l.indents[:len(l.indents)-1]
		l.add(dedentToken, "")
		if width > top() {
			l.problem(l.line, "indentation matches no line before; correct it there")
		}
	}
	if width > top() {
		l.indents = append(l.indents, width)
		l.add(indentToken, "")
	}
}

// blanks steps over them and returns the column after them; a tab goes to the next multiple of eight, as for Python's
// tokenizer.
func (l *lexer) blanks() (width int) {
	for ; l.at < len(l.src); l.at++ {
		switch l.src[l.at] {
		case ' ':
			width++
		case '\t':
			width += 8 - width%8
		case '\f':
			width = 0
		default:
			return width
		}
	}
	return width
}

func lineLength(s string) int {
	if i := strings.IndexByte(s, '\n'); i >= 0 {
		return i
	}
	return len(s)
}

// next reads one token, or steps over blanks, comments and continuation lines.
func (l *lexer) next() {
	c := l.src[l.at]
	switch {
	case c == '\n':
		l.at++
		if len(l.brackets) == 0 {
			l.endLine()
			l.fresh = true
		}
		l.line++
	case c == ' ' || c == '\t' || c == '\f':
		l.at++
	case c == '#':
		l.at += lineLength(l.src[l.at:])
	case c == '\\' && strings.HasPrefix(l.src[l.at:], "\\\n"):
		l.at += 2
		l.line++
	case c >= '0' && c <= '9', c == '.' && l.at+1 < len(l.src) && isDigit(l.src[l.at+1]):
		l.number()
	case c == '"' || c == '\'':
		l.quoted("")
	default:
		l.nameOrOperator()
	}
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isNameRune(r rune) bool {
	return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.Is(unicode.M, r)
}

func (l *lexer) nameOrOperator() {
	end := l.at
	for end < len(l.src) {
		r, size := utf8.DecodeRuneInString(l.src[end:])
		if !isNameRune(r) {
			break
		}
		end += size
	}
	if end == l.at {
		l.operator()
		return
	}
	word := l.src[l.at:end]
	if len(word) <= 2 && end < len(l.src) && (l.src[end] == '"' || l.src[end] == '\'') &&
		strings.Trim(strings.ToLower(word), "rbuft") == "" {
		l.at = end
		l.quoted(strings.ToLower(word))
		return
	}
	// No statement begins inside brackets: a bracket before it was never closed.
	if len(l.brackets) > 0 && isStatementWord(word) {
		l.unclosed()
		l.endLine()
		if start := strings.LastIndexByte(l.src[:l.at], '\n') + 1; strings.TrimLeft(l.src[start:l.at], " \t\f") == "" {
			l.at, l.fresh = start, true
		}
		return
	}
	l.add(nameToken, word)
	l.at = end
}

// isStatementWord: keywords that cannot stand inside brackets.
func isStatementWord(word string) bool {
	switch word {
	case "def", "class", "import", "return", "with", "while", "try", "except", "finally", "raise", "assert", "del",
		"global", "nonlocal", "pass", "break", "continue":
		return true
	}
	return false
}

func (l *lexer) unclosed() {
	open := l.brackets[len(l.brackets)-1]
	l.problem(open.line, "%q is never closed; close it there", open.text)
	l.brackets = nil
}

func (l *lexer) operator() {
	rest := l.src[l.at:]
	for _, size := range []int{3, 2} {
		if len(rest) >= size && isLongOperator(rest[:size]) {
			l.add(opToken, rest[:size])
			l.at += size
			return
		}
	}
	_, size := utf8.DecodeRuneInString(rest)
	op := rest[:size]
	l.add(opToken, op)
	l.at += size
	switch op {
	case "(", "[", "{":
		l.brackets = append(l.brackets, l.tokens[len(l.tokens)-1])
	case ")", "]", "}":
		if n := len(l.brackets); n > 0 {
			l.brackets = l.brackets[:n-1]
		} else {
			l.problem(l.line, "%q closes nothing; correct it there", op)
		}
	}
}

func isLongOperator(s string) bool {
	switch s {
	case "**=", "//=", ">>=", "<<=", "...",
		"**", "//", ">>", "<<", "==", "!=", "<=", ">=", "->", ":=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=",
		"@=":
		return true
	}
	return false
}

func (l *lexer) number() {
	end := l.at
	lower := strings.ToLower(l.src[l.at:min(len(l.src), l.at+2)])
	based := lower == "0x" || lower == "0o" || lower == "0b"
	for ; end < len(l.src); end++ {
		c := l.src[end]
		sign := (c == '+' || c == '-') && !based && end > l.at && (l.src[end-1] == 'e' || l.src[end-1] == 'E')
		if !isDigit(c) && c != '.' && c != '_' && !sign && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			break
		}
	}
	l.add(numberToken, l.src[l.at:end])
	l.at = end
}
