package job

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"oomguard/preflight/job/document"
	"oomguard/preflight/model"
)

// megatronModel builds the model that the arguments describe.
func (r *reader) megatronModel() {
	m := megatronOf(r)
	if m == nil || r.job.Model.Known || r.job.Architecture != nil {
		return
	}
	if why := m.otherModel(); why != "" {
		r.job.Model.Unknown(why)
		r.job.ModelParams.Unknown(why + "; --params N gives a lower bound")
		return
	}
	gpt, vocab, why := m.gpt()
	if why != "" {
		r.job.Model.Unknown(why)
		r.job.ModelParams.Unknown(why + "; --params N gives a lower bound")
		return
	}
	r.job.Model.Offer(describe(gpt, vocab), "arguments of Megatron-LM")
	architecture, err := gpt.Architecture("arguments of Megatron-LM")
	if err != nil {
		r.unread(fmt.Errorf("arguments of Megatron-LM: %w", err))
		r.job.ModelParams.Unknown("the sizes are not those of a model")
		return
	}
	r.job.Architecture = architecture
}

// otherModel says why the arguments do not describe a plain GPT; "" when they do.
func (m *megatron) otherModel() string {
	base := strings.ToLower(filepath.Base(m.r.job.Script.Value))
	for _, kind := range []string{"bert", "t5", "ict", "retro", "vision", "vlm", "mamba", "hybrid", "biencoder",
		"mimo"} {
		if strings.Contains(base, kind) {
			return "the model of " + base + " is not a GPT, and its size is not computed yet"
		}
	}
	if from := m.flag("use_checkpoint_args"); from.Value {
		return "the sizes come from the checkpoint (" + from.Origin + ")"
	}
	if hybrid := m.flag("is_hybrid_model"); hybrid.Value {
		return hybrid.Origin + ": Mamba layers are not computed yet"
	}
	for _, name := range []string{"hybrid_layer_pattern", "hybrid_override_pattern", "heterogeneous_layers_config_path",
		"spec"} {
		if a, given := m.args[name]; given && a.text != "local" && a.text != "None" {
			return a.origin + ": layers of other kinds are not computed yet"
		}
	}
	return ""
}

