package job

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"oomguard/preflight/optim"
)

// Megatron-LM, whose training programs (pretrain_gpt.py and those made after it) take everything on the command line
// (megatron/training/arguments.py of core_v0.13.1; options of later releases are named where they are read).

// recogniseMegatron judges by the program, pretrain_gpt.py and those made after it, and by options of Megatron-LM:
// frameworks that train through it take the same options in programs of their own, which give them another meaning.
func recogniseMegatron(r *reader) (family, bool) {
	given := func(option string) bool {
		return slices.ContainsFunc(r.job.ScriptArgs, func(word string) bool {
			name, _, _ := strings.Cut(word, "=")
			return name == option
		})
	}
	count := 0
	for _, option := range []string{"--num-layers", "--hidden-size", "--num-attention-heads", "--micro-batch-size",
		"--tensor-model-parallel-size"} {
		if given(option) {
			count++
		}
	}
	base := strings.TrimSuffix(filepath.Base(r.job.Script.Value), ".py")
	enough := count > 0 || given("--use-checkpoint-args") || given("--yaml-cfg")
	if t := r.scriptText(); t != nil && !t.requires("megatron") || !strings.HasPrefix(base, "pretrain_") || !enough {
		return family{}, false
	}
	task := "pretrain"
	if strings.Contains(base, "finetune") || strings.Contains(base, "sft") || given("--sft") {
		task = "sft"
	} else if given("--perform-rl-step") {
		task = "grpo"
	}
	return family{framework: "megatron", task: task, origin: "arguments of Megatron-LM"}, true
}

// readMegatron reads all that the model's sizes and the number of processes are not needed for.
func (r *reader) readMegatron() {
	m := r.megatronArguments()
	if m == nil {
		r.lost("the file of --yaml-cfg could not be read")
		return
	}
	r.own = m
	j := r.job
	for name, set := range map[string]*Setting[int]{
		"tensor_model_parallel_size": &j.TP, "pipeline_model_parallel_size": &j.PP, "context_parallel_size": &j.CP,
		"expert_model_parallel_size": &j.EP,
	} {
		set.take(m.degree(name))
	}
	j.MicroBatch.take(m.required("micro_batch_size"))
	j.SeqLen.take(firstGiven(m, "seq_length", "encoder_seq_length"))
	j.Packing.Offer(r.family.task == "pretrain",
		map[bool]string{true: "Megatron-LM cuts its text into full rows",
			false: "not pretraining"}[r.family.task == "pretrain"])
	if iterations := m.size("eval_iters", 100); iterations.Known && iterations.Value == 0 {
		j.EvalBatch.Offer(0, iterations.Origin)
	} else if j.MicroBatch.Known {
		j.EvalBatch.Offer(j.MicroBatch.Value, "Megatron-LM evaluates with the micro-batch of training")
	}
	j.OptimizerInBackward.Offer(false, "Megatron-LM steps after the backward pass")
	j.Method.Offer("full", "Megatron-LM has no adapters")
	j.RefModel.Offer(false, "Megatron-LM trains one model")
	j.InferenceShare.Offer(0, "Megatron-LM has no inference engine beside the training")
	m.precision()
	m.gradients()
	m.optimizer()
	m.sharding()
	m.schedule()
	m.recomputation()
	m.kernels()
	r.megatronModel()
}

// firstGiven is the first of several names that has a value; all are needed by Megatron-LM.
func firstGiven(m *megatron, names ...string) Setting[int] {
	for _, name := range names {
		if _, ok := m.args[name]; ok {
			return m.required(name)
		}
	}
	return m.required(names[0])
}

