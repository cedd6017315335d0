package model

import (
	"errors"
	"fmt"
	"slices"
)

// MegatronGPT are the sizes of the GPT model that Megatron-LM builds from its arguments (megatron/core/models/gpt,
// core_v0.13.1). Every field must be set; 0 switches off what is optional.
type MegatronGPT struct {
	Layers, Hidden, FFN, Heads, QueryGroups, HeadDim int64
	// Vocab is the padded vocabulary; see PadVocab.
	Vocab, MaxPositions int64
	LearnedPositions    bool // a table of MaxPositions rows
	Untied              bool // an output layer of its own
	Gated               bool // SwiGLU: two projections into the MLP
	LinearBias, QKVBias bool // biases in all linear layers; in the projection to queries, keys and values
	RMSNorm             bool
	QKNorm              bool // normalisation of queries and keys

	Experts, ExpertFFN, TopK, SharedFFN int64
	// Sparse says of each layer whether it has experts; nil: all have, when Experts is not 0.
	Sparse []bool

	Latent                                        bool // multi-head latent attention, with the five sizes
	QueryRank, KVRank, NopeDim, RopeDim, ValueDim int64
	// Predictors is the number of modules that predict tokens further ahead (mtp-num-layers), each with a layer of its
	// own.
	Predictors int64

	HiddenDropout, AttentionDropout float64
	Dtype                           string // of the weights
}

// PadVocab is the size of the embedding for a vocabulary: rounded up so that each tensor-parallel rank gets a multiple
// of unit rows (_vocab_size_with_padding in megatron/training/tokenizer/tokenizer.py).
func PadVocab(vocab, unit, tensorParallel int64) int64 {
	multiple := unit * tensorParallel
	return (vocab + multiple - 1) / multiple * multiple
}

// Architecture is the model with every weight. source says where the sizes come from. Errors name the sizes that cannot
// be.
func (g MegatronGPT) Architecture(source string) (*Architecture, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	b := &blueprint{base: "decoder"}
	a := &b.Architecture
	a.Name, a.Source, a.Type, a.Class = "GPT of Megatron-LM", source, "megatron_gpt", "GPTModel"
	a.Hidden, a.Layers, a.Heads, a.KVHeads, a.HeadDim = g.Hidden, g.Layers, g.Heads, g.QueryGroups, g.HeadDim
	a.Intermediate, a.Vocab, a.MaxPositions = g.FFN, g.Vocab, g.MaxPositions
	a.NormKind, a.Norms, a.QKNorm = map[bool]string{true: "rms", false: "layer"}[g.RMSNorm], 2, g.QKNorm
	a.Activation, a.Gated, a.Tied = map[bool]string{true: "silu", false: "gelu"}[g.Gated], g.Gated, !g.Untied
	a.Experts, a.ExpertsPerToken, a.SharedIntermediate = g.Experts, g.TopK, g.SharedFFN
	a.HiddenDropout, a.AttentionDropout, a.EmbeddingDropout = g.HiddenDropout, g.AttentionDropout, g.HiddenDropout
	a.Dtype = g.Dtype
	if g.Latent {
		a.QueryRank, a.KVRank, a.NopeDim, a.RopeDim, a.ValueDim = g.QueryRank, g.KVRank, g.NopeDim, g.RopeDim,
			g.ValueDim
		a.HeadDim, a.KVHeads = g.NopeDim+g.RopeDim, g.Heads
	}
	b.embeddings = embedding("embedding.word_embeddings", g.Vocab, g.Hidden)
	if g.LearnedPositions {
		b.embeddings = append(b.embeddings, embedding("embedding.position_embeddings", g.MaxPositions, g.Hidden)...)
	}
	b.blocks = g.blocks()
	b.final = g.norm("final_layernorm", g.Hidden)
	b.head = projection("output_layer", Head, g.Hidden, g.Vocab, false)
	whole := b.assemble(causalLM)
	whole.Units[0].Tensors = b.embeddings // they stand beside the decoder, not in it
	if !whole.countable() {
		return nil, fmt.Errorf("%s: its sizes multiply to more than %d parameters: correct them", source,
			int64(maxParameters))
	}
	return whole, nil
}

func (g MegatronGPT) check() error {
	for _, size := range []int64{g.Layers, g.Hidden, g.FFN, g.Heads, g.QueryGroups, g.HeadDim, g.Vocab} {
		if size < 1 || size > maxSize {
			return fmt.Errorf("a size of the model is %d: want a whole number from 1 to %d", size, int64(maxSize))
		}
	}
	if g.Layers > maxCount || g.Heads > maxCount || g.Experts > maxCount || g.Predictors > maxCount {
		return fmt.Errorf("%d layers, %d heads, %d experts: want at most %d of each", g.Layers, g.Heads, g.Experts,
			maxCount)
	}
	if g.Experts > 0 && (g.ExpertFFN < 1 || g.ExpertFFN > maxSize || g.SharedFFN < 0 || g.SharedFFN > maxSize) {
		return errors.New("the width of the experts is out of range")
	}
	if g.Sparse != nil && int64(len(g.Sparse)) != g.Layers {
		return fmt.Errorf("the pattern of layers with experts has %d entries for %d layers", len(g.Sparse), g.Layers)
	}
	for _, size := range []int64{g.QueryRank, g.KVRank, g.NopeDim, g.RopeDim, g.ValueDim, g.MaxPositions,
		g.Predictors} {
		if size < 0 || size > maxSize {
			return fmt.Errorf("a size of the model is %d: want a whole number from 0 to %d", size, int64(maxSize))
		}
	}
	return nil
}

