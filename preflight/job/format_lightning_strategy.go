package job

import (
	"fmt"
	"strings"

	"oomguard/preflight/job/document"
)

// lightningAliases are the names by which Lightning registers a strategy with arguments (register_strategies of each).
func lightningAliases() map[string]struct {
	class     string
	arguments string // as YAML
} {
	type alias = struct{ class, arguments string }
	return map[string]alias{
		"fsdp": {"FSDPStrategy", "{}"}, "fsdp_cpu_offload": {"FSDPStrategy", "{cpu_offload: true}"},
		"deepspeed": {"DeepSpeedStrategy", "{}"}, "deepspeed_stage_1": {"DeepSpeedStrategy", "{stage: 1}"},
		"deepspeed_stage_2":         {"DeepSpeedStrategy", "{stage: 2}"},
		"deepspeed_stage_2_offload": {"DeepSpeedStrategy", "{stage: 2, offload_optimizer: true}"},
		"deepspeed_stage_3":         {"DeepSpeedStrategy", "{stage: 3}"},
		"deepspeed_stage_3_offload": {"DeepSpeedStrategy",
			"{stage: 3, offload_optimizer: true, offload_parameters: true}"},
		"deepspeed_stage_3_offload_nvme": {"DeepSpeedStrategy",
			"{stage: 3, offload_optimizer: true, offload_parameters: true, offload_params_device: nvme, " +
				"offload_optimizer_device: nvme}"},
	}
}

// lightningStrategy reads trainer.strategy: a name or a class.
func (r *reader) lightningStrategy(c *configuration) {
	j := r.job
	n := c.doc.Get("trainer", "strategy")
	name, arguments := document.Class(n)
	origin := c.originOf("trainer.strategy.class_path", "trainer.strategy")
	if alias, ok := lightningAliases()[name]; ok {
		name = alias.class
		preset, err := document.Scalar(alias.arguments, "trainer.strategy", origin)
		if err != nil {
			r.unread(err)
		}
		arguments = document.Merge(preset, arguments)
	}
	if arguments == nil {
		arguments = &document.Node{Path: "trainer.strategy.init_args"}
	}
	a := &configuration{r: r, doc: arguments, fallback: c.fallback}
	one := j.NProc.Or(0) == 1 && j.NNodes.Or(0) == 1
	switch {
	case (name == "" || name == "auto") && !j.NProc.Known:
		j.Sharding.Unknown("strategy auto depends on the number of devices, which is not known")
	case (name == "" || name == "auto") && one, name == "SingleDeviceStrategy":
		j.Sharding.Offer("none", origin+": one device")
	case name == "" || name == "auto" || strings.HasPrefix(name, "ddp") || name == "DDPStrategy":
		j.Sharding.Offer(map[bool]string{true: "none", false: "ddp"}[one], origin)
		j.BucketView.take(a.flag(false, "gradient_as_bucket_view"))
	case name == "FSDPStrategy":
		r.lightningFSDP(a, origin)
	case name == "DeepSpeedStrategy":
		r.lightningDeepSpeed(a, origin)
	case name == "ModelParallelStrategy":
		r.lightningModelParallel(a, origin)
	default:
		r.lostSharding(origin + ": the strategy " + name + " is not known here; give --sharding")
	}
}

// lightningFSDP: without a wrap policy the whole model is one unit, unless the module wraps its parts itself.
func (r *reader) lightningFSDP(a *configuration, origin string) {
	j := r.job
	word := a.word("FULL_SHARD", "sharding_strategy")
	key := strings.ToLower(strings.TrimPrefix(word.Value[strings.LastIndexByte(word.Value, '.')+1:], "_"))
	if name := fsdpStrategies()[key]; name != "" {
		j.Sharding.Offer(name, origin+", "+word.Origin)
	} else {
		r.fail("ValueError: "+word.Value+" is not a valid ShardingStrategy", word.Origin)
		j.Sharding.Unknown(word.Origin + " is not a strategy of FSDP")
	}
	j.FSDPVersion.Offer(1, "FSDPStrategy is FSDP 1")
	if form := a.word("full", "state_dict_type"); form.Known {
		r.stateDictWord(sourced{form.Value, form.Origin})
	}
	if policy := a.find("auto_wrap_policy"); policy != nil {
		j.FSDPWrap.Offer("layers", policy.Origin())
	} else {
		j.FSDPWrap.Offer("whole", a.fallback+": no auto_wrap_policy (unless configure_model wraps the parts itself)")
	}
	if policy := a.find("activation_checkpointing_policy", "activation_checkpointing"); policy != nil {
		j.Checkpointing.Offer("full", policy.Origin())
	}
	if cpu := a.find("cpu_offload"); cpu != nil {
		if _, object := cpu.Fields(); object || r.nodeBool(cpu, false) {
			j.Offload.Offer(Offload{Optimizer: "cpu", Params: "cpu"}, cpu.Origin())
		}
	}
}

