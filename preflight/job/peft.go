package job

import (
	"path/filepath"
	"slices"

	"oomguard/preflight/model"
)

// defaultTargets names the modules that PEFT adapts when nobody does, as far as the model's type or its name tell them.
func (r *reader) defaultTargets() {
	p := &r.adapter
	if p.targets.Known {
		return
	}
	if a := r.job.Architecture; a != nil && a.Type != "" {
		if targets := a.Facts.LoRA; len(targets) > 0 {
			p.targets.Offer(slices.Clone(targets), "default of PEFT for "+a.Type)
		}
		return
	}
	kind := model.TypeByName(filepath.Base(r.job.Model.Or("")))
	if targets := model.FactsOf(kind).LoRA; len(targets) > 0 {
		p.targets.Offer(slices.Clone(targets), "default of PEFT for "+kind+", which the model is by its name")
	}
}

// resumedAdapter takes the settings of an adapter that is trained on from its folder, when that is here.
func (r *reader) resumedAdapter(folder string) {
	if folder == "" || !exists(r.path(folder), adapterFile) {
		return
	}
	revision := r.revision
	r.readAdapterFolder(r.path(folder))
	r.revision = revision
}

func firstKnown(list ...Named) Named {
	if i := slices.IndexFunc(list, func(n Named) bool { return n.Known }); i >= 0 {
		return list[i]
	}
	return Named{}
}

// quantOfModel is a quantization_config in the model's own config.
func (r *reader) quantOfModel() {
	a := r.job.Architecture
	if a == nil || a.QuantMethod == "" {
		return
	}
	if slices.Contains(unpackedToTrain(), a.QuantMethod) {
		r.job.Quant.Offer(nil, a.Source+": "+a.QuantMethod+" weights cannot be trained on; they are unpacked to bf16")
		return
	}
	r.job.Quant.Offer(&Quant{Method: a.QuantMethod, Bits: a.QuantBits, Type: a.QuantType, Double: a.QuantDouble,
		ComputeDtype: a.QuantComputeDtype,
		Storage:      a.QuantStorage}, a.Source)
}

// unpackedToTrain are the storage formats whose quantizers in transformers (is_trainable in quantizers/quantizer_*.py)
// cannot train, not even adapters: such a checkpoint is dequantised first (gpt-oss: mxfp4; DeepSeek V3: fp8).
func unpackedToTrain() []string {
	return []string{"mxfp4", "fp8", "fbgemm_fp8"}
}
