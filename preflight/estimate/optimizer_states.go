package estimate

import "oomguard/preflight/model"

// adamState: PyTorch's Adam keeps exp_avg and exp_avg_sq with zeros_like(param).
func adamState(w weight, s stateSetting) int64 { return 2 * s.width * w.total() }

func oneState(w weight, s stateSetting) int64 { return s.width * w.total() }

func noState(weight, stateSetting) int64 { return 0 }

// fixed is a number of bytes an element, whatever the weights are.
func fixed(bytes int64) func(weight, stateSetting) int64 {
	return func(w weight, _ stateSetting) int64 { return bytes * w.total() }
}

// kahanState has a third tensor for 16-bit weights (optimi: kahan_sum is on for them by default).
func kahanState(w weight, s stateSetting) int64 {
	if s.width < 4 {
		return 3 * s.width * w.total()
	}
	return adamState(w, s)
}

// Blocks and the size below which states stay as they are: bitsandbytes/optim/optimizer.py (blocksize, min_8bit_size) and torchao/optim/adam.py.
const (
	stateBlock      = 256
	smallestBlocked = 4096
)

// blockState is bitsandbytes' 8-bit state: one byte an element and an fp32 scale for each block, for each of n moments; small tensors
// stay in fp32.
func blockState(moments int64) func(weight, stateSetting) int64 {
	return func(w weight, _ stateSetting) int64 {
		if w.elements < smallestBlocked {
			return moments * 4 * w.total()
		}
		return w.repeat * moments * (w.elements + 4*ceilDiv(w.elements, stateBlock))
	}
}

// torchaoState is torchao's two moments of 8 or 4 bits: as bitsandbytes', but every tensor has tables of fp32 of its own, and those that do
// not divide into blocks stay in their dtype. Trainer passes blocks of 256 for both.
func torchaoState(bits int64) func(weight, stateSetting) int64 {
	return func(w weight, s stateSetting) int64 {
		if w.elements < smallestBlocked || w.elements%stateBlock != 0 && !w.shapeless {
			return adamState(w, s)
		}
		return w.repeat * 2 * (w.elements*bits/8 + 4*ceilDiv(w.elements, stateBlock) + 4<<bits)
	}
}

// factoredState is a row and a column of fp32 means for a matrix and a whole vector otherwise (Shazeer and Stern 2018; transformers'
// Adafactor without beta1, AdaLomo).
func factoredState(w weight, _ stateSetting) int64 { return 4 * factoredElements(w) }

// factoredOwnWidth is the same in the gradient's own dtype (torch.optim.Adafactor).
func factoredOwnWidth(w weight, s stateSetting) int64 { return s.width * factoredElements(w) }

func factoredElements(w weight) int64 {
	if w.shapeless {
		return 0
	}
	if len(w.Shape) < 2 {
		return w.total()
	}
	columns := max(w.Shape[len(w.Shape)-1], 1)
	rows := max(w.Shape[len(w.Shape)-2], 1)
	return w.repeat * (w.elements/columns + w.elements/rows)
}

// isHidden says that this is a matrix between hidden states: what Muon orthogonalises and what GaLore and APOLLO project. torch.optim.Muon
// takes two dimensions only, so stacked experts stay with AdamW.
func isHidden(w weight) bool { return w.Role == model.Linear && (w.shapeless || len(w.Shape) == 2) }

// isEmbedding says that this is the weight of an nn.Embedding itself, not of an adapter on it.
func isEmbedding(w weight) bool { return w.Role == model.Embedding }

// muonState is one momentum for hidden matrices; embeddings, head and vectors are AdamW's.
func muonState(w weight, s stateSetting) int64 {
	if isHidden(w) {
		return oneState(w, s)
	}
	return adamState(w, s)
}

// sides are the short and the long side of a matrix; of a model without shapes, a square's.
func sides(w weight) (short, long int64) {
	if len(w.Shape) != 2 {
		side := int64(1)
		for side*side < w.elements {
			side *= 2
		}
		return side, side
	}
	return min(w.Shape[0], w.Shape[1]), max(w.Shape[0], w.Shape[1])
}

// galoreState keeps Adam's moments of the projection (long side x rank) and the projector. In fp32 the projector is a view of all singular
// vectors, which stay with it; in 16 bit it is a copy of the first of them.
func galoreState(w weight, s stateSetting) int64 {
	if !isHidden(w) {
		return adamState(w, s)
	}
	short, long := sides(w)
	r := min(s.rank, short)
	return w.repeat * (s.width*2*long*r + galoreProjector(short, r, s.width))
}

func galoreProjector(short, rank, width int64) int64 {
	if width == 4 {
		return 4 * short * short
	}
	return width * short * rank
}

// galore8bitState has the moments in bitsandbytes' blocks.
func galore8bitState(w weight, s stateSetting) int64 {
	if !isHidden(w) {
		return blockState(2)(w, s)
	}
	short, long := sides(w)
	r := min(s.rank, short)
	projected := weight{Tensor: w.Tensor, repeat: w.repeat, elements: long * r}
	return blockState(2)(projected, s) + w.repeat*galoreProjector(short, r, s.width)
}

// galoreFactoredState has the row and column means of the projection, which is made in fp32.
func galoreFactoredState(w weight, s stateSetting) int64 {
	if !isHidden(w) {
		return factoredState(w, s)
	}
	short, long := sides(w)
	return w.repeat * 4 * (long + min(s.rank, short) + short*short)
}

// apolloState keeps the moments and a random projection, whose rank nothing caps at the short side.
func apolloState(w weight, s stateSetting) int64 {
	if !isHidden(w) {
		return adamState(w, s)
	}
	short, long := sides(w)
	return w.repeat * s.width * (short*s.rank + 2*long*s.rank)
}
