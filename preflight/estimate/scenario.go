package estimate

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"oomguard/preflight/job"
	"oomguard/preflight/model"
	"oomguard/preflight/optim"
)

// A scenario is the job with every setting settled: known, or assumed and noted.
type scenario struct {
	in     Input
	job    *job.Job
	traits job.Traits // of its framework
	arch   *model.Architecture
	notes  notes
	left   []NotCounted // second models without a size, and the like

	precision precision
	optimizer optim.Optimizer
	quant     *job.Quant // storage of frozen Linear weights; nil: not quantised
	lora      *job.LoRA  // nil: every weight is trained
	// method freeze: the last that many layers are trained, or with a minus the first; 0: it is another method
	trainedLayers int64
	// weightsOnly: the weights are quantised and nothing says what is trained beside them, so nothing else is counted.
	weightsOnly bool
	liger       model.Liger // what Liger's kernels replace

	batch, seq, accum int64 // sequences in a micro-batch, tokens of one on a rank, micro-batches a step
	world, shards     int64 // processes; ranks that share model states
	tp, pp, cp, ep    int64
	etp               int64 // ranks among which one expert's matrices are split
	sequenceParallel  bool

	sharding, attention, loss, checkpointing string
	offload                                  job.Offload
}

// Limits that keep every product inside int64 and refuse settings that no machine can train.
const (
	maxParameters = 1e15
	maxSequence   = 1 << 24
	maxTokens     = 1 << 28
	maxDegree     = 1 << 20
)

func newScenario(in Input) (*scenario, error) {
	if in.Job == nil {
		return nil, errors.New("estimate: no job given")
	}
	s := &scenario{in: in, job: in.Job, traits: in.Job.Traits(), arch: architecture(in)}
	if s.arch != nil && s.traits.UntiesHead {
		s.arch = untied(s.arch)
	}
	if s.arch != nil && s.task().classifies {
		s.arch = rewarding(s.arch)
	}
	if s.arch == nil {
		return nil, errors.New("estimate: no model known: give --model with a config.json, or --params")
	}
	s.arch = s.withExperts(s.arch)
	if p := s.arch.Parameters(); p <= 0 || p > maxParameters {
		return nil, fmt.Errorf("estimate: %s has %d parameters: want 1 to %.0e", s.arch.Name, p, float64(maxParameters))
	}
	for _, text := range s.arch.Assumptions {
		s.notes.assume(text, "what the model's config leaves open", false)
	}
	s.settleWords()
	steps := []func() error{s.settleLayout, s.settleBatch, s.settleTask, s.settleMethod, s.settlePrecision,
		s.settleOptimizer}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, fmt.Errorf("estimate: %w", err)
		}
	}
	return s, nil
}

// architecture prefers what the caller resolved over what the job carries.
func architecture(in Input) *model.Architecture {
	switch {
	case in.Model != nil:
		return in.Model
	case in.Job.Architecture != nil:
		return in.Job.Architecture
	case in.Job.ModelParams.Known:
		return model.FromParams(in.Job.ModelParams.Value)
	}
	return nil
}

// untied is the model with an output projection of its own: litgpt's checkpoints copy a tied embedding into one.
func untied(a *model.Architecture) *model.Architecture {
	last := len(a.Units) - 1
	if !a.Tied || a.TiedHead == nil || last < 0 {
		return a
	}
	copied := *a
	copied.Tied = false
	copied.Units = slices.Clone(a.Units)
	copied.Units[last].Tensors = append(slices.Clone(a.Units[last].Tensors), *a.TiedHead)
	return &copied
}

// choose returns a known setting, or the fallback and a note.
func choose[T any](s *scenario, set job.Setting[T], fallback T, key string) T {
	if set.Known {
		return set.Value
	}
	s.notes.assume(fmt.Sprintf("%s = %v", key, fallback), key+" is unknown: "+reason(set), true)
	return fallback
}

func (s *scenario) settleWords() {
	j := s.job
	s.attention = j.Attention.Or("")
	s.loss = j.FusedLoss.Or("none")
	s.settleLiger()
	s.checkpointing = choose(s, j.Checkpointing, "none", "checkpointing")
	s.offload = j.Offload.Or(job.Offload{})
	if s.offload.Idle && s.offload != (job.Offload{Optimizer: "none", Params: "none", Idle: true}) {
		s.notes.assume("nothing is offloaded at the peak",
			"what is offloaded comes back to the GPU while the model is trained", false)
	}
	if s.offload.Idle {
		s.offload = job.Offload{Optimizer: "none", Params: "none"}
	}
	if s.attention == "" && s.sized() {
		// transformers picks SDPA where torch has it; TRL, torchtitan and Lightning leave it so.
		s.attention = choose(s, j.Attention, "sdpa", "attention")
	}
}

