package job

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"oomguard/preflight/job/document"
	"oomguard/preflight/job/shell"
	"oomguard/preflight/optim"
)

// deepspeedSize is one size of zero_optimization, in elements. Defaults are those of deepspeed/runtime/zero/config.py;
// auto is what Trainer puts in for a model of a hidden size.
type deepspeedSize struct {
	keys     []string // the second spelling is the field's own name, which pydantic accepts too
	fallback int64
	auto     func(hidden int64) int64
	field    func(*DeepSpeed) *int64
}

func deepspeedSizes() []deepspeedSize {
	return []deepspeedSize{
		{[]string{"reduce_bucket_size"}, 5e8, func(h int64) int64 { return h * h },
			func(d *DeepSpeed) *int64 { return &d.ReduceBucketSize }},
		{[]string{"allgather_bucket_size"}, 5e8, nil, func(d *DeepSpeed) *int64 { return &d.AllgatherBucketSize }},
		{[]string{"stage3_prefetch_bucket_size", "prefetch_bucket_size"}, 5e7,
			func(h int64) int64 { return h * h * 9 / 10 },
			func(d *DeepSpeed) *int64 { return &d.PrefetchBucketSize }},
		{[]string{"stage3_param_persistence_threshold", "param_persistence_threshold"}, 1e5,
			func(h int64) int64 { return 10 * h },
			func(d *DeepSpeed) *int64 { return &d.ParamPersistenceThreshold }},
		{[]string{"stage3_max_live_parameters", "max_live_parameters"}, 1e9, nil,
			func(d *DeepSpeed) *int64 { return &d.MaxLiveParameters }},
		{[]string{"stage3_max_reuse_distance", "max_reuse_distance"}, 1e9, nil,
			func(d *DeepSpeed) *int64 { return &d.MaxReuseDistance }},
		{[]string{"sub_group_size"}, 1e9, nil, func(d *DeepSpeed) *int64 { return &d.SubGroupSize }},
	}
}

// autoPaths are the keys whose "auto" Trainer fills; a path ending in a dot stands for all keys below it.
func autoPaths() []string {
	return []string{"train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size",
		"gradient_clipping", "optimizer.params.", "scheduler.params.",
		"bf16.enabled", "bfloat16.enabled", "fp16.enabled", "amp.enabled", "amp.opt_level", "checkpoint.",
		"zero_optimization.reduce_bucket_size",
		"zero_optimization.stage3_prefetch_bucket_size", "zero_optimization.stage3_param_persistence_threshold"}
}

// readDeepSpeed reads the configuration that --deepspeed (Trainer) or --deepspeed_config (native scripts) names.
func (r *reader) readDeepSpeed() {
	a, given := r.args["deepspeed"]
	named, native := r.args["deepspeed_config"]
	switch {
	case given && !a.bare && a.node == nil && a.text == "":
		return // --deepspeed "" turns it off
	case native && (!given || a.bare):
		a = named
	case !given:
		return
	case a.bare:
		r.lostSharding("a DeepSpeed script whose configuration is not named on the command line")
		return
	}
	doc, problems, err := r.deepspeedDocument(a)
	r.unread(problems...)
	if err == nil {
		if _, ok := doc.Value.(map[string]*document.Node); !ok {
			err = doc.Wrong("an object with DeepSpeed's settings")
		}
	}
	if err != nil {
		r.unusable(fmt.Errorf("DeepSpeed configuration: %w", err))
		r.lostDeepSpeed()
		return
	}
	if len(problems) > 0 && !r.accelerated() { // runtime/config_utils.py, dict_raise_error_on_duplicate_keys
		r.fail("ValueError: Duplicate keys in DeepSpeed config: "+problems[0].Error(), doc.File)
	}
	r.adoptDeepSpeed(&deepspeedFile{doc: doc, file: doc.File, filled: r.family.huggingFace()})
}

