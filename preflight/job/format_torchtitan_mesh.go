package job

import (
	"fmt"
	"strings"
)

// A titanMesh are the degrees of parallelism, whose product is the number of processes.
type titanMesh struct{ replicate, shard, tp, pp, cp int }

func (m titanMesh) fsdp() bool { return m.shard > 1 || m.cp > 1 }

// readTitanMesh reads the degrees and checks them; ok is false when they are not known or do not fit, which is then
// recorded.
func (r *reader) readTitanMesh(c *configuration) (m titanMesh, ok bool) {
	j := r.job
	j.TP.take(c.size(1, "parallelism.tensor_parallel_degree", "training.tensor_parallel_degree"))
	j.PP.take(c.size(1, "parallelism.pipeline_parallel_degree", "experimental.pipeline_parallel_degree"))
	j.CP.take(c.size(1, "parallelism.context_parallel_degree", "experimental.context_parallel_degree"))
	j.EP.take(c.size(1, "parallelism.expert_parallel_degree"))
	if j.EP.Or(1) > 1 {
		j.ETP.take(c.size(1, "parallelism.expert_tensor_parallel_degree"))
	}
	replicate := c.size(1, "parallelism.data_parallel_replicate_degree", "training.data_parallel_replicate_degree")
	shard := c.number(-1, "parallelism.data_parallel_shard_degree", "training.data_parallel_shard_degree")
	world := product(j.NNodes.Or(0), j.NProc.Or(0))
	others := product(j.TP.Or(0), j.PP.Or(0), j.CP.Or(0), replicate.Or(0))
	if world == 0 || others == 0 || !shard.Known {
		return m, false
	}
	m = titanMesh{replicate: replicate.Value, shard: shard.Value, tp: j.TP.Value, pp: j.PP.Value, cp: j.CP.Value}
	if m.shard < 0 {
		m.shard = world / others
	}
	if m.shard < 1 || product(m.shard, others) != world {
		r.fail(fmt.Sprintf("AssertionError: Invalid parallel dims: dp_replicate(%d) * dp_shard(%d) * cp(%d) * "+
			"tp(%d) * pp(%d) != WORLD_SIZE(%d)",
			m.replicate, m.shard, m.cp, m.tp, m.pp, world),
			c.originOf("parallelism.data_parallel_shard_degree", "parallelism.data_parallel_replicate_degree",
				"parallelism.tensor_parallel_degree"))
		return m, false
	}
	r.titanExperts(c, m)
	return m, true
}

// titanExperts: experts are spread over ranks that share the rest of the model (parallel_dims.py).
func (r *reader) titanExperts(c *configuration, m titanMesh) {
	ep, etp := r.job.EP, c.size(1, "parallelism.expert_tensor_parallel_degree")
	if ep.Or(1) < 2 || !etp.Known {
		return
	}
	switch ranks := product(m.shard, m.cp, m.tp); {
	case etp.Value != 1 && etp.Value != m.tp:
		r.fail("AssertionError: Currently we only support ETP=TP or ETP=1", etp.Origin)
	case ranks%product(etp.Value, ep.Value) != 0:
		r.fail(fmt.Sprintf("AssertionError: expert parallelism over %d x %d ranks does not divide dp_shard(%d) * "+
			"cp(%d) * tp(%d)", ep.Value, etp.Value, m.shard, m.cp, m.tp), ep.Origin)
	}
}

// titanSharding decides sharding and precision, which depend on the mesh: FSDP computes in mixed precision itself,
// autocast does on one GPU and with DDP, and nothing does with tensor or pipeline parallelism alone
// (distributed/utils.py, maybe_enable_amp).
func (r *reader) titanSharding(c *configuration, m titanMesh, ok bool) {
	j := r.job
	dtype := titanDtype(c.word("float32", "training.dtype"))
	j.ParamDtype.take(dtype)
	r.load.take(dtype)
	mixed := titanDtype(c.word("bfloat16", "training.mixed_precision_param"))
	if narrow := r.titanNarrow(c); narrow.Value != "" {
		j.Precision.Offer(narrow.Value, narrow.Origin)
	}
	if !ok {
		j.Precision.Unknown("it depends on the parallel degrees, which are not known")
		return
	}
	if m.fsdp() || m.tp == 1 && m.pp == 1 {
		j.Precision.take(mixed)
	} else {
		j.Precision.Offer(dtype.Value, "mixed precision is not applied with tensor or pipeline parallelism without "+
			"FSDP: "+dtype.Origin)
	}
	keeps := c.word("default", "parallelism.fsdp_reshard_after_forward")
	reshard := keeps.Value == "always" || keeps.Value == "default" && m.pp == 1
	name := shardingName(m.shard*m.cp, m.replicate, reshard)
	j.Sharding.Offer(name, fmt.Sprintf("dp_shard %d, dp_replicate %d, cp %d; fsdp_reshard_after_forward %s (%s)",
		m.shard, m.replicate, m.cp, keeps.Value, keeps.Origin))
	switch {
	case strings.HasPrefix(name, "fsdp"):
		j.FSDPVersion.Offer(2, "torchtitan shards with fully_shard")
		j.FSDPWrap.Offer("layers", "torchtitan shards each block")
	case name == "ddp" && m.tp*m.pp > 1:
		r.fail("RuntimeError: DDP has not supported > 1D parallelism; shard the data-parallel ranks instead",
			c.originOf("parallelism.data_parallel_replicate_degree"))
	}
	if cpu := c.flag(false, "training.enable_cpu_offload"); cpu.Value {
		j.Offload.Offer(Offload{Optimizer: "cpu", Params: "cpu"}, cpu.Origin)
	}
}