// precision: parameters have the dtype of --bf16 or --fp16; the optimizer keeps an fp32 copy of them
// (megatron/core/optimizer).
func (m *megatron) precision() {
	j := m.r.job
	bf16, fp16 := m.flag("bf16"), m.flag("fp16")
	if !bf16.Known || !fp16.Known {
		why := bf16.Origin
		if bf16.Known {
			why = fp16.Origin
		}
		for _, f := range []fact{&j.Precision, &j.ParamDtype, &j.MasterFP32} {
			f.Unknown(why)
		}
		return
	}
	dtype, origin := "fp32", "default of Megatron-LM: neither --bf16 nor --fp16"
	switch {
	case bf16.Value && fp16.Value:
		m.r.fail("AssertionError: --fp16 and --bf16 exclude each other", fp16.Origin)
	case bf16.Value:
		dtype, origin = "bf16", bf16.Origin
	case fp16.Value:
		dtype, origin = "fp16", fp16.Origin
	}
	j.ParamDtype.Offer(dtype, origin)
	j.MasterFP32.Offer(dtype != "fp32",
		map[bool]string{true: "Megatron-LM keeps an fp32 copy of half-precision weights",
			false: "the weights themselves are fp32"}[dtype != "fp32"])
	switch fp8, fp4 := m.word("fp8_format", ""), m.word("fp4_format", ""); {
	case fp8.Known && fp8.Value != "":
		j.Precision.Offer("fp8", fp8.Origin)
	case fp4.Known && fp4.Value != "":
		j.Precision.Offer("fp4", fp4.Origin)
	case !fp8.Known:
		j.Precision.Unknown(fp8.Origin)
	default:
		j.Precision.Offer(dtype, origin)
	}
}

func (m *megatron) optimizer() {
	j := m.r.job
	name := m.word("optimizer", "adam")
	if name.Known {
		m.r.megatronOptimizer(name, m.word("sgd_momentum", "0.9").Value)
	}
	j.Optimizer.Unknown(name.Origin)
	offload := Offload{Optimizer: "none", Params: "none"}
	switch cpu := m.flag("optimizer_cpu_offload"); {
	case !cpu.Known:
		j.Offload.Unknown(cpu.Origin)
	case cpu.Value:
		offload.Optimizer = "cpu"
		origin := cpu.Origin
		if fraction := m.word("optimizer_offload_fraction", "1.0"); fraction.Value != "1.0" && fraction.Value != "1" {
			origin += ", " + fraction.Value + " of it (" + fraction.Origin + ")"
		}
		j.Offload.Offer(offload, origin)
	default:
		j.Offload.Offer(offload, "default of Megatron-LM")
	}
}

func (r *reader) megatronOptimizer(name Setting[string], momentum string) {
	o, known := r.namedOptimizer(name.Value, name.Origin, optim.Megatron)
	if !known {
		return
	}
	if momentum != "0" && momentum != "0.0" {
		o = o.In(optim.Momentum)
	}
	r.job.Optimizer.Offer(o.Name, name.Origin)
}

// sharding: what is spread over the data-parallel ranks. Megatron-LM's own FSDP was called custom FSDP until 0.13.
func (m *megatron) sharding() {
	j := m.r.job
	for _, name := range []string{"use_megatron_fsdp", "use_custom_fsdp"} {
		if fsdp := m.flag(name); fsdp.Value {
			strategy := m.fsdpStrategy(name)
			words := map[string]string{"no_shard": "ddp", "optim": "dist-optim", "optim_grads": "fsdp-grad",
				"optim_grads_params": "fsdp-full"}
			if word := words[strategy.Value]; word != "" {
				j.Sharding.Offer(word, strategy.Origin+" with "+fsdp.Origin)
			}
			j.Sharding.Unknown(strategy.Origin)
			return
		}
	}
	if fsdp := m.flag("use_torch_fsdp2"); fsdp.Value {
		j.Sharding.Offer("fsdp-full", fsdp.Origin)
		j.FSDPVersion.Offer(2, fsdp.Origin)
		j.FSDPWrap.Offer("layers", "Megatron-LM wraps each layer")
		return
	}
	if m.flag("deepspeed").Value {
		switch stage := m.deepspeedStage(); {
		case !stage.Known || stage.Value > 3:
			j.Sharding.Unknown(stage.Origin)
		case stage.Value > 0:
			j.Sharding.Offer(fmt.Sprint("zero", stage.Value), stage.Origin)
		default:
			m.unsharded = true
		}
		return
	}
	switch distributed := m.flag("use_distributed_optimizer"); {
	case !distributed.Known:
		j.Sharding.Unknown(distributed.Origin)
	case distributed.Value:
		j.Sharding.Offer("dist-optim", distributed.Origin)
	default:
		m.unsharded = true // none or ddp, by the number of replicas
	}
}

