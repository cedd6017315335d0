package model

import (
	"slices"
	"strings"
)

// Models whose blocks mix tokens by a recurrence instead of attention, all or some of them. Their weights are counted;
// what such a block keeps for its backward pass has no formula here, since it depends on which kernels are installed.

const recurrent = "some of its blocks are recurrences (state-space or linear-attention layers), for which there is " +
	"no formula"

// mamba reads MambaConfig and FalconMambaConfig: transformers/models/mamba, falcon_mamba.
func mamba(c *config) *blueprint {
	b := recurrentBase(c, 768, 32, 50280, true)
	width := c.countOr(2, "expand") * b.Hidden
	mixer := selectiveScan(c, selectiveSizes{hidden: b.Hidden, width: width, state: c.sizeOr(16, "state_size"),
		kernel:  c.sizeOr(4, "conv_kernel"),
		rankKey: "time_step_rank", bias: c.flag("use_bias", false), convBias: c.flag("use_conv_bias", true)})
	b.blocks = layers(b.Layers, "layers.*.", scaleOnly.tensors("norm", b.Hidden), within("mixer.", mixer))
	return b
}

// mamba2 reads Mamba2Config: transformers/models/mamba2.
func mamba2(c *config) *blueprint {
	b := recurrentBase(c, 4096, 64, 32768, false)
	mixer := dualityMixer(dualitySizes{hidden: b.Hidden, width: c.countOr(2, "expand") * b.Hidden,
		state:  c.sizeOr(128, "state_size"),
		groups: c.countOr(8, "n_groups"), heads: c.countOr(128, "num_heads"), kernel: c.sizeOr(4, "conv_kernel"),
		bias: c.flag("use_bias", false), outBias: c.flag("use_bias", false), convBias: c.flag("use_conv_bias", true),
		norm: true})
	b.blocks = layers(b.Layers, "layers.*.", scaleOnly.tensors("norm", b.Hidden), within("mixer.", mixer))
	return b
}

// recurrentBase is what Mamba's first two generations share; the arguments are defaults.
func recurrentBase(c *config, hidden, depth, vocabulary int64, tied bool) *blueprint {
	b := &blueprint{base: "backbone"}
	b.NoActivations = recurrent
	b.Hidden = c.sizeOr(hidden, "hidden_size")
	b.Layers = c.countOr(depth, "num_hidden_layers")
	b.Vocab = c.sizeOr(vocabulary, "vocab_size")
	b.NormKind, b.Norms = "rms", 1
	b.Activation = c.text("silu", "hidden_act")
	b.Tied = c.flag("tie_word_embeddings", tied)
	b.embeddings = embedding("embeddings", b.Vocab, b.Hidden)
	b.final = scaleOnly.tensors("norm_f", b.Hidden)
	b.head = c.head(map[task][]Tensor{bareModel: nil, causalLM: projection("lm_head", Head, b.Hidden, b.Vocab, false)})
	return b
}

// selectiveSizes are those of the first Mamba's mixer.
type selectiveSizes struct {
	hidden, width, state, kernel int64
	rankKey                      string // of the time step's rank; "auto": a sixteenth of the hidden size, rounded up
	bias, convBias               bool
}

func selectiveScan(c *config, s selectiveSizes) []Tensor {
	rank := (s.hidden + 15) / 16
	if _, text := c.find(s.rankKey); text != nil && kind(text) == "a number" {
		rank = c.sizeOr(rank, s.rankKey)
	}
	// A_log and D, of the mixer itself
	return slices.Concat([]Tensor{tensor("", Other, s.width, s.state), tensor("", Other, s.width)},
		convolution("conv1d", s.width, s.kernel, s.convBias),
		linear(PartMixer, "in_proj", s.hidden, 2*s.width, s.bias),
		linear(PartMixer, "x_proj", s.width, rank+2*s.state, false),
		linear(PartMixer, "dt_proj", rank, s.width, true),
		linear(PartMixer, "out_proj", s.width, s.hidden, s.bias))
}

// dualitySizes are those of Mamba 2's mixer.
type dualitySizes struct {
	hidden, width, state, groups, heads, kernel int64
	bias, outBias, convBias, norm               bool
}

func dualityMixer(s dualitySizes) []Tensor {
	mixed := s.width + 2*s.groups*s.state
	tensors := slices.Concat(slices.Repeat([]Tensor{tensor("", Other, s.heads)}, 3), // dt_bias, A_log and D
		convolution("conv1d", mixed, s.kernel, s.convBias),
		linear(PartMixer, "in_proj", s.hidden, s.width+mixed+s.heads, s.bias),
		linear(PartMixer, "out_proj", s.width, s.hidden, s.outBias))
	if s.norm {
		tensors = append(tensors, scaleOnly.tensors("norm", s.width)...)
	}
	return tensors
}

// convolution is an nn.Conv1d over time of each channel alone.
func convolution(path string, channels, kernel int64, bias bool) []Tensor {
	tensors := []Tensor{tensor(path, Other, channels, 1, kernel).as(PartConvolution)}
	if bias {
		tensors = append(tensors, tensor(path, Bias, channels))
	}
	return tensors
}

