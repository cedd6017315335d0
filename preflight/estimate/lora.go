package estimate

import (
	"fmt"
	"slices"

	"oomguard/preflight/job"
	"oomguard/preflight/model"
)

// settleMethod reads what is trained: everything, or adapters on a frozen base that may be quantised.
func (s *scenario) settleMethod() error {
	j := s.job
	method := j.Method.Or("full")
	s.lora = j.LoRA.Or(nil)
	s.quant = s.quantisation(method)
	switch method {
	case "full":
		if s.lora == nil && s.quant == nil {
			return nil
		}
	case "freeze":
		s.settleFreeze()
		return nil
	case "lora", "qlora", "lora8bit":
	default:
		s.notes.assume("every weight is trained", fmt.Sprintf("method %q has no formula here", method), true)
		s.lora, s.quant = nil, nil
		return nil
	}
	if s.lora == nil && !s.sized() && !j.Method.Known {
		s.lora, s.weightsOnly = &job.LoRA{R: 1}, true
		s.leaveOut(NotCounted{What: "what is trained beside the quantised weights", Why: "not known",
			Give: "--method lora and --lora-r"})
	}
	if s.lora == nil {
		s.lora = &job.LoRA{R: 8, Alpha: 8} // peft LoraConfig defaults
		s.notes.assume("LoRA of rank 8 on PEFT's default modules",
			"the adapter's settings are unknown: "+reason(j.LoRA), true)
	}
	if s.lora.R < 1 || s.lora.R > 1<<20 {
		return fmt.Errorf("lora r = %d: want 1 or more", s.lora.R)
	}
	for module, rank := range s.lora.RankPattern {
		if rank < 1 || rank > 1<<20 {
			return fmt.Errorf("lora rank_pattern %s = %d: want 1 or more", module, rank)
		}
	}
	if s.sized() {
		targets, err := s.arch.LoRATargets(s.lora.Names())
		if err != nil {
			return err
		}
		stacked := func(t model.Target) bool { return t.Role == model.Expert }
		if (s.lora.Dropout > 0 || s.lora.DoRA) && slices.ContainsFunc(targets, stacked) {
			return fmt.Errorf("lora targets reach the stacked experts of transformers 5, where PEFT stops at " +
				"lora_dropout and DoRA (lora.ParamWrapper): set lora_dropout to 0 and use_dora to false, or name " +
				"attention modules alone")
		}
	} else if !s.weightsOnly {
		s.notes.assume("adapters of half a percent of the parameters",
			"their size needs the model's shapes; give --model", true)
	}
	if s.quant != nil && !j.BaseDtype.Known && s.sized() {
		s.notes.assume("embeddings, norms and head in fp32",
			"prepare_model_for_kbit_training casts what is not quantised (peft/utils/other.py)", false)
	}
	if s.quant != nil && !s.sized() {
		s.notes.assume("every parameter is quantised",
			"embeddings and head are not, but --params does not tell their size", true)
	}
	return nil
}

func (s *scenario) quantisation(method string) *job.Quant {
	if q := s.job.Quant.Or(nil); q != nil {
		return q
	}
	switch a := s.arch; {
	case a.QuantMethod != "":
		return &job.Quant{Method: a.QuantMethod, Bits: a.QuantBits, Type: a.QuantType, Double: a.QuantDouble,
			ComputeDtype: a.QuantComputeDtype}
	case method == "lora8bit":
		return &job.Quant{Method: "bnb", Bits: 8, Type: "int8"}
	case method == "qlora":
		s.notes.assume("nf4 without double quantisation", "the quantisation is unknown: "+reason(s.job.Quant), true)
		return &job.Quant{Method: "bnb", Bits: 4, Type: "nf4"}
	}
	return nil
}

