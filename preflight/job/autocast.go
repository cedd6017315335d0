package job

import "strings"

// Whether torch.autocast is on is a question of its own: it leaves the weights as they are, and transformers 5 loads
// them in the checkpoint's own 16 bits. Norms, softmax and losses then work in fp32 (aten/src/ATen/autocast_mode.h),
// which they do not in plain 16-bit training.

// offerAutocast is what mixed precision of accelerate, or of a loop of one's own, means: the model's forward pass runs
// under autocast, except with engines that bring their own precision (accelerate/accelerator.py: native_amp).
func (r *reader) offerAutocast(dtype, origin string) {
	if dtype != "bf16" && dtype != "fp16" || r.deepspeed != nil {
		return
	}
	if zero := r.job.Sharding; zero.Known && (strings.HasPrefix(zero.Value, "zero") || zero.Value == "dist-optim") {
		return
	}
	r.job.Autocast.Offer(true, origin)
}

// deriveAutocast is what the dtypes say where nothing names it.
func (r *reader) deriveAutocast() {
	j := r.job
	half := j.Precision.Value == "bf16" || j.Precision.Value == "fp16"
	switch {
	case j.Autocast.Origin != "": // known, or open for a reason
	case !j.Precision.Known && j.Precision.Origin == "":
	case !j.Precision.Known:
		j.Autocast.Unknown("precision: " + j.Precision.Origin)
	case j.Precision.Value == "fp32":
		j.Autocast.Offer(false, "computes in fp32: "+j.Precision.Origin)
	case !half || r.family.framework == "unsloth": // Unsloth's layers have kernels of their own
	case j.MasterFP32.Value:
		j.Autocast.Offer(false, "computes in the dtype of the weights: "+j.MasterFP32.Origin)
	case r.family.huggingFace(): // neither bf16 nor fp16 was asked for
		j.Autocast.Offer(false, j.Precision.Origin)
	case j.Method.Value != "full" || !j.ParamDtype.Known:
	case j.ParamDtype.Value == j.Precision.Value:
		j.Autocast.Offer(false, "computes in the dtype of the weights: "+j.Precision.Origin)
	case !j.Sharding.Known && j.ParamDtype.Value == "fp32" && r.uncertain != "":
		j.Autocast.Unknown("sharding: " + j.Sharding.Origin)
	case strings.HasPrefix(j.Sharding.Value, "fsdp"):
		j.Autocast.Offer(false, "FSDP casts the weights that it gathers")
	default:
		j.Autocast.Offer(true, "fp32 weights, and "+j.Precision.Origin)
	}
}
