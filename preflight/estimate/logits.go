package estimate

// A lossRule is the memory of logits and loss in bytes per token and vocabulary entry, by the width of computation.
// It holds for the whole vocabulary; chunked kinds have none of it and a fixed part instead.
type lossRule struct {
	// peak of the forward pass, peak of the backward pass
	forward, backward int64
	// handed: what the caller of the model makes of its output, in fp32, beside it and what the loss keeps.
	handed int64
	// chunk > 0: that many tokens' logits at a time, at 12 bytes each.
	chunk int64
	// gradientsAtLoss: the head's gradient and that of its input are computed in the forward pass.
	gradientsAtLoss bool
}

// lossRules by the kind of loss. The numbers of "none" are measured (see testdata/simulated_cases.json): transformers'
// loss turns 16-bit logits (2) into fp32 (4) and keeps log_softmax's output (4); in backward that output, the gradient
// of nll and that of softmax are alive at once (12). fp32 logits need no copy (8 in forward).
var lossRules = map[string]lossRule{
	"none": {forward: 10, backward: 12},
	// TRL computes the loss for 256 tokens at a time under checkpointing (trl sft_config.py).
	"chunked": {chunk: 256},
	// litgpt computes logits and loss in chunks of 128 tokens, in the model's dtype, but keeps all chunks in a list and
	// their log_softmax for backward (litgpt/utils.py: chunked_cross_entropy).
	"kept-chunks": {forward: 4, backward: 4},
	// Liger's fused linear cross entropy works on chunks and computes gradients at once
	// (fused_linear_cross_entropy.py).
	"liger-flce": {gradientsAtLoss: true},
	// Cut cross entropy never builds logits in memory (Wijmans et al. 2024).
	"cut-ce": {},
	// verl takes log-probabilities by flash-attn's Triton cross entropy (verl/utils/torch_functional.py,
	// logprobs_from_logits): it keeps the logits as they are and writes their gradient beside them
	// (flash_attn/ops/triton/cross_entropy.py; in place in later releases).
	"flash-ce": {forward: 2, backward: 4},
	// A Triton kernel over logits that were built as a whole: 8 fits the slope of public A100 runs of Mistral-7B and
	// Llama-3-8B at four batch sizes (fms-acceleration benchmarks, 7.9 to 8.4 bytes).
	"triton-ce": {forward: 6, backward: 8},
	// Fused vocabulary cross entropy of Transformer Engine and Megatron: logits in fp32, gradient in place.
	"te":           {forward: 6, backward: 6},
	"native-fused": {forward: 6, backward: 6},
	// Megatron's vocabulary-parallel cross entropy turns 16-bit logits into fp32 and works in place from there, also in
	// backward (megatron/core/tensor_parallel/cross_entropy.py).
	"vocab-parallel": {forward: 6, backward: 6},
}

// lossMemory is the logits component of a micro-batch, in bytes.
type lossMemory struct {
	forward, backward int64 // peaks
	gradient          int64 // when the head's matrix product runs backward
	held              int64 // through the rest of backward
	working           int64 // beside the peak of backward: gradients that are being added up
	handed            int64 // when the model has returned and its output is turned to fp32; 0: never more than before
}

