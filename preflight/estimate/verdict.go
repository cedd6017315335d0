package estimate

import (
	"slices"
	"strings"

	"oomguard/preflight/job"
)

// bound sets what is known of the need: an interval, or a lower bound where something is not counted.
func (p *prediction) bound(e *Estimate) {
	g := &e.PerGPU
	e.NotCounted, e.Unsettled = p.uncounted(), p.unsettled()
	if e.Partial = len(e.NotCounted) > 0; !e.Partial {
		low, high := p.interval()
		g.LowBytes, g.HighBytes = low, &high
	}
	if e.Open() {
		g.LowBytes = min(p.cheapest().least(), g.DeviceBytes)
		e.Bottleneck = ""
	}
}

// judge compares the prediction with the device, if there is one.
func (e *Estimate) judge(in Input) {
	if in.Hardware.Kind == "" || in.Hardware.TotalBytes <= 0 {
		return
	}
	total := in.Hardware.TotalBytes
	usable := total - int64(float64(total)*in.Options.HeadroomPercent/100)
	yes, no := true, false
	switch most, known := e.Most(); {
	case e.Least() > usable:
		e.Fits = &no
	case known && most <= usable:
		e.Fits = &yes
	}
	if !e.Partial {
		headroom := total - e.PerGPU.DeviceBytes
		e.HeadroomBytes = &headroom
	}
}

// Open says that the need is known as an interval or a lower bound alone, because of what is not known of the job.
func (e *Estimate) Open() bool { return e.Partial || len(e.Unsettled) > 0 || e.PerGPU.HighBytes == nil }

// Least is what a GPU needs in any case.
func (e *Estimate) Least() int64 {
	if e.Open() {
		return e.PerGPU.LowBytes
	}
	return e.PerGPU.DeviceBytes
}

// Most is what a GPU needs at most, as far as a verdict goes; known is false when something is not counted.
func (e *Estimate) Most() (bytes int64, known bool) {
	switch {
	case e.Partial || e.PerGPU.HighBytes == nil:
		return 0, false
	// nobody knows what else the program holds
	case len(e.Unsettled) > 0 && e.Job != nil && e.Job.HasCommand() && !e.Job.Framework.Known:
		return 0, false
	case len(e.Unsettled) > 0:
		return *e.PerGPU.HighBytes, true
	}
	return e.PerGPU.DeviceBytes, true
}

// Lacks says in a few words what keeps the need from being known: "activations not known; vae x not counted (--vae)";
// "" nothing does.
func (e *Estimate) Lacks() string {
	var parts []string
	for _, n := range e.NotCounted {
		parts = append(parts, n.What+" "+n.Why)
	}
	if len(e.Unsettled) > 0 {
		parts = append(parts, strings.Join(e.Unsettled, ", ")+" not known")
	}
	return strings.Join(parts, "; ")
}

// Give says what would make the need known.
func (e *Estimate) Give() string {
	var gifts []string
	add := func(text string) {
		if text != "" && !slices.Contains(gifts, text) {
			gifts = append(gifts, text)
		}
	}
	for _, key := range e.Unsettled {
		add("--" + strings.ReplaceAll(key, "_", "-"))
	}
	for _, n := range slices.Backward(e.NotCounted) { // activations stand first, and have most to be said of
		add(n.Give)
	}
	return strings.Join(gifts, ", ")
}

// leaveOut notes something that is not counted, once.
func (s *scenario) leaveOut(n NotCounted) {
	if !slices.Contains(s.left, n) {
		s.left = append(s.left, n)
	}
}

