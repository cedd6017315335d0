package estimate

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"oomguard/preflight/model"
)

// architecture is the row's model: a configuration from the model package's testdata, or one made from Megatron's
// arguments or from the sizes that the row states.
func (r measuredRow) architecture() (*model.Architecture, error) {
	d := r.Dims
	megatron := strings.Contains(r.Framework, "Megatron")
	if r.number("hidden-size") > 0 ||
		megatron && d.Hidden > 0 && r.layers() > 0 && (d.Vocab > 0 || len(r.RunArgs) > 0) &&
			!strings.Contains(r.Model, "/") {
		return r.megatronModel()
	}
	name, _, _ := strings.Cut(r.Model, ",")
	name, _, _ = strings.Cut(name, " (")
	for _, file := range []string{r.Dims.ConfigFile, strings.ReplaceAll(name, "/", "__") + ".json"} {
		if a, err := knownConfig(file); err == nil {
			return a, nil
		}
	}
	return r.modelFromSizes()
}

// knownConfig reads one of the model package's test configurations, each the "config" of a file.
func knownConfig(name string) (*model.Architecture, error) {
	data, err := os.ReadFile(filepath.Join("..", "model", "known", name))
	if err != nil {
		return nil, err
	}
	var file struct {
		Config json.RawMessage `json:"config"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, err
	}
	return model.Parse(file.Config, name)
}

// modelFromSizes tries the common layers on the sizes that a row states and takes the first that has the row's number
// of parameters to half a percent. Without a number of parameters there is nothing to check a guess with.
func (r measuredRow) modelFromSizes() (*model.Architecture, error) {
	d := r.Dims
	layers := r.layers()
	if layers == 0 || d.Hidden == 0 || d.Heads == 0 || d.Vocab == 0 {
		if r.EP > 1 {
			return nil, rowError("which of the parameters are experts is not stated")
		}
		if d.Params > 0 && r.statesOnly() {
			a := model.FromParams(d.Params)
			a.Name = r.Model
			return a, nil
		}
		return nil, rowError("the sizes of " + r.Model + " are not stated")
	}
	kv := d.KVHeads
	if kv == 0 {
		kv = d.Heads
	}
	config := map[string]any{"hidden_size": d.Hidden, "num_hidden_layers": layers, "num_attention_heads": d.Heads,
		"num_key_value_heads": kv,
		"vocab_size":          d.Vocab, "tie_word_embeddings": d.Tied, "max_position_embeddings": 4096,
		"torch_dtype": "bfloat16",
		"n_embd":      d.Hidden, "n_layer": layers, "n_head": d.Heads, "n_positions": 1024,
		"word_embed_proj_dim": d.Hidden}
	if d.HeadDim > 0 {
		config["head_dim"] = d.HeadDim
	}
	for _, modelType := range []string{"qwen2", "llama", "qwen3", "gpt2", "opt"} {
		// Qwen 1 counts both halves of the gated product
		for _, width := range []int64{d.Intermediate, d.Intermediate / 2} {
			config["model_type"], config["intermediate_size"], config["ffn_dim"], config["n_inner"] = modelType, width,
				width, width
			config["architectures"] = []string{map[string]string{"qwen2": "Qwen2ForCausalLM",
				"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM",
				"gpt2": "GPT2LMHeadModel", "opt": "OPTForCausalLM"}[modelType]}
			text, err := json.Marshal(config)
			if err != nil {
				return nil, err
			}
			a, err := model.Parse(text, r.Model)
			if err == nil && d.Params > 0 && math.Abs(float64(a.Parameters()-d.Params)) < 0.005*float64(d.Params) {
				return a, nil
			}
		}
	}
	return nil, rowError(fmt.Sprintf("no known layer makes %d parameters of the sizes of %s", d.Params, r.Model))
}

// A megatronShape is a transformer of Megatron's core by its arguments and their defaults
// (megatron/training/arguments.py): LayerNorm, learned positions, gelu of four times the width, biases everywhere,
// dropout 0.1, tied embeddings, a vocabulary padded to 128 x TP.
type megatronShape struct {
	hidden, heads, kvHeads, headDim, width, vocab, positions int64
	gated, bias, rms, rotary, tied                           bool
	experts, perToken, expertWidth                           int64
}

func or(n, fallback int64) int64 {
	if n > 0 {
		return n
	}
	return fallback
}

// has says that the row's command line has this argument.
func (r measuredRow) has(name string) bool { _, ok := r.script(name); return ok }

func (r measuredRow) megatronShape() megatronShape {
	d := r.Dims
	s := megatronShape{hidden: or(r.number("hidden-size"), d.Hidden),
		heads:     or(r.number("num-attention-heads"), d.Heads),
		positions: or(r.number("max-position-embeddings"), 1024), gated: r.has("swiglu"),
		bias: !r.has("disable-bias-linear"),
		rms:  r.has("RMSNorm"), rotary: r.has("position-embedding-type") || r.has("rope"),
		tied:    !r.has("untie-embeddings-and-output-weights"),
		experts: r.number("num-experts"), perToken: or(r.number("moe-router-topk"), 2)}
	if text, _ := r.script("normalization"); text == "RMSNorm" {
		s.rms = true
	}
	s.headDim = or(r.number("kv-channels"), s.hidden/s.heads)
	s.kvHeads = or(d.KVHeads, s.heads)
	if r.has("group-query-attention") {
		s.kvHeads = or(r.number("num-query-groups"), 1)
	}
	s.width = or(r.number("ffn-hidden-size"), or(d.Intermediate, 4*s.hidden))
	s.expertWidth = or(r.number("moe-ffn-hidden-size"), s.width)
	multiple := or(r.number("make-vocab-size-divisible-by"), 128) * int64(max(r.TP, 1))
	s.vocab = ceilDiv(or(r.number("vocab-size"), or(d.Vocab, r.tokenizerSize())), multiple) * multiple
	return s
}

// tokenizerSize is the vocabulary of the tokenizer that Megatron's tests name by its files: BERT's word pieces in the
// scripts for BERT and T5, GPT-2's elsewhere.
func (r measuredRow) tokenizerSize() int64 {
	tokenizer, _ := r.script("tokenizer-type")
	switch {
	case tokenizer == "BertWordPieceCase":
		return 28996 + r.number("vocab-extra-ids")
	case strings.Contains(r.Model, " bert test"):
		return 30522
	}
	return 50257
}

func (s megatronShape) linear(module string, part model.Part, out, in int64) []model.Tensor {
	tensors := []model.Tensor{{Module: module, Path: "decoder.layers.*." + module, Role: model.Linear, Part: part,
		Shape: []int64{out, in}}}
	if s.bias {
		tensors = append(tensors, model.Tensor{Module: module, Role: model.Bias, Part: part, Shape: []int64{out}})
	}
	return tensors
}

func (s megatronShape) norm() []model.Tensor {
	scale := model.Tensor{Module: "layernorm", Role: model.Norm, Part: model.PartNorm, Shape: []int64{s.hidden}}
	if s.rms {
		return []model.Tensor{scale}
	}
	return []model.Tensor{scale, scale}
}

func (s megatronShape) attention() []model.Tensor {
	return slices.Concat(s.norm(), s.linear("qkv_proj", model.PartQKV, (s.heads+2*s.kvHeads)*s.headDim, s.hidden),
		s.linear("o_proj", model.PartO, s.hidden, s.heads*s.headDim))
}

func (s megatronShape) mlp() []model.Tensor {
	gate, part := int64(1), model.PartUp
	if s.gated {
		gate, part = 2, model.PartGateUp
	}
	if s.experts > 0 {
		return append(s.norm(), model.Tensor{Module: "router", Role: model.Other, Part: model.PartRouter,
			Shape: []int64{s.experts, s.hidden}},
			model.Tensor{Module: "experts", Path: "mlp.experts", Role: model.Expert, Part: model.PartExperts,
				Shape: []int64{s.experts, gate * s.expertWidth, s.hidden}},
			model.Tensor{Module: "experts", Path: "mlp.experts", Role: model.Expert, Part: model.PartExperts,
				Shape: []int64{s.experts, s.hidden, s.expertWidth}})
	}
	return slices.Concat(s.norm(), s.linear("up_proj", part, gate*s.width, s.hidden),
		s.linear("down_proj", model.PartDown, s.hidden, s.width))
}

func (r measuredRow) megatronModel() (*model.Architecture, error) {
	for _, unknown := range []string{"hybrid-layer-pattern", "img-h", "multi-latent-attention", "mtp-num-layers",
		"moe-layer-freq"} {
		if r.has(unknown) {
			return nil, rowError("no architecture for Megatron's --" + unknown)
		}
	}
	encoder := r.number("encoder-num-layers")
	if encoder > 0 && !r.statesOnly() {
		return nil, rowError("no activations of Megatron's T5, whose encoder and decoder have different lengths")
	}
	s := r.megatronShape()
	layers := or(r.number("num-layers"), or(r.layers(), encoder))
	a := &model.Architecture{Name: r.Model, Type: "megatron", Source: "Megatron's arguments", Class: "GPTModel",
		Hidden: s.hidden, Layers: layers, Heads: s.heads, KVHeads: s.kvHeads, HeadDim: s.headDim, Intermediate: s.width,
		Vocab:       s.vocab,
		LogitsWidth: s.vocab, MaxPositions: s.positions, Causal: true, NormKind: "layer", Norms: 2, Activation: "gelu",
		Gated: s.gated,
		Tied:  s.tied, Dtype: "bf16", Experts: s.experts, HiddenDropout: r.dropout("hidden-dropout"),
		AttentionDropout: r.dropout("attention-dropout"), EmbeddingDropout: r.dropout("hidden-dropout")}
	if s.experts > 0 {
		a.ExpertsPerToken = s.perToken
	}
	if s.rms {
		a.NormKind = "rms"
	}
	embeddings := []model.Tensor{{Module: "word_embeddings", Role: model.Embedding, Shape: []int64{s.vocab, s.hidden}}}
	if !s.rotary {
		embeddings = append(embeddings,
			model.Tensor{Module: "position_embeddings", Role: model.Other, Shape: []int64{s.positions, s.hidden}})
	}
	final := s.norm()
	if !s.tied {
		final = append(final, model.Tensor{Module: "output_layer", Role: model.Head, Shape: []int64{s.vocab, s.hidden}})
	}
	a.Units = []model.Unit{{Name: "embeddings", Repeat: 1, Tensors: embeddings},
		{Name: "layer", Repeat: layers, Tensors: slices.Concat(s.attention(), s.mlp())},
		{Name: "final", Repeat: 1, Tensors: final}}
	if encoder > 0 { // the decoder's layers attend to the encoder's output too
		decoder := model.Unit{Name: "decoder layer", Repeat: r.number("decoder-num-layers"),
			Tensors: slices.Concat(s.attention(), s.attention(), s.mlp())}
		a.Units = slices.Insert(a.Units, 2, decoder)
	}
	return a, nil
}

// dropout is one of Megatron's probabilities, which are 0.1 unless given.
func (r measuredRow) dropout(name string) float64 {
	text, ok := r.script(name)
	var p float64
	if ok && json.Unmarshal([]byte(text), &p) == nil {
		return p
	}
	return 0.1
}
