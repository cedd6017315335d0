package model

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"regexp"
)

// A safetensors file is the length of its header (8 bytes, little-endian), the header (a JSON object that gives every
// tensor's dtype, shape and place) and the data. Format and limits: safetensors/src/tensor.rs of
// github.com/huggingface/safetensors.
const (
	lengthBytes      = 8
	maxHeaderBytes   = 100_000_000 // MAX_HEADER_SIZE of the reference reader, which refuses longer ones too
	maxStoredTensors = 1 << 19     // in one model; the largest published mixtures of experts have about 10^5
	metadataKey      = "__metadata__"
)

// storedBits is the width of an element by dtype. A dtype that is not here is newer than this table: its sizes are not
// checked.
var storedBits = map[string]uint64{
	"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F6_E2M3": 6, "F6_E3M2": 6,
	"F4":  4,
	"I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64, "U32": 32, "U16": 16, "U8": 8, "BOOL": 8, "C64": 64,
}

// StoredTensor is one tensor as a file holds it.
type StoredTensor struct {
	Name  string
	Dtype string // as safetensors writes it: "BF16", "F32", "I8"
	Shape []int64
	Bytes int64 // in the file
}

// Elements is the number of stored scalars; packed layouts hold several weights in one.
func (t StoredTensor) Elements() int64 { return Tensor{Shape: t.Shape}.Elements() }

// entry is a tensor in a header.
type entry struct {
	Dtype   string   `json:"dtype"`
	Shape   []int64  `json:"shape"`
	Offsets []uint64 `json:"data_offsets"`
}

// readHeader reads the tensors of a safetensors file of the given size, and nothing after its header. When the header
// is whole but the data is not as it says, it returns both tensors and an error. Errors say what was found, without the
// file's name.
func readHeader(r io.Reader, size int64) ([]StoredTensor, error) {
	var start [lengthBytes]byte
	if n, err := io.ReadFull(r, start[:]); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("only %d bytes, no safetensors file has less than %d: copy or download it again", n,
				lengthBytes)
		}
		return nil, err
	}
	if string(start[:]) == "version " {
		if err := pointer(r, size); err != nil {
			return nil, err
		}
	}
	length := binary.LittleEndian.Uint64(start[:])
	available := uint64(max(size-lengthBytes, 0))
	switch {
	case length > maxHeaderBytes && length > available:
		return nil, fmt.Errorf("its first 8 bytes ask for a header of %d bytes in a file of %d: this is no "+
			"safetensors file, or a damaged one; download it again", length, size)
	case length > maxHeaderBytes:
		return nil, fmt.Errorf("its header has %d bytes, more than the %d that safetensors reads: save the model in "+
			"several shards", length, maxHeaderBytes)
	case length > available:
		return nil, fmt.Errorf("its header of %d bytes runs past the end of the file (%d bytes): it was cut off; "+
			"copy or download it again", length, size)
	}
	tensors, end, err := decodeHeader(io.LimitReader(r, int64(length)))
	if err != nil {
		return nil, err
	}
	data := available - length
	switch {
	case end > data:
		return tensors, fmt.Errorf("it was cut off: its header describes %d bytes of data and %d are there; copy or "+
			"download it again", end, data)
	case end < data:
		return tensors, fmt.Errorf("%d bytes follow the data that its header describes, which safetensors refuses: "+
			"copy or download it again", data-end)
	}
	return tensors, nil
}

var pointerSize = regexp.MustCompile(`\nsize ([0-9]+)\n`)

// pointer recognises the text file that Git LFS leaves in the place of a large one (about 130 bytes).
func pointer(r io.Reader, size int64) error {
	const longest = 1024 // by the specification of Git LFS
	text, err := io.ReadAll(io.LimitReader(r, longest))
	if err != nil {
		return err
	}
	if size > longest || !bytes.HasPrefix(text, []byte("https://git-lfs")) {
		return nil
	}
	of := ""
	if match := pointerSize.FindSubmatch(text); match != nil {
		of = fmt.Sprintf(" to %s bytes", match[1])
	}
	return fmt.Errorf("it is a Git LFS pointer%s, not the weights: run git lfs pull in its folder", of)
}

// decodeHeader reads the JSON object one tensor at a time. end is where the data of the last one ends.
func decodeHeader(r io.Reader) (tensors []StoredTensor, end uint64, err error) {
	d := json.NewDecoder(r)
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		return nil, 0, errors.New("its header is not a JSON object: this is no safetensors file, or a damaged one; " +
			"download it again")
	}
	broken := func(err error) error {
		return fmt.Errorf("its header is broken at byte %d: %w: copy or download the file again", d.InputOffset(), err)
	}
	names, sum := map[string]bool{}, uint64(0)
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, 0, broken(err)
		}
		name, _ := token.(string)
		if name == metadataKey {
			if err := d.Decode(&map[string]string{}); err != nil {
				return nil, 0, broken(err)
			}
			continue
		}
		var e entry
		if err := d.Decode(&e); err != nil {
			return nil, 0, broken(fmt.Errorf("tensor %q: %w", name, err))
		}
		t, err := e.tensor(name)
		switch {
		case err != nil:
			return nil, 0, broken(fmt.Errorf("tensor %q: %w", name, err))
		case names[name]:
			return nil, 0, broken(fmt.Errorf("tensor %q is there twice", name))
		case len(tensors) == maxStoredTensors:
			return nil, 0, fmt.Errorf("its header names more than %d tensors, which no model has", maxStoredTensors)
		}
		names[name] = true
		tensors = append(tensors, t)
		sum += uint64(t.Bytes) // cannot overflow: see tensor
		end = max(end, e.Offsets[1])
	}
	if _, err := d.Token(); err != nil {
		return nil, 0, broken(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, 0, broken(errors.New("something follows the JSON object"))
	}
	if sum != end {
		return nil, 0, fmt.Errorf("its header gives tensors that overlap or leave gaps (%d bytes of tensors in %d "+
			"bytes of data): download the file again", sum, end)
	}
	return tensors, end, nil
}

var errEntry = errors.New("wants a dtype, a shape of whole numbers, and data_offsets from begin to end")

// tensor checks that an entry agrees with itself.
func (e entry) tensor(name string) (StoredTensor, error) {
	const largest = 1 << 40 // elements; 2^19 such tensors of 8 bytes each still add up within 63 bits
	if e.Dtype == "" || e.Shape == nil || len(e.Offsets) != 2 || e.Offsets[1] < e.Offsets[0] || e.Offsets[1] > 1<<62 {
		return StoredTensor{}, errEntry
	}
	elements := uint64(1)
	for _, d := range e.Shape {
		high, low := bits.Mul64(elements, uint64(d))
		if d < 0 || high != 0 || low > largest {
			return StoredTensor{}, fmt.Errorf("shape %v is negative or too large", e.Shape)
		}
		elements = low
	}
	t := StoredTensor{Name: name, Dtype: e.Dtype, Shape: e.Shape, Bytes: int64(e.Offsets[1] - e.Offsets[0])}
	if width, ok := storedBits[e.Dtype]; ok && uint64(t.Bytes) != (elements*width+7)/8 {
		return StoredTensor{}, fmt.Errorf("%d bytes for shape %v in %s", t.Bytes, e.Shape, e.Dtype)
	}
	if t.Bytes > largest*8 {
		return StoredTensor{}, fmt.Errorf("%d bytes are too many", t.Bytes)
	}
	return t, nil
}
