package model

import "fmt"

// quantization reads quantization_config, which checkpoints carry whose weights are stored quantised already. Defaults
// are those of transformers/utils/quantization_config.py. Counts of parameters are those of the model before
// quantisation.
func (c *config) quantization(a *Architecture) {
	if q := c.section("quantization_config"); q != nil {
		q.storage(a)
	}
}

// storage reads the inside of quantization_config.
func (q *config) storage(a *Architecture) {
	a.QuantMethod = q.text("", "quant_method")
	eight := q.flag("load_in_8bit", q.flag("_load_in_8bit", false)) // transformers 4.37 to 4.5x wrote both names
	four := q.flag("load_in_4bit", q.flag("_load_in_4bit", false))
	switch {
	case a.QuantMethod == "bitsandbytes", a.QuantMethod == "" && (eight || four): // older configs have no quant_method
		a.QuantMethod = "bnb"
		q.bitsAndBytes(a, eight, four)
	case a.QuantMethod == "gptq", a.QuantMethod == "awq":
		a.QuantBits = int(q.countOr(4, "bits", "w_bit"))
		a.QuantType = fmt.Sprintf("int%d", a.QuantBits)
	case a.QuantMethod == "":
		q.reject("quant_method", "quantization_config has no quant_method: add it, or remove the block if the "+
			"weights are not quantised")
	default: // named, but its storage is not modelled
		a.QuantBits = int(q.countOr(0, "bits"))
	}
}

// bitsAndBytes reads BitsAndBytesConfig.
func (q *config) bitsAndBytes(a *Architecture, eight, four bool) {
	switch {
	case eight == four:
		q.reject("quant_method", "bitsandbytes needs one of load_in_4bit and load_in_8bit to be true: correct "+
			"quantization_config")
		return
	case eight:
		a.QuantBits, a.QuantType = 8, "int8"
		return
	}
	a.QuantBits = 4
	a.QuantType = q.text("fp4", "bnb_4bit_quant_type")
	a.QuantDouble = q.flag("bnb_4bit_use_double_quant", false)
	a.QuantStorage = trimTorch(q.text("uint8", "bnb_4bit_quant_storage"))
	stored := q.text("float32", "bnb_4bit_compute_dtype")
	if a.QuantComputeDtype = dtypes[trimTorch(stored)]; a.QuantComputeDtype == "" {
		q.reject("bnb_4bit_compute_dtype", "bnb_4bit_compute_dtype is %q, want float32, float16 or bfloat16", stored)
	}
}
