package estimate

import "oomguard/preflight/model"

// saving is the moment at which a checkpoint is written. Weights that are whole on every rank go to the host one by
// one. Sharded ones are gathered first, piece by piece, in ways that differ by program.
func (m *builder) saving() Components {
	c := m.betweenSteps()
	switch {
	case m.sharding == "zero3":
		m.notes.assume("16-bit weights are gathered to be saved",
			"stage3_gather_16bit_weights_on_model_save, without which weights stay in shards", false)
		// _zero3_consolidated_16bit_state_dict gathers the own parameters of one module at a time
		// (deepspeed/runtime/engine.py)
		c[Communication] += m.precision.param * m.largestModule()
	case m.fsdp():
		c[Communication] += m.savingFSDP()
	}
	return c
}

// savingFSDP is what FSDP gathers for a state dict. FSDP 1 unshards unit after unit in the weights' own dtype while the
// root group stays gathered, for sharded state dicts too, of which it keeps the new pieces
// (torch/distributed/fsdp/_state_dict_utils.py). FSDP 2 gathers one tensor after the other, or nothing
// (torch/distributed/checkpoint/state_dict.py).
func (m *builder) savingFSDP() int64 {
	first := m.job.FSDPVersion.Or(2) == 1
	full := m.wholeStateDict(first)
	own := m.precision.param
	switch {
	case first:
		root := count(m.base, func(w weight) bool { return w.unit != layerUnit })
		gathered := own * (root + m.oneLayer(m.base))
		switch {
		case m.job.FSDPWrap.Or("") == "whole":
			gathered = own * count(m.base, nil)
		case !m.sized():
			gathered = own * m.largestModule()
		}
		if !full {
			gathered += m.layout.params
		}
		return gathered
	case full:
		return own * m.largestModule()
	}
	return 0
}

// wholeStateDict says whether ranks write one whole state dict or each its own shards. accelerate's default is the
// first with FSDP 1 and the second with FSDP 2; it moves what was gathered to the host of rank 0
// (accelerate/utils/dataclasses.py).
func (m *builder) wholeStateDict(first bool) bool {
	if form := m.job.StateDict; form.Known {
		return form.Value == "full"
	}
	why := "how the script saves is not read; the usual way with FSDP "
	if m.traits.StateDictType {
		why = "fsdp_state_dict_type is unknown; accelerate's default for FSDP "
	}
	if first {
		m.notes.assume("checkpoints are whole state dicts, moved to the host of rank 0", why+"1", false)
		return true
	}
	m.notes.assume("checkpoints are sharded state dicts", why+"2", false)
	return false
}

// largestModule is the elements of the module with the most parameters of its own: a matrix, with its bias. Without
// shapes it is taken for a 32nd of all, as a layer is.
func (m *builder) largestModule() int64 {
	if !m.sized() {
		return ceilDiv(count(m.base, nil), 32)
	}
	var most int64
	for _, w := range m.base {
		n := w.elements
		for _, other := range m.base {
			if other.Role == model.Bias && other.Path == w.Path && w.Role != model.Bias {
				n += other.elements
			}
		}
		most = max(most, n)
	}
	return most
}
