package optim

// adamState: PyTorch's Adam keeps exp_avg and exp_avg_sq with zeros_like(param).
func adamState(t Tensor, s Setting) int64 { return 2 * s.Width * t.total() }

func oneState(t Tensor, s Setting) int64 { return s.Width * t.total() }

func noState(Tensor, Setting) int64 { return 0 }

// fixed is a number of bytes an element, whatever the weights are.
func fixed(bytes int64) func(Tensor, Setting) int64 {
	return func(t Tensor, _ Setting) int64 { return bytes * t.total() }
}

// kahanState has a third tensor for 16-bit weights (optimi: kahan_sum is on for them by default).
func kahanState(t Tensor, s Setting) int64 {
	if s.Width < 4 {
		return 3 * s.Width * t.total()
	}
	return adamState(t, s)
}

// Blocks and the size below which states stay as they are: bitsandbytes/optim/optimizer.py (blocksize, min_8bit_size)
// and torchao/optim/adam.py.
const (
	stateBlock      = 256
	smallestBlocked = 4096
)

// blockState is bitsandbytes' 8-bit state: one byte an element and an fp32 scale for each block, for each of n moments;
// small tensors stay in fp32.
func blockState(moments int64) func(Tensor, Setting) int64 {
	return func(t Tensor, _ Setting) int64 {
		if t.Elements < smallestBlocked {
			return moments * 4 * t.total()
		}
		return t.Repeat * moments * (t.Elements + 4*ceilDiv(t.Elements, stateBlock))
	}
}

// torchaoState is torchao's two moments of 8 or 4 bits: as bitsandbytes', but every tensor has tables of fp32 of its
// own, and those that do not divide into blocks stay in their dtype. Trainer passes blocks of 256 for both.
func torchaoState(bits int64) func(Tensor, Setting) int64 {
	return func(t Tensor, s Setting) int64 {
		if t.Elements < smallestBlocked || t.Elements%stateBlock != 0 && !t.Shapeless {
			return adamState(t, s)
		}
		return t.Repeat * 2 * (t.Elements*bits/8 + 4*ceilDiv(t.Elements, stateBlock) + 4<<bits)
	}
}

// factoredState is a row and a column of fp32 means for a matrix and a whole vector otherwise (Shazeer and Stern 2018;
// transformers' Adafactor without beta1, AdaLomo).
func factoredState(t Tensor, _ Setting) int64 { return 4 * factoredElements(t) }

// factoredOwnWidth is the same in the gradient's own dtype (torch.optim.Adafactor).
func factoredOwnWidth(t Tensor, s Setting) int64 { return s.Width * factoredElements(t) }

func factoredElements(t Tensor) int64 {
	if t.Shapeless {
		return 0
	}
	if len(t.Shape) < 2 {
		return t.total()
	}
	columns := max(t.Shape[len(t.Shape)-1], 1)
	rows := max(t.Shape[len(t.Shape)-2], 1)
	return t.Repeat * (t.Elements/columns + t.Elements/rows)
}

// muonState is one momentum for hidden matrices; embeddings, head and vectors are AdamW's.
func muonState(t Tensor, s Setting) int64 {
	if t.hidden() {
		return oneState(t, s)
	}
	return adamState(t, s)
}

// galoreState keeps Adam's moments of the projection (long side x rank) and the projector. In fp32 the projector is a
// view of all singular vectors, which stay with it; in 16 bit it is a copy of the first of them.
func galoreState(t Tensor, s Setting) int64 {
	if !t.hidden() {
		return adamState(t, s)
	}
	short, long := t.sides()
	r := min(s.Rank, short)
	return t.Repeat * (s.Width*2*long*r + galoreProjector(short, r, s.Width))
}

func galoreProjector(short, rank, width int64) int64 {
	if width == 4 {
		return 4 * short * short
	}
	return width * short * rank
}

// galore8bitState has the moments in bitsandbytes' blocks.
func galore8bitState(t Tensor, s Setting) int64 {
	if !t.hidden() {
		return blockState(2)(t, s)
	}
	short, long := t.sides()
	r := min(s.Rank, short)
	projected := Tensor{Repeat: t.Repeat, Elements: long * r}
	return blockState(2)(projected, s) + t.Repeat*galoreProjector(short, r, s.Width)
}

// galoreFactoredState has the row and column means of the projection, which is made in fp32.
func galoreFactoredState(t Tensor, s Setting) int64 {
	if !t.hidden() {
		return factoredState(t, s)
	}
	short, long := t.sides()
	return t.Repeat * 4 * (long + min(s.Rank, short) + short*short)
}

// apolloState keeps the moments and a random projection, whose rank nothing caps at the short side.
func apolloState(t Tensor, s Setting) int64 {
	if !t.hidden() {
		return adamState(t, s)
	}
	short, long := t.sides()
	return t.Repeat * s.Width * (short*s.Rank + 2*long*s.Rank)
}