// adoptDeepSpeed reads a configuration that was found.
func (r *reader) adoptDeepSpeed(d *deepspeedFile) {
	r.deepspeed = d
	r.checkAuto(d)
	r.readStage(d)
	r.readHalf(d)
	r.readDeepSpeedOptimizer(d)
}

func (r *reader) deepspeedDocument(a argument) (*document.Node, []error, error) {
	if a.node != nil {
		if _, inline := a.node.Value.(map[string]*document.Node); inline {
			return a.node, nil, nil
		}
	}
	return r.deepspeedText(a.text)
}

// deepspeedText reads what names a configuration: a file, JSON itself, or base64 of it. DeepSpeed reads hjson; Trainer
// and accelerate read the same file as strict JSON.
func (r *reader) deepspeedText(word string) (*document.Node, []error, error) {
	if why, unknown := shell.Unknown(word); unknown {
		return nil, nil, document.Ours(errors.New(why))
	}
	if data, ok := document.Encoded(word); ok && !isFile(r.path(word)) {
		return document.JSON(data, "base64 on the command line")
	}
	if r.accelerated() || strings.HasPrefix(word, "{") {
		return r.jsonFile(word)
	}
	data, err := r.readFile(word)
	if err != nil {
		return nil, nil, err
	}
	return document.HJSON(data, word)
}

// lostDeepSpeed keeps weaker sources away too: the configuration decides, and nobody can see it.
func (r *reader) lostDeepSpeed() {
	const why = "the DeepSpeed configuration could not be read"
	r.lostSharding(why)
	j := r.job
	for _, f := range []fact{&j.Sharding, &j.Offload, &j.Precision, &j.ParamDtype, &j.BaseDtype, &j.MasterFP32,
		&j.Autocast, &j.DeepSpeed} {
		f.Withhold(why)
	}
}

// lostSharding keeps defaults away from what an unreadable or unnamed configuration decides.
func (r *reader) lostSharding(why string) {
	r.shardingLost = why
	j := r.job
	for _, f := range []fact{&j.Sharding, &j.Offload, &j.Precision, &j.ParamDtype, &j.MasterFP32, &j.Optimizer,
		&j.DeepSpeed} {
		f.Unknown(why)
	}
}

// checkAuto finds "auto" where Trainer does not fill it.
func (r *reader) checkAuto(d *deepspeedFile) {
	if !d.filled { // the script's own code may fill it in; such values stay unknown
		return
	}
	d.doc.Walk(func(n *document.Node) {
		path := strings.TrimPrefix(n.Path, d.doc.Path+".")
		filled := slices.ContainsFunc(autoPaths(), func(p string) bool {
			return path == p || strings.HasSuffix(p, ".") && strings.HasPrefix(path, p)
		})
		if n.Auto() && !filled {
			r.contradiction(n, "%s is \"auto\", which Hugging Face's Trainer does not fill in for this key; write "+
				"the number or word itself", path)
		}
	})
}

// contradiction is a problem at a place of a file that also ends the job.
func (r *reader) contradiction(at *document.Node, format string, values ...any) {
	if r.family.foreign { // it may change the file before it uses it
		return
	}
	err := fmt.Errorf("%s: "+format, append([]any{at.Origin()}, values...)...)
	r.fail(err.Error(), at.Origin())
	r.problem(err)
}

