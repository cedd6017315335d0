package job

import (
	"strings"

	"oomguard/preflight/job/shell"
)

// stateDictWord reads how FSDP saves, in the words of PyTorch, accelerate and Lightning: StateDictType.FULL_STATE_DICT,
// its number, or full.
func (r *reader) stateDictWord(word sourced) {
	if why, unknown := shell.Unknown(word.text); unknown {
		r.job.StateDict.Withhold(why)
	}
	_, name, _ := cutLast(strings.ToLower(word.text))
	switch name {
	case "full_state_dict", "full", "1":
		r.job.StateDict.Offer("full", word.origin)
	case "sharded_state_dict", "sharded", "local_state_dict", "2", "3":
		r.job.StateDict.Offer("sharded", word.origin)
	}
}

// bucketViewInSource reads DDP(model, gradient_as_bucket_view=True), and the same of what accelerate and Lightning hand
// to it.
func (r *reader) bucketViewInSource() {
	const name = "gradient_as_bucket_view"
	calls := r.source.calls("DistributedDataParallel", "DistributedDataParallelKwargs", "DDPStrategy")
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
	for _, c := range r.source.calls("set_state_dict_type", "state_dict_type") {
		offer(c.argument(1, "state_dict_type"))
	}
	for _, c := range r.source.calls("FullyShardedDataParallelPlugin", "FSDPStrategy") {
		offer(c.keyword("state_dict_type"))
	}
	for _, c := range r.source.calls("StateDictOptions") {
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
