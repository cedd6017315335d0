package estimate

import (
	"math"
	"slices"

	"oomguard/preflight/job"
	"oomguard/preflight/model"
)

const (
	measuredError   = 0.03 // of activations, logits and temporaries: kernels differ in their working memory
	unmeasuredError = 0.15
	// Models of two stacks, and those of images, miss the laboratory's peaks by up to 3.9 %.
	twoStacksError = 0.05
	// What torch.compile keeps depends on its release; torchtitan's rows of high confidence at known versions differ by
	// 3 to 7 %
	compiledError = 0.08
)

// An alternative is another value that an unknown setting may well have.
type alternative struct {
	unknown func(*scenario) bool
	apply   func(*job.Job, *scenario)
}

func unset[T any](field func(*job.Job) *job.Setting[T]) func(*scenario) bool {
	return func(s *scenario) bool { return !field(s.job).Known }
}

func with[T any](field func(*job.Job) *job.Setting[T], value T) alternative {
	return alternative{unset(field),
		func(j *job.Job, _ *scenario) { *field(j) = job.Setting[T]{Value: value, Known: true} }}
}

// alternatives is, for each setting that moves memory most, the values to try when it is unknown.
var alternatives = [][]alternative{
	{with(microBatch, 8)}, // per_device_train_batch_size of Trainer (transformers training_args.py)
	{with(seqLen, 512), {unset(seqLen), func(j *job.Job, s *scenario) {
		longest := 2 * s.defaultSequence()
		if s.arch.MaxPositions > 0 {
			longest = min(s.arch.MaxPositions, longest)
		}
		seqLen(j).Offer(int(longest), "")
	}}},
	{with(attention, "eager"), with(attention, "flash_attention_2")},
	{with(paramDtype, "fp32"), {func(s *scenario) bool { return !s.job.ParamDtype.Known && s.precision.compute == 2 },
		func(j *job.Job, _ *scenario) { paramDtype(j).Offer("bf16", "") }}},
	{with(checkpointing, "full")},
	{{func(s *scenario) bool { return !s.job.Reentrant.Known && s.hoards() },
		func(j *job.Job, _ *scenario) { j.Reentrant.Offer(false, "") }}},
	{with(optimizerName, "sgd")},
	{with(gradAccum, 2)},
	{{func(s *scenario) bool { return !s.job.RefModel.Known && s.task().reference && !s.adapters() },
		func(j *job.Job, _ *scenario) { refModel(j).Offer(false, "") }}},
	{{func(s *scenario) bool {
		return !s.job.InferenceShare.Known && s.task().generates && s.in.Options.InferenceShare <= 0
	},
		func(j *job.Job, _ *scenario) { j.InferenceShare.Offer(colocatedShare, "") }}},
	{{generatesWithoutPadding, func(j *job.Job,
		s *scenario) {
		j.SeqLen = job.Setting[int]{Value: int(max(s.seq/4, 1)), Known: true}
	}}},
}

// generatesWithoutPadding: verl takes the padding out of its rows (use_remove_padding), and answers end before the
// longest that is allowed. How long they are is known to nobody before the run: the expected figure takes every row at
// full length, the lower end a quarter.
func generatesWithoutPadding(s *scenario) bool {
	return s.task().generates && s.traits.RemovesPadding
}

// colocatedShare is TRL's vllm_gpu_memory_utilization for vLLM in the training processes (trl/trainer/grpo_config.py).
const colocatedShare = 0.3

func microBatch(j *job.Job) *job.Setting[int]       { return &j.MicroBatch }
func seqLen(j *job.Job) *job.Setting[int]           { return &j.SeqLen }
func gradAccum(j *job.Job) *job.Setting[int]        { return &j.GradAccum }
func attention(j *job.Job) *job.Setting[string]     { return &j.Attention }
func paramDtype(j *job.Job) *job.Setting[string]    { return &j.ParamDtype }
func checkpointing(j *job.Job) *job.Setting[string] { return &j.Checkpointing }
func refModel(j *job.Job) *job.Setting[bool]        { return &j.RefModel }
func optimizerName(j *job.Job) *job.Setting[string] { return &j.Optimizer }

