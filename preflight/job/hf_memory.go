package job

import (
	"fmt"
	"strings"
)

// readCheckpointing: transformers 5.2x calls gradient_checkpointing activation_checkpointing, and can checkpoint every
// N-th layer or keep what is saved on the host (training_args.py).
func (r *reader) readCheckpointing() {
	for _, name := range []string{"activation_checkpointing", "gradient_checkpointing"} {
		options := r.dictionary(name + "_kwargs")
		if n := options.Get("use_reentrant"); n != nil {
			r.job.Reentrant.Offer(r.nodeBool(n, true), n.Origin())
		}
		on, given := r.boolean(name)
		if !given {
			continue
		}
		value, origin := map[bool]string{true: "full", false: "none"}[on], r.args[name].origin
		if n := options.Get("every_n_layers"); on && n != nil {
			if every, err := n.Integer(); err == nil && every > 1 {
				value, origin = fmt.Sprintf("selective:%d", every), n.Origin()
			}
		}
		if n := options.Get("offload"); on && r.nodeBool(n, false) {
			value, origin = "offload", n.Origin()
			r.job.ActivationOffload.Offer(true, origin)
		}
		r.job.Checkpointing.Offer(value, origin)
	}
}

// readLoss: a loss that never holds whole logits. Liger's fused kernel can be switched off on its own
// (liger_kernel_config); TRL's SFTTrainer has losses of its own.
func (r *reader) readLoss() {
	j := r.job
	for _, name := range []string{"use_liger_kernel", "use_liger", "use_liger_loss"} {
		if !r.on(name) {
			continue
		}
		if n := r.dictionary("liger_kernel_config").Get("fused_linear_cross_entropy"); n != nil &&
			!r.nodeBool(n, true) {
			j.FusedLoss.Offer("none", n.Origin())
		}
		if name == "use_liger_kernel" && r.wantsLogits() {
			j.FusedLoss.Offer("none", r.args[name].origin+": the trainer computes its loss from logits")
		}
		j.FusedLoss.Offer("liger-flce", r.args[name].origin)
		r.ligerLayers(name)
	}
	if a := r.args["loss_type"]; a.text != "" && r.family.program == "sft" {
		j.FusedLoss.Offer(map[bool]string{true: "chunked", false: "none"}[a.text == "chunked_nll"], a.origin)
	}
}

// wantsLogits: TRL's losses of preferences and rewards take no part in Liger's fused one, which use_liger_loss replaced
// until use_liger_kernel did both.
func (r *reader) wantsLogits() bool {
	if r.family.framework != "trl" || r.on("use_liger_loss") {
		return false
	}
	for _, field := range trlRemoved()[r.family.program] {
		if field.name == "use_liger_loss" {
			both, known := r.atLeast("trl", numbers(field.since)...)
			return known && !both
		}
	}
	return false
}

// ligerLayers: Liger's switch replaces the kernels of the layers too, as liger_kernel_config says
// (transformers/integrations/liger.py); that of TRL's losses is for the loss alone.
func (r *reader) ligerLayers(name string) {
	if name == "use_liger_loss" {
		return
	}
	config := r.dictionary("liger_kernel_config")
	on := func(key string) bool {
		n := config.Get(key)
		return n == nil || r.nodeBool(n, true)
	}
	r.job.LayerKernels.Offer(ligerKernels(on("rope"), on("rms_norm"), on("swiglu") && on("geglu")), r.args[name].origin)
}

// ligerKernels is the word for what Liger replaces in the layers.
func ligerKernels(rope, norm, glu bool) string {
	var names []string
	for _, k := range []struct {
		name string
		on   bool
	}{{"rope", rope}, {"rms_norm", norm}, {"glu", glu}} {
		if k.on {
			names = append(names, k.name)
		}
	}
	switch len(names) {
	case 0:
		return "none"
	case 3:
		return "liger"
	}
	return "liger:" + strings.Join(names, "+")
}

// readPrecision decides compute precision and the dtype of trained weights as far as arguments and files decide them.
func (r *reader) readPrecision() {
	j := r.job
	for _, name := range []string{"torch_dtype", "dtype"} {
		a, given := r.args[name]
		// A script of its own may mean autocast by --dtype.
		if !given || name == "dtype" && !r.family.huggingFace() {
			continue
		}
		if a.text == autoDtype {
			r.load.Offer(autoDtype, a.origin)
		} else if dtype := dtypeName(a.text); dtype != "" {
			r.load.Offer(dtype, a.origin)
		} else {
			r.wrongArgument(a, "bfloat16, float16, float32 or auto")
		}
	}
	if r.shardingLost != "" {
		return
	}
	if d := r.deepspeed; d != nil {
		if d.open {
			why := d.file + " leaves bf16 or fp16 to the script (\"auto\"); give --precision"
			for _, f := range []fact{&j.Precision, &j.ParamDtype, &j.MasterFP32} {
				f.Unknown(why)
			}
			return
		}
		if d.half != "" { // DeepSpeed casts the model whatever dtype it was loaded in
			j.Precision.Offer(d.half, d.origin)
			j.ParamDtype.Offer(d.half, d.origin)
			j.MasterFP32.Offer(d.master, d.origin+": DeepSpeed keeps an fp32 copy of half-precision weights")
			j.Autocast.Offer(false, d.origin+": DeepSpeed computes in the dtype of the weights")
			return
		}
		j.MasterFP32.Offer(false, d.file+": neither bf16 nor fp16 is enabled")
		return
	}
	mixed, origin := r.autocast()
	if mixed == "" {
		return
	}
	j.Precision.Offer(mixed, origin)
	r.offerAutocast(mixed, origin)
	if (r.family.framework == "custom" || r.family.foreign) && r.deepspeed == nil && !r.fsdp {
		j.MasterFP32.Offer(false, "autocast keeps no second copy of the weights")
	}
	if zero := j.Sharding; zero.Known && strings.HasPrefix(zero.Value, "zero") && r.family.huggingFace() {
		j.ParamDtype.Offer(mixed, origin+" under DeepSpeed ("+zero.Origin+")")
		j.MasterFP32.Offer(true, "DeepSpeed keeps an fp32 copy of half-precision weights ("+zero.Origin+")")
	}
	if r.fsdp || j.Sharding.Known && strings.HasPrefix(j.Sharding.Value, "fsdp") && r.family.huggingFace() {
		j.ParamDtype.Offer("fp32", "accelerate keeps trained weights in fp32 under FSDP with mixed precision")
		j.MasterFP32.Offer(false, "the weights themselves are fp32")
	}
}

// autocast is what --bf16 and --fp16 ask for, or the variable that TrainingArguments reads in their place.
func (r *reader) autocast() (dtype, origin string) {
	bf16, fp16 := r.on("bf16"), r.on("fp16")
	switch {
	case bf16 && fp16:
		return "", "" // Trainer refuses to start
	case bf16:
		return "bf16", r.args["bf16"].origin
	case fp16:
		return "fp16", r.args["fp16"].origin
	}
	const variable = "ACCELERATE_MIXED_PRECISION"
	if v := r.variable(variable); r.accelerated() && (v.text == "bf16" || v.text == "fp16" || v.text == "fp8") {
		return v.text, v.origin
	}
	return "", ""
}
