package estimate

import "fmt"

// HostPart is one claim of a rank on host memory. Pinned memory is given out in powers of two (PyTorch's and
// DeepSpeed's pinned allocations go through c10/core/CachingHostAllocator, which rounds each request up), so that
// HighBytes may be nearly twice Bytes.
type HostPart struct {
	What      string `json:"what"`
	Bytes     int64  `json:"bytes"`
	HighBytes int64  `json:"high_bytes"`
}

// HostMemory is what offloading takes of the host: of the rank that needs most, and of a node with that many such
// ranks. It is without what every process holds anyway (Python, libraries, data loaders) and without loading the
// weights.
type HostMemory struct {
	PerRankBytes     int64      `json:"per_rank_bytes"`
	PerRankHighBytes int64      `json:"per_rank_high_bytes"` // with pinned memory rounded up
	RanksPerNode     int64      `json:"ranks_per_node"`
	PerNodeBytes     int64      `json:"per_node_bytes"`
	PerNodeHighBytes int64      `json:"per_node_high_bytes"`
	Parts            []HostPart `json:"parts"` // of one rank
}

func (l *layout) addHost(what string, bytes int64, pinned bool) {
	if bytes <= 0 {
		return
	}
	high := bytes
	if pinned {
		high = nextPowerOf2(bytes)
	}
	l.host = append(l.host, HostPart{what, bytes, high})
}

// applyOffload moves what lives in host memory off the GPU. On the GPU the step then works on nothing.
func (r *rank) applyOffload(l *layout) {
	away := func(where string) bool { return where == "cpu" || where == "nvme" }
	if away(r.offload.Optimizer) || r.optimizer.OnHost {
		r.offloadOptimizer(l)
	}
	if away(r.offload.Params) {
		if r.offload.Params == "cpu" {
			l.addHost("offloaded weights", l.params, true)
		}
		l.params = 0
		if r.fsdp() {
			l.addHost("offloaded master weights and optimizer states", l.master+l.optimizer, false)
			l.addHost("gradients of offloaded weights", l.grads, false)
			l.master, l.optimizer, l.grads, l.stepTemporaries, l.gradsResident = 0, 0, 0, 0, false
			l.accumulated = 0
		}
	}
	if r.offload.Optimizer == "nvme" || r.offload.Params == "nvme" {
		r.notes.assume("no host memory for what lies on NVMe",
			"its pinned staging buffers depend on buffer_count and buffer_size", true)
	}
	l.addHost("offloaded activations", r.offloadedActivations(), true)
	l.addHost("paged optimizer states, as far as the GPU has no room", r.pagedStates(), false)
}

// offloadOptimizer moves master weights and states to the host, where fp32 gradients lie beside them
// (deepspeed/runtime/zero/stage_1_and_2.py: single_partition_of_fp32_groups and its grad, both pinned; Adam's states
// are not). Twin-Flow keeps a part on the GPU.
func (r *rank) offloadOptimizer(l *layout) {
	stay := int64(0)
	if ds := r.job.DeepSpeed.Or(nil); ds != nil && ds.OffloadOptimizerRatio > 0 && ds.OffloadOptimizerRatio < 1 {
		stay = int64(1000 * (1 - ds.OffloadOptimizerRatio))
	}
	gone := func(bytes int64) int64 { return bytes - bytes*stay/1000 }
	if r.offload.Optimizer != "nvme" {
		updated := count(r.trained, nil)
		if r.sharded() {
			updated = ceilDiv(updated, r.shards)
		}
		l.addHost("offloaded master weights", gone(l.master), r.deepspeed())
		l.addHost("offloaded optimizer states", gone(l.optimizer), false)
		l.addHost("fp32 gradients of the offloaded optimizer", gone(4*updated), r.deepspeed())
		r.notes.assume(fmt.Sprintf("%.2f GiB of host memory for each rank's optimizer",
			float64(gone(l.master+l.optimizer+4*updated))/gib),
			"offloaded: master weights, states and fp32 gradients", false)
	}
	l.master, l.optimizer = l.master*stay/1000, l.optimizer*stay/1000
	l.stepTemporaries, l.steps = l.stepTemporaries*stay/1000, nil
	if r.sharding != "zero1" && r.sharded() { // gradient partitions go to the host as they appear
		if r.sharding == "zero3" && r.offload.Optimizer != "nvme" {
			l.addHost("the flat buffer of gradient partitions", l.grads, true) // stage3.py: _setup_for_real_optimizer
		}
		l.grads, l.accumulated, l.gradsResident = 0, 0, false
	}
	if !r.sharded() {
		r.notes.assume("optimizer states in host memory", fmt.Sprintf("offload without sharding (%s)", r.sharding),
			true)
	}
}

// offloadedActivations is the inputs of checkpointed layers where they are kept on the host.
func (r *rank) offloadedActivations() int64 {
	if !r.activationsToHost() || !r.sized() || r.arch.Hidden == 0 || r.pinned() {
		return 0
	}
	return r.layers * r.precision.stream * r.arch.Hidden * r.tokens()
}

// hostMemory is what the rank of the pipeline stage that needs most takes of its host, and all ranks of a node
// together.
func (s *scenario) hostMemory() HostMemory {
	host := HostMemory{RanksPerNode: min(int64(s.job.NProc.Or(max(s.in.Hardware.Count, 1))), s.world),
		Parts: []HostPart{}}
	for stage := range s.pp {
		var rank, high int64
		parts := s.rankOf(stage).layout().host
		for _, p := range parts {
			rank, high = rank+p.Bytes, high+p.HighBytes
		}
		if high > host.PerRankHighBytes {
			host.PerRankBytes, host.PerRankHighBytes, host.Parts = rank, high, parts
		}
	}
	host.PerNodeBytes, host.PerNodeHighBytes = host.RanksPerNode*host.PerRankBytes,
		host.RanksPerNode*host.PerRankHighBytes
	return host
}
