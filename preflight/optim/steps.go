package optim

// none: one kernel reads and writes everything.
func none(Update) int64 { return 0 }

// onlyLists holds n tensors for each parameter at once (torch's _foreach operations), for one dtype after the other
// (_group_tensors_by_device_and_dtype in torch/optim/optimizer.py).
func onlyLists(n int64) func(Update) int64 {
	return func(u Update) int64 {
		byWidth := map[int64]int64{}
		var most int64
		for _, t := range u.Tensors {
			width := u.width(t)
			byWidth[width] += t.total()
			most = max(most, n*width*ceilDiv(byWidth[width], u.Shards))
		}
		return most
	}
}

// lists is the same where PyTorch chooses: on a CPU it takes one tensor after the other.
func lists(n int64) func(Update) int64 {
	return func(u Update) int64 {
		if u.CPU {
			return one(2)(u)
		}
		return onlyLists(n)(u)
	}
}

// one holds n tensors of the size of the largest.
func one(n int64) func(Update) int64 {
	return func(u Update) int64 { return n * u.Width * u.largest() }
}

// oneWide is bytes an element of the largest tensor, by the width of the weights: 16-bit ones are worked on as fp32
// copies.
func oneWide(fp32, narrow int64) func(Update) int64 {
	return func(u Update) int64 {
		if u.Width < 4 {
			return narrow * u.largest()
		}
		return fp32 * u.largest()
	}
}

// muonTemporaries is the larger of two steps. Newton-Schulz of one matrix in bf16: the update, the matrix before and
// after an iteration, and two squares of its short side, or three and the matrix (torch/optim/_muon.py; exact in fp32
// and bf16). AdamW of the rest: one list.
func muonTemporaries(u Update) int64 {
	hidden := u.only(Tensor.hidden, true)
	var most int64
	for _, t := range hidden.Tensors {
		short, _ := t.sides()
		square := short * short
		most = max(most, u.Width*t.Elements+max(4*t.Elements+4*square, 2*t.Elements+6*square))
	}
	return max(most, lists(1)(u.only(Tensor.hidden, false)))
}

// lowRank is the larger of what projected matrices and all other weights need.
func lowRank(projected func(t Tensor, u Update) int64, others func(Update) int64) func(Update) int64 {
	return func(u Update) int64 {
		var most int64
		for _, t := range u.only(Tensor.hidden, true).Tensors {
			most = max(most, projected(t, u))
		}
		return max(most, others(u.only(Tensor.hidden, false)))
	}
}

// lowRankStep is the update of full size twice (projected back, then scaled) and three projections: gradient,
// denominator, update.
func lowRankStep(t Tensor, u Update) int64 {
	short, long := t.sides()
	return u.Width * (2*t.Elements + 3*long*min(u.Rank, short))
}

// singularVectors is the decomposition that GaLore makes every update_proj_gap steps, in fp32: the gradient's copy if
// it is narrower, the vectors of both sides and the products with the singular values. What cuSOLVER needs for itself
// is not counted.
func singularVectors(t Tensor, u Update) int64 {
	short, long := t.sides()
	bytes := 4 * (t.Elements + short*short + 2*long*min(u.Rank, short))
	if u.Width < 4 {
		bytes += 4 * t.Elements
	}
	return bytes
}

func galoreTemporaries(u Update) int64 {
	return lowRank(func(t Tensor, u Update) int64 { return max(lowRankStep(t, u), singularVectors(t, u)) }, one(2))(u)
}

// galoreFactoredTemporaries works in fp32 throughout: with 16-bit weights a copy of the weight comes on top.
func galoreFactoredTemporaries(u Update) int64 {
	step := func(t Tensor, u Update) int64 {
		short, long := t.sides()
		low := long * min(u.Rank, short)
		bytes, svd := 4*(2*t.Elements+2*low), 4*(t.Elements+short*short+3*low)
		if u.Width < 4 {
			bytes, svd = bytes+4*t.Elements, svd+8*t.Elements
		}
		return max(bytes, svd)
	}
	return lowRank(step, oneWide(8, 16))(u)
}
