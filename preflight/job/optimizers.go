package job

import (
	"strings"

	"oomguard/preflight/job/document"
)

// optimizerClasses maps the classes of optimizers, without the modules in front, to the vocabulary of the job. AdamW and SGD of torch have
// arguments that decide further. Classes of bitsandbytes with 32 bits that are not paged are not here: estimate has no row for them.
func optimizerClasses() map[string]string {
	return map[string]string{
		"torch.optim.Adam": "adamw", "torch.optim.AdamW": "adamw", "torch.optim.SGD": "sgd", "torch.optim.Adagrad": "adagrad",
		"torch.optim.RMSprop": "rmsprop", "torch.optim.Adafactor": "adafactor", "torch.optim.Muon": "muon",
		"bitsandbytes.optim.Adam8bit": "adamw_8bit", "bitsandbytes.optim.AdamW8bit": "adamw_8bit",
		"bitsandbytes.optim.PagedAdam": "paged_adamw", "bitsandbytes.optim.PagedAdam32bit": "paged_adamw",
		"bitsandbytes.optim.PagedAdamW": "paged_adamw", "bitsandbytes.optim.PagedAdamW32bit": "paged_adamw",
		"bitsandbytes.optim.PagedAdam8bit": "paged_adamw_8bit", "bitsandbytes.optim.PagedAdamW8bit": "paged_adamw_8bit",
		"bitsandbytes.optim.Lion": "lion", "bitsandbytes.optim.Lion8bit": "lion_8bit",
		"bitsandbytes.optim.PagedLion": "paged_lion", "bitsandbytes.optim.PagedLion8bit": "paged_lion_8bit",
		"bitsandbytes.optim.RMSprop8bit": "rmsprop_8bit", "bitsandbytes.optim.AdEMAMix8bit": "ademamix_8bit", "bitsandbytes.optim.AdEMAMix": "ademamix",
		"torchao.optim.AdamW8bit": "adamw_8bit", "torchao.optim.Adam8bit": "adamw_8bit", "torchao.optim.AdamWFp8": "adamw_8bit", "torchao.optim.AdamFp8": "adamw_8bit",
		"torchao.optim.AdamW4bit": "adamw_4bit", "torchao.optim.Adam4bit": "adamw_4bit",
		"galore_torch.GaLoreAdamW": "galore_adamw", "lion_pytorch.Lion": "lion", "deepspeed.ops.adam.DeepSpeedCPUAdam": "cpu_adam", "deepspeed.ops.adam.FusedAdam": "adamw_fused",
	}
}

// optimizerClass offers the optimizer that a class and its arguments make. A class without modules is torch's. fused says which
// implementation the framework asks for when the arguments name none.
func (r *reader) optimizerClass(class string, arguments *configuration, fused bool, origin string) {
	if !strings.Contains(class, ".") {
		class = "torch.optim." + class
	}
	short := strings.Replace(class, "torchao.prototype.low_bit_optim.", "torchao.optim.", 1)
	if strings.HasSuffix(short, ".CPUOffloadOptimizer") { // torchao: states, gradients and step on the host
		r.job.Offload.Offer(Offload{Optimizer: "cpu", Params: "none"}, origin)
		r.job.Optimizer.Offer("cpu_adam", origin)
		return
	}
	for _, part := range []string{".adam.", ".adamw.", ".sgd."} { // torch.optim.adamw.AdamW is torch.optim.AdamW
		if strings.HasPrefix(short, "torch.optim.") || strings.HasPrefix(short, "bitsandbytes.optim.") {
			short = strings.Replace(short, part, ".", 1)
		}
	}
	name, known := optimizerClasses()[short]
	if !known {
		r.job.Optimizer.Unknown(origin + " names the optimizer " + class + ", which is not known here; give --optimizer")
		return
	}
	r.job.Optimizer.Offer(optimizerVariant(name, short, arguments, fused), origin)
}

// optimizerVariant tells the implementations of torch's Adam apart, and SGD with a momentum.
func optimizerVariant(name, class string, arguments *configuration, fused bool) string {
	switch {
	case class == "torch.optim.SGD" && arguments.fraction(0, "momentum").Value != 0:
		return "sgd_momentum"
	case name != "adamw" || !strings.HasPrefix(class, "torch."):
		return name
	case arguments.flag(fused && !arguments.flag(false, "foreach").Value, "fused").Or(fused):
		return "adamw_fused"
	case !arguments.flag(true, "foreach").Or(true):
		return "adamw_loop"
	}
	return name
}

// below is the part of a configuration under one path; empty when there is none.
func (c *configuration) below(path string) *configuration {
	part := *c
	if part.doc = c.doc.At(path); part.doc == nil {
		part.doc = &document.Node{Path: path}
	}
	return &part
}