func (r *reader) readStage(d *deepspeedFile) {
	zero := d.doc.Get("zero_optimization")
	if n := zero.Get("stage"); r.family.foreign && (n == nil || n.Auto()) {
		r.job.Sharding.Unknown(d.file + " names no stage; give --sharding")
		return
	}
	stage := int64(0)
	origin := d.file + ": no zero_optimization.stage, DeepSpeed's default is 0"
	if n := zero.Get("stage"); n != nil && !n.Auto() {
		var err error
		if stage, err = n.Integer(); err == nil && (stage < 0 || stage > 3) {
			err = n.Wrong("a stage from 0 to 3")
		}
		if err != nil {
			r.unread(err)
			r.job.Sharding.Unknown("the ZeRO stage could not be read")
			return
		}
		origin = n.Origin()
	}
	sharding := "ddp" // stage 0 is plain data parallelism
	if stage > 0 {
		sharding = fmt.Sprintf("zero%d", stage)
	}
	r.job.Sharding.Offer(sharding, origin)

	offload := Offload{Optimizer: r.device(zero, "offload_optimizer", "cpu_offload"),
		Params: r.device(zero, "offload_param", "cpu_offload_param")}
	where := d.file
	if n := zero.First("offload_optimizer", "offload_param", "cpu_offload", "cpu_offload_param"); n != nil {
		where = n.Origin()
	}
	r.job.Offload.Offer(offload, where)
}

// device is where a kind of state lives: a section with a device, or the boolean of older versions.
func (r *reader) device(zero *document.Node, section, old string) string {
	if n := zero.Get(section, "device"); n != nil {
		word, err := n.Text()
		if err == nil && !slices.Contains([]string{"none", "cpu", "nvme"}, word) {
			err = n.Wrong("none, cpu or nvme")
		}
		if err == nil {
			return word
		}
		r.unread(err)
	}
	if n := zero.Get(old); n != nil && r.nodeBool(n, false) {
		return "cpu"
	}
	return "none"
}

func (r *reader) nodeBool(n *document.Node, fallback bool) bool {
	if n == nil || n.Auto() {
		return fallback
	}
	value, err := n.Boolean()
	if err != nil {
		r.unread(err)
		return fallback
	}
	return value
}

// readHalf decides bf16 and fp16, and compares them with Trainer's flags, which must say the same.
func (r *reader) readHalf(d *deepspeedFile) {
	enabled := func(section *document.Node, flags ...string) bool {
		asked := slices.ContainsFunc(flags, r.asked)
		n := section.Get("enabled")
		if d.lenient {
			return r.nodeBool(n, false)
		}
		d.open = d.open || n.Auto() && !d.filled
		value := r.nodeBool(n, asked && d.filled && n != nil)
		if n != nil && d.filled && !n.Auto() && value != asked {
			r.contradiction(n, "%s is %t, but Trainer's --%s is %t, and it refuses to start when they differ; write "+
				"\"auto\" here or change the argument",
				n.Path, value, flags[0], asked)
		}
		return value
	}
	bf16 := d.doc.First("bf16", "bfloat16")
	fp16 := d.doc.Get("fp16")
	d.origin, d.master = d.file, true
	if enabled(bf16, "bf16", "bf16_full_eval") {
		d.half, d.origin = "bf16", bf16.Get("enabled").Origin()
		d.master = !r.nodeBool(bf16.Get("bf16_master_weights_and_grads"), false)
	}
	if enabled(fp16, "fp16", "fp16_full_eval") {
		if d.half != "" {
			r.contradiction(fp16.Get("enabled"),
				"bf16 and fp16 are both enabled, and DeepSpeed refuses to start with both; disable one")
			return
		}
		d.half, d.origin = "fp16", fp16.Get("enabled").Origin()
		d.master = !r.nodeBool(fp16.Get("fp16_master_weights_and_grads"), false)
	}
}

// readDeepSpeedOptimizer reads the optimizer section; with one, Trainer's --optim has no effect. DeepSpeed builds
// FusedAdam for Adam and AdamW, its CPU Adam when the optimizer is offloaded (deepspeed/runtime/engine.py,
// _configure_basic_optimizer).
func (r *reader) readDeepSpeedOptimizer(d *deepspeedFile) {
	n := d.doc.Get("optimizer", "type")
	if n == nil || r.family.foreign { // an optimizer of the program's own would win
		return
	}
	kind, err := n.Text()
	if err != nil {
		r.unread(err)
		return
	}
	o, own := optim.Find(strings.ToLower(kind), optim.DeepSpeed)
	switch {
	case !own: // engine.py takes any other name for a class of torch.optim
		whole := &configuration{r: r, doc: d.doc, fallback: "default of torch"}
		r.optimizerClass(kind, whole.below("optimizer.params"), false, n.Origin())
		return
	case r.job.Offload.Value.Optimizer != "none":
		o = o.In(optim.Host)
	case !r.nodeBool(d.doc.Get("optimizer", "params", "torch_adam"), false):
		o = o.In(optim.Fused)
	}
	r.job.Optimizer.Offer(o.Name, n.Origin())
}

