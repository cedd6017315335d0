// Package pickle reads Python pickles of every protocol (0 to 5) as plain data. It is an interpreter of the data
// opcodes only: nothing is imported, called or built, whatever the file asks for. Where a pickle would call a class, a
// value of kind Object stands instead, which knows the name; collections.OrderedDict and defaultdict become
// dictionaries, since they are data in all but name.
//
// The opcodes are those of Python's Lib/pickletools.py.
package pickle

import (
	"math"
	"strconv"
)

// Kind says what a Value is.
type Kind uint8

// The kinds of values.
const (
	None Kind = iota
	Bool
	Int
	Float
	String
	Bytes
	List
	Tuple
	Dict
	Set
	Object // something that only Python could build; Name tells its class

	mark    // on the stack only
	wideInt // a number that needs more than 60 bits
)

// A Value is one Python object of a Document, and two equal Values of a container are the same object: its kind in the
// low bits, above them the number itself or an index into the document's tables. Values take eight bytes, so that a
// file of a gigabyte becomes a few gigabytes and not tens.
type Value uint64

const kindBits = 4

func value(kind Kind, payload int64) Value { return Value(payload<<kindBits) | Value(kind) }

// Kind is what the value is.
func (v Value) Kind() Kind {
	if k := v.kind(); k != wideInt {
		return k
	}
	return Int
}

func (v Value) kind() Kind { return Kind(v & (1<<kindBits - 1)) }

func (v Value) payload() int64 { return int64(v) >> kindBits }

// A Document is one pickle as data.
type Document struct {
	root    Value
	strings []string  // of String, Bytes and Object (its class)
	lists   [][]Value // of List, Tuple and Set; of Dict: key, value, key, value
	wide    []uint64  // of Float and of whole numbers that do not fit into a Value
}

// Root is the pickled object.
func (d *Document) Root() Value { return d.root }

// Int is a whole number; ok is false for any other kind and for numbers beyond 64 bits.
func (d *Document) Int(v Value) (n int64, ok bool) {
	if k := v.kind(); k == Int || k == Bool {
		return v.payload(), true
	} else if k == wideInt {
		return int64(d.wide[v.payload()]), true
	}
	return 0, false
}

// Float is a number of any kind.
func (d *Document) Float(v Value) (f float64, ok bool) {
	if v.kind() == Float {
		return math.Float64frombits(d.wide[v.payload()]), true
	}
	n, ok := d.Int(v)
	return float64(n), ok
}

// Text is the text of a String, the content of Bytes, or the class of an Object ("collections.OrderedDict"); "" for
// other kinds.
func (d *Document) Text(v Value) string {
	if k := v.kind(); k == String || k == Bytes || k == Object {
		return d.strings[v.payload()]
	}
	return ""
}

// Items are the elements of a List, Tuple or Set; nil for other kinds.
func (d *Document) Items(v Value) []Value {
	if k := v.kind(); k == List || k == Tuple || k == Set {
		return d.lists[v.payload()]
	}
	return nil
}

// Len is the number of entries of a container, where a key and its value are two and the container itself is one more.
func (d *Document) Len(v Value) int {
	if k := v.kind(); k == List || k == Tuple || k == Set || k == Dict {
		return 1 + len(d.lists[v.payload()])
	}
	return 1
}

// Entries is the sum of Len over all containers.
func (d *Document) Entries() int {
	n := len(d.lists)
	for _, l := range d.lists {
		n += len(l)
	}
	return n
}

// Get finds a key of a Dict; a None value when it is absent or v is none. When a key was set twice, the last one
// counts, as in Python.
func (d *Document) Get(v Value, key string) Value {
	if v.kind() != Dict {
		return 0
	}
	pairs := d.lists[v.payload()]
	for i := len(pairs) - 2; i >= 0; i -= 2 {
		if k := pairs[i]; (k.kind() == String || k.kind() == Bytes) && d.strings[k.payload()] == key {
			return pairs[i+1]
		}
	}
	return 0
}

// Keys are the text keys of a Dict in the order of the pickle.
func (d *Document) Keys(v Value) []string {
	if v.kind() != Dict {
		return nil
	}
	var keys []string
	for i := 0; i+1 < len(d.lists[v.payload()]); i += 2 {
		if k := d.lists[v.payload()][i]; k.kind() == String || k.kind() == Bytes {
			keys = append(keys, d.strings[k.payload()])
		}
	}
	return keys
}

// Show is a short form of a scalar for people; containers show their kind.
func (d *Document) Show(v Value) string {
	switch v.kind() {
	case None:
		return "None"
	case Bool:
		return strconv.FormatBool(v.payload() != 0)
	case Int, wideInt:
		n, _ := d.Int(v)
		return strconv.FormatInt(n, 10)
	case Float:
		f, _ := d.Float(v)
		return strconv.FormatFloat(f, 'g', -1, 64)
	case String, Bytes, Object:
		return d.Text(v)
	case List:
		return "list"
	case Tuple:
		return "tuple"
	case Dict:
		return "dict"
	case Set:
		return "set"
	case mark:
	}
	return ""
}
