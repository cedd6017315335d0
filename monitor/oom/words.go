package oom

import "bytes"

// wordFinder finds many fixed words in a text at once, looking at a fraction of its bytes. The method is that of Wu and
// Manber ("A fast algorithm for multi-pattern searching", University of Arizona TR-94-17): the three bytes at the end
// of a window as long as the shortest word say how far the window may jump before any word could end there.
type wordFinder struct {
	words  [][]byte
	window int                   // bytes of the shortest word
	jump   [1 << blockBits]uint8 // by the hash of three bytes; 0: a word may start at this window
	// first and follow chain the words by the last three bytes of their first window bytes: numbers counted from 1, 0
	// ends a chain.
	first  [1 << blockBits]uint8
	follow []uint8
}

// newWordFinder makes a finder for at most 255 words of at least three bytes each.
func newWordFinder(words []string) *wordFinder {
	f := &wordFinder{window: len(words[0]), follow: make([]uint8, len(words)+1)}
	for _, w := range words {
		f.words = append(f.words, []byte(w))
		f.window = min(f.window, len(w))
	}
	for i := range f.jump {
		f.jump[i] = uint8(f.window - 2)
	}
	for n, w := range f.words {
		for end := 2; end < f.window; end++ {
			block := blockOf(w[end-2], w[end-1], w[end])
			f.jump[block] = min(f.jump[block], uint8(f.window-1-end))
		}
		last := blockOf(w[f.window-3], w[f.window-2], w[f.window-1])
		f.follow[n+1], f.first[last] = f.first[last], uint8(n+1)
	}
	return f
}

// blockBits keeps both tables in a processor's nearest cache; a larger one with fewer collisions is slower.
const blockBits = 13

// blockOf hashes three bytes; blocks that share a hash cost a look, never a word.
func blockOf(a, b, c byte) uint16 {
	return (uint16(a)<<8 ^ uint16(b)<<4 ^ uint16(c)) & (1<<blockBits - 1)
}

// next returns the place and the number of the first word at or after from, or -1, -1.
func (f *wordFinder) next(text []byte, from int) (at, word int) {
	for i := from + f.window - 1; i < len(text); {
		block := blockOf(text[i-2], text[i-1], text[i])
		if jump := f.jump[block]; jump > 0 {
			i += int(jump)
			continue
		}
		start := i - f.window + 1
		for n := f.first[block]; n > 0; n = f.follow[n] {
			if bytes.HasPrefix(text[start:], f.words[n-1]) {
				return start, int(n - 1)
			}
		}
		i++
	}
	return -1, -1
}
