package job

// defaultAttention: scaled_dot_product_attention where the architecture supports it, since transformers 4.36
// (modeling_utils.py, get_correct_attn_implementation).
func (r *reader) defaultAttention() {
	set := &r.job.Attention
	changes := since("eager", "4.36=sdpa")
	where := " where the architecture supports it"
	if a := r.job.Architecture; a != nil && a.Type != "" {
		where = " for " + a.Type
		if own := a.Facts.Attention; len(own) > 0 {
			changes = since(own...)
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