// gpt gathers the model's sizes with the defaults of validate_args and of TransformerConfig. vocab is the vocabulary
// before padding. why says what is missing; "" nothing.
func (m *megatron) gpt() (gpt model.MegatronGPT, vocab int64, why string) {
	known := func(s Setting[int]) int64 {
		if !s.Known && why == "" {
			why = s.Origin
		}
		return int64(s.Value)
	}
	on := func(name string) bool {
		s := m.flag(name)
		if !s.Known && why == "" {
			why = s.Origin
		}
		return s.Value
	}
	g := model.MegatronGPT{
		Layers: known(firstGiven(m, "num_layers", "encoder_num_layers")), Hidden: known(m.required("hidden_size")),
		Heads:  known(m.required("num_attention_heads")),
		Untied: on("untie_embeddings_and_output_weights"), Gated: on("swiglu") || on("quick_geglu"),
		LinearBias: !on("disable_bias_linear"), QKVBias: on("add_qkv_bias"),
		RMSNorm: m.word("normalization", "LayerNorm").Value == "RMSNorm", QKNorm: on("qk_layernorm"),
		Latent:       on("multi_latent_attention"),
		MaxPositions: known(m.size("max_position_embeddings", 0)), Predictors: known(m.size("mtp_num_layers", 0)),
		Dtype:         m.r.job.ParamDtype.Or(""),
		HiddenDropout: m.rate("hidden_dropout"), AttentionDropout: m.rate("attention_dropout"),
	}
	if why != "" {
		return g, 0, why
	}
	g.FFN, g.HeadDim, g.QueryGroups = 4*g.Hidden, g.Hidden/max(g.Heads, 1), g.Heads
	if g.Gated && on("swiglu") {
		g.FFN = int64(float64(4*g.Hidden*2)/3/64) * 64
	}
	g.FFN = known(m.size("ffn_hidden_size", int(g.FFN)))
	g.HeadDim = known(m.size("kv_channels", int(g.HeadDim)))
	if on("group_query_attention") {
		g.QueryGroups = known(m.size("num_query_groups", 1))
	}
	position := m.word("position_embedding_type", "learned_absolute")
	g.LearnedPositions = position.Value == "learned_absolute" && !on("use_rotary_position_embeddings") &&
		!on("no_position_embedding")
	if g.Latent {
		g.QueryRank, g.KVRank = known(m.size("q_lora_rank", 0)), known(m.size("kv_lora_rank", 32))
		g.NopeDim, g.RopeDim, g.ValueDim = known(m.size("qk_head_dim", 128)), known(m.size("qk_pos_emb_head_dim", 64)),
			known(m.size("v_head_dim", 128))
	}
	if experts := known(m.size("num_experts", 0)); experts > 0 {
		g.Experts, g.TopK = experts, known(m.size("moe_router_topk", 2))
		g.ExpertFFN, g.SharedFFN = known(m.size("moe_ffn_hidden_size", int(g.FFN))),
			known(m.size("moe_shared_expert_intermediate_size", 0))
		frequency := m.word("moe_layer_freq", "1")
		pattern, err := layerPattern(frequency.Value, int(g.Layers))
		if err != nil && why == "" {
			why = fmt.Sprintf("%s is %q: %v", frequency.Origin, frequency.Value, err)
		}
		g.Sparse = pattern
	}
	words := m.vocabulary()
	vocab = known(words)
	unit := known(m.size("make_vocab_size_divisible_by", 128))
	padded := model.PadVocab(vocab, max(unit, 1), int64(max(m.r.job.TP.Or(1), 1)))
	if given := m.size("padded_vocab_size", 0); given.Value > 0 {
		padded = int64(given.Value)
	}
	g.Vocab = padded
	return g, vocab, why
}

// rate is a dropout, 0.1 unless it is given.
func (m *megatron) rate(name string) float64 {
	w := m.word(name, "0.1")
	p, err := strconv.ParseFloat(w.Value, 64)
	if w.Known && (err != nil || !(p >= 0 && p <= 1)) {
		m.r.unread(fmt.Errorf("%s: %s is %q, need a number from 0 to 1", w.Origin, name, w.Value))
		return 0
	}
	return p
}

// vocabulary is the number of tokens before padding: --vocab-size, or what the tokenizer is known to have.
func (m *megatron) vocabulary() Setting[int] {
	vocab, kind := m.size("vocab_size", 0), m.word("tokenizer_type", "")
	if !vocab.Known {
		return vocab
	}
	if vocab.Value > 0 {
		if new14, known := m.r.atLeast("megatron-core", 0, 14); kind.Value == "NullTokenizer" && known && !new14 {
			vocab.Value++ // its end-of-document token comes on top (_NullTokenizer)
		}
		return vocab
	}
	if padded := m.size("padded_vocab_size", 0); padded.Value > 0 {
		return padded
	}
	if kind.Value == "GPT2BPETokenizer" {
		if file, given := m.args["vocab_file"]; given {
			if data, err := document.Read(m.r.path(file.text), file.text); err == nil {
				var words map[string]json.RawMessage
				if json.Unmarshal(data, &words) == nil {
					return Setting[int]{Value: len(words), Known: true, Origin: file.origin}
				}
			}
		}
		return Setting[int]{Value: 50257, Known: true, Origin: kind.Origin + ": GPT-2's vocabulary"}
	}
	return Setting[int]{Origin: "the vocabulary is the tokenizer's, and no --vocab-size is given"}
}