// baseWidth is the bytes of a frozen weight that is not quantised.
func (s *scenario) baseWidth() int64 {
	if w, ok := dtypeBytes[s.job.BaseDtype.Or("")]; ok {
		return w
	}
	if s.quant != nil {
		return 4
	}
	if w, ok := dtypeBytes[s.arch.Dtype]; ok {
		s.notes.assume("frozen weights in "+s.arch.Dtype, "dtype of the model's config", false)
		return w
	}
	s.notes.assume("frozen weights in bf16", "base_dtype is unknown: "+reason(s.job.BaseDtype), true)
	return 2
}

// frozenBytes is what the frozen base takes on this rank.
func (r *rank) frozenBytes() int64 { return r.storedBytes(nil) }

// storedBytes is what the frozen weights that match take; a nil match takes all.
func (r *rank) storedBytes(match func(weight) bool) int64 {
	width := r.baseWidth()
	var sum int64
	for _, w := range r.base {
		if match != nil && !match(w) {
			continue
		}
		if r.quantises(w) {
			sum += w.repeat * quantisedBytes(w, r.quant)
			continue
		}
		sum += width * w.total()
	}
	return sum
}

// quantisedBytes is one quantised matrix with its scales.
func quantisedBytes(w weight, q *job.Quant) int64 {
	n := w.elements
	switch {
	case q.Method != "" && q.Method != "bnb" && q.Method != "bitsandbytes":
		// GPTQ and AWQ: an fp16 scale and a packed zero point for each group of 128.
		const group = 128
		bits := int64(max(q.Bits, 1))
		return ceilDiv(n*bits, 8) + ceilDiv(n, group)*2 + ceilDiv(ceilDiv(n, group)*bits, 8)
	case q.Bits == 8:
		if w.shapeless {
			return n
		}
		return n + 4*n/max(w.Shape[len(w.Shape)-1], 1) // bitsandbytes SCB: an fp32 scale a row
	case q.Double:
		// blocks of 64 with one-byte scales, those in blocks of 256 with fp32 scales (bitsandbytes/functional.py)
		return ceilDiv(n, 2) + ceilDiv(n, 64) + 4*ceilDiv(n, 64*256)
	default:
		return ceilDiv(n, 2) + 4*ceilDiv(n, 64)
	}
}

// keepsFrozenInputs: bitsandbytes' MatMul4Bit saved its input beside the frozen weight before 0.43, where nothing needs
// it.
func (s *scenario) keepsFrozenInputs() bool {
	return s.quant != nil && s.quant.Method == "bnb" && s.quant.Bits == 4 && s.older("bitsandbytes", 0, 43)
}

// quantises says that this weight is stored quantised: every Linear, and by some programs the output projection too.
func (s *scenario) quantises(w weight) bool {
	return s.quant != nil && (w.Role == model.Linear || w.Role == model.Head && s.traits.QuantisesHead)
}

// dequantisedBytes is the 16-bit copy that one quantised matrix product holds at a time (bitsandbytes MatMul4Bit).
func (r *rank) dequantisedBytes() int64 {
	if r.quant == nil || !r.sized() {
		return 0
	}
	var most int64
	for _, w := range r.base {
		if r.quantises(w) {
			most = max(most, w.elements)
		}
	}
	copies := int64(1)
	if r.traits.QuantisesHead && !r.older("bitsandbytes", 0, 42) {
		copies = 2 // dequantised, then converted: what large output projections show in the same nine rows
	}
	return copies * most * r.precision.compute
}

// litgptUnexplained is what each layer of litgpt keeps for a token under LoRA beyond what its code explains, in bytes:
// three tensors of hidden width, fitted to the slopes between batches of phi-1.5 and stablelm-alpha-3b in its resource
// tables (5 rows, 5.7 and 7.2 bytes an element); and with 4-bit weights of bitsandbytes 0.42, though not 0.41, 11 bytes
// an element more, fitted to five QLoRA rows of its config_hub (1B to 9B; the other four rows are predicted with it to
// 1 to 5 %).
func (r *rank) litgptUnexplained() int64 {
	bytes := 3 * r.precision.compute * r.arch.Hidden
	if r.quant != nil && !r.older("bitsandbytes", 0, 42) {
		bytes += 11 * r.arch.Hidden
	}
	return bytes
}
