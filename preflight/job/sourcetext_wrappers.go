package job

import (
	"slices"
	"strings"

	"oomguard/preflight/job/python"
)

// What the model of a script's own loop is wrapped in.

// wrapperInSource reads what the model is wrapped in: DDP, FSDP, fully_shard, DataParallel.
func (r *reader) wrapperInSource() {
	j := r.job
	if j.Sharding.Known || r.shardingLost != "" {
		return
	}
	alone := product(j.NNodes.Or(0), j.NProc.Or(0)) == 1
	if calls := r.seen().calls("FullyShardedDataParallel", "fully_shard"); len(calls) > 0 {
		if open := slices.IndexFunc(calls, func(c foundCall) bool { return !c.sure }); open >= 0 &&
			len(r.seen().calls("DistributedDataParallel")) > 0 {
			withhold("give --sharding", &j.Sharding, &j.FSDPVersion, &j.FSDPWrap, &j.Offload)(
				calls[open].origin() + " shards the model under a condition that is decided when the script runs")
			return
		}
		r.fsdpInSource(calls)
		return
	}
	if calls := r.seen().calls("torch.nn.DataParallel"); len(calls) > 0 && alone {
		j.Sharding.Offer("dp", calls[0].origin())
		return
	}
	if calls := r.seen().calls("DistributedDataParallel"); len(calls) > 0 && !alone {
		j.Sharding.Offer("ddp", calls[0].origin())
	}
}

// fsdpInSource reads FSDP(...) and fully_shard(...). A wrapping policy, or a call in a loop over the layers, makes one
// unit of each.
func (r *reader) fsdpInSource(calls []foundCall) {
	j := r.job
	c := calls[len(calls)-1] // the root is wrapped last
	second := strings.HasSuffix(c.file.Qualified(c.Callee), "fully_shard")
	j.FSDPVersion.Offer(map[bool]int{true: 2, false: 1}[second], c.origin())
	inLoop := slices.ContainsFunc(calls,
		func(c foundCall) bool { return c.Loop || c.Scope != calls[len(calls)-1].Scope })
	policy := c.keyword("auto_wrap_policy").found.Open(func(why *python.Expr) {
		if why.PassedOn() {
			j.FSDPWrap.Withhold(c.why("auto_wrap_policy", why))
		} else {
			j.FSDPWrap.Offer("layers", c.origin())
		}
	})
	if inLoop && len(calls) > 1 || policy != nil {
		j.FSDPWrap.Offer("layers", c.origin())
	} else {
		j.FSDPWrap.Offer("whole", c.origin()+": no wrapping policy")
	}
	sharding := "fsdp-full"
	hold := withhold("give --sharding", &j.Sharding)
	strategy, _, _ := c.keyword("sharding_strategy").text(hold)
	_, strategy, _ = cutLast(strategy)
	if word, known := map[string]string{"SHARD_GRAD_OP": "fsdp-grad", "HYBRID_SHARD": "fsdp-hybrid",
		"_HYBRID_SHARD_ZERO2": "fsdp-hybrid", "NO_SHARD": "ddp"}[strategy]; known {
		sharding = word
	}
	if second {
		if on, given := c.keyword("reshard_after_forward").truth(hold); given && !on {
			sharding = "fsdp-grad"
		}
	}
	j.Sharding.Offer(sharding, c.origin())
	for _, name := range []string{"cpu_offload", "offload_policy"} {
		r.offloadInSource(c, name)
	}
	for _, name := range []string{"mixed_precision", "mp_policy"} {
		precision := withhold("give --precision", &j.Precision)
		if e := c.keyword(name).value(precision); e != nil && e.Kind == python.Invoke {
			policy := foundCall{e.Call, c.file, true}
			if text, _, given := policy.argument(0, "param_dtype").text(precision); given && dtypeName(text) != "" {
				j.Precision.Offer(dtypeName(text), policy.origin())
			}
		}
	}
}

// offloadInSource reads CPUOffload(offload_params=True) and CPUOffloadPolicy().
func (r *reader) offloadInSource(c foundCall, name string) {
	hold := withhold("give --offload", &r.job.Offload)
	e := c.keyword(name).value(hold)
	switch {
	case e == nil:
		return
	case e.Kind == python.Invoke && python.EndsIn(c.file.Qualified(e.Call.Callee), "CPUOffloadPolicy"):
	case e.Kind == python.Invoke && python.EndsIn(c.file.Qualified(e.Call.Callee), "CPUOffload"):
		if !(foundCall{e.Call, c.file, true}).argument(0, "offload_params").flag(hold) {
			return
		}
	case e.Kind == python.Invoke && python.EndsIn(c.file.Qualified(e.Call.Callee), "OffloadPolicy"):
		return
	default:
		hold(c.why(name, e))
	}
	r.job.Offload.Offer(Offload{Optimizer: "cpu", Params: "cpu"}, c.origin())
}