// fsdpStrategy is what Megatron-LM's own FSDP shards: nothing unless told until core 0.17, everything since 0.18.
func (m *megatron) fsdpStrategy(option string) Setting[string] {
	const strategy = "data_parallel_sharding_strategy"
	later, known := m.r.atLeast("megatron-core", 0, 18)
	switch {
	case m.given(strategy), m.open != "", !later && known, option == "use_custom_fsdp":
		return m.word(strategy, "no_shard")
	case later:
		return m.word(strategy, "optim_grads_params")
	}
	return Setting[string]{Origin: "without --data-parallel-sharding-strategy nothing is sharded until " +
		"megatron-core 0.17 and all is since 0.18, and the version is not known; give --versions megatron-core=... " +
		"or --sharding"}
}

// deepspeedStage: the Megatron-LM that is built on DeepSpeed takes the stage of ZeRO from DeepSpeed's file;
// --zero-stage says the same to the program, and is 1 unless given (Megatron-DeepSpeed, megatron/arguments.py).
func (m *megatron) deepspeedStage() Setting[int] {
	stage := m.size("zero_stage", 1)
	file := m.word("deepspeed_config", "")
	if file.Value == "" {
		return stage
	}
	doc := m.r.loadDocument(file.Value)
	if doc == nil {
		return Setting[int]{Origin: file.Value + " could not be read"}
	}
	c := &configuration{r: m.r, doc: doc, fallback: "default of DeepSpeed"}
	return c.number(0, "zero_optimization.stage")
}

// recomputation: which activations are made anew in the backward pass.
func (m *megatron) recomputation() {
	j := m.r.job
	offload := m.size("cpu_offloading_num_layers", 0)
	fine := m.flag("fine_grained_activation_offloading")
	switch {
	case fine.Value:
		j.ActivationOffload.Offer(true, fine.Origin)
	case offload.Known && fine.Known:
		j.ActivationOffload.Offer(offload.Value > 0, offload.Origin)
	default:
		j.ActivationOffload.Unknown(offload.Origin)
	}
	granularity := m.word("recompute_granularity", "")
	// Megatron-DeepSpeed kept the older option
	if old := m.flag("checkpoint_activations"); old.Value && m.flag("deepspeed").Value {
		j.Checkpointing.Offer("full", old.Origin)
	}
	if short := m.flag("recompute_activations"); short.Value {
		granularity = Setting[string]{Value: "selective", Known: true, Origin: short.Origin}
	} else if experts := m.flag("moe_layer_recompute"); experts.Value && granularity.Value == "" {
		granularity = Setting[string]{Value: "selective", Known: true, Origin: experts.Origin}
	}
	switch {
	case !granularity.Known:
		j.Checkpointing.Unknown(granularity.Origin)
	case granularity.Value == "":
		j.Checkpointing.Offer("none", granularity.Origin)
	case granularity.Value == "full":
		m.fullRecomputation(granularity.Origin)
	default:
		j.Checkpointing.Offer(granularity.Value, granularity.Origin)
	}
}

// fullRecomputation: by chunks of layers (uniform), or of the first layers of each pipeline stage alone (block). The
// latter is told as every so-manieth layer, rounded to the side that needs more memory.
func (m *megatron) fullRecomputation(origin string) {
	j := m.r.job
	method, number := m.word("recompute_method", ""), m.size("recompute_num_layers", 0)
	layers, stages := m.size("num_layers", 0), j.PP
	switch {
	case !method.Known || !number.Known:
		j.Checkpointing.Unknown(origin + ", but how many layers is not known")
	case method.Value == "" || number.Value == 0:
		m.r.fail("ValueError: full recomputation needs --recompute-method and --recompute-num-layers", origin)
		j.Checkpointing.Offer("full", origin)
	case method.Value == "block" && (!layers.Known || !stages.Known || layers.Value == 0):
		j.Checkpointing.Unknown(origin + " of blocks, and the number of layers is not known")
	case method.Value == "block" && number.Value < max(layers.Value/stages.Value, 1):
		perStage := layers.Value / stages.Value
		every := (perStage + number.Value - 1) / number.Value
		j.Checkpointing.Offer(fmt.Sprintf("selective:%d", every),
			fmt.Sprintf("%s: the first %d of the %d layers of a pipeline stage", number.Origin, number.Value, perStage))
	default:
		j.Checkpointing.Offer("full", origin)
	}
}

