package model

import (
	"cmp"
	"slices"
)

// decoder describes a family whose blocks are built like Llama's: separate attention and MLP under self_attn and mlp.
// Its fields hold what differs; zero values mean as in Llama. The rows are in decoders.go.
type decoder struct {
	kvHeads int64 // default of num_key_value_heads; 0: as many as attention heads
	headDim int64 // default of head_dim; 0: hidden size / heads
	// evenHeads: heads are always hidden size / heads wide, whatever head_dim says.
	evenHeads bool
	tied      bool // default of tie_word_embeddings

	qkvBias, outBias, mlpBias toggle
	fusedQKV                  string // name of the one projection to queries, keys and values; "": three of them
	out                       string // attention output projection; "": o_proj
	latent                    bool   // multi-head latent attention (DeepSeek)
	sinks                     bool   // attention holds a number for each head
	mlp                       mlp
	activation                string                    // default of the activation function; "": silu
	activationKeys            []string                  // keys that name it; nil: hidden_act
	experts                   func(*config, *blueprint) // replaces MLPs by experts; nil: dense

	norm       string // NormKind; "": rms
	weights    normWeights
	blockNorms []string // the normalisation layers of hidden width in a block; nil: Llama's two
	finalNorm  string   // "": norm
	qkNorm     qkNorm
	// parallel: attention and MLP read the same normalised input, so that the second of blockNorms is not there.
	parallel toggle

	headBias         toggle // bias on lm_head
	residualDropout  string // key of the dropout after attention and MLP; "": none
	embeddingDropout string
	dropout          float64 // default of attention's dropout and of residualDropout
	// finalSoftcap and attentionSoftcap: the family has the keys final_logit_softcapping and attn_logit_softcapping;
	// their default is on or off.
	finalSoftcap, attentionSoftcap softcap
}

// toggle is a setting that is constant in some families and a key of the config in others.
type toggle struct {
	key string // "": always as absent says
	on  bool   // when the key is absent
}

func (t toggle) read(c *config) bool {
	if t.key == "" {
		return t.on
	}
	return c.flag(t.key, t.on)
}

// mlp names the projections of an MLP. The zero value is Llama's gated one.
type mlp struct {
	gate, up, down string
	fused          bool // up is gate and up in one projection
	plain          bool // no gate
}

var (
	gatedMLP = mlp{gate: "gate_proj", up: "up_proj", down: "down_proj"}
	fusedMLP = mlp{up: "gate_up_proj", down: "down_proj", fused: true}
)

func (m mlp) tensors(path string, hidden, intermediate int64, bias bool) []Tensor {
	if m.up == "" {
		m = gatedMLP
	}
	var into []Tensor
	switch {
	case m.fused:
		into = linear(PartGateUp, path+m.up, hidden, 2*intermediate, bias)
	case m.plain:
		into = linear(PartUp, path+m.up, hidden, intermediate, bias)
	default:
		into = slices.Concat(linear(PartGate, path+m.gate, hidden, intermediate, bias),
			linear(PartUp, path+m.up, hidden, intermediate, bias))
	}
	return append(into, linear(PartDown, path+m.down, intermediate, hidden, bias)...)
}

// qkNorm describes the normalisation of queries and keys.
type qkNorm struct {
	enabled toggle
	names   [2]string // of those of queries and keys; empty: q_norm and k_norm
	each    bool      // every head has its own weights (Cohere, StableLM) instead of sharing them
	wide    bool      // one normalisation over all heads (OLMo 2)
	weights normWeights
}

// softcap is a cap on logits: families that do not know the key ignore it.
type softcap int

const (
	noSoftcap softcap = iota
	softcapOff
	softcapOn
)

func (s softcap) read(c *config, key string) bool {
	return s != noSoftcap && c.positive(key, s == softcapOn)
}

// blueprint reads c as a config of the family d.
func (d decoder) blueprint(c *config) *blueprint {
	b := &blueprint{base: "model"}
	d.sizes(c, b)
	d.traits(c, b)
	b.embeddings = embedding("embed_tokens", b.Vocab, b.Hidden)
	b.blocks = layers(b.Layers, "layers.*.", d.attention(c, b),
		d.mlp.tensors("mlp.", b.Hidden, b.Intermediate, d.mlpBias.read(c)), d.norms(b))
	if d.experts != nil {
		d.experts(c, b)
	}
	b.final = d.weights.tensors(cmp.Or(d.finalNorm, "norm"), b.Hidden)
	b.head = c.head(decoderHeads("lm_head", "score", b.Hidden, b.Vocab, c.labels(), d.headBias.read(c)))
	return b
}