// replaceAttention puts another mixer in the place of attention in the blocks that picks says.
func (b *blueprint) replaceAttention(mixer []Tensor, picks func(block int64) bool) {
	var blocks []Unit
	for _, u := range b.blocks {
		attending, mixing := u, u
		attending.Indices, mixing.Indices = nil, nil
		mixing.Tensors = slices.DeleteFunc(slices.Clone(u.Tensors),
			func(t Tensor) bool { return strings.Contains(t.Path, ".self_attn") })
		mixing.Tensors = append(mixing.Tensors, within("layers.*.", mixer)...)
		for i := range u.Repeat {
			if u.Indices != nil {
				i = u.Indices[i]
			}
			if picks(i) {
				mixing.Indices = append(mixing.Indices, i)
			} else {
				attending.Indices = append(attending.Indices, i)
			}
		}
		for _, part := range []Unit{attending, mixing} {
			if part.Repeat = int64(len(part.Indices)); part.Repeat > 0 {
				blocks = append(blocks, part)
			}
		}
	}
	b.blocks = blocks
}

// moved gives tensors of the MLP another path.
func (b *blueprint) moved(from, to string) {
	for _, u := range b.blocks {
		for i := range u.Tensors {
			u.Tensors[i].Path = strings.Replace(u.Tensors[i].Path, from, to, 1)
			u.Tensors[i].Module = u.Tensors[i].Path[strings.LastIndexByte(u.Tensors[i].Path, '.')+1:]
		}
	}
}

var jambaBlocks = decoder{
	kvHeads:    8,
	evenHeads:  true,
	blockNorms: []string{"input_layernorm", "pre_ff_layernorm"},
	finalNorm:  "final_layernorm",
	experts:    jambaExperts,
}

// jambaExperts stand in every so many blocks.
func jambaExperts(c *config, b *blueprint) {
	b.Experts = c.countOr(16, "num_experts", "num_local_experts")
	b.ExpertsPerToken = c.countOr(2, "num_experts_per_tok")
	period, offset := c.countOr(2, "expert_layer_period"), c.naturalOr(1, "expert_layer_offset")
	if b.Experts == 1 {
		b.Experts, b.ExpertsPerToken = 0, 0
		return
	}
	b.mix(routed(namedRouter(Other), b.Hidden, b.Intermediate, b.Experts),
		func(i int64) bool { return i%period == offset })
}

// jamba reads JambaConfig: transformers/models/jamba.
func jamba(c *config) *blueprint {
	b := jambaBlocks.blueprint(c)
	b.NoActivations = recurrent
	b.moved(".mlp.", ".feed_forward.")
	state := c.sizeOr(16, "mamba_d_state")
	s := selectiveSizes{hidden: b.Hidden, width: c.countOr(2, "mamba_expand") * b.Hidden, state: state,
		kernel:  c.sizeOr(4, "mamba_d_conv"),
		rankKey: "mamba_dt_rank", bias: c.flag("mamba_proj_bias", false), convBias: c.flag("mamba_conv_bias", true)}
	mixer := selectiveScan(c, s)
	rank := mixer[slices.IndexFunc(mixer, func(t Tensor) bool { return t.Module == "dt_proj" })].Shape[1]
	mixer = slices.Concat(mixer, scaleOnly.tensors("dt_layernorm", rank), scaleOnly.tensors("b_layernorm", state),
		scaleOnly.tensors("c_layernorm", state))
	period, offset := c.countOr(8, "attn_layer_period"), c.naturalOr(4, "attn_layer_offset")
	b.replaceAttention(within("mamba.", mixer), func(i int64) bool { return i%period != offset })
	return b
}

var falconH1Blocks = decoder{
	kvHeads:    8,
	qkvBias:    toggle{key: "attention_bias"},
	outBias:    toggle{key: "attention_bias"},
	mlpBias:    toggle{key: "mlp_bias"},
	blockNorms: []string{"input_layernorm", "pre_ff_layernorm"},
	finalNorm:  "final_layernorm",
}

// falconH1 reads FalconH1Config, whose blocks have attention and a state-space mixer side by side:
// transformers/models/falcon_h1.
func falconH1(c *config) *blueprint {
	b := falconH1Blocks.blueprint(c)
	b.NoActivations = recurrent
	b.moved(".mlp.", ".feed_forward.")
	width := int64(1024)
	if c.isNull("mamba_d_ssm") {
		width = c.countOr(2, "mamba_expand") * b.Hidden
	}
	mixer := dualityMixer(dualitySizes{hidden: b.Hidden, width: c.sizeOr(width, "mamba_d_ssm"),
		state:  c.sizeOr(256, "mamba_d_state"),
		groups: c.countOr(1, "mamba_n_groups"), heads: c.countOr(128, "mamba_n_heads"),
		kernel: c.sizeOr(4, "mamba_d_conv"),
		bias:   c.flag("mamba_proj_bias", false), outBias: c.flag("projectors_bias", false),
		convBias: c.flag("mamba_conv_bias", true),
		norm:     c.flag("mamba_rms_norm", false)})
	b.blocks[0].Tensors = append(b.blocks[0].Tensors, within("layers.*.mamba.", mixer)...)
	return b
}

