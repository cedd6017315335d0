package pickle

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// maxLine bounds one line of protocol 0; Python's own has none, but numbers and names are short and texts of a megabyte
// suspicious.
const maxLine = 1 << 20

// Load reads one pickle. It reads each byte once and keeps a few times the size of the input, never more: each opcode
// makes at most a few words, and lengths that the file claims are believed only as far as bytes follow. The error names
// the offset.
func Load(r io.Reader) (*Document, error) {
	l := &loader{in: bufio.NewReaderSize(r, 1<<16), doc: &Document{}, interned: map[string]int64{}}
	if err := l.run(); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("the file ends in the middle of the pickle; it was cut off, or is still being written")
		}
		return nil, fmt.Errorf("pickle: byte %d: %w", l.offset, err)
	}
	return l.doc, nil
}

type loader struct {
	in       *bufio.Reader
	offset   int64
	doc      *Document
	stack    []Value
	memo     []Value
	far      map[int64]Value // memo entries with numbers far from their neighbours
	interned map[string]int64
	buffer   []byte
}

var errStack = errors.New("broken pickle: an operation misses its operands")

// run interprets opcodes until STOP.
func (l *loader) run() error {
	for {
		op, err := l.byte()
		if err != nil {
			return err
		}
		if op == '.' {
			if len(l.stack) == 0 {
				return errStack
			}
			l.doc.root = l.stack[len(l.stack)-1]
			return nil
		}
		step := operations[op]
		if step == nil {
			return fmt.Errorf("0x%02x is no pickle operation; this is not a pickle, or it is damaged", op)
		}
		if err := step(l); err != nil {
			return err
		}
	}
}

func (l *loader) byte() (byte, error) {
	b, err := l.in.ReadByte()
	if err == nil {
		l.offset++
	}
	return b, err
}

// take reads n bytes into a buffer that lives until the next call. A lie about n costs no more memory than there are
// bytes.
func (l *loader) take(n uint64) ([]byte, error) {
	const chunk = 1 << 20
	l.buffer = l.buffer[:0]
	for n > 0 {
		part := min(n, chunk)
		have := len(l.buffer)
		l.buffer = append(l.buffer, make([]byte, part)...)
		got, err := io.ReadFull(l.in, l.buffer[have:])
		l.offset += int64(got)
		if err != nil {
			return nil, err
		}
		n -= part
	}
	return l.buffer, nil
}

// uint reads a little-endian number of 1, 2, 4 or 8 bytes.
func (l *loader) uint(size int) (uint64, error) {
	raw, err := l.take(uint64(size))
	if err != nil {
		return 0, err
	}
	var wide [8]byte
	copy(wide[:], raw)
	return binary.LittleEndian.Uint64(wide[:]), nil
}

// line reads up to the newline of a text opcode, without it.
func (l *loader) line() (string, error) {
	var b strings.Builder
	for {
		c, err := l.byte()
		switch {
		case err != nil:
			return "", err
		case c == '\n':
			return strings.TrimSuffix(b.String(), "\r"), nil
		case b.Len() == maxLine:
			return "", errors.New("a line of more than a megabyte")
		}
		b.WriteByte(c)
	}
}

func (l *loader) push(v Value) { l.stack = append(l.stack, v) }

func (l *loader) pushInt(n int64) {
	if n<<kindBits>>kindBits == n {
		l.push(value(Int, n))
		return
	}
	l.push(value(wideInt, l.widen(uint64(n))))
}

func (l *loader) widen(bits uint64) int64 {
	l.doc.wide = append(l.doc.wide, bits)
	return int64(len(l.doc.wide) - 1)
}

func (l *loader) pushFloat(f float64) { l.push(value(Float, l.widen(math.Float64bits(f)))) }

// pushText stores a text once, however often the pickle repeats it.
func (l *loader) pushText(kind Kind, raw []byte) {
	const short = 1 << 12 // longer texts are rarely repeated
	if len(raw) > short {
		l.doc.strings = append(l.doc.strings, string(raw))
		l.push(value(kind, int64(len(l.doc.strings)-1)))
		return
	}
	index, ok := l.interned[string(raw)]
	if !ok {
		index = int64(len(l.doc.strings))
		text := string(raw)
		l.doc.strings = append(l.doc.strings, text)
		l.interned[text] = index
	}
	l.push(value(kind, index))
}

// pushItems makes a container of items, which it keeps.
func (l *loader) pushItems(kind Kind, items []Value) {
	l.doc.lists = append(l.doc.lists, items)
	l.push(value(kind, int64(len(l.doc.lists)-1)))
}

func (l *loader) pop() (Value, error) {
	if len(l.stack) == 0 || l.stack[len(l.stack)-1].kind() == mark {
		return 0, errStack
	}
	v := l.stack[len(l.stack)-1]
	l.stack = l.stack[:len(l.stack)-1]
	return v, nil
}

// popSeveral takes the top n values, the topmost last. The result lives until the next push.
func (l *loader) popSeveral(n int) ([]Value, error) {
	below := len(l.stack) - n
	if below < 0 || slices.ContainsFunc(l.stack[below:], func(v Value) bool { return v.kind() == mark }) {
		return nil, errStack
	}
	items := l.stack[below:]
	l.stack = l.stack[:below]
	return items, nil
}

// popMark takes what lies above the last mark, and the mark. The result lives until the next push.
func (l *loader) popMark() ([]Value, error) {
	for i, v := range slices.Backward(l.stack) {
		if v.kind() == mark {
			items := l.stack[i+1:]
			l.stack = l.stack[:i]
			return items, nil
		}
	}
	return nil, errStack
}

// extend adds items to the container on top of the stack. Anything but a container of data is left as it is: only
// Python could know.
func (l *loader) extend(items []Value, kinds ...Kind) error {
	if len(l.stack) == 0 {
		return errStack
	}
	top := l.stack[len(l.stack)-1]
	for _, k := range kinds {
		if top.kind() == k {
			l.doc.lists[top.payload()] = append(l.doc.lists[top.payload()], items...)
			return nil
		}
	}
	if top.kind() == Object {
		return nil
	}
	return errStack
}

// put remembers the top of the stack under a number.
func (l *loader) put(index int64) error {
	if len(l.stack) == 0 || index < 0 {
		return errStack
	}
	top := l.stack[len(l.stack)-1]
	switch {
	case index < int64(len(l.memo)):
		l.memo[index] = top
	case index == int64(len(l.memo)):
		l.memo = append(l.memo, top)
	default:
		if l.far == nil {
			l.far = map[int64]Value{}
		}
		l.far[index] = top
	}
	return nil
}

func (l *loader) get(index int64) error {
	if v, ok := l.far[index]; ok {
		l.push(v)
		return nil
	}
	if index < 0 || index >= int64(len(l.memo)) {
		return fmt.Errorf("broken pickle: it refers to object %d, which it has not defined", index)
	}
	l.push(l.memo[index])
	return nil
}

// call stands for what Python would build by calling a class: an Object with the class' name, or a dictionary for the
// classes that are one. Its arguments are dropped.
func (l *loader) call(class Value) {
	switch l.doc.Text(class) {
	case "collections.OrderedDict", "collections.defaultdict", "__builtin__.dict", "builtins.dict":
		l.pushItems(Dict, nil)
	case "__builtin__.set", "builtins.set", "__builtin__.frozenset", "builtins.frozenset":
		l.pushItems(Set, nil)
	default:
		if class.kind() == Object {
			l.push(class)
			return
		}
		l.pushText(Object, nil)
	}
}