// interval bounds the device's memory: formulas' own error, fragmentation, context and NCCL, and what each unknown
// setting could change if it were otherwise.
func (p *prediction) interval() (low, high int64) {
	down, up := p.unknownSettings()
	low = max(p.least()-down, min(p.least(), p.overhead.contextLow))
	c := p.peak.Components
	_, fragmented := p.fragmentation(c, p.logits)
	high = p.peak.DeviceBytes + p.slack() + fragmented - c[Fragmentation] + p.overhead.contextHigh - c[Context]
	return low, high + up + p.imbalance() + p.pagedOnDevice() + p.teacherLogits()
}

// least is the lower end for the settings as they are.
func (p *prediction) least() int64 {
	c := p.peak.Components
	return p.peak.DeviceBytes - p.slack() - c[Fragmentation] - (c[Context] - p.overhead.contextLow)
}

// slack is by how much the formulas may be off.
func (p *prediction) slack() int64 {
	c, share := p.peak.Components, p.formulaError()
	if p.pinned() {
		return int64(share * float64(c[Temporaries]+c[Communication]))
	}
	return int64(share * float64(c[Activations]+c[Logits]+c[Temporaries]+c[Communication]))
}

// formulaError is by how much activations and what goes with them may be off.
func (p *prediction) formulaError() float64 {
	share := unmeasuredError
	switch {
	case p.pinned():
		return measuredError
	case p.arch.Facts.Measured < model.Closely:
	case p.arch.Encoder != nil || p.arch.Facts.Measured == model.Roughly:
		share = twoStacksError
	default:
		share = measuredError
	}
	if p.compiled() {
		share = max(share, compiledError)
	}
	return share
}

// imbalance is what a rank needs on top whose experts get twice as many tokens as the mean: routing decides that, and
// dropless layers take what comes.
func (p *prediction) imbalance() int64 {
	if !p.spreadsExperts() || p.pinned() {
		return 0
	}
	crowded := *p.arch
	crowded.ExpertsPerToken = min(2*max(crowded.ExpertsPerToken, 1), crowded.Experts)
	in := p.in
	in.Model = &crowded
	other, err := predict(in)
	if err != nil {
		return 0
	}
	return max(other.peak.DeviceBytes-p.peak.DeviceBytes, 0)
}

// unknownSettings re-runs the prediction with the alternatives of every unknown setting, one setting at a time.
func (p *prediction) unknownSettings() (down, up int64) {
	for _, group := range slices.Concat(alternatives, foreignAlternatives) {
		var lowest, highest int64
		for _, a := range group {
			other := p.otherwise(a)
			if other == nil {
				continue
			}
			delta := other.peak.DeviceBytes - p.peak.DeviceBytes
			lowest, highest = min(lowest, delta), max(highest, delta)
		}
		down, up = down-lowest, up+highest
	}
	return down, up
}

// teacherLogits is at most what a loss of distillation keeps of the teacher's: its logits and their softmax, of the
// student's size each.
func (p *prediction) teacherLogits() int64 {
	if slices.ContainsFunc(p.job.SecondModels.Or(nil), func(m job.SecondModel) bool { return m.Role == "teacher" }) {
		return 2 * p.logits
	}
	return 0
}

// pagedOnDevice is optimizer states in managed memory, which nvidia-smi shows while the GPU has room for them.
func (p *prediction) pagedOnDevice() int64 {
	var most int64
	for stage := range p.pp {
		most = max(most, p.rankOf(stage).pagedStates())
	}
	return most
}

// typicalSizes are hidden size and layers of a transformer with that many parameters: 12 x layers x hidden^2 of them,
// and 128 times as wide as it is deep (GPT-3's and Llama's table of sizes).
func typicalSizes(parameters int64) (hidden, layers float64) {
	layers = math.Round(math.Cbrt(float64(parameters) / (12 * 128 * 128)))
	layers = max(layers, 1)
	return 128 * layers, layers
}
