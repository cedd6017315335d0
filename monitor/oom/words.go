package oom

import "bytes"

// wordFinder finds many fixed words in a text at once, looking at a fraction of its bytes. The method is that of Wu and Manber
// ("A fast algorithm for multi-pattern searching", University of Arizona TR-94-17): the two bytes at the end of a window as long as the
// shortest word say how far the window may jump before any word could end there.
type wordFinder struct {
	words  [][]byte
	window int            // bytes of the shortest word
	jump   [1 << 16]uint8 // by two bytes; 0: a word may start at this window
	// first and follow chain the words by the last two bytes of their first window bytes: numbers counted from 1, 0 ends a chain.
	first  [1 << 16]uint8
	follow []uint8
}

// newWordFinder makes a finder for at most 255 words of at least two bytes each.
func newWordFinder(words []string) *wordFinder {
	f := &wordFinder{window: len(words[0]), follow: make([]uint8, len(words)+1)}
	for _, w := range words {
		f.words = append(f.words, []byte(w))
		f.window = min(f.window, len(w))
	}
	for i := range f.jump {
		f.jump[i] = uint8(f.window - 1)
	}
	for n, w := range f.words {
		for end := 1; end < f.window; end++ {
			pair := pairOf(w[end-1], w[end])
			f.jump[pair] = min(f.jump[pair], uint8(f.window-1-end))
		}
		last := pairOf(w[f.window-2], w[f.window-1])
		f.follow[n+1], f.first[last] = f.first[last], uint8(n+1)
	}
	return f
}

func pairOf(a, b byte) uint16 { return uint16(a)<<8 | uint16(b) }

// next returns the place and the number of the first word at or after from, or -1, -1.
func (f *wordFinder) next(text []byte, from int) (at, word int) {
	for i := from + f.window - 1; i < len(text); {
		pair := pairOf(text[i-1], text[i])
		if jump := f.jump[pair]; jump > 0 {
			i += int(jump)
			continue
		}
		start := i - f.window + 1
		for n := f.first[pair]; n > 0; n = f.follow[n] {
			if bytes.HasPrefix(text[start:], f.words[n-1]) {
				return start, int(n - 1)
			}
		}
		i++
	}
	return -1, -1
}
