package shell

import "strings"

// A word of a command whose text is not wholly known holds gaps: NUL, a kind, the source text, SOH, the reason, NUL. A
// word that the system hands to a program never contains NUL, so a gap cannot be mistaken for text.
const (
	gapEdge   = '\x00'
	gapMiddle = '\x01'
	// gapText stands for text within one word, gapWords for an unquoted expansion that may be any number of words.
	gapText  = 't'
	gapWords = 'w'
	// gapUnset and gapUnsetWords are the same for a variable that is set nowhere: the shell would put nothing there.
	gapUnset      = 'u'
	gapUnsetWords = 'v'
)

// asText and asWords turn a kind of gap into the one within a word, and into the one of an unquoted expansion.
func asText(kind byte) byte {
	if kind == gapUnset || kind == gapUnsetWords {
		return gapUnset
	}
	return gapText
}

func asWords(kind byte) byte {
	if kind == gapUnset || kind == gapUnsetWords {
		return gapUnsetWords
	}
	return gapWords
}

func gap(kind byte, source, why string) string {
	clean := strings.NewReplacer(string(gapEdge), "", string(gapMiddle), "")
	return string(gapEdge) + string(kind) + clean.Replace(source) +
		string(gapMiddle) + clean.Replace(why) + string(gapEdge)
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

// Unknown reports whether a part of a word is not known, and why: "$N is set neither in the script nor in the
// environment (run.sh:7)".
func Unknown(word string) (why string, unknown bool) {
	_, _, _, why, _, unknown = nextGap(word)
	return why, unknown
}

// Reasons are those of all parts of a word that are not known.
func Reasons(word string) []string {
	var list []string
	for {
		_, _, _, why, after, found := nextGap(word)
		if !found {
			return list
		}
		list, word = append(list, why), after
	}
}

// Whole reports whether nothing of a word is known.
func Whole(word string) bool {
	before, _, _, _, after, found := nextGap(word)
	return found && before == "" && (after == "" || Whole(after))
}

// Output reports whether a word begins with what a program prints that is not run: it may as well be a path as options.
func Output(word string) bool {
	before, _, source, _, _, found := nextGap(word)
	return found && before == "" && (strings.HasPrefix(source, "$(") || strings.HasPrefix(source, "`"))
}

// Several reports whether a word may stand for any number of words, options among them: it begins with an unquoted
// expansion that is not known.
func Several(word string) bool {
	before, kind, _, _, _, found := nextGap(word)
	return found && before == "" && asWords(kind) == kind
}

// Empty is a word as the shell makes it: nothing stands where a variable is set nowhere. vanishes: the word is unquoted
// and nothing else, so that it is no word at all. unset are the reasons of what was taken for empty; with none, text is
// the word as it was.
func Empty(word string) (text string, vanishes bool, unset []string) {
	var out strings.Builder
	vanishes = true
	for {
		before, kind, source, why, after, found := nextGap(word)
		out.WriteString(before)
		vanishes = vanishes && before == ""
		if !found {
			return out.String(), vanishes && len(unset) > 0, unset
		}
		if kind == gapUnset || kind == gapUnsetWords {
			unset = append(unset, why)
		} else {
			out.WriteString(gap(kind, source, why))
		}
		vanishes = vanishes && kind == gapUnsetWords
		word = after
	}
}

// without is a text without what is set nowhere.
func without(text string) string {
	text, _, _ = Empty(text)
	return text
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

// withKind changes the kind of every gap of a text.
func withKind(text string, change func(kind byte) byte) string {
	var out strings.Builder
	for {
		before, kind, source, why, after, found := nextGap(text)
		out.WriteString(before)
		if !found {
			return out.String()
		}
		out.WriteString(gap(change(kind), source, why))
		text = after
	}
}
