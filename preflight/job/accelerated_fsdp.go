package job

import (
	"fmt"
	"strings"

	"oomguard/preflight/job/document"
	"oomguard/preflight/job/shell"
)

// acceleratedFSDP is FullyShardedDataParallelPlugin.
func (r *reader) acceleratedFSDP() {
	j := r.job
	version := r.variable("FSDP_VERSION")
	switch version.text {
	case "":
		j.FSDPVersion.Offer(1, "default of accelerate")
	case "1", "2":
		j.FSDPVersion.Offer(int(version.text[0]-'0'), version.origin)
	default:
		if why, unknown := shell.Unknown(version.text); unknown {
			j.FSDPVersion.Withhold(why)
		} else {
			r.wrongVariable(version, "1 or 2", &j.FSDPVersion)
		}
	}
	r.fsdp = true
	r.acceleratedStrategy()
	offload := Offload{Optimizer: "none", Params: "none"}
	if v := r.variable("FSDP_OFFLOAD_PARAMS"); r.truthOf(v, &j.Offload) {
		offload = Offload{Optimizer: "cpu", Params: "cpu"}
		j.Offload.Offer(offload, v.origin)
	}
	j.Offload.Offer(offload, "accelerate keeps parameters on the GPU")
	r.acceleratedUnits()
	r.stateDictWord(r.variable("FSDP_STATE_DICT_TYPE"))
	if v := r.variable("FSDP_ACTIVATION_CHECKPOINTING"); r.truthOf(v, &j.Checkpointing) {
		word := "full"
		if away := r.variable("FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD"); r.truthOf(away, &j.Checkpointing) {
			word = "offload"
		}
		j.Checkpointing.Offer(word, v.origin)
		r.fsdpCheckpointing = true
	}
}

// acceleratedStrategy: version 1 has strategies, by name or number; version 2 reshards or does not. Version 1 never
// gets to read reshard_after_forward, because accelerate launch always passes a strategy.
func (r *reader) acceleratedStrategy() {
	set := &r.job.Sharding
	if !r.job.FSDPVersion.Known {
		set.Unknown("FSDP's version is not known: " + r.job.FSDPVersion.Origin)
		return
	}
	if r.job.FSDPVersion.Value == 2 {
		v := r.variable("FSDP_RESHARD_AFTER_FORWARD")
		if _, ok := document.ParseBool(v.text); v.text != "" && !ok {
			r.wrongVariable(v, "true or false with FSDP version 2", set)
			return
		}
		switch replicas := r.variable("PARALLELISM_CONFIG_DP_REPLICATE_SIZE"); {
		case v.text != "" && !r.truthOf(v, set):
			set.Offer("fsdp-grad", v.origin)
		case replicas.text != "" && replicas.text != "1" && r.onVariable("ACCELERATE_USE_PARALLELISM_CONFIG"):
			set.Offer("fsdp-hybrid", replicas.origin)
		case v.text == "":
			set.Offer("fsdp-full", "default of accelerate for FSDP version 2")
		default:
			set.Offer("fsdp-full", v.origin)
		}
		return
	}
	v := r.variable("FSDP_SHARDING_STRATEGY")
	if v.text == "" {
		v = sourced{"FULL_SHARD", "default of accelerate for FSDP"}
	}
	// torch.distributed.fsdp.ShardingStrategy counts from 1.
	names := []string{"", "full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2"}
	name := strings.ToLower(v.text)
	if n, err := pythonInt(name); err == nil && n >= 1 && n < len(names) {
		name = names[n]
	}
	strategy := fsdpStrategies()[name]
	if strategy == "" {
		r.wrongVariable(v, "FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD, HYBRID_SHARD_ZERO2 or its number", set)
		return
	}
	set.Offer(strategy, v.origin)
	r.fsdp = strategy != "ddp"
}

// acceleratedUnits decides what is gathered at once; without a policy the whole model is one unit.
func (r *reader) acceleratedUnits() {
	set := &r.job.FSDPWrap
	v := r.variable("FSDP_AUTO_WRAP_POLICY")
	switch strings.ToUpper(v.text) {
	case "":
		set.Offer("whole", "default of accelerate: NO_WRAP")
	case "NO_WRAP":
		set.Offer("whole", v.origin)
	case "TRANSFORMER_BASED_WRAP":
		set.Offer("layers", v.origin)
	case "SIZE_BASED_WRAP":
		set.Offer("size", v.origin)
	default:
		r.wrongVariable(v, "TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP or NO_WRAP", set)
	}
}

// truthOf reads a variable that is true or false; what is neither is recorded, what is not known is handed to set.
func (r *reader) truthOf(v sourced, set fact) bool {
	if v.text == "" {
		return false
	}
	on, ok := document.ParseBool(v.text)
	if !ok {
		r.wrongVariable(v, "true or false", set)
	}
	return ok && on
}