// lightningZeRO are Lightning's own defaults for the zero_optimization section (strategies/deepspeed.py,
// DeepSpeedStrategy.__init__); they differ from DeepSpeed's.
const lightningZeRO = `{zero_optimization: {stage: 2, sub_group_size: 1000000000000, contiguous_gradients: true, overlap_comm: true,
	allgather_bucket_size: 200000000, reduce_bucket_size: 200000000}}`

// lightningDeepSpeed makes the configuration that DeepSpeedStrategy makes of its arguments, or reads the file that it
// names.
func (r *reader) lightningDeepSpeed(a *configuration, origin string) {
	doc, err := document.Scalar(lightningZeRO, "", a.fallback)
	if err != nil {
		r.unread(err)
		return
	}
	d := &deepspeedFile{doc: doc, file: origin, origin: origin, master: true}
	if file := a.find("config"); file != nil {
		if text, ok := file.Value.(string); ok {
			if file = r.loadDocument(text); file == nil {
				r.lostSharding("the DeepSpeed configuration could not be read")
				return
			}
			d.file = text
		}
		d.doc = file
	} else {
		for _, key := range []string{"stage", "sub_group_size", "contiguous_gradients", "overlap_comm",
			"allgather_bucket_size", "reduce_bucket_size"} {
			if n := a.find(key); n != nil {
				if err := document.Put(doc, "zero_optimization."+key, n); err != nil {
					r.unread(err)
				}
			}
		}
		for _, o := range []struct{ flag, device, section string }{
			{"offload_optimizer", "offload_optimizer_device", "offload_optimizer"},
			{"offload_parameters", "offload_params_device", "offload_param"},
		} {
			if on := a.flag(false, o.flag); on.Value {
				device := a.word("cpu", o.device)
				if err := document.Set(doc, fmt.Sprintf("zero_optimization.%s.device", o.section), device.Or("cpu"),
					on.Origin); err != nil {
					r.unread(err)
				}
			}
		}
	}
	r.deepspeed = d
	r.readStage(d)
	r.readDeepSpeedOptimizer(d)
}

// lightningModelParallel: FSDP 2 and tensor parallelism as the module's configure_model applies them; auto puts data
// parallelism across nodes and tensor parallelism inside one (strategies/model_parallel.py).
func (r *reader) lightningModelParallel(a *configuration, origin string) {
	j := r.job
	world := product(j.NProc.Or(0), j.NNodes.Or(0))
	size := func(key string, auto Setting[int]) Setting[int] {
		if n := a.find(key); n != nil && !n.Auto() {
			return a.size(1, key)
		}
		return auto
	}
	j.TP.take(size("tensor_parallel_size",
		Setting[int]{Value: j.NProc.Value, Known: j.NProc.Known, Origin: a.fallback + ": auto, the devices of a node"}))
	data := size("data_parallel_size",
		Setting[int]{Value: j.NNodes.Value, Known: j.NNodes.Known, Origin: a.fallback + ": auto, the nodes"})
	if world > 0 && data.Known && j.TP.Known && product(data.Value, j.TP.Value) != world {
		r.fail(fmt.Sprintf("RuntimeError: data_parallel_size %d times tensor_parallel_size %d is not the number of "+
			"processes, %d", data.Value, j.TP.Value, world), origin)
	}
	j.Sharding.Offer(shardingName(data.Or(1), 1, true),
		origin+": as configure_model applies it, data_parallel_size "+data.Origin)
	j.FSDPVersion.Offer(2, "ModelParallelStrategy shards with fully_shard")
}