// uncounted lists what the job needs memory for and the prediction has not, or has at its least.
func (p *prediction) uncounted() []NotCounted {
	out := slices.Clone(p.left)
	if activations, unknown := p.unknownActivations(); unknown {
		return append([]NotCounted{activations}, out...)
	}
	if p.pinned() {
		return out
	}
	j := p.job
	if !j.MicroBatch.Known {
		out = append(out, NotCounted{What: "micro_batch", Why: notKnown(j.MicroBatch), Give: "--micro-batch"})
	}
	if !j.SeqLen.Known && !p.boundedSequence() {
		out = append(out, NotCounted{What: "seq_len", Why: notKnown(j.SeqLen), Give: "--seq-len"})
	}
	return out
}

// notKnown says so, with the reason where it is more than that nobody said it. What to give is said elsewhere.
func notKnown[T any](set job.Setting[T]) string {
	why, _, _ := strings.Cut(set.Origin, "; give ")
	if why == "" || strings.HasPrefix(why, "not given") {
		return "not known"
	}
	return "not known (" + why + ")"
}

// unknownActivations says why there is no figure for them, if there is none.
func (p *prediction) unknownActivations() (NotCounted, bool) {
	n := NotCounted{What: "activations", Why: "not known"}
	switch {
	case p.pinned() || p.in.Options.ActivationFactor > 0:
		return n, false
	case p.arch.NoActivations != "":
		n.Why += ": " + p.arch.NoActivations
		n.Give = "--activations SIZE (measure one small run), or --activation-factor"
	case p.formula():
		return n, false
	case p.foreign():
		n.Give = "--activations SIZE (activations of this program have no formula: measure one small run); for a " +
			"language model --model DIR or config.json"
	default:
		n.Give = "--model DIR or config.json, or --activations SIZE (measure one small run)"
	}
	return n, true
}

// boundedSequence says that no row can be longer than what is assumed: the model has no more positions.
func (s *scenario) boundedSequence() bool {
	return s.arch.MaxPositions > 0 && s.arch.MaxPositions <= s.defaultSequence()
}

// foreign says that the settings are those of a program whose own defaults nobody here knows.
func (s *scenario) foreign() bool {
	return s.job.HasCommand() && s.noDefaults()
}

// noDefaults says that no framework's defaults stand for what is not given: there is none that is known, or no command
// at all.
func (s *scenario) noDefaults() bool {
	return s.traits.NoDefaults
}

// A decider is a setting that moves memory much, has a largest and a smallest plausible value, and may be unknown.
type decider struct {
	key     string
	unknown func(*scenario) bool
}

// deciders are those of programs that are not known, by the flag that settles them.
var deciders = []decider{
	{"seq_len", func(s *scenario) bool {
		return !s.pinned() && s.sized() && !s.job.SeqLen.Known && s.boundedSequence() && s.arch.Vocab > 0
	}},
	{"method", func(s *scenario) bool { return !s.job.Method.Known }},
	{"precision", func(s *scenario) bool { return !s.job.Precision.Known || !s.job.ParamDtype.Known && !s.adapters() }},
	{"optimizer", func(s *scenario) bool { return !s.job.Optimizer.Known }},
	{"checkpointing", func(s *scenario) bool { return s.modelled() && !s.job.Checkpointing.Known }},
	{"attention", func(s *scenario) bool { return s.modelled() && !s.job.Attention.Known }},
	{"sharding", func(s *scenario) bool { return s.world > 1 && !s.job.Sharding.Known }},
}

// formula says that the sizes which activations follow from are known.
func (s *scenario) formula() bool {
	a := s.arch
	return s.sized() && a.NoActivations == "" && a.Hidden > 0 && a.Layers > 0 && a.Heads > 0 && a.Intermediate > 0
}

// modelled says that activations are worked out from the architecture.
func (s *scenario) modelled() bool {
	return s.formula() && !s.pinned() && s.in.Options.ActivationFactor <= 0
}

// unsettled are the keys of those that nothing tells.
func (s *scenario) unsettled() []string {
	if !s.foreign() {
		return nil
	}
	var keys []string
	for _, d := range deciders {
		if d.unknown(s) {
			keys = append(keys, d.key)
		}
	}
	return keys
}

