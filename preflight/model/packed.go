package model

import (
	"regexp"
	"strings"
)

// Layout is how a checkpoint stores quantised matrices.
type Layout string

// The layouts that are recognised by the names and shapes of the tensors.
const (
	Plain Layout = ""         // one number for each weight
	BnB4  Layout = "bnb-4bit" // bitsandbytes: two weights in a byte, with blocks' scales in .absmax
	BnB8  Layout = "bnb-8bit" // bitsandbytes LLM.int8: rows' scales in SCB
	GPTQ  Layout = "gptq"     // qweight packed along the inputs, with qzeros, scales and mostly g_idx
	AWQ   Layout = "awq"      // qweight packed along the outputs
	FP8   Layout = "fp8"      // 8-bit floats with weight_scale or weight_scale_inv
	// weight_packed: recognised, but its shapes alone do not tell the number of weights
	PackedOther  Layout = "compressed-tensors"
	mixedLayouts Layout = "several"
)

// companions are what layouts store beside a quantised weight, by the end of the name: no parameters of the model.
var companions = []string{".weight.absmax", ".weight.quant_map", ".weight.nested_absmax", ".weight.nested_quant_map",
	".SCB", ".weight_format",
	".qzeros", ".scales", ".g_idx", ".weight_scale", ".weight_scale_inv", ".input_scale", ".weight_shape",
	".weight_zero_point", ".weight_g_idx"}

// buffers are constants that some versions of transformers stored as floats: masks, rotary frequencies, positions,
// DeepSeek's router correction; and T5's tables that it no longer reads.
var buffers = regexp.MustCompile(`(^|\.)(attn|attention)\.(masked_)?bias$|\.rotary_emb\.|position_ids$|^final_logits_bias$` +
	`|\.e_score_correction_bias$|EncDecAttention\.relative_attention_bias\.weight$`)

const quantState = ".weight.quant_state.bitsandbytes__" // then nf4 or fp4

// Logical is one matrix or vector of the model, as it was before quantisation.
type Logical struct {
	Module   string // full name of the module: the tensor's without its last part
	Name     string // of the tensor that holds it
	Elements int64  // -1: the shapes do not tell
	Layout   Layout
	Shape    []int64 // nil when it is packed
}

// Logical lists what the stored tensors stand for, less the scales and tables of quantisation and less tensors of
// integers that no layout explains (positions, masks and other buffers).
func (w *Weights) Logical() []Logical {
	stored := make(map[string]StoredTensor, len(w.Tensors))
	fourBit := map[string]bool{}
	for _, t := range w.Tensors {
		stored[t.Name] = t
		if module, _, ok := strings.Cut(t.Name, quantState); ok {
			fourBit[module] = true
		}
		if module, ok := strings.CutSuffix(t.Name, ".weight.absmax"); ok {
			fourBit[module] = true
		}
	}
	var out []Logical
	for _, t := range w.Tensors {
		if l, ok := logical(t, stored, fourBit); ok {
			out = append(out, l)
		}
	}
	return out
}

// logical is what one stored tensor stands for; ok is false for those that are no parameters.
func logical(t StoredTensor, stored map[string]StoredTensor, fourBit map[string]bool) (l Logical, ok bool) {
	if strings.Contains(t.Name, quantState) || buffers.MatchString(t.Name) {
		return l, false
	}
	for _, suffix := range companions {
		if strings.HasSuffix(t.Name, suffix) {
			return l, false
		}
	}
	at := strings.LastIndexByte(t.Name, '.')
	l = Logical{Module: t.Name[:max(at, 0)], Name: t.Name, Elements: t.Elements(), Shape: t.Shape}
	has := func(name string) bool { _, ok := stored[l.Module+name]; return ok }
	switch last := t.Name[at+1:]; {
	case last == "weight" && fourBit[l.Module]:
		// whatever dtype the bytes are stored in (bnb_4bit_quant_storage)
		l.Layout, l.Elements, l.Shape = BnB4, 2*t.Bytes, nil
	case last == "weight" && t.Dtype == "I8" && has(".SCB"):
		l.Layout = BnB8
	case last == "weight" && strings.HasPrefix(t.Dtype, "F8_"):
		l.Layout = FP8
	case last == "qweight":
		l.Layout, l.Elements = grouped(t, stored[l.Module+".qzeros"], stored[l.Module+".scales"], has(".g_idx"))
		l.Shape = nil
	case last == "weight_packed":
		l.Layout, l.Elements, l.Shape = PackedOther, unknown, nil
	default:
		return l, strings.HasPrefix(t.Dtype, "F") || strings.HasPrefix(t.Dtype, "BF") || strings.HasPrefix(t.Dtype, "C")
	}
	return l, true
}

// grouped tells GPTQ from AWQ and unpacks their shapes. Both have scales [groups, out] and qzeros [groups,
// out*bits/32]; qweight is [in*bits/32, out] in GPTQ and [in, out*bits/32] in AWQ (AutoGPTQ's and AutoAWQ's linear
// layers).
func grouped(qweight, qzeros, scales StoredTensor, hasIndex bool) (Layout, int64) {
	layout := AWQ
	if hasIndex {
		layout = GPTQ
	}
	if len(qweight.Shape) != 2 || len(qzeros.Shape) != 2 || len(scales.Shape) != 2 {
		return layout, unknown
	}
	rows, columns, out, packed := qweight.Shape[0], qweight.Shape[1], scales.Shape[1], qzeros.Shape[1]
	switch {
	case max(rows, columns, out, packed) > maxSize || min(columns, packed) < 1:
	// in = rows*32/bits and bits = 32*packed/out
	case columns == out && rows*out%packed == 0 && rows*out/packed <= maxSize:
		return GPTQ, rows * out / packed * out
	case columns == packed && columns < out && !hasIndex:
		return AWQ, rows * out
	}
	return layout, unknown
}

// Layout is the one in which the matrices are stored: Plain when none is quantised, "several" when they differ.
func (w *Weights) Layout() Layout {
	found := Plain
	for _, l := range w.Logical() {
		switch {
		case l.Layout == Plain || l.Layout == found:
		case found == Plain:
			found = l.Layout
		default:
			return mixedLayouts
		}
	}
	return found
}

// Parameters is the number of weights that the files stand for, before quantisation. ok is false when a shape
// does not tell, or when files are damaged or missing, so that it is less than all.
func (w *Weights) Parameters() (n int64, ok bool) {
	ok = len(w.Problems) == 0
	for _, l := range w.Logical() {
		if l.Elements < 0 {
			ok = false
			continue
		}
		n += l.Elements
	}
	return n, ok
}
