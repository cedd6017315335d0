package estimate

import (
	"fmt"
	"strings"

	"oomguard/preflight/job"
)

// A precision says how many bytes an element takes in each of its lives.
type precision struct {
	param   int64 // trainable weights between steps
	master  int64 // extra fp32 copy: 4 or 0
	grad    int64 // gradients
	state   int64 // optimizer states: the dtype of what the optimizer updates
	compute int64 // activations inside a block
	stream  int64 // residual stream between blocks
	// autocast: matrix products in 16 bit, norms, softmax and losses in fp32, whatever the weights are; casts of fp32
	// weights are cached (torch/amp/autocast_mode.py).
	autocast bool
	gathered bool // weights are gathered in the dtype of computation (FSDP)
}

// unsharded is the width of a gathered weight while it is used (FSDP's MixedPrecision.param_dtype).
func (p precision) unsharded() int64 {
	if p.autocast && !p.gathered {
		return p.param
	}
	return min(p.param, p.compute)
}

// dtypeBytes are the dtypes of weights and of computation. Reduced formats below 16 bit keep 16-bit activations for
// autograd in Transformer Engine and torchao, so they count as 2.
var dtypeBytes = map[string]int64{"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 2}

func widthOf(dtype, setting string) (int64, error) {
	w, ok := dtypeBytes[dtype]
	if !ok {
		return 0, fmt.Errorf("%s: unknown dtype %q: use fp32, bf16, fp16 or fp8", setting, dtype)
	}
	return w, nil
}

// settlePrecision turns the job's param_dtype, precision and master_fp32 into widths, and notes what it had to assume.
func (s *scenario) settlePrecision() error {
	j := s.job
	compute, err := widthOf(s.computeDtype(), "precision")
	if err != nil {
		return err
	}
	if j.Precision.Or("") == "fp8" {
		s.notes.assume("fp8 matrix products keep 16-bit activations for the backward pass",
			"fp8 layouts differ by library", true)
	}
	param, master, err := s.storage(compute)
	if err != nil {
		return err
	}
	p := precision{param: param, grad: param, state: param, compute: compute, stream: compute}
	if master {
		p.master, p.state = 4, 4
	}
	switch {
	case j.GradDtype.Known && !s.adapters(): // whose gradients no engine gives a dtype of their own
		if p.grad, err = widthOf(j.GradDtype.Value, "grad_dtype"); err != nil {
			return err
		}
	case s.megatron() && master:
		p.grad = s.megatronGradients(compute)
	case s.deepspeed() && j.DeepSpeed.Or(nil) != nil && j.DeepSpeed.Value.GradAccumDtype == "fp32":
		p.grad = 4
	}
	p.gathered = s.fsdp()
	p.autocast = compute == 2 && j.Autocast.Or(param == 4 && !s.fsdp()) // FSDP alone casts what it gathers
	if p.autocast && p.unsharded() == 4 {
		p.stream = 4
	}
	if s.freezes() && p.autocast {
		p.stream = s.baseWidth() // that of the frozen embeddings
	}
	if s.adapters() && !s.fsdp() {
		p = s.adapterPrecision(p)
	}
	s.precision = p
	return nil
}

// megatronGradients is the width of Megatron's gradient buffer where nothing names one: fp32 in bf16 training, the
// weights' fp16 otherwise (accumulate_allreduce_grads_in_fp32 in megatron/training/arguments.py).
func (s *scenario) megatronGradients(compute int64) int64 {
	if s.job.Precision.Or("") == "fp16" {
		return compute
	}
	return 4
}

func (s *scenario) computeDtype() string {
	j := s.job
	fallback := "fp32"
	if d, ok := dtypeBytes[j.ParamDtype.Or("")]; ok && d == 2 {
		fallback = j.ParamDtype.Value
	} else if d := j.BaseDtype.Or(""); s.adapters() && d != "" {
		fallback = d
	} else if s.adapters() {
		fallback = "bf16"
	}
	return choose(s, j.Precision, fallback, "precision")
}

// storage is the width of trainable weights between steps, and whether an fp32 master copy sits beside them.
func (s *scenario) storage(compute int64) (param int64, master bool, err error) {
	j := s.job
	if j.ParamDtype.Known {
		if param, err = widthOf(j.ParamDtype.Value, "param_dtype"); err != nil {
			return 0, false, err
		}
	}
	switch {
	case j.MasterFP32.Known:
		master = j.MasterFP32.Value
	case s.deepspeed() && compute == 2 && param != 4, s.megatron() && compute == 2 && param != 4:
		master = true
		s.notes.assume("16-bit weights with an fp32 master copy", "what DeepSpeed and Megatron do in bf16 and fp16",
			true)
	}
	if param == 0 {
		param = s.assumedStorage(compute, master)
	}
	return param, master && param == 2, nil
}

func (s *scenario) assumedStorage(compute int64, master bool) int64 {
	if master || compute == 4 {
		return compute
	}
	if s.adapters() {
		// PEFT upcasts 16-bit adapters unless autocast_adapter_dtype=False, which TRL passes (peft mapping_func.py, trl
		// sft_trainer.py).
		if s.traits.NarrowAdapters {
			s.notes.assume("adapter weights in the base model's 16-bit dtype",
				"TRL passes autocast_adapter_dtype=False", true)
			return 2
		}
		s.notes.assume("adapter weights in fp32", "PEFT's autocast_adapter_dtype default", true)
		return 4
	}
	// transformers 5 loads the checkpoint's own dtype, 4 loads fp32.
	if v := s.job.Versions["transformers"]; v != "" && !strings.HasPrefix(v, "4.") && s.arch.Dtype != "fp32" &&
		s.arch.Dtype != "" {
		s.notes.assume("weights in the checkpoint's "+s.arch.Dtype, "default of transformers "+v, true)
		return 2
	}
	s.notes.assume("weights in fp32 between steps", "param_dtype is unknown: "+reason(s.job.ParamDtype), true)
	return 4
}

// adapterPrecision is the precision of a LoRA job: the frozen base decides what activations look like. Where nothing
// says so, autocast is what the Hugging Face trainers switch on with bf16=True; other programs run the base in its own
// dtype.
func (s *scenario) adapterPrecision(p precision) precision {
	wide := s.baseWidth() == 4
	p.autocast = p.compute == 2 && s.job.Autocast.Or(s.traits.AutocastsAdapters || wide && s.quant == nil)
	p.stream = p.compute
	if p.autocast && wide {
		p.stream = 4
	}
	return p
}

func reason[T any](set job.Setting[T]) string {
	if set.Origin != "" {
		return set.Origin
	}
	return "nothing sets it"
}
