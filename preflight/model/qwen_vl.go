package model

import (
	"fmt"
	"slices"
)

// A qwenVL is a Qwen model of text and images: transformers/models/qwen2_vl, qwen2_5_vl, qwen3_vl, qwen3_vl_moe. Their
// images may have any size, so that the configuration does not tell how many patches there are.
type qwenVL struct {
	text     decoder
	defaults map[string]int64 // of the text's sizes
	flat     bool             // the first published configs have the text's keys beside vision_config
	tower    func(*config) *blueprint
}

var (
	qwen2VL  = qwenVL{qwenVLText, towerSizes(8192, 29568, 80, 64, 152064), true, qwen2Vision}
	qwen25VL = qwenVL{qwenVLText, towerSizes(8192, 29568, 80, 64, 152064), true, qwen25Vision}
	qwen3VL  = qwenVL{qwen3, towerSizes(4096, 22016, 32, 32, 151936), false, qwen3Vision}
	// qwen3VLMoE has the experts of Qwen3-MoE.
	qwen3VLMoE = qwenVL{qwen3VLMoEText, towerSizes(2048, 5632, 24, 16, 151936), false, qwen3Vision}
)

var qwenVLText = decoder{kvHeads: 8, evenHeads: true, qkvBias: toggle{on: true}}

var qwen3VLMoEText = decoder{
	kvHeads: 16,
	qkvBias: toggle{key: "attention_bias"},
	outBias: toggle{key: "attention_bias"},
	qkNorm:  qkNorm{enabled: toggle{on: true}},
	experts: qwenExperts{absent: 60, width: 1408, perToken: 4}.replace,
}

func (q qwenVL) blueprint(c *config) *blueprint {
	text := c.sectionOr("text_config")
	if name, _ := c.find("text_config"); name == "" && q.flat {
		text = &config{object: c.object, parent: c, class: c.class}
	}
	text.defaults, text.task = q.defaults, bareModel
	b := q.text.blueprint(text)
	b.Type, b.Dtype = text.text("", "model_type"), text.dtype()
	b.base, b.TextType = "model", b.Type
	b.under("language_model.")
	vision := c.sectionOr("vision_config")
	vision.task = bareModel
	tower := q.tower(vision)
	c.assume("images give as many patches as there are tokens, a quarter of which they take: their size is not in " +
		"the config")
	b.after(tower, "visual.")
	// Qwen2VLConfig.__post_init__
	b.Tied = c.flag("tie_word_embeddings", false) || q.flat && text.flag("tie_word_embeddings", false)
	b.head = c.head(imageTextHeads(b))
	return b
}

// qwenTower reads what the three vision towers share, and returns the convolution that embeds patches. Defaults are the
// arguments.
func qwenTower(c *config, width, depth, patch int64, widthKey string) (b *blueprint, embed Tensor, merged int64) {
	b = &blueprint{}
	b.Hidden = c.sizeOr(width, widthKey)
	b.Layers = c.countOr(depth, "depth", "num_hidden_layers")
	b.Heads = c.countOr(16, "num_heads", "num_attention_heads")
	b.KVHeads, b.HeadDim, b.Norms = b.Heads, perHead(b.Hidden, b.Heads), 2
	height, across := c.pair("patch_size", patch)
	merge := c.countOr(2, "spatial_merge_size")
	embed = tensor("patch_embed.proj", Other, b.Hidden, c.countOr(3, "in_channels", "in_chans"),
		c.countOr(2, "temporal_patch_size"), height, across)
	return b, embed, merge * merge * b.Hidden
}

// qwenVisionBlocks are blocks of a fused attention and the given MLP.
func qwenVisionBlocks(b *blueprint, norm normWeights, mlp []Tensor) []Unit {
	h := b.Hidden
	return layers(b.Layers, "blocks.*.", norm.tensors("norm1", h), norm.tensors("norm2", h),
		linear(PartQKV, "attn.qkv", h, 3*h, true), linear(PartO, "attn.proj", h, h, true), within("mlp.", mlp))
}

func qwen2Vision(c *config) *blueprint {
	b, embed, merged := qwenTower(c, 1280, 32, 14, "embed_dim")
	b.NormKind, b.Activation = "layer", c.text("quick_gelu", "hidden_act")
	h := b.Hidden
	b.Intermediate = h * c.countOr(4, "mlp_ratio")
	b.embeddings = []Tensor{embed}
	b.blocks = qwenVisionBlocks(b, scaleAndShift,
		slices.Concat(linear(PartUp, "fc1", h, b.Intermediate, true), linear(PartDown, "fc2", b.Intermediate, h, true)))
	b.final = slices.Concat(layerNorm("merger.ln_q", h), linear(PartProjection, "merger.mlp.0", merged, merged, true),
		linear(PartProjection, "merger.mlp.2", merged, c.sizeOr(3584, "hidden_size"), true))
	return b
}

func qwen25Vision(c *config) *blueprint {
	b, embed, merged := qwenTower(c, 3584, 32, 14, "hidden_size")
	b.NormKind, b.Activation, b.Gated = "rms", c.text("silu", "hidden_act"), true
	h := b.Hidden
	b.Intermediate = c.sizeOr(3420, "intermediate_size")
	b.embeddings = []Tensor{embed}
	b.blocks = qwenVisionBlocks(b, scaleOnly, gatedMLP.tensors("", h, b.Intermediate, true))
	b.final = slices.Concat(scaleOnly.tensors("merger.ln_q", h),
		linear(PartProjection, "merger.mlp.0", merged, merged, true),
		linear(PartProjection, "merger.mlp.2", merged, c.sizeOr(3584, "out_hidden_size"), true))
	return b
}

// qwen3Vision also hands what some of its layers put out to layers of the text, each through a merger of its own.
func qwen3Vision(c *config) *blueprint {
	b, embed, merged := qwenTower(c, 1152, 27, 16, "hidden_size")
	b.NormKind, b.Activation = "layer", c.text("gelu_pytorch_tanh", "hidden_act")
	h, out := b.Hidden, c.sizeOr(3584, "out_hidden_size")
	b.Intermediate = c.sizeOr(4304, "intermediate_size")
	b.embeddings = slices.Concat([]Tensor{embed, tensor("patch_embed.proj", Bias, h)},
		embedding("pos_embed", c.sizeOr(2304, "num_position_embeddings"), h))
	b.blocks = qwenVisionBlocks(b, scaleAndShift,
		slices.Concat(linear(PartUp, "linear_fc1", h, b.Intermediate, true),
			linear(PartDown, "linear_fc2", b.Intermediate, h, true)))
	merger := func(path string, width int64) []Tensor {
		return within(path, slices.Concat(layerNorm("norm", width),
			linear(PartProjection, "linear_fc1", merged, merged, true),
			linear(PartProjection, "linear_fc2", merged, out, true)))
	}
	b.final = merger("merger.", h)
	deep := []int64{8, 16, 24}
	if name, _ := c.find("deepstack_visual_indexes"); name != "" {
		deep = c.integers(name)
	}
	for i := range deep {
		b.final = append(b.final, merger(fmt.Sprintf("deepstack_merger_list.%d.", i), merged)...)
	}
	return b
}
