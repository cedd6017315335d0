package shell

import "strings"

// A word of a command whose text is not wholly known holds gaps: NUL, a kind, the source text, SOH, the reason, NUL. A word that the
// system hands to a program never contains NUL, so a gap cannot be mistaken for text.
const (
	gapEdge   = '\x00'
	gapMiddle = '\x01'
	// gapText stands for text within one word, gapWords for an unquoted expansion that may be any number of words.
	gapText  = 't'
	gapWords = 'w'
)

func gap(kind byte, source, why string) string {
	clean := strings.NewReplacer(string(gapEdge), "", string(gapMiddle), "")
	return string(gapEdge) + string(kind) + clean.Replace(source) + string(gapMiddle) + clean.Replace(why) + string(gapEdge)
}

// nextGap finds the first gap of a text: what stands before it, its parts, and what follows.
func nextGap(text string) (before string, kind byte, source, why, after string, found bool) {
	before, rest, found := strings.Cut(text, string(gapEdge))
	inside, after, closed := strings.Cut(rest, string(gapEdge))
	if !found || !closed || inside == "" {
		return text, 0, "", "", "", false
	}
	source, why, _ = strings.Cut(inside[1:], string(gapMiddle))
	return before, inside[0], source, why, after, true
}

// Unknown reports whether a part of a word is not known, and why: "$N is set neither in the script nor in the environment (run.sh:7)".
func Unknown(word string) (why string, unknown bool) {
	_, _, _, why, _, unknown = nextGap(word)
	return why, unknown
}

// Several reports whether a word may stand for any number of words, options among them: it begins with an unquoted expansion that is
// not known.
func Several(word string) bool {
	before, kind, _, _, _, found := nextGap(word)
	return found && before == "" && kind == gapWords
}

// Plain is a word as people read it, with the source text in place of what is not known.
func Plain(word string) string {
	var out strings.Builder
	for {
		before, _, source, _, after, found := nextGap(word)
		out.WriteString(before)
		if !found {
			return out.String()
		}
		out.WriteString(source)
		word = after
	}
}

// withKind gives every gap of a text one kind.
func withKind(text string, kind byte) string {
	var out strings.Builder
	for {
		before, _, source, why, after, found := nextGap(text)
		out.WriteString(before)
		if !found {
			return out.String()
		}
		out.WriteString(gap(kind, source, why))
		text = after
	}
}
