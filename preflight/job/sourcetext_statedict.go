package job

// bucketViewInSource reads DDP(model, gradient_as_bucket_view=True), and the same of what accelerate and Lightning hand
// to it.
func (r *reader) bucketViewInSource() {
	const name = "gradient_as_bucket_view"
	calls := r.seen().calls("DistributedDataParallel", "DistributedDataParallelKwargs", "DDPStrategy")
	if len(calls) == 0 {
		return
	}
	set := &r.job.BucketView
	c, ok := one(calls, withhold("give --gradient-as-bucket-view", set))
	if !ok {
		return
	}
	e := c.keyword(name)
	on, given := e.truth(withhold("give --gradient-as-bucket-view", set))
	if given {
		set.Offer(on, c.origin()+" "+name)
	} else {
		set.Offer(false, c.origin()+": default of DDP")
	}
}

// stateDictInSource reads StateDictType.X where FSDP, its context manager or accelerate's plugin is given one, and
// StateDictOptions(full_state_dict=True).
func (r *reader) stateDictInSource() {
	words := map[string]sourced{}
	hold := withhold("give --state-dict", &r.job.StateDict)
	offer := func(a asked) {
		if text, origin, given := a.text(hold); given {
			words[text] = sourced{text, origin}
		}
	}
	for _, c := range r.seen().calls("set_state_dict_type", "state_dict_type") {
		offer(c.argument(1, "state_dict_type"))
	}
	for _, c := range r.seen().calls("FullyShardedDataParallelPlugin", "FSDPStrategy") {
		offer(c.keyword("state_dict_type"))
	}
	for _, c := range r.seen().calls("StateDictOptions") {
		if c.keyword("full_state_dict").flag(hold) {
			words["full"] = sourced{"full", c.origin()}
		}
	}
	if len(words) == 1 {
		for _, word := range words {
			r.stateDictWord(word)
		}
	}
}