// blocks are the layers by kind, and those of the predictors.
func (g MegatronGPT) blocks() []Unit {
	const path = "layers.*."
	dense := slices.Concat(g.attention(), g.mlp("mlp.", g.FFN), g.norm("input_layernorm", g.Hidden),
		g.norm("pre_mlp_layernorm", g.Hidden))
	kinds := []Unit{{Name: "layer", Tensors: within(path, dense)}}
	last := dense
	if g.Experts > 0 {
		last = slices.Concat(g.attention(), g.mixture(), g.norm("input_layernorm", g.Hidden),
			g.norm("pre_mlp_layernorm", g.Hidden))
		kinds[0].Name = "dense layer"
		kinds = append(kinds, Unit{Name: "layer", Tensors: within(path, last)})
	}
	for i := range g.Layers {
		at := 0
		if g.Experts > 0 && (g.Sparse == nil || g.Sparse[i]) {
			at = 1
		}
		kinds[at].Repeat++
		kinds[at].Indices = append(kinds[at].Indices, i)
	}
	kinds = slices.DeleteFunc(kinds, func(u Unit) bool { return u.Repeat == 0 })
	if g.Predictors > 0 { // multi_token_prediction.py: two norms, a projection of both inputs, a layer, a norm
		ahead := slices.Concat(g.norm("enorm", g.Hidden), g.norm("hnorm", g.Hidden),
			linear(PartProjection, "eh_proj", 2*g.Hidden, g.Hidden, false),
			within("transformer_layer.", last), g.norm("final_layernorm", g.Hidden))
		kinds = append(kinds, Unit{Name: "prediction layer", Repeat: g.Predictors,
			Tensors: within("mtp.layers.*.", ahead)})
	}
	return kinds
}

func (g MegatronGPT) norm(path string, width int64) []Tensor {
	if g.RMSNorm {
		return scaleOnly.tensors(path, width)
	}
	return layerNorm(path, width)
}

func (g MegatronGPT) attention() []Tensor {
	const path = "self_attention."
	if g.Latent {
		return within(path, g.latentAttention())
	}
	queries, keys := g.Heads*g.HeadDim, g.QueryGroups*g.HeadDim
	tensors := slices.Concat(linear(PartQKV, "linear_qkv", g.Hidden, queries+2*keys, g.LinearBias || g.QKVBias),
		linear(PartO, "linear_proj", queries, g.Hidden, g.LinearBias))
	if g.QKNorm {
		tensors = slices.Concat(tensors, g.norm("q_layernorm", g.HeadDim), g.norm("k_layernorm", g.HeadDim))
	}
	return within(path, tensors)
}

// latentAttention has normalisations of the latents only with qk-layernorm
// (get_gpt_layer_with_transformer_engine_spec).
func (g MegatronGPT) latentAttention() []Tensor {
	head := g.NopeDim + g.RopeDim
	tensors := linear(PartQ, "linear_q_proj", g.Hidden, g.Heads*head, false)
	if g.QueryRank > 0 {
		tensors = slices.Concat(linear(PartQDown, "linear_q_down_proj", g.Hidden, g.QueryRank, false),
			linear(PartQUp, "linear_q_up_proj", g.QueryRank, g.Heads*head, false))
		if g.QKNorm {
			tensors = append(tensors, g.norm("q_layernorm", g.QueryRank)...)
		}
	}
	if g.QKNorm {
		tensors = append(tensors, g.norm("kv_layernorm", g.KVRank)...)
	}
	return slices.Concat(tensors, linear(PartKDown, "linear_kv_down_proj", g.Hidden, g.KVRank+g.RopeDim, false),
		linear(PartKUp, "linear_kv_up_proj", g.KVRank, g.Heads*(g.NopeDim+g.ValueDim), false),
		linear(PartO, "linear_proj", g.Heads*g.ValueDim, g.Hidden, g.LinearBias))
}

func (g MegatronGPT) mlp(path string, width int64) []Tensor {
	part := PartUp
	if g.Gated {
		part = PartGateUp
	}
	return slices.Concat(linear(part, path+"linear_fc1", g.Hidden, g.entering(width), g.LinearBias),
		linear(PartDown, path+"linear_fc2", width, g.Hidden, g.LinearBias))
}

// entering is the width of the projection into an MLP: gate and up are one.
func (g MegatronGPT) entering(width int64) int64 {
	if g.Gated {
		return 2 * width
	}
	return width
}

func (g MegatronGPT) mixture() []Tensor {
	tensors := []Tensor{
		tensor("mlp.router", Other, g.Experts, g.Hidden).as(PartRouter),
		tensor("mlp.experts", Expert, g.Experts, g.entering(g.ExpertFFN), g.Hidden),
		tensor("mlp.experts", Expert, g.Experts, g.Hidden, g.ExpertFFN),
	}
	if g.LinearBias {
		tensors = append(tensors, tensor("mlp.experts", Bias, g.Experts, g.entering(g.ExpertFFN)).as(PartExperts),
			tensor("mlp.experts", Bias, g.Experts, g.Hidden).as(PartExperts))
	}
	if g.SharedFFN > 0 {
		tensors = append(tensors, g.mlp("mlp.shared_experts.", g.SharedFFN)...)
	}
	return tensors
}
