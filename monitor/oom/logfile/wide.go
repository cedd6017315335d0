package logfile

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"unicode/utf16"
	"unicode/utf8"
)

// wideOrder tells UTF-16, which PowerShell's > writes, by its byte order mark or by the zero bytes of ASCII text; nil:
// it is none.
func wideOrder(head []byte) binary.ByteOrder {
	switch {
	case bytes.HasPrefix(head, []byte{0xff, 0xfe}):
		return binary.LittleEndian
	case bytes.HasPrefix(head, []byte{0xfe, 0xff}):
		return binary.BigEndian
	case len(head) < 16:
		return nil
	}
	var zeros [2]int
	for i, b := range head {
		if b == 0 {
			zeros[i%2]++
		}
	}
	most := len(head) / 2 * 9 / 10 // of the bytes in even or odd places
	switch {
	case zeros[1] >= most && zeros[0] == 0:
		return binary.LittleEndian
	case zeros[0] >= most && zeros[1] == 0:
		return binary.BigEndian
	}
	return nil
}

// wide converts UTF-16 to UTF-8.
type wide struct {
	in    *bufio.Reader
	order binary.ByteOrder
	rest  []byte // converted and not yet given out
	high  rune   // first half of a pair, 0: none
	raw   [32 << 10]byte
	odd   int // bytes of raw that wait for their other half
}

// Read fills p with converted text.
func (w *wide) Read(p []byte) (int, error) {
	for len(w.rest) == 0 {
		n, err := w.in.Read(w.raw[w.odd:])
		if n == 0 && err != nil {
			return 0, err
		}
		w.convert(w.odd + n)
	}
	n := copy(p, w.rest)
	w.rest = w.rest[n:]
	return n, nil
}

func (w *wide) convert(n int) {
	out := w.rest[:0]
	i := 0
	for ; i+1 < n; i += 2 {
		r := rune(w.order.Uint16(w.raw[i:]))
		switch {
		case r == 0xfeff: // the mark itself
			continue
		case utf16.IsSurrogate(r) && w.high == 0:
			w.high = r
			continue
		case w.high != 0:
			r, w.high = utf16.DecodeRune(w.high, r), 0
		}
		out = utf8.AppendRune(out, r)
	}
	w.odd = copy(w.raw[:], w.raw[i:n])
	w.rest = out
}
