package job

// An attentionDefault is the implementation that transformers takes for some architectures when none is named.
type attentionDefault struct {
	types   string // model_type, blank-separated
	changes []change
}

// attentionDefaults are the architectures whose default is not plainly scaled_dot_product_attention: _supports_sdpa of their classes over
// transformers 4.40, 4.44, 4.46, 4.48, 4.51, 4.53, 4.57, 5.0, 5.9, 5.12, 5.16, 5.19, 5.22 and 5.24. A border stands at the first of these
// in which the new value is found.
func attentionDefaults() []attentionDefault {
	return []attentionDefault{
		{"gemma2", since("sdpa", "4.46=eager", "4.48=sdpa", "5.22=eager")},
		{"mpt bloom gpt_neo deberta deberta-v2 gpt_oss", since("eager")},
		{"t5 mt5", since("eager", "5.16=sdpa")},
		{"gptj", since("eager", "5.24=sdpa")},
		{"electra", since("eager", "5.0=sdpa")},
		{"opt roberta distilbert", since("eager", "4.46=sdpa")},
		{"gpt2 bert gpt_neox vit clip", since("eager", "4.44=sdpa")},
	}
}

// defaultAttention: scaled_dot_product_attention where the architecture supports it, since transformers 4.36 (modeling_utils.py,
// get_correct_attn_implementation).
func (r *reader) defaultAttention() {
	set := &r.job.Attention
	changes := since("eager", "4.36=sdpa")
	where := " where the architecture supports it"
	if a := r.job.Architecture; a != nil && a.Type != "" {
		where = " for " + a.Type
		for _, d := range attentionDefaults() {
			if containsWord(d.types, a.Type) {
				changes = d.changes
			}
		}
	}
	if r.versions["transformers"] == "" && len(changes) == 2 && changes[1].since == "4.36" {
		changes = changes[1:] // older versions are gone
	}
	switch value, origin, known := r.defaultOf("transformers", changes); {
	case !known:
		set.Unknown(origin + " or --attention")
	case len(changes) == 1:
		set.Offer(value, "default of "+r.installed("transformers")+where)
	default:
		set.Offer(value, origin+where)
	}
}