// resolveDeepSpeed fills ds_resolved once everything else is known.
func (r *reader) resolveDeepSpeed() {
	j := r.job
	if r.shardingLost != "" {
		return
	}
	stage, zero := strings.CutPrefix(j.Sharding.Value, "zero")
	switch {
	case !j.Sharding.Known:
		if r.deepspeed == nil && r.family.huggingFace() && r.blocked == "" {
			j.DeepSpeed.Offer(nil, "DeepSpeed is not used")
		}
		return
	case r.deepspeed == nil && !zero, r.deepspeed != nil && !zero && j.Sharding.Value != "ddp":
		j.DeepSpeed.Offer(nil, "DeepSpeed is not used")
		return
	case r.deepspeed == nil:
		r.deepspeed = &deepspeedFile{file: "", origin: j.Sharding.Origin}
		defer func() { r.deepspeed = nil }()
	}
	d := r.deepspeed
	out := &DeepSpeed{File: d.file, BF16Enabled: d.half == "bf16", FP16Enabled: d.half == "fp16",
		OffloadOptimizerRatio: 1, ContiguousGradients: true}
	if zero {
		out.Stage = int(stage[0] - '0') // zero1 to zero3
	}
	out.TrainMicroBatchSizePerGPU = j.MicroBatch.Or(UnknownSize)
	out.GradientAccumulationSteps = j.GradAccum.Or(UnknownSize)
	out.TrainBatchSize = j.GlobalBatch.Or(UnknownSize)
	out.OffloadOptimizer, out.OffloadParam = j.Offload.Value.Optimizer, j.Offload.Value.Params
	section := d.doc.Get("zero_optimization")
	for _, each := range deepspeedSizes() {
		*each.field(out) = r.size(section.First(each.keys...), each)
	}
	out.OverlapComm = r.nodeBool(section.Get("overlap_comm"), out.Stage == 3) // None means only for stage 3
	out.ContiguousGradients = r.nodeBool(section.Get("contiguous_gradients"), true)
	if n := section.Get("offload_optimizer", "ratio"); n != nil {
		if ratio, err := n.Float(); err != nil {
			r.unread(err)
		} else {
			out.OffloadOptimizerRatio = ratio
		}
	}
	if n := d.doc.Get("data_types", "grad_accum_dtype"); n != nil && n.Value != nil {
		word, err := n.Text()
		if err != nil {
			r.unread(err)
		}
		out.GradAccumDtype = dtypeName(word)
	}
	origin := "DeepSpeed's defaults; no configuration file was read"
	if d.file != "" {
		origin = d.file + " and DeepSpeed's defaults"
	}
	j.DeepSpeed.Offer(out, origin)
}

// size reads one size; "auto" needs the model's hidden size.
func (r *reader) size(n *document.Node, s deepspeedSize) int64 {
	if n == nil || n.Value == nil {
		return s.fallback
	}
	if n.Auto() {
		if a := r.job.Architecture; s.auto != nil && a != nil && a.Hidden > 0 {
			return s.auto(a.Hidden)
		}
		return UnknownSize
	}
	value, err := n.Integer()
	if err == nil && value < 0 {
		err = n.Wrong("a number of elements")
	}
	if err != nil {
		r.unread(err)
		return UnknownSize
	}
	return value
}
