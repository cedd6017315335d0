package oom

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"
)

// guarded is a pattern with the texts of which every match holds one: to look for those first is much faster.
type guarded struct {
	texts   []string
	pattern *regexp.Regexp // nil: the one text is the whole pattern
}

func newGuarded(pattern string) guarded {
	g := guarded{texts: textsOf(pattern), pattern: regexp.MustCompile(pattern)}
	if _, whole := g.pattern.LiteralPrefix(); whole {
		g.pattern = nil
	}
	return g
}

func (g guarded) isIn(s string) bool {
	return holdsAny(s, g.texts) && (g.pattern == nil || g.pattern.MatchString(s))
}

// holdsAny tells whether a text may hold a match; without guards any may.
func holdsAny(s string, texts []string) bool {
	return len(texts) == 0 || slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(s, t) })
}

// textsOf returns texts of which every match of a pattern holds at least one; nil where none are known.
func textsOf(pattern string) []string {
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil
	}
	return textsIn(tree)
}

func textsIn(tree *syntax.Regexp) []string {
	switch {
	case tree.Op == syntax.OpLiteral && tree.Flags&syntax.FoldCase == 0:
		return []string{string(tree.Rune)}
	case tree.Op == syntax.OpCapture, tree.Op == syntax.OpPlus:
		return textsIn(tree.Sub[0])
	case tree.Op == syntax.OpConcat: // the part whose shortest text is longest says most
		var best []string
		for _, part := range tree.Sub {
			if texts := textsIn(part); shortest(texts) > shortest(best) {
				best = texts
			}
		}
		return best
	case tree.Op == syntax.OpAlternate:
		var all []string
		for _, branch := range tree.Sub {
			texts := textsIn(branch)
			if texts == nil {
				return nil
			}
			all = append(all, texts...)
		}
		return all
	}
	return nil
}

func shortest(texts []string) int {
	if len(texts) == 0 {
		return 0
	}
	return len(slices.MinFunc(texts, func(a, b string) int { return len(a) - len(b) }))
}

// beginnings are patterns for the start of a line, of which the first that matches counts. Most lines begin with a
// letter that few allow.
type beginnings struct {
	of [][]guarded // by the first byte of a line
}

func newBeginnings(patterns ...string) beginnings {
	b := beginnings{of: make([][]guarded, 256)}
	for _, p := range patterns {
		g := guarded{texts: textsOf(p), pattern: regexp.MustCompile(`^(?:` + p + `)`)}
		for first := range 256 {
			if mayBegin(p, byte(first)) {
				b.of[first] = append(b.of[first], g)
			}
		}
	}
	return b
}

// in returns the length of what a line begins with, 0 for none of the patterns.
func (b beginnings) in(line string) int {
	if line == "" {
		return 0
	}
	for _, g := range b.of[line[0]] {
		if !holdsAny(line, g.texts) {
			continue
		}
		if n := len(g.pattern.FindString(line)); n > 0 {
			return n
		}
	}
	return 0
}

// mayBegin tells whether a match of a pattern may begin with a byte; a byte beyond ASCII may begin any.
func mayBegin(pattern string, first byte) bool {
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil || first >= utf8.RuneSelf {
		return true
	}
	program, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return true
	}
	seen := make([]bool, len(program.Inst))
	var reach func(at uint32) bool
	reach = func(at uint32) bool {
		if seen[at] {
			return false
		}
		seen[at] = true
		switch i := &program.Inst[at]; i.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			return reach(i.Out) || reach(i.Arg)
		case syntax.InstCapture, syntax.InstEmptyWidth, syntax.InstNop:
			return reach(i.Out)
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			return i.MatchRune(rune(first))
		default:
			return i.Op == syntax.InstMatch
		}
	}
	return reach(uint32(program.Start))
}