func (s *scenario) settleLayout() error {
	j := s.job
	for _, d := range []struct {
		key string
		set job.Setting[int]
		to  *int64
	}{{"tp", j.TP, &s.tp}, {"pp", j.PP, &s.pp}, {"cp", j.CP, &s.cp}, {"ep", j.EP, &s.ep}, {"etp", j.ETP, &s.etp},
		{"virtual_stages", j.VirtualStages, new(int64)}} {
		if d.set.Known && (d.set.Value < 1 || d.set.Value > maxDegree) {
			return fmt.Errorf("%s = %d: want 1 or more", d.key, d.set.Value)
		}
		*d.to = int64(d.set.Or(1))
	}
	if !j.ETP.Known { // experts are split as other layers are
		s.etp = s.tp
	}
	nproc := int64(j.NProc.Or(max(s.in.Hardware.Count, 1)))
	s.world = int64(j.WorldSize.Or(int(nproc) * j.NNodes.Or(1)))
	if s.world < 1 || s.world > maxDegree || nproc < 1 {
		return fmt.Errorf("world_size = %d with nproc = %d: want 1 or more", s.world, nproc)
	}
	s.world = max(s.world, s.tp*s.pp*s.cp)
	s.sharding = j.Sharding.Or("none")
	if !j.Sharding.Known && s.world > s.tp*s.pp*s.cp {
		s.sharding = choose(s, j.Sharding, "ddp", "sharding")
	}
	if !slices.Contains(shardings, s.sharding) {
		return fmt.Errorf("unknown sharding %q: use one of %s", s.sharding, strings.Join(shardings, ", "))
	}
	s.shards = max(s.world/(s.tp*s.pp), 1) // context-parallel ranks share model states too
	if s.sharding == "fsdp-hybrid" {
		s.shards = max(min(s.shards, nproc/min(s.tp*s.pp, nproc)), 1)
	}
	if s.sharded() && !j.WorldSize.Known && !j.NProc.Known {
		s.notes.assume(fmt.Sprintf("world_size = %d", s.world), "world_size is unknown: "+reason(j.WorldSize), true)
	}
	if s.spreadsExperts() {
		s.notes.assume("every rank's experts get an equal share of the tokens",
			"routing decides; the upper bound has twice the share", true)
	}
	s.sequenceParallel = j.SequenceParallel.Or(s.traits.SequenceParallel)
	if s.tp > 1 && !s.sequenceParallel && !j.SequenceParallel.Known {
		s.notes.assume("tensor parallelism without sequence parallelism", reason(j.SequenceParallel), true)
	}
	return nil
}

func (s *scenario) settleBatch() error {
	j := s.job
	if j.MicroBatch.Known && j.MicroBatch.Value < 1 || j.SeqLen.Known && j.SeqLen.Value < 1 ||
		j.GradAccum.Known && j.GradAccum.Value < 1 {
		return fmt.Errorf("micro_batch %d, seq_len %d, grad_accum %d: want 1 or more", j.MicroBatch.Value,
			j.SeqLen.Value, j.GradAccum.Value)
	}
	s.batch, s.seq = int64(j.MicroBatch.Or(1)), int64(j.SeqLen.Or(int(s.defaultSequence())))
	if !s.pinned() {
		s.batch = int64(choose(s, j.MicroBatch, 1, "micro_batch"))
		s.seq = int64(choose(s, j.SeqLen, int(s.defaultSequence()), "seq_len"))
	}
	s.accum = int64(choose(s, j.GradAccum, 1, "grad_accum"))
	if s.seq > maxSequence || s.batch > maxTokens || s.batch*s.seq > maxTokens {
		return fmt.Errorf("micro_batch %d of seq_len %d is out of range: at most %d tokens of a sequence and %d of "+
			"a micro-batch",
			s.batch, s.seq, maxSequence, maxTokens)
	}
	s.seq = ceilDiv(s.seq, s.cp)
	return nil
}

// defaultSequence is the model's longest sequence, at most 2048.
func (s *scenario) defaultSequence() int64 {
	const most = 2048
	if s.arch.MaxPositions > 0 {
		return min(s.arch.MaxPositions, most)
	}
	return most
}

func (s *scenario) settleOptimizer() error {
	name := choose(s, s.job.Optimizer, "adamw", "optimizer")
	o, known := optim.Find(name, optim.Ours)
	if !known {
		return fmt.Errorf("unknown optimizer %q: use one of %s", name, strings.Join(optim.Words(optim.Ours), ", "))
	}
	if o.Rough && !s.sized() {
		s.notes.assume(name+"'s state is approximate", "it depends on tensor shapes, which --params does not give",
			true)
	}
	s.optimizer = o
	return nil
}

// sized says that the tensors of the model are known, not only their number.
func (s *scenario) sized() bool { return len(s.arch.Units) > 0 }

func (s *scenario) pinned() bool { return s.in.Options.ActivationBytes >= 0 }

func (s *scenario) cpu() bool { return s.in.Hardware.Kind == "cpu" }

func (s *scenario) megatron() bool { return s.traits.MegatronCore || s.sharding == "dist-optim" }

func (s *scenario) zero() bool { return strings.HasPrefix(s.sharding, "zero") }

func (s *scenario) deepspeed() bool { return s.zero() || s.traits.DeepSpeed }

func (s *scenario) fsdp() bool { return strings.HasPrefix(s.sharding, "fsdp") }

// sharded says that ranks share model states.
func (s *scenario) sharded() bool { return s.zero() || s.fsdp() || s.sharding == "dist-optim" }

func (s *scenario) adapters() bool { return s.lora != nil }

// spreadsExperts says that a rank's share of the tokens depends on where they are routed.
func (s *scenario) spreadsExperts() bool { return s.ep > 1 && s.arch.Experts > 0 }

// virtualStages is the number of chunks that an interleaved schedule cuts a pipeline stage's layers into.
func (s *scenario) virtualStages() int64 {
	if s.pp == 1 {
		return 1
	}
	return int64(s.job.VirtualStages.Or(1))
}

// tokens of a micro-batch on this rank.
func (s *scenario) tokens() int64 { return s.batch * s.seq }

// padded says that sequences of different length share a batch, so that attention needs an explicit mask.
func (s *scenario) padded() bool {
	return s.job.Packing.Known && !s.job.Packing.Value && s.batch > 1
}

// notes collects assumptions, each once.
type notes struct{ list []Assumption }

func (n *notes) assume(what, origin string, widens bool) {
	a := Assumption{What: what, Origin: origin, Widens: widens}
	if !slices.Contains(n.list, a) {
		n.list = append(n.list, a)
	}
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
