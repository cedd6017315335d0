package secrets

import "strings"

// token is a word of a shell text: where it stands, and what it is without its quotes.
type token struct {
	start, end int
	text       string
	ends       bool // a command ends behind it
}

// written is what stands for a token in the text, now that its words are clean.
func (t token) written(raw, clean string) string {
	if clean == t.text {
		return raw
	}
	// what is the same at both ends stays as it was written
	if head, tail := common(t.text, clean); head+tail < len(t.text) {
		if secret := t.text[head : len(t.text)-tail]; strings.Count(raw, secret) == 1 {
			return strings.Replace(raw, secret, clean[head:len(clean)-tail], 1)
		}
	}
	if !strings.ContainsAny(clean, " \t\n'\"\\$;&|<>()`") {
		return clean
	}
	return "'" + strings.ReplaceAll(clean, "'", `'\''`) + "'"
}

// common is how many bytes two texts share at their beginning and at their end.
func common(a, b string) (head, tail int) {
	for head < min(len(a), len(b)) && a[head] == b[head] {
		head++
	}
	for tail < min(len(a), len(b))-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	return head, tail
}

// lex finds the words of a shell text. It knows quotes and the signs that end commands; whatever else there is, it
// takes as letters.
func lex(text string) []token {
	var tokens []token
	var word strings.Builder
	start := -1
	end := func(i int, ends bool) {
		if start >= 0 {
			tokens = append(tokens, token{start, i, word.String(), ends})
			word.Reset()
			start = -1
		} else if ends && len(tokens) > 0 {
			tokens[len(tokens)-1].ends = true
		}
	}
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case strings.IndexByte(" \t\r", c) >= 0:
			end(i, false)
			continue
		case strings.IndexByte("\n;&|()", c) >= 0:
			end(i, true)
			continue
		}
		if start < 0 {
			start = i
		}
		switch c {
		case '\\':
			if i++; i < len(text) && text[i] != '\n' {
				word.WriteByte(text[i])
			}
		case '\'':
			close := strings.IndexByte(text[i+1:], '\'')
			if close < 0 {
				word.WriteByte(c)
				continue
			}
			word.WriteString(text[i+1 : i+1+close])
			i += close + 1
		case '"':
			i = doubleQuoted(text, i, &word)
		case '$':
			end := substituted(text, i)
			word.WriteString(text[i:end])
			i = end - 1
		default:
			word.WriteByte(c)
		}
	}
	end(len(text), true)
	return tokens
}

// substituted is where $(...) ends that begins at i; behind the sign where it is none.
func substituted(text string, i int) int {
	if i+1 == len(text) || text[i+1] != '(' {
		return i + 1
	}
	depth := 0
	for j := i + 1; j < len(text); j++ {
		switch text[j] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return j + 1
			}
		}
	}
	return i + 1
}

// doubleQuoted adds what stands between double quotes to the word and gives the place of the closing one.
func doubleQuoted(text string, i int, word *strings.Builder) int {
	if strings.IndexByte(text[i+1:], '"') < 0 {
		word.WriteByte('"')
		return i
	}
	for i++; i < len(text) && text[i] != '"'; i++ {
		if text[i] == '\\' && i+1 < len(text) && strings.IndexByte("\"\\$`\n", text[i+1]) >= 0 {
			i++
		}
		word.WriteByte(text[i])
	}
	return min(i, len(text)-1)
}
