package job

import (
	"strings"

	"oomguard/preflight/job/document"
	"oomguard/preflight/optim"
)

// namedOptimizer is the optimizer that a word names in the first vocabulary that has it. One that nobody has is
// withheld: nothing weaker is true either.
func (r *reader) namedOptimizer(word, origin string, in ...optim.Vocabulary) (optim.Optimizer, bool) {
	o, known := optim.Find(word, in...)
	if !known {
		r.job.Optimizer.Withhold(origin + " names the optimizer " + word +
			", which is not known here; give --optimizer")
	}
	return o, known
}

// offerOptimizer offers the optimizer that a word names.
func (r *reader) offerOptimizer(word, origin string, in ...optim.Vocabulary) {
	if o, known := r.namedOptimizer(word, origin, in...); known {
		r.job.Optimizer.Offer(o.Name, origin)
	}
}

// optimizerClass offers the optimizer that a class and its arguments make. A class without modules is torch's. fused
// says which implementation the framework asks for when the arguments name none.
func (r *reader) optimizerClass(class string, arguments *configuration, fused bool, origin string) {
	if !strings.Contains(class, ".") {
		class = "torch.optim." + class
	}
	o, known := r.namedOptimizer(class, origin, optim.Class)
	if !known {
		return
	}
	if o.OnHost {
		r.job.Offload.Offer(Offload{Optimizer: "cpu", Params: "none"}, origin)
	}
	r.job.Optimizer.Offer(optimizerForm(o, arguments, fused).Name, origin)
}

// optimizerForm is the implementation that arguments of PyTorch's optimizers ask for, where o has several.
func optimizerForm(o optim.Optimizer, arguments *configuration, fused bool) optim.Optimizer {
	switch {
	case o.Has(optim.Momentum) && arguments.fraction(0, "momentum").Value != 0:
		return o.In(optim.Momentum)
	case o.Has(optim.Fused) && arguments.flag(fused && !arguments.flag(false, "foreach").Value, "fused").Or(fused):
		return o.In(optim.Fused)
	case o.Has(optim.Loop) && !arguments.flag(true, "foreach").Or(true):
		return o.In(optim.Loop)
	}
	return o
}

// below is the part of a configuration under one path; empty when there is none.
func (c *configuration) below(path string) *configuration {
	part := *c
	if part.doc = c.doc.At(path); part.doc == nil {
		part.doc = &document.Node{Path: path}
	}
	return &part
}
