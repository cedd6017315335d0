// Package model turns a Hugging Face config.json into an architecture: every weight tensor with its shape, so that
// parameter counts are exact to the unit. It never guesses: an unknown model_type is an error that asks for --params.
package model

// Role says what a tensor is for; sharding, quantisation, LoRA and 8-bit optimizers treat roles differently.
type Role string

// The roles of a tensor.
const (
	Embedding Role = "embedding" // token, position and type embeddings (nn.Embedding)
	Linear    Role = "linear"    // weight of an nn.Linear (or GPT-2's Conv1D)
	Bias      Role = "bias"
	Norm      Role = "norm"   // weights and biases of normalisation layers
	Head      Role = "head"   // untied output projection (an nn.Linear too), or the projection to class labels
	Expert    Role = "expert" // the routed experts of a mixture-of-experts block, stacked: [experts, out, in]
	Other     Role = "other"  // everything else, such as a router
)

// Tensor is one trainable weight.
type Tensor struct {
	// Module is the last part of the module path that owns it, as LoRA targets name it: "q_proj", "c_attn",
	// "embed_tokens".
	Module string
	// Path is the module's full name in the class that is trained, as PyTorch's named_modules prints it, with * for the
	// number of the block: "model.layers.*.self_attn.q_proj".
	Path string
	Role Role
	// Part is what it does in the model's code; whoever asks what a weight is for asks this, and no name.
	Part Part
	// Shape is the weight's shape; a Linear's is [out, in] whatever the storage order. A scalar's is empty.
	Shape []int64
	// Frozen weights count as parameters, but the model's own code sets requires_grad to false (Whisper's sinusoidal
	// positions).
	Frozen bool
	// Unused weights take part in nothing that reaches the loss, so that they get no gradient, though requires_grad is
	// true (the layers of LLaVA's vision tower behind the one whose output it takes).
	Unused bool
	// Front weights belong to the stack in front (see Architecture.Encoder): its blocks, what stands around them, and
	// the norms of a projector.
	Front bool
}

// Elements is the number of scalars.
func (t Tensor) Elements() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Unit is a piece of the model that sharding may gather as a whole: the input embeddings, one block, the head. Repeat
// counts how many identical ones there are.
type Unit struct {
	// Name is "embeddings" (whatever is not in a block and comes before the last one's output), "layer", "final" (last
	// norm and head). Mixture-of-experts models also have a "dense layer", models with an Encoder an "encoder layer".
	Name    string
	Repeat  int64
	Tensors []Tensor
	// Indices are the numbers of the blocks that are like this one; nil: all from 0 to Repeat-1.
	Indices []int64
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
	// TextType is the model_type of the text model inside a multimodal one; "" elsewhere.
	TextType string
	// transformers class whose weights are counted: "LlamaForCausalLM"; "" when only the parameter count is known
	Class string

	Hidden, Layers, Heads, KVHeads, HeadDim, Intermediate, Vocab, MaxPositions int64

	Causal     bool   // decoder with a language-model head (logits are vocabulary-wide), also behind an Encoder
	NormKind   string // "rms", "rms-gemma" (computes in fp32 with 1+w), "layer"
	Norms      int64  // normalisation layers of hidden width in one block (4 in Gemma 2)
	QKNorm     bool   // q_norm and k_norm of head width
	Activation string // "silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu" as in the config
	Gated      bool   // gate and up projections (SwiGLU, GeGLU)
	Parallel   bool   // attention and MLP read the same residual in parallel (GPT-NeoX)
	PostNorm   bool   // normalisation after the residual addition (BERT)
	Tied       bool   // output projection shares the embedding
	// TiedHead is the output projection that shares the embedding's weight (in no unit: it would be counted twice), or
	// nil. An adapter may target it all the same.
	TiedHead *Tensor
	// TiedTables are embeddings that share the weight of another one, and may be targets too (those of T5's and BART's
	// stacks).
	TiedTables []Tensor
	// LogitsWidth is how many numbers the model puts out for a token (or for a sequence, when it classifies those): the
	// vocabulary for causal and masked language models, the number of labels for classifiers, 0 for a bare encoder or
	// when unknown.
	LogitsWidth int64
	// PooledLogits: the logits are put out once for a sequence, from one of its states or their mean, and not for every
	// token.
	PooledLogits bool
	// Experts is the number of routed experts in a mixture-of-experts block and ExpertsPerToken how many of them a
	// token visits; 0 in dense models.
	Experts, ExpertsPerToken int64

	// ExpertKind is how the installed releases keep the experts; what matters is only what adapters reach.
	ExpertKind ExpertKind

	// SharedIntermediate is the width of the MLP that every token visits beside its experts; 0 when there is none.
	SharedIntermediate int64

	// Encoder describes the stack of blocks in front of the one that the fields above describe: the encoder of T5, BART
	// and Whisper, the vision tower of LLaVA, Gemma 3 and CLIP; nil in models with one stack. It has no Units (its
	// weights are among those of the whole model) and Params is the number of its weights. Its MaxPositions are text
	// tokens, image patches (with the class token) or audio frames; its Vocab is 0.
	Encoder *Architecture
	// CrossAttention: every block also attends to what the encoder puts out, through a second attention of the same
	// sizes and one more normalisation, which Norms includes.
	CrossAttention bool
	// PositionBias: the attention scores get a learned bias [heads, query, key] that all blocks share (T5).
	PositionBias bool
	// PositionTerms are the products of contents with relative positions that are added to the attention scores: "c2p",
	// "p2c" (DeBERTa); empty elsewhere.
	PositionTerms []string
	// Multi-head latent attention (DeepSeek V2 and V3), 0 elsewhere. Keys and values are made from a latent of KVRank,
	// queries from one of QueryRank (0: straight from the hidden state). A query or key head is NopeDim + RopeDim =
	// HeadDim wide, of which RopeDim is rotated (one such key part is shared by all heads); a value head is ValueDim
	// wide. KVHeads equals Heads.
	QueryRank, KVRank, NopeDim, RopeDim, ValueDim int64

	HiddenDropout, AttentionDropout, EmbeddingDropout float64
	ActivationDropout                                 float64 // between the MLP's matrix products (T5, BART)
	FinalSoftcap, AttentionSoftcap                    bool

	// Facts are what is known of the model's type beside its weights.
	Facts Facts

	// Dtype is torch_dtype/dtype of the config: "bf16", "fp16", "fp32", "" when absent.
	Dtype string
	// QuantMethod, QuantBits, QuantType, QuantDouble, QuantComputeDtype, QuantStorage repeat a quantization_config;
	// QuantMethod "" when absent. QuantStorage is the dtype of the tensors that hold 4-bit weights ("uint8").
	QuantMethod       string
	QuantBits         int
	QuantType         string
	QuantDouble       bool
	QuantComputeDtype string
	QuantStorage      string

	// SharedBlocks: several of the Layers use the weights of one block, so that there are fewer blocks than layers
	// (ALBERT).
	SharedBlocks bool
	// LayerScale: what attention and MLP put out is multiplied by a trained vector each (DINOv2, InternVL's tower).
	LayerScale bool
	// NoActivations says why there is no formula for what the blocks keep for the backward pass: weights, gradients and
	// optimizer states can be predicted all the same. "" when there is one.
	NoActivations string

	// Assumptions say, a sentence each, what the config left open and what was taken instead.
	Assumptions []string

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