// kernels: attention and loss.
func (m *megatron) kernels() {
	j := m.r.job
	backend := m.word("attention_backend", "")
	flash := m.flag("use_flash_attn")
	local := m.word("transformer_impl", "transformer_engine")
	switch {
	case !backend.Known:
		j.Attention.Unknown(backend.Origin)
	case backend.Value != "" && backend.Value != "auto":
		j.Attention.Offer(backend.Value, backend.Origin)
	case flash.Value:
		j.Attention.Offer("flash", flash.Origin)
	case local.Value == "local":
		j.Attention.Offer("unfused", local.Origin+": the local implementation, without --use-flash-attn")
	default:
		j.Attention.Offer("fused", "default of Megatron-LM: Transformer Engine takes a fused kernel or FlashAttention")
	}
	fusion, kind := m.flag("cross_entropy_loss_fusion"), m.word("cross_entropy_fusion_impl", "native")
	switch {
	case !fusion.Known:
		j.FusedLoss.Unknown(fusion.Origin)
	case fusion.Value && !kind.Known:
		j.FusedLoss.Unknown(kind.Origin)
	case !fusion.Value:
		j.FusedLoss.Offer("none", fusion.Origin)
	default:
		j.FusedLoss.Offer(map[bool]string{true: "te", false: "native-fused"}[kind.Value == "te"], fusion.Origin)
	}
}

// megatronDefaults decides what follows from the number of processes, and builds the model.
func (r *reader) megatronDefaults() {
	m := megatronOf(r)
	if m == nil {
		return
	}
	m.batch()
	m.refusals()
	m.refuseBatch()
}

// replicas is the data-parallel size; 0 when it is not known or the sizes do not divide.
func (m *megatron) replicas() int {
	j := m.r.job
	world, shard := product(j.NNodes.Or(0), j.NProc.Or(0)), product(j.TP.Or(0), j.PP.Or(0), j.CP.Or(0))
	if world == 0 || shard == 0 || world%shard != 0 {
		return 0
	}
	return world / shard
}

// batch derives the number of micro-batches: global batch / (micro-batch x data-parallel size).
func (m *megatron) batch() {
	j := m.r.job
	replicas := m.replicas()
	if m.unsharded && replicas > 0 {
		j.Sharding.Offer(map[bool]string{true: "none", false: "ddp"}[replicas == 1],
			"default of Megatron-LM: no --use-distributed-optimizer")
	}
	global := m.size("global_batch_size", 0)
	switch each := product(j.MicroBatch.Or(0), replicas); {
	case !global.Known:
		j.GlobalBatch.Unknown(global.Origin)
		j.GradAccum.Unknown(global.Origin)
	case global.Value == 0:
		j.GradAccum.Offer(1, "default of Megatron-LM: --global-batch-size is micro-batch x replicas")
	case each == 0:
		j.GlobalBatch.Offer(global.Value, global.Origin)
		j.GradAccum.Unknown("global batch / (micro-batch x replicas), which are not known")
	case global.Value%each != 0:
		j.GlobalBatch.Offer(global.Value, global.Origin)
		j.GradAccum.Unknown("the batch sizes contradict each other")
	default:
		j.GlobalBatch.Offer(global.Value, global.Origin)
		j.GradAccum.Offer(global.Value/each,
			fmt.Sprintf("global batch %d / (micro-batch %d x %d replicas)", global.Value, j.MicroBatch.Value, replicas))
	}
}
