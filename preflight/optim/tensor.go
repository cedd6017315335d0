package optim

import "cmp"

// A Tensor is a trained weight as a rank holds it, or several that are alike.
type Tensor struct {
	Shape    []int64
	Elements int64 // of one
	Repeat   int64 // how many there are
	// Width, if not 0, is the bytes of an element of this weight and its gradient where they are not those of all
	// others.
	Width     int64
	Linear    bool // of a matrix product between hidden states
	Embedding bool // of an nn.Embedding itself, not of an adapter on it
	Shapeless bool // stands for a whole model of which only the parameter count is known
}

func (t Tensor) total() int64 { return t.Repeat * t.Elements }

// Paged: bitsandbytes pages states of 1e5 elements and more (bitsandbytes/optim/optimizer.py: get_state_buffer).
func (t Tensor) Paged() bool { return t.Elements >= 100_000 }

// hidden says that this is a matrix between hidden states: what Muon orthogonalises and what GaLore and APOLLO project.
// torch.optim.Muon takes two dimensions only, so stacked experts stay with AdamW.
func (t Tensor) hidden() bool { return t.Linear && (t.Shapeless || len(t.Shape) == 2) }

// sides are the short and the long side of a matrix; of a model without shapes, a square's.
func (t Tensor) sides() (short, long int64) {
	if len(t.Shape) != 2 {
		side := int64(1)
		for side*side < t.Elements {
			side *= 2
		}
		return side, side
	}
	return min(t.Shape[0], t.Shape[1]), max(t.Shape[0], t.Shape[1])
}

// A Setting is what states depend on besides the tensor.
type Setting struct {
	Width   int64 // bytes of an element of what the optimizer updates: 4 with fp32 or master weights
	Rank    int64 // of optimizers that project gradients
	Trainer bool  // HF Trainer drives the optimizer
}

// An Update is what one optimizer step works on: a rank's weights, of which it updates its share.
type Update struct {
	Tensors []Tensor
	Shards  int64 // ranks that share each weight
	Setting
	CPU bool // PyTorch's own choice is lists on a GPU and one tensor after the other on a CPU
}

// elements are those of this rank's share.
func (u Update) elements() int64 {
	var sum int64
	for _, t := range u.Tensors {
		sum += t.total()
	}
	return ceilDiv(sum, u.Shards)
}

// largest is the elements of the largest tensor that is updated at a time. A shard may hold a part of one tensor and
// nothing else.
func (u Update) largest() int64 {
	var most int64
	for _, t := range u.Tensors {
		most = max(most, t.Elements)
	}
	return min(most, u.elements())
}

// only is the update of the tensors that match, or do not.
func (u Update) only(match func(Tensor) bool, want bool) Update {
	part := u
	part.Tensors = nil
	for _, t := range u.Tensors {
		if match(t) == want {
			part.Tensors = append(part.Tensors, t)
		}
	}
	return part
}

func (u Update) width(t Tensor) int64 { return cmp.Or(t.Width, u.Width) }

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