// cheapest is the prediction for the job with the cheapest plausible value of every setting that is not known. Whether
// everything is trained or adapters changes what the other settings are worth, so that both ways are gone to their end.
func (p *prediction) cheapest() *prediction {
	best := p.descend()
	if adapted := p.otherwise(adapters); adapted != nil {
		if other := adapted.descend(); other.peak.DeviceBytes < best.peak.DeviceBytes {
			best = other
		}
	}
	return best
}

// descend takes the cheapest value of one setting after the other. What lowers a stage shows only once that stage is
// the peak, so it goes on until nothing helps any more.
func (p *prediction) descend() *prediction {
	best := p
	for again := true; again; {
		again = false
		for _, group := range slices.Concat(leastAlternatives, alternatives, foreignAlternatives) {
			from := best
			for _, a := range group {
				if other := from.otherwise(a); other != nil && other.peak.DeviceBytes < best.peak.DeviceBytes {
					best, again = other, true
				}
			}
		}
	}
	return best
}

// otherwise is the prediction with another value of a setting; nil when it is known, or the value contradicts what is
// known.
func (p *prediction) otherwise(a alternative) *prediction {
	if !a.unknown(p.scenario) {
		return nil
	}
	in, changed := p.in, *p.job
	in.Job = &changed
	a.apply(&changed, p.scenario)
	other, err := predict(in)
	if err != nil {
		return nil
	}
	return other
}

// foreignAlternatives are further values that the settings of a program that is not known may have.
var foreignAlternatives = [][]alternative{
	{
		{strange(func(s *scenario) bool { return !s.job.Precision.Known && !s.job.ParamDtype.Known }),
			precisionOf("bf16", "bf16", false)},
		{strange(func(s *scenario) bool { return !s.job.Precision.Known && !s.job.ParamDtype.Known }),
			precisionOf("fp32", "bf16", false)},
		{strange(func(s *scenario) bool {
			return !s.job.MasterFP32.Known && !s.job.ParamDtype.Known && s.job.Precision.Or("bf16") != "fp32"
		}), precisionOf("bf16", "bf16", true)},
	},
	{adapters},
	{{strange(func(s *scenario) bool { return s.world > 1 && !s.job.Sharding.Known }),
		func(j *job.Job, _ *scenario) { j.Sharding.Offer("fsdp-full", "") }}},
}

// adapters is the cheapest way to train, where the method of a program that is not known is not either.
var adapters = alternative{func(s *scenario) bool { return s.foreign() && !s.job.Method.Known },
	func(j *job.Job, _ *scenario) {
		j.Method = job.Setting[string]{Value: "qlora", Known: true}
		j.LoRA = job.Setting[*job.LoRA]{Value: &job.LoRA{R: 1, Targets: job.Targets{"all-linear"}}, Known: true}
		j.Quant = job.Setting[*job.Quant]{Value: &job.Quant{Method: "bnb", Bits: 4, Type: "nf4", Double: true},
			Known: true}
	}}

// leastAlternatives are the least that a setting without a bound can be.
var leastAlternatives = [][]alternative{
	{{unset(seqLen), func(j *job.Job, _ *scenario) { j.SeqLen = job.Setting[int]{Value: 1, Known: true} }}},
}

// strange is unknown, where no framework's defaults stand for it.
func strange(unknown func(*scenario) bool) func(*scenario) bool {
	return func(s *scenario) bool { return s.noDefaults() && unknown(s) }
}

func precisionOf(weights, compute string, master bool) func(*job.Job, *scenario) {
	return func(j *job.Job, _ *scenario) {
		for set, value := range map[*job.Setting[string]]string{&j.ParamDtype: weights, &j.Precision: compute} {
			*set = job.Setting[string]{Value: value, Known: true}
		}
		j.MasterFP32 = job.Setting[bool]{Value: master, Known: true}
		j.Autocast = job.Setting[bool]{Value: weights != compute, Known: true}
	}
}
