// Package model turns a Hugging Face config.json into an architecture: every weight tensor with its shape, so that parameter
// counts are exact to the unit. It never guesses: an unknown model_type is an error that asks for --params.
package model

// Role says what a tensor is for; sharding, quantisation, LoRA and 8-bit optimizers treat roles differently.
type Role string

// The roles of a tensor.
const (
	Embedding Role = "embedding" // token, position and type embeddings (nn.Embedding)
	Linear    Role = "linear"    // weight of an nn.Linear (or GPT-2's Conv1D)
	Bias      Role = "bias"
	Norm      Role = "norm" // weights and biases of normalisation layers
	Head      Role = "head" // untied output projection (an nn.Linear too)
	Other     Role = "other"
)

// Tensor is one trainable weight.
type Tensor struct {
	// Module is the last part of the module path that owns it, as LoRA targets name it: "q_proj", "c_attn", "embed_tokens".
	Module string
	Role   Role
	// Shape is the weight's shape; a Linear's is [out, in] whatever the storage order.
	Shape []int64
}

// Elements is the number of scalars.
func (t Tensor) Elements() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Unit is a piece of the model that sharding may gather as a whole: the input embeddings, one block, the head. Repeat counts how
// many identical ones there are.
type Unit struct {
	Name    string // "embeddings", "layer", "final"
	Repeat  int64
	Tensors []Tensor
}

// Elements is the number of scalars in one copy of the unit.
func (u Unit) Elements() int64 {
	var n int64
	for _, t := range u.Tensors {
		n += t.Elements()
	}
	return n
}

// Architecture is what memory depends on. Zero sizes mean unknown (a model known only by --params).
type Architecture struct {
	Name   string // directory, file or hub name as the user wrote it
	Type   string // model_type; "" when only the parameter count is known
	Source string // file that was read, or "flag --params"

	Hidden, Layers, Heads, KVHeads, HeadDim, Intermediate, Vocab, MaxPositions int64

	Causal     bool   // decoder with a language-model head (logits are vocabulary-wide)
	NormKind   string // "rms", "rms-gemma" (computes in fp32 with 1+w), "layer"
	Norms      int64  // normalisation layers of hidden width in one block (4 in Gemma 2)
	QKNorm     bool   // q_norm and k_norm of head width
	Activation string // "silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu" as in the config
	Gated      bool   // gate and up projections (SwiGLU, GeGLU)
	Parallel   bool   // attention and MLP read the same residual in parallel (GPT-NeoX)
	PostNorm   bool   // normalisation after the residual addition (BERT)
	Tied       bool   // output projection shares the embedding

	HiddenDropout, AttentionDropout, EmbeddingDropout float64
	FinalSoftcap, AttentionSoftcap                    bool

	// Dtype is torch_dtype/dtype of the config: "bf16", "fp16", "fp32", "" when absent.
	Dtype string
	// QuantMethod, QuantBits, QuantType, QuantDouble, QuantComputeDtype repeat a quantization_config; QuantMethod "" when absent.
	QuantMethod       string
	QuantBits         int
	QuantType         string
	QuantDouble       bool
	QuantComputeDtype string

	// Units list every trainable weight once, in the order of the forward pass; empty when only the count is known.
	Units []Unit
	// Params is the count for a model known only by --params; use Parameters.
	Params int64
}

// Parameters is the exact number of parameters, tied weights counted once.
func (a *Architecture) Parameters() int64 {
	if len(a.Units) == 0 {
		return a.Params
	}
	var n int64
	for _, u := range a.Units {
		n += u.Repeat * u.Elements()
	}
	return n
}

// FromParams is a model of which only the number of parameters is known.
func FromParams(params int64) *Architecture {
	return &Architecture{Name: "(--params)", Source: "flag --params", Causal: true, Params: params}
}