var graniteHybridBlocks = decoder{
	evenHeads: true,
	qkvBias:   toggle{key: "attention_bias"},
	outBias:   toggle{key: "attention_bias"},
	experts:   graniteHybridExperts,
}

// graniteHybridExperts are Granite's; without any the shared MLP stands alone.
func graniteHybridExperts(c *config, b *blueprint) {
	experts := c.naturalOr(8, "num_local_experts")
	shared := mlp{up: "input_linear", down: "output_linear", fused: true}
	b.SharedIntermediate = c.sizeOr(1024, "shared_intermediate_size")
	mixture := shared.tensors("shared_mlp.", b.Hidden, b.SharedIntermediate, false)
	if experts > 0 {
		b.Experts, b.ExpertsPerToken = experts, c.countOr(2, "num_experts_per_tok")
		mixture = slices.Concat(routed(namedRouter(Other), b.Hidden, b.Intermediate, experts), mixture)
	}
	b.mix(mixture, everyBlock)
	b.moved(".mlp.", ".block_sparse_moe.")
}

// graniteHybrid reads GraniteMoeHybridConfig (Granite 4): transformers/models/granitemoehybrid.
func graniteHybrid(c *config) *blueprint {
	b := graniteHybridBlocks.blueprint(c)
	b.NoActivations = recurrent
	mixer := dualityMixer(dualitySizes{hidden: b.Hidden, width: c.countOr(2, "mamba_expand") * b.Hidden,
		state:  c.sizeOr(256, "mamba_d_state"),
		groups: c.countOr(1, "mamba_n_groups"), heads: c.countOr(128, "mamba_n_heads"),
		kernel: c.sizeOr(4, "mamba_d_conv"),
		bias:   c.flag("mamba_proj_bias", false), outBias: c.flag("mamba_proj_bias", false),
		convBias: c.flag("mamba_conv_bias", true), norm: true})
	kinds := c.layerTypes(b.Layers, "layer_types", "layers_block_type")
	b.replaceAttention(within("mamba.", mixer), func(i int64) bool {
		return kinds == nil || kinds[i] != "attention" && kinds[i] != "full_attention"
	})
	return b
}

// layerTypes is the list of what mixes tokens in each block; nil when the config has none.
func (c *config) layerTypes(blocks int64, names ...string) []string {
	name, text := c.find(names...)
	if text == nil {
		return nil
	}
	types := c.texts(name)
	if int64(len(types)) < blocks {
		c.reject(name, "%s has %d entries for %d layers: correct one of them", name, len(types), blocks)
		return nil
	}
	return types
}

var qwen3NextBlocks = decoder{
	kvHeads: 2,
	headDim: 256,
	qkvBias: toggle{key: "attention_bias"},
	outBias: toggle{key: "attention_bias"},
	norm:    "rms-gemma",
	qkNorm:  qkNorm{enabled: toggle{on: true}},
	experts: qwenExperts{absent: 512, width: 512, perToken: 10, shared: true, sharedWidth: 512}.replace,
}

// qwen3Next reads Qwen3NextConfig, three in four of whose blocks have a gated delta rule instead of attention; the
// queries of the others come with a gate of their width: transformers/models/qwen3_next.
func qwen3Next(c *config) *blueprint {
	b := qwen3NextBlocks.blueprint(c)
	b.NoActivations = recurrent
	for _, u := range b.blocks {
		for i, t := range u.Tensors {
			if t.Part == PartQ {
				u.Tensors[i].Shape = slices.Clone(t.Shape)
				u.Tensors[i].Shape[0] *= 2
			}
		}
	}
	keyHeads, valueHeads := c.countOr(16, "linear_num_key_heads"), c.countOr(32, "linear_num_value_heads")
	valueDim := c.sizeOr(128, "linear_value_head_dim")
	keys, values := keyHeads*c.sizeOr(128, "linear_key_head_dim"), valueHeads*valueDim
	mixer := slices.Concat([]Tensor{tensor("", Other, valueHeads), tensor("", Other, valueHeads)}, // dt_bias and A_log
		convolution("conv1d", 2*keys+values, c.sizeOr(4, "linear_conv_kernel_dim"), false),
		linear(PartMixer, "in_proj_qkvz", b.Hidden, 2*keys+2*values, false),
		linear(PartMixer, "in_proj_ba", b.Hidden, 2*valueHeads, false),
		scaleOnly.tensors("norm", valueDim), linear(PartMixer, "out_proj", values, b.Hidden, false))
	kinds, every := c.layerTypes(b.Layers, "layer_types"), c.countOr(4, "full_attention_interval")
	b.replaceAttention(within("linear_attn.", mixer), func(i int64) bool {
		if kinds != nil {
			return kinds[i] == "linear_attention"
		}
		return (i+1)%every != 0
	})
	return b
}
