package oom

import (
	"strings"
	"testing"
)

// TestWatchedWords: the finder reports one word a place, so no word may hide another, and its chains hold 255.
func TestWatchedWords(t *testing.T) {
	words, readers := watched()
	if len(words) != len(readers) || len(words) > 255 {
		t.Fatalf("%d words, %d readers", len(words), len(readers))
	}
	for i, w := range words {
		for j, o := range words {
			if i != j && strings.HasPrefix(o, w) {
				t.Errorf("%q hides %q", w, o)
			}
		}
	}
	finder := newWordFinder(words)
	for i, w := range words {
		text := "some text before#" + w + "#and after"
		if at, n := finder.next([]byte(text), 0); at != strings.Index(text, w) || n != i {
			t.Errorf("%q: found word %d at %d", w, n, at)
		}
	}
}