func (d decoder) sizes(c *config, b *blueprint) {
	b.Hidden = c.size("hidden_size")
	b.Layers = c.count("num_hidden_layers")
	b.Heads = c.count("num_attention_heads")
	b.Intermediate = c.size("intermediate_size")
	b.Vocab = c.size("vocab_size")
	b.MaxPositions = c.sizeOr(0, "max_position_embeddings")
	b.KVHeads = b.Heads // also when the key is null: __post_init__ of the configuration classes
	if d.kvHeads > 0 && !c.isNull("num_key_value_heads") {
		b.KVHeads = d.kvHeads
	}
	b.KVHeads = c.countOr(b.KVHeads, "num_key_value_heads")
	b.HeadDim = perHead(b.Hidden, b.Heads)
	if d.evenHeads {
		return
	}
	if d.headDim > 0 && !c.isNull("head_dim") {
		b.HeadDim = d.headDim
	}
	b.HeadDim = c.sizeOr(b.HeadDim, "head_dim")
}

// traits fills what does not change the number of weights.
func (d decoder) traits(c *config, b *blueprint) {
	b.NormKind = cmp.Or(d.norm, "rms")
	b.Gated = !d.mlp.plain
	b.Parallel = d.parallel.read(c)
	b.Norms = int64(len(d.normNames(b.Parallel)))
	b.QKNorm = d.qkNorm.enabled.read(c)
	b.Tied = c.flag("tie_word_embeddings", d.tied)
	keys := d.activationKeys
	if keys == nil {
		keys = []string{"hidden_act"}
	}
	b.Activation = c.text(cmp.Or(d.activation, "silu"), keys...)
	b.AttentionDropout = c.probability(d.dropout, "attention_dropout")
	if d.residualDropout != "" {
		b.HiddenDropout = c.probability(d.dropout, d.residualDropout)
	}
	if d.embeddingDropout != "" {
		b.EmbeddingDropout = c.probability(0, d.embeddingDropout)
	}
	b.FinalSoftcap = d.finalSoftcap.read(c, "final_logit_softcapping")
	b.AttentionSoftcap = d.attentionSoftcap.read(c, "attn_logit_softcapping")
}

func (d decoder) attention(c *config, b *blueprint) []Tensor {
	const path = "self_attn."
	if d.latent {
		return within(path, latentAttention(c, b, d.qkvBias.read(c)))
	}
	bias := d.qkvBias.read(c)
	q, kv := b.Heads*b.HeadDim, b.KVHeads*b.HeadDim
	var tensors []Tensor
	if d.fusedQKV != "" {
		tensors = linear(PartQKV, path+d.fusedQKV, b.Hidden, q+2*kv, bias)
	} else {
		tensors = slices.Concat(linear(PartQ, path+"q_proj", b.Hidden, q, bias),
			linear(PartK, path+"k_proj", b.Hidden, kv, bias),
			linear(PartV, path+"v_proj", b.Hidden, kv, bias))
	}
	tensors = append(tensors, linear(PartO, path+cmp.Or(d.out, "o_proj"), q, b.Hidden, d.outBias.read(c))...)
	if d.sinks {
		tensors = append(tensors, tensor("self_attn", Other, b.Heads))
	}
	if !b.QKNorm {
		return tensors
	}
	names := cmp.Or(d.qkNorm.names, [2]string{"q_norm", "k_norm"})
	return slices.Concat(tensors, d.qkNorm.tensors(path+names[0], b.Heads, b.HeadDim),
		d.qkNorm.tensors(path+names[1], b.KVHeads, b.HeadDim))
}

func (n qkNorm) tensors(path string, heads, headDim int64) []Tensor {
	switch {
	case n.wide:
		return n.weights.tensors(path, heads*headDim)
	case n.each:
		return n.weights.tensors(path, heads, headDim)
	}
	return n.weights.tensors(path, headDim)
}

// normNames are the normalisation layers of hidden width in one block.
func (d decoder) normNames(parallel bool) []string {
	names := d.blockNorms
	if names == nil {
		names = []string{"input_layernorm", "post_attention_layernorm"}
	}
	if parallel {
		names = names[:1]
	}
	return names
}

func (d decoder) norms(b *blueprint) []Tensor {
	var tensors []Tensor
	for _, name := range d.normNames(b.Parallel) {
		tensors = append(tensors, d.weights.tensors(name, b.Hidden)...)
	}
	return tensors
}
