package model

import (
	"cmp"
	"slices"
	"strings"
)

// Facts are what is known of a model type beside its weights. Whoever asks has an Architecture, which carries those
// of its own type: a type that is not known has none. The first four need a statement in every row.
type Facts struct {
	// LoRA are PEFT's default targets (TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING in peft/utils/constants.py,
	// 0.21.2).
	LoRA []string
	// Attention is the history of the implementation that transformers takes when none is named: the first value,
	// then "release=value" for each change. It is _supports_sdpa of the classes over transformers 4.40, 4.44, 4.46,
	// 4.48, 4.51, 4.53, 4.57, 5.0, 5.9, 5.12, 5.16, 5.19, 5.22 and 5.24; a border stands at the first of these in
	// which the new value is found. Empty: usualAttention.
	Attention []string
	// Measured says how well the activations agree with simulated runs of the real code
	// (estimate/testdata/simulated_*.json).
	Measured Measured
	// Liger is what the switch of Liger replaces.
	Liger *Liger

	Quirks Quirks
	// SixteenBitLoss: the loss was computed in the logits' own dtype before transformers 4.48.
	SixteenBitLoss bool
	// TextEncoder: the encoder reads as many tokens as the decoder writes.
	TextEncoder bool
	// FactoryFlash: LLaMA-Factory gives it flash_attention_2 where flash-attn is installed, and eager attention
	// otherwise (model/model_utils/attention.py).
	FactoryFlash bool

	experts     projections
	formerNames map[string]string // names of modules that transformers 5 changed and scripts still use -> present names
	refused     []string          // modules that PEFT refuses as targets
	// words: a hub name that contains one of these is of this type, where nothing better is known; the longest counts.
	words []string
}

// What rows state where a type has nothing of its own.
var (
	noDefault      = []string{} // PEFT has no default targets and asks for some
	usualAttention = []string{} // scaled_dot_product_attention since 4.36
	notInLiger     = &Liger{}
	// keptFromLoRA are weights that Mamba's kernels read themselves (_check_lora_target_modules_mamba in
	// peft/tuners/tuners_utils.py).
	keptFromLoRA = []string{"out_proj", "conv1d"}
)

// Measured is how well the formulas of a type are known.
type Measured int

// The zero value is no statement.
const (
	Unmeasured Measured = iota + 1 // the common layer is an approximation
	Closely                        // to a fraction of a percent
	Roughly                        // to some percent
)

// Liger are the fused Triton kernels of Liger that stand in for a model's own code: MODEL_TYPE_TO_APPLY_LIGER_FN in
// liger_kernel/transformers/monkey_patch.py and the defaults of the functions in it, release 0.8.5.
type Liger struct {
	Rope bool // the rotary embedding, in place (liger_kernel/ops/rope.py)
	Norm bool // RMSNorm
	GLU  bool // what stands between the two products of a gated MLP
	Loss bool // the fused linear cross entropy is part of the switch
	// NewGradient: RMSNorm's backward does not write over the gradient that it gets (in_place=False).
	NewGradient bool
}

var (
	allOfLiger  = &Liger{Rope: true, Norm: true, GLU: true, Loss: true}
	ligerBeside = &Liger{Rope: true, Norm: true, GLU: true, Loss: true, NewGradient: true}
)

// HasLiger says that Liger knows the type.
func (f Facts) HasLiger() bool { return f.Liger != nil && *f.Liger != Liger{} }

// Quirks are where a model type's code in transformers departs from the common layer.
type Quirks struct {
	Softmax16 bool // eager softmax in the dtype of the scores instead of fp32
	WideProbs bool // under autocast its fp32 result stays as it is until the product with v, dropout included
	Scores32  bool // eager scores computed in fp32
	NoRotary  bool // no rotary embedding: nothing of it is kept
	// q and k come out of the rotation in another memory order, so that attention's output is copied
	BothOrders    bool
	ExpandsHeads  bool  // several shared key and value heads are repeated for every attention implementation
	Broadcasts    bool  // a single key and value head is handed to fused attention as it is
	EagerOnly     bool  // there is no fused attention
	Norm32        bool  // the norm works in fp32 from beginning to end
	ScalesInput   bool  // RMSNorm multiplies its 16-bit input by the fp32 root instead of the fp32 copy
	PythonNorm    bool  // LayerNorm written in Python
	Norm16        bool  // LayerNorm in autocast's 16 bit
	NormsRotated  bool  // queries and keys are normalised after their rotation
	NormAfter     bool  // attention and MLP are normalised at their output, before the residual addition
	Rotary32      bool  // the rotation is computed in fp32
	OwnRotary     bool  // each layer makes fp32 cosines and sines of its own
	Windows       int64 // attention has a window but in one of so many layers; both kinds have a mask of their own
	Alibi32       bool  // ALiBi's fp32 biases widen the scores
	Weights16     bool  // the experts' weights are cast to the dtype of the router's scores
	SharedFirst   bool  // the shared expert works before the routed ones
	Router32      bool  // the router works in fp32
	NamesScores   bool  // the scores before the mask have a variable of their own
	ReturnsScores bool  // blocks hand out the attention weights, which live on through the next block
	PythonGelu    bool  // an autograd function in Python that keeps its input and needs room to differentiate
	CopiesHeads   bool  // v is copied out of the fused tensor
	AlwaysMasked  bool  // fused attention gets an explicit mask in any case
	WideLoss      bool  // a masked language model whose loss turns the logits to fp32
	FinalDropout  bool  // dropout follows each stack's last norm
	ViewsWeights  bool  // matrix products see a transposed view of the weight, which autocast does not cache
	Sinks         bool  // the softmax also has a column for each head's sink, which is cut off behind it
	ClampedGate   bool  // experts clamp gate and up, and multiply by a sigmoid written in Python
	EveryExpert   bool  // every expert works on every token, with a weight that may be 0
	BareHeadNorm  bool  // the norm of queries and keys has no weights
	ClampsScores  bool  // scores are kept from below the smallest number, by a function that keeps them
	Sinusoids     bool  // the model holds its positions' sinusoids, in the weights' dtype
	// causal masks [positions, positions] of a byte each that the model holds: one, or one a layer (PerLayer)
	MaskBuffers int64
}

// PerLayer is a mask for each layer.
const PerLayer = -1

// FactsOf are those of a model_type; none when it is not known.
func FactsOf(modelType string) Facts {
	if f := find(rows(), modelType); f != nil {
		return f.facts
	}
	return Facts{}
}

// TypeByName tells the model_type from a model's name, where its configuration is not known; "" when the name says
// nothing.
func TypeByName(name string) string {
	name = strings.ToLower(name)
	modelType, longest := "", 0
	for _, f := range rows() {
		for _, word := range f.facts.words {
			if len(word) > longest && strings.Contains(name, word) {
				modelType, longest = f.modelType, len(word)
			}
		}
	}
	return modelType
}

// takeFacts gives a its type's facts. What layers do is that of the text's type, where a model also reads something
// else.
func (a *Architecture) takeFacts() {
	a.Facts = FactsOf(a.Type)
	if a.TextType != "" {
		text := FactsOf(a.TextType)
		a.Facts.Quirks, a.Facts.Liger = text.Quirks, text.Liger
	}
	if a.Encoder != nil {
		a.Encoder.Facts = FactsOf(cmp.Or(a.Encoder.Type, a.Type))
	}
}

func find(all []family, modelType string) *family {
	if at := slices.IndexFunc(all, func(f family) bool { return f.modelType == modelType }); at >= 0 {
		return &all[at]
	}
	return nil
}
