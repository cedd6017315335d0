package model

import "strings"

// isBlock tells the blocks from what stands before and after them.
func (u Unit) isBlock() bool { return strings.HasSuffix(u.Name, "layer") }

// Elements is the number of scalars in the weights that match, over all blocks; 0 when only the parameter count is
// known.
func (a *Architecture) Elements(match func(Tensor) bool) int64 {
	var n int64
	for _, u := range a.Units {
		for _, t := range u.Tensors {
			if match(t) {
				n += u.Repeat * t.Elements()
			}
		}
	}
	return n
}

// LargestUnit is the number of scalars in the largest kind of block, the piece that FSDP and ZeRO-3 gather at a time; 0
// when only the parameter count is known.
func (a *Architecture) LargestUnit() int64 {
	var largest int64
	for _, u := range a.Units {
		if u.isBlock() {
			largest = max(largest, u.Elements())
		}
	}
	return largest
}

// RootElements is the number of scalars outside the blocks: embeddings, final norm and head; 0 when only the parameter
// count is known.
func (a *Architecture) RootElements() int64 {
	var n int64
	for _, u := range a.Units {
		if !u.isBlock() {
			n += u.Repeat * u.Elements()
		}
	}
	return n
}

// LargestTensor is the number of scalars in the largest weight; 0 when only the parameter count is known.
func (a *Architecture) LargestTensor() int64 {
	var largest int64
	for _, u := range a.Units {
		for _, t := range u.Tensors {
			largest = max(largest, t.Elements())
		}
	}
	return largest
}

// Blocks is the number of blocks in all stacks, encoder included; 0 when only the parameter count is known.
func (a *Architecture) Blocks() int64 {
	var n int64
	for _, u := range a.Units {
		if u.isBlock() {
			n += u.Repeat
		}
	}
	return n
}