// lossMemory is the memory of logits and loss on the last pipeline stage.
func (r *rank) lossMemory() lossMemory {
	width := r.arch.LogitsWidth
	if width == 0 && r.arch.Causal {
		width = r.arch.Vocab
	}
	if !r.last || width == 0 {
		return lossMemory{}
	}
	tokens, vocab := r.tokens(), ceilDiv(width, r.tp)
	if r.arch.PooledLogits {
		tokens = r.batch
	}
	c := r.precision.compute
	kind := r.loss
	if kind == "none" && r.megatron() {
		kind = "vocab-parallel"
	}
	if kind == "none" && r.traits.FlashLoss && r.precision.compute == 2 {
		kind = "flash-ce"
	}
	if kind == "chunked" && r.traits.KeepsChunks {
		kind = "kept-chunks"
	}
	rule, ok := lossRules[kind]
	if !ok {
		r.notes.assume("a loss over full logits", "the fused loss "+r.loss+" has no formula here", true)
		rule = lossRules["none"]
	}
	switch {
	case rule.chunk > 0:
		z := 12 * min(rule.chunk, tokens) * vocab
		// backward adds up the chunks' gradients of the head, one beside the sum of those before, and keeps those of
		// its inputs
		head := tokens * r.arch.Hidden * c
		if r.trainsEnds() {
			head += 2 * vocab * r.arch.Hidden * c
		}
		return lossMemory{forward: z, backward: z, working: head}
	case rule.gradientsAtLoss:
		return r.ligerLoss(tokens, vocab)
	case rule.backward == 0:
		return lossMemory{forward: 4 * tokens, backward: 4 * tokens}
	}
	if kind == "none" {
		rule = r.eagerLoss()
	}
	if r.compilesLoss() {
		return r.compiledLoss(tokens * vocab)
	}
	if c == 4 && rule.forward > 8 {
		rule.forward = 8
	}
	logits := c * tokens * vocab
	var capped, held int64
	if r.arch.FinalSoftcap { // tanh keeps its output, in the logits' own dtype
		capped = logits
	}
	if r.traits.KeepsLogits {
		// A loop of one's own holds the model's output in a variable until the next step; Trainer drops it before
		// backward.
		held = logits
		r.notes.assume("the loop keeps the logits through backward", "usual in hand-written training loops", false)
	}
	return lossMemory{
		forward:  rule.forward*tokens*vocab + capped,
		backward: rule.backward*tokens*vocab + capped + held,
		gradient: logits + capped + held,
		held:     held,
		handed:   rule.handed * tokens * vocab,
	}
}

// eagerLoss is transformers' loss over whole logits, which changed with its releases: before 4.45 models dropped their
// 16-bit logits for fp32 ones; before 4.50 the loss made a contiguous copy of all logits but the last (loss_utils.py).
// The slope of QLoRA of Mistral-7B between batches of 4 and 8 (fms-acceleration, rows 76 and 78) is 14 bytes a token
// and vocabulary entry, to 0.01 %.
func (r *rank) eagerLoss() lossRule {
	modern := lossRules["none"]
	switch {
	case (!r.arch.Causal && !r.arch.Facts.Quirks.WideLoss || r.arch.CrossAttention) &&
		(!r.precision.autocast || !r.cpu()):
		// masked and sequence-to-sequence models hand their logits to cross entropy as they are
		return r.plainLoss()
	case !r.traits.TransformersLoss || !r.older("transformers", 4, 50):
		return modern
	case r.older("transformers", 4, 48) && !r.precision.autocast && !r.adapters() && r.arch.Facts.SixteenBitLoss:
		// logits, their copy and log_softmax; in backward the copy's gradient is padded back: 8 fits three full runs of
		// gpt_bigcode (fms-acceleration, rows 1 to 3)
		return lossRule{forward: 6, backward: 8}
	case r.older("transformers", 4, 45):
		return lossRule{forward: 12, backward: 12}
	}
	return lossRule{forward: modern.forward + 4, backward: modern.backward}
}

// plainLoss is cross entropy over logits of the model's own width: they and log_softmax's output, then that, its
// gradient and theirs. On a GPU autocast leaves log_softmax in 16 bit, since cross entropy names that dtype
// (aten/src/ATen/native/LossNLL.cpp), and runs nll_loss on an fp32 copy, which is kept; accelerate then turns the
// logits that the model puts out into fp32 ones.
func (r *rank) plainLoss() lossRule {
	c := r.precision.compute
	switch {
	case !r.precision.autocast:
		return lossRule{forward: 2 * c, backward: 3 * c}
	case r.traits.FP32Outputs:
		return lossRule{forward: 2*c + 4, backward: c + 8, handed: 2*c + 8}
	}
	return lossRule{forward: 2*c + 4, backward: c + 8}
}

func nextPowerOf2(n int64) int64 {
	p := int64(1)
	for p < n {
		p *= 2
	}
	return p
}
