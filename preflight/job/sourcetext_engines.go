package job

import (
	"fmt"
	"strings"

	"oomguard/preflight/job/python"
)

// What a script's own loop gives to DeepSpeed and to Accelerate.

// deepspeedInSource reads deepspeed.initialize(config="ds.json") and config={...}.
func (r *reader) deepspeedInSource(c foundCall) {
	if _, given := r.args["deepspeed_config"]; given {
		return
	}
	config, hidden := (*python.Expr)(nil), (*python.Expr)(nil)
	for _, name := range []string{"config_params", "config"} {
		if e := present(c.keyword(name).found.Open(func(why *python.Expr) { hidden = why })); e != nil {
			config = e
		}
	}
	if config == nil {
		config = hidden
	}
	switch {
	case config == nil:
	case isLiteral(config):
		if text, ok := textOf(config); ok {
			r.args["deepspeed_config"] = argument{text: text, list: []string{text},
				origin: c.file.from(config.Line, config)}
		}
	case config.Kind == python.Dict:
		if n, whole := c.file.node(config, "", c.Place); whole {
			r.args["deepspeed_config"] = argument{node: n, origin: n.Origin()}
			return
		}
		r.lostSharding(c.origin() + " passes a configuration with a part that is not a literal")
	default:
		r.deepspeedOptions(c)
		r.lostSharding(fmt.Sprintf("%s passes a configuration that is decided when the script runs (%s)", c.origin(),
			config))
	}
}

// deepspeedOptions: a script that makes DeepSpeed's configuration itself mostly has options for what counts, as
// DeepSpeed-Chat has:
// --zero_stage, --offload, --dtype.
func (r *reader) deepspeedOptions(c foundCall) {
	j := r.job
	option := func(name string) (*python.Expr, string) {
		o := c.file.options[name]
		if o == nil {
			return nil, ""
		}
		value := o.value(c.file)
		return value, value.Text + ", of which the script makes DeepSpeed's configuration"
	}
	stage, origin := option("zero_stage")
	if stage == nil || !isLiteral(stage) {
		return
	}
	if n, ok := stage.Value.(int64); ok && n >= 0 && n <= 3 {
		j.Sharding.Offer(map[int64]string{0: "ddp", 1: "zero1", 2: "zero2", 3: "zero3"}[n], origin)
	}
	if cpu, from := option("offload"); cpu != nil && isLiteral(cpu) {
		device := map[bool]string{true: "cpu", false: "none"}[cpu.Value == true]
		j.Offload.Offer(Offload{Optimizer: device,
			Params: map[bool]string{true: device, false: "none"}[j.Sharding.Value == "zero3"]}, from)
	}
	if word, from := option("dtype"); word != nil {
		if dtype, _ := textOf(word); dtypeName(dtype) == "fp16" || dtypeName(dtype) == "bf16" {
			j.Precision.Offer(dtypeName(dtype), from)
			j.ParamDtype.Offer(dtypeName(dtype), from)
			j.MasterFP32.Offer(true, "DeepSpeed keeps an fp32 copy of half-precision weights")
		}
	}
}

// acceleratorInSource reads Accelerator(mixed_precision=..., gradient_accumulation_steps=...), which wins over
// accelerate's own files.
func (r *reader) acceleratorInSource() {
	c, ok := one(r.seen().calls("Accelerator"), withhold("", &r.job.Precision, &r.job.GradAccum))
	if !ok {
		return
	}
	precision := func(string) {
		r.job.Precision.Withhold(c.origin() +
			" passes mixed_precision, which is decided when the script runs; give --precision")
	}
	if text, origin, given := c.keyword("mixed_precision").literal(precision); given && dtypeName(text) != "" {
		r.job.Precision.Offer(dtypeName(text), origin)
		r.offerAutocast(dtypeName(text), origin)
	}
	c.keyword("gradient_accumulation_steps").offerNumber(&r.job.GradAccum)
}

// parallelismInSource reads ParallelismConfig(tp_size=..., cp_size=..., sp_size=...), which a script gives to its
// Accelerator.
func (r *reader) parallelismInSource() {
	c, ok := one(r.seen().calls("ParallelismConfig"), withhold("", &r.job.TP, &r.job.CP))
	if !ok {
		return
	}
	for _, size := range []struct {
		name string
		set  *Setting[int]
	}{{"tp_size", &r.job.TP}, {"cp_size", &r.job.CP}, {"sp_size", &r.job.CP}} {
		if n, origin, given := c.keyword(size.name).number(withhold("", size.set)); given && n > 1 {
			size.set.Offer(n, origin)
		}
	}
}

// meshInSource reads init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp")), and takes for undecided what a
// script splits without one.
func (r *reader) meshInSource() {
	j := r.job
	for _, c := range r.seen().calls("init_device_mesh") {
		hold := withhold("give --tp, --pp and --cp", &j.TP, &j.PP, &j.CP)
		shape, names := c.argument(1, "mesh_shape").value(hold), c.keyword("mesh_dim_names").value(hold)
		if shape == nil || names == nil || shape.Kind != python.List || names.Kind != python.List ||
			len(shape.Items) != len(names.Items) {
			continue
		}
		for i, item := range names.Items {
			name, _ := literalString(c.resolve(item))
			if set := map[string]*Setting[int]{"tp": &j.TP, "pp": &j.PP, "cp": &j.CP}[name]; set != nil {
				r.numberInSource(c, name, c.resolve(shape.Items[i]), set)
			}
		}
	}
	if calls := r.seen().calls("parallelize_module"); len(calls) > 0 {
		j.TP.Withhold(calls[0].origin() + " splits layers over GPUs, and over how many is not known; give --tp")
	}
	if calls := r.seen().calls("PipelineStage", "ScheduleGPipe", "Schedule1F1B"); len(calls) > 0 {
		j.PP.Withhold(calls[0].origin() + " makes a pipeline, and of how many stages is not known; give --pp")
	}
}

// spawnInSource: torch.multiprocessing.spawn(main, args, nprocs=N) in a script that nothing launches.
func (r *reader) spawnInSource() {
	calls := r.seen().calls("multiprocessing.spawn", "multiprocessing.start_processes", "notebook_launcher")
	if len(calls) == 0 || r.job.NProc.Origin != plainOrigin {
		return
	}
	name := "nprocs"
	c, ok := one(calls, immaterial) // unknown until one tells
	if ok && strings.HasSuffix(c.Callee, "notebook_launcher") {
		name = "num_processes"
	}
	nproc := Setting[int]{Origin: calls[0].origin() +
		" starts the processes, and how many is decided when the script runs; give --nproc"}
	if ok && c.sure {
		hidden := false
		switch e := c.argument(2, name).value(func(string) { hidden = true }); {
		case hidden:
		case e == nil && name == "nprocs":
			nproc.Offer(1, c.origin()+": default of spawn")
		case e == nil:
		case isLiteral(e):
			if n, isNumber := e.Value.(int64); isNumber && n > 0 && n < 1<<20 {
				nproc.Offer(int(n), c.file.from(e.Line, e))
			}
		case e.Kind == python.Invoke &&
			python.EndsIn(c.file.Qualified(e.Call.Callee), "cuda.device_count", "accelerator.device_count"):
			if gpus := r.visibleGPUs(); gpus > 0 {
				nproc.Offer(gpus, c.origin()+" starts one for each visible GPU")
			}
		}
	}
	r.job.NProc.become(nproc)
}