// wrongVariable is a value with which Accelerator() fails, or one that is not known.
func (r *reader) wrongVariable(v sourced, need string, set fact) {
	if why, unknown := shell.Unknown(v.text); unknown {
		set.Withhold(why)
		return
	}
	err := fmt.Errorf("%s is %q, need %s", v.origin, v.text, need)
	r.problem(err)
	r.fail(err.Error(), v.origin)
	set.Unknown(err.Error())
}

// acceleratedMegatron is MegatronLMPlugin.
func (r *reader) acceleratedMegatron() {
	j := r.job
	for _, size := range []struct {
		name string
		set  *Setting[int]
	}{
		{"TP_DEGREE", &j.TP}, {"PP_DEGREE", &j.PP}, {"CONTEXT_PARALLEL_SIZE", &j.CP},
		{"EXPERT_MODEL_PARALLEL_SIZE", &j.EP},
		{"NUM_MICRO_BATCHES", &j.GradAccum},
	} {
		v := r.variable("MEGATRON_LM_" + size.name)
		if n := r.count(v, size.set); n > 0 {
			size.set.Offer(n, v.origin)
		}
	}
	if v := r.variable("MEGATRON_LM_SEQUENCE_PARALLELISM"); v.text != "" {
		j.SequenceParallel.Offer(r.truthOf(v, &j.SequenceParallel), v.origin)
	}
	sharding := sourced{"ddp", "Megatron-LM without its distributed optimizer"}
	if v := r.variable("MEGATRON_LM_USE_DISTRIBUTED_OPTIMIZER"); r.truthOf(v, &j.Sharding) {
		sharding = sourced{"dist-optim", v.origin}
	}
	j.Sharding.Offer(sharding.text, sharding.origin)
	granularity := r.variable("MEGATRON_LM_RECOMPUTE_GRANULARITY")
	switch v := r.variable("MEGATRON_LM_RECOMPUTE_ACTIVATIONS"); {
	case granularity.text != "":
		j.Checkpointing.Offer(granularity.text, granularity.origin)
	case r.truthOf(v, &j.Checkpointing):
		j.Checkpointing.Offer("selective", v.origin)
	}
	if mixed, origin := r.autocast(); mixed != "" {
		j.ParamDtype.Offer(mixed, origin)
		j.MasterFP32.Offer(true, "Megatron-LM keeps an fp32 copy of half-precision weights")
	}
}

// acceleratedParallelism is ParallelismConfig: a mesh of replicas x shards x context or sequence x tensor parallel
// ranks.
func (r *reader) acceleratedParallelism() {
	j := r.job
	size := func(name string, set *Setting[int]) (int, string) {
		v := r.variable("PARALLELISM_CONFIG_" + name)
		return max(r.count(v, set), 1), v.origin
	}
	replicas, _ := size("DP_REPLICATE_SIZE", &Setting[int]{})
	shards, where := size("DP_SHARD_SIZE", &Setting[int]{})
	tp, tpOrigin := size("TP_SIZE", &j.TP)
	cp, cpOrigin := size("CP_SIZE", &j.CP)
	sp, spOrigin := size("SP_SIZE", &j.CP)
	if tp > 1 {
		j.TP.Offer(tp, tpOrigin)
	}
	if cp > 1 {
		j.CP.Offer(cp, cpOrigin)
	}
	if sp > 1 {
		j.CP.Offer(sp, spOrigin+": sequence parallel")
	}
	refuse := func(origin, format string, values ...any) {
		why := fmt.Sprintf("ValueError: "+format, values...)
		r.fail(why, origin)
		r.problem(fmt.Errorf("%s: %s; change the sizes", origin, why))
	}
	world := r.ranks()
	switch total := product(replicas, shards, tp, cp); {
	case cp > 1 && sp > 1:
		refuse(cpOrigin, "cp_size %d and sp_size %d exclude each other", cp, sp)
	case cp > 1 && j.FSDPVersion.Known && j.FSDPVersion.Value == 1:
		refuse(cpOrigin, "Using cp_size>1 requires FSDP2, but the FSDP plugin is version 1")
	case cp > 1 && !r.fsdp && r.deepspeed == nil:
		refuse(cpOrigin, "cp_size > 1 needs FSDP, which shards the model across the same ranks")
	case (tp > 1 || cp > 1) && replicas > 1 && shards == 1:
		refuse(where, "tensor or context parallelism cannot be used with pure data parallelism (dp_replicate_size "+
			"%d, dp_shard_size 1)", replicas)
	case sp == 1 && total > 1 && world > 0 && total != world:
		refuse(where, "ParallelismConfig total_size (%d) does not match num_processes (%d)", total, world)
	}
}