// describe is the model as explain names it, a JSON object.
func describe(g model.MegatronGPT, vocab int64) string {
	sizes := map[string]any{"num_layers": g.Layers, "hidden": g.Hidden, "ffn": g.FFN, "heads": g.Heads,
		"kv_heads": g.QueryGroups, "vocab": vocab, "tied": !g.Untied}
	if g.Experts > 0 {
		sizes["experts"], sizes["topk"], sizes["moe_ffn"] = g.Experts, g.TopK, g.ExpertFFN
		if g.SharedFFN > 0 {
			sizes["shared_ffn"] = g.SharedFFN
		}
	}
	text, err := json.Marshal(sizes)
	if err != nil {
		return "GPT"
	}
	return string(text)
}

// layerPattern says which layers have experts: every n-th, or a Python list such as ([0]*3+[1]*58).
func layerPattern(text string, layers int) ([]bool, error) {
	if n, err := strconv.Atoi(text); err == nil {
		if n < 1 {
			return nil, fmt.Errorf("need a whole number from 1, or a list")
		}
		pattern := make([]bool, min(layers, maxPattern))
		for i := range pattern {
			pattern[i] = i%n == 0
		}
		return pattern, nil
	}
	p := &patternParser{rest: strings.ReplaceAll(text, " ", "")}
	list, err := p.sum(0)
	switch {
	case err != nil:
		return nil, err
	case p.rest != "":
		return nil, fmt.Errorf("%q is left over", p.rest)
	case len(list) != layers:
		return nil, fmt.Errorf("the list has %d entries for %d layers", len(list), layers)
	}
	return list, nil
}

// maxPattern bounds a list of layers, and patternDepth how deep its brackets may be nested.
const (
	maxPattern   = 1 << 16
	patternDepth = 20
)

// patternParser evaluates the Python lists that _eval_pattern of Megatron-LM accepts: [0,1], (...), + and * with
// numbers.
type patternParser struct{ rest string }

func (p *patternParser) take(word string) bool {
	rest, ok := strings.CutPrefix(p.rest, word)
	if ok {
		p.rest = rest
	}
	return ok
}

func (p *patternParser) sum(depth int) ([]bool, error) {
	list, err := p.product(depth)
	for err == nil && p.take("+") {
		var more []bool
		more, err = p.product(depth)
		list = append(list, more...)
		if len(list) > maxPattern {
			return nil, fmt.Errorf("the list is too long")
		}
	}
	return list, err
}

func (p *patternParser) product(depth int) ([]bool, error) {
	list, err := p.term(depth)
	for err == nil && p.take("*") {
		var times int
		if times, err = p.number(); err != nil {
			break
		}
		if len(list)*times > maxPattern {
			return nil, fmt.Errorf("the list is too long")
		}
		once := list
		list = nil
		for range times {
			list = append(list, once...)
		}
	}
	return list, err
}

func (p *patternParser) term(depth int) ([]bool, error) {
	switch {
	case depth > patternDepth:
		return nil, fmt.Errorf("too many brackets")
	case p.take("("):
		list, err := p.sum(depth + 1)
		if err == nil && !p.take(")") {
			err = fmt.Errorf("a closing bracket is missing")
		}
		return list, err
	case p.take("["):
		var list []bool
		for !p.take("]") {
			n, err := p.number()
			if err != nil {
				return nil, err
			}
			list = append(list, n != 0)
			p.take(",")
		}
		return list, nil
	}
	return nil, fmt.Errorf("need a list such as ([0]*3+[1]*58)")
}

func (p *patternParser) number() (int, error) {
	end := 0
	for end < len(p.rest) && p.rest[end] >= '0' && p.rest[end] <= '9' {
		end++
	}
	n, err := strconv.Atoi(p.rest[:end])
	if err != nil || n > maxPattern {
		return 0, fmt.Errorf("need a list of 0 and 1 such as ([0]*3+[1]*58)")
	}
	p.rest = p.rest[end:]
	return n, nil
}
