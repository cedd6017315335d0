package job

import (
	"fmt"
	"strconv"
	"strings"

	"oomguard/preflight/job/shell"
	"oomguard/preflight/optim"
)

// adapterParts collects what is said of LoRA until all sources have spoken.
type adapterParts struct {
	use           Setting[bool]
	r, alpha      Setting[int]
	dropout       Setting[float64]
	targets, save Setting[[]string]
	kind          Setting[string] // PEFT's task_type
	dora, rslora  bool
	bias          string         // which biases are trained too: all, lora_only; "": none
	ranks         map[string]int // of modules whose rank is not r
	lost          string         // why nobody knows what is trained: the adapter's file could not be read
}

// sequenceArguments are the names under which scripts take the length of a row, strongest first.
func sequenceArguments() []string {
	return []string{"block_size", "max_seq_length", "max_length", "model_max_length", "max_seq_len", "seq_len",
		"seq_length", "cutoff_len"}
}

// readTrainingArguments turns the script's arguments into settings, each on its own; what depends on several is decided
// later.
func (r *reader) readTrainingArguments() {
	j := r.job
	r.readMicroBatch()
	r.integer("gradient_accumulation_steps", &j.GradAccum)
	for _, name := range sequenceArguments() {
		r.integer(name, &j.SeqLen)
	}
	r.readCheckpointing()
	if on, given := r.boolean("packing"); given {
		j.Packing.Offer(on, r.args["packing"].origin)
	}
	if r.family.packs && !r.on("line_by_line") {
		j.Packing.Offer(true, r.family.origin+" and cuts its text into full rows")
	}
	if r.family.pads {
		j.Packing.Offer(false, r.family.origin+" and pads each row")
	}
	if on, given := r.boolean("activation_offloading"); given {
		j.ActivationOffload.Offer(on, r.args["activation_offloading"].origin)
	}
	if a := r.args["attn_implementation"]; a.text != "" {
		j.Attention.Offer(a.text, a.origin)
	}
	// of the first alignment-handbook, and scripts like it
	for _, name := range []string{"use_flash_attention_2", "flash_attention_2"} {
		if r.on(name) {
			j.Attention.Offer("flash_attention_2", r.args[name].origin)
		}
	}
	r.readLoss()
	if on, given := r.boolean("predict_with_generate"); given {
		j.EvalGenerates.Offer(on, r.args["predict_with_generate"].origin)
	}
	r.readOptimizer()
	r.readAdapter()
	r.readQuantisation()
}

// readMicroBatch: with split_batches the number is that of all ranks together (accelerate, data_loader.py).
func (r *reader) readMicroBatch() {
	whole := &r.job.MicroBatch
	split := r.dictionary("accelerator_config").Get("split_batches")
	if !r.family.huggingFace() || !r.nodeBool(split, false) {
		r.integer("per_device_train_batch_size", whole)
		r.integer("per_gpu_train_batch_size", whole)
		return
	}
	var all Setting[int]
	r.integer("per_device_train_batch_size", &all)
	all.Offer(trainerMicroBatch, "default of "+r.installed("transformers"))
	world := product(r.job.NNodes.Or(0), r.job.NProc.Or(0))
	switch {
	case world == 0:
		whole.Unknown(split.Origin() + " spreads the batch over the ranks, whose number is not known")
	case all.Value%world != 0:
		r.contradiction(split, "split_batches spreads %d rows over %d processes, which does not come out even, and "+
			"accelerate refuses that; change --per_device_train_batch_size", all.Value, world)
	default:
		whole.Offer(all.Value/world, all.Origin+" over the ranks: "+split.Origin())
	}
}

// readCheckpointing: transformers 5.2x calls gradient_checkpointing activation_checkpointing, and can checkpoint every
// N-th layer or keep what is saved on the host (training_args.py).
func (r *reader) readCheckpointing() {
	for _, name := range []string{"activation_checkpointing", "gradient_checkpointing"} {
		options := r.dictionary(name + "_kwargs")
		if n := options.Get("use_reentrant"); n != nil {
			r.job.Reentrant.Offer(r.nodeBool(n, true), n.Origin())
		}
		on, given := r.boolean(name)
		if !given {
			continue
		}
		value, origin := map[bool]string{true: "full", false: "none"}[on], r.args[name].origin
		if n := options.Get("every_n_layers"); on && n != nil {
			if every, err := n.Integer(); err == nil && every > 1 {
				value, origin = fmt.Sprintf("selective:%d", every), n.Origin()
			}
		}
		if n := options.Get("offload"); on && r.nodeBool(n, false) {
			value, origin = "offload", n.Origin()
			r.job.ActivationOffload.Offer(true, origin)
		}
		r.job.Checkpointing.Offer(value, origin)
	}
}

// readLoss: a loss that never holds whole logits. Liger's fused kernel can be switched off on its own
// (liger_kernel_config); TRL's SFTTrainer has losses of its own.
func (r *reader) readLoss() {
	j := r.job
	for _, name := range []string{"use_liger_kernel", "use_liger", "use_liger_loss"} {
		if !r.on(name) {
			continue
		}
		if n := r.dictionary("liger_kernel_config").Get("fused_linear_cross_entropy"); n != nil &&
			!r.nodeBool(n, true) {
			j.FusedLoss.Offer("none", n.Origin())
		}
		if name == "use_liger_kernel" && r.wantsLogits() {
			j.FusedLoss.Offer("none", r.args[name].origin+": the trainer computes its loss from logits")
		}
		j.FusedLoss.Offer("liger-flce", r.args[name].origin)
		r.ligerLayers(name)
	}
	if a := r.args["loss_type"]; a.text != "" && r.family.program == "sft" {
		j.FusedLoss.Offer(map[bool]string{true: "chunked", false: "none"}[a.text == "chunked_nll"], a.origin)
	}
}

// wantsLogits: TRL's losses of preferences and rewards take no part in Liger's fused one, which use_liger_loss replaced
// until use_liger_kernel did both.
func (r *reader) wantsLogits() bool {
	if r.family.framework != "trl" || r.on("use_liger_loss") {
		return false
	}
	for _, field := range trlRemoved()[r.family.program] {
		if field.name == "use_liger_loss" {
			both, known := r.atLeast("trl", numbers(field.since)...)
			return known && !both
		}
	}
	return false
}

// ligerLayers: Liger's switch replaces the kernels of the layers too, as liger_kernel_config says
// (transformers/integrations/liger.py); that of TRL's losses is for the loss alone.
func (r *reader) ligerLayers(name string) {
	if name == "use_liger_loss" {
		return
	}
	config := r.dictionary("liger_kernel_config")
	on := func(key string) bool {
		n := config.Get(key)
		return n == nil || r.nodeBool(n, true)
	}
	r.job.LayerKernels.Offer(ligerKernels(on("rope"), on("rms_norm"), on("swiglu") && on("geglu")), r.args[name].origin)
}

// ligerKernels is the word for what Liger replaces in the layers.
func ligerKernels(rope, norm, glu bool) string {
	var names []string
	for _, k := range []struct {
		name string
		on   bool
	}{{"rope", rope}, {"rms_norm", norm}, {"glu", glu}} {
		if k.on {
			names = append(names, k.name)
		}
	}
	switch len(names) {
	case 0:
		return "none"
	case 3:
		return "liger"
	}
	return "liger:" + strings.Join(names, "+")
}

func (r *reader) readOptimizer() {
	if r.on("adafactor") {
		r.job.Optimizer.Offer("adafactor", r.args["adafactor"].origin)
	}
	r.readProjectionRank()
	a := r.args["optim"]
	if a.text == "" {
		return
	}
	// The layerwise forms step each layer in the backward pass and free its gradient.
	name, layerwise := strings.CutSuffix(strings.ToLower(a.text), optim.Layerwise)
	vocabularies := []optim.Vocabulary{optim.Trainer, optim.Ours}
	if r.family.framework == "axolotl" {
		vocabularies = append(vocabularies, optim.Axolotl)
	}
	o, known := r.namedOptimizer(name, a.origin, vocabularies...)
	if !known {
		return
	}
	if layerwise {
		r.job.OptimizerInBackward.Offer(true, a.origin+" "+a.text)
	}
	if momentum := optimArgument(r.args["optim_args"], "momentum"); momentum != "" && momentum != "0" &&
		momentum != "0.0" {
		o = o.In(optim.Momentum)
	}
	r.job.Optimizer.Offer(o.Name, a.origin)
}

// readProjectionRank reads rank=N of optim_args, or LLaMA-Factory's own options.
func (r *reader) readProjectionRank() {
	set, arguments := &r.job.ProjectionRank, r.args["optim_args"]
	if why, unknown := shell.Unknown(arguments.text); unknown {
		set.Withhold(why)
	}
	if text := optimArgument(arguments, "rank"); text != "" {
		if rank, err := pythonInt(text); err == nil && rank > 0 {
			set.Offer(rank, arguments.origin)
		} else {
			r.wrongArgument(arguments, "rank= and a whole number from 1")
		}
	}
	for _, name := range []string{"galore", "apollo"} {
		if r.on("use_" + name) {
			r.integer(name+"_rank", set)
			set.Offer(16, "default of LLaMA-Factory") // hparams/finetuning_args.py
		}
	}
}

// optimArgument finds one value in optim_args: "rank=128,momentum=0.9", or a mapping in a file.
func optimArgument(a argument, key string) string {
	if a.node != nil {
		if fields, mapping := a.node.Fields(); mapping {
			if fields[key] == nil {
				return ""
			}
			text, _ := fields[key].Text() // "" for a list
			return text
		}
	}
	for _, pair := range splitList(a.text) {
		if name, value, _ := strings.Cut(pair, "="); name == key {
			return value
		}
	}
	return ""
}

// readAdapter reads the arguments of TRL's ModelConfig, whose names most scripts with LoRA share.
func (r *reader) readAdapter() {
	p := &r.adapter
	if on, given := r.boolean("use_peft"); given {
		p.use.Offer(on, r.args["use_peft"].origin)
	}
	r.integer("lora_r", &p.r)
	r.integer("lora_alpha", &p.alpha)
	if a, given := r.args["lora_dropout"]; given {
		if dropout, err := strconv.ParseFloat(a.text, 64); err == nil && dropout >= 0 && dropout < 1 {
			p.dropout.Offer(dropout, a.origin)
		} else {
			r.wrongArgument(a, "a number from 0 up to 1")
		}
	}
	if a := r.args["lora_target_modules"]; len(a.list) > 0 {
		p.targets.Offer(a.list, a.origin)
	}
	if a := r.args["lora_modules_to_save"]; len(a.list) > 0 {
		p.save.Offer(a.list, a.origin)
	}
	if a := r.args["lora_task_type"]; a.text != "" {
		p.kind.Offer(a.text, a.origin)
	}
	p.dora, p.rslora = p.dora || r.on("use_dora"), p.rslora || r.on("use_rslora")
}

// readQuantisation reads load_in_4bit and load_in_8bit. TRL's ModelConfig defaults to nf4 without nested scales and
// computes in the dtype of loading; another script's defaults are its own, so its type stays open.
func (r *reader) readQuantisation() {
	switch {
	case r.on("load_in_4bit"):
		q := &Quant{Method: "bnb", Bits: 4, Type: r.args["bnb_4bit_quant_type"].text,
			Double: r.on("use_bnb_nested_quant"), Storage: "uint8"}
		if q.Type == "" && r.family.framework == "trl" {
			q.Type = "nf4"
		}
		if storage := r.args["bnb_4bit_quant_storage"].text; storage != "" {
			q.Storage = storageName(storage)
		}
		r.job.Quant.Offer(q, r.args["load_in_4bit"].origin)
	case r.on("load_in_8bit"):
		r.job.Quant.Offer(&Quant{Method: "bnb", Bits: 8, Type: "int8"}, r.args["load_in_8bit"].origin)
	}
}

// storageName is dtypeName for how quantised weights are stored, which may also be integers: uint8.
func storageName(word string) string {
	if dtype := dtypeName(word); dtype != "" {
		return dtype
	}
	return strings.TrimPrefix(word, "torch.")
}

// dtypeName turns PyTorch's names into the job vocabulary; "" for a word that is none.
func dtypeName(word string) string {
	switch strings.TrimPrefix(strings.ToLower(word), "torch.") {
	case "bfloat16", "bf16":
		return "bf16"
	case "float16", "fp16", "half":
		return "fp16"
	case "float32", "fp32", "float":
		return "fp32"
	}
	return ""
}

// autoDtype in reader.load stands for the dtype of the checkpoint, until the model is read.
const autoDtype = "auto"

// readPrecision decides compute precision and the dtype of trained weights as far as arguments and files decide them.
func (r *reader) readPrecision() {
	j := r.job
	for _, name := range []string{"torch_dtype", "dtype"} {
		a, given := r.args[name]
		// A script of its own may mean autocast by --dtype.
		if !given || name == "dtype" && !r.family.huggingFace() {
			continue
		}
		if a.text == autoDtype {
			r.load.Offer(autoDtype, a.origin)
		} else if dtype := dtypeName(a.text); dtype != "" {
			r.load.Offer(dtype, a.origin)
		} else {
			r.wrongArgument(a, "bfloat16, float16, float32 or auto")
		}
	}
	if r.shardingLost != "" {
		return
	}
	if d := r.deepspeed; d != nil {
		if d.open {
			why := d.file + " leaves bf16 or fp16 to the script (\"auto\"); give --precision"
			for _, f := range []fact{&j.Precision, &j.ParamDtype, &j.MasterFP32} {
				f.Unknown(why)
			}
			return
		}
		if d.half != "" { // DeepSpeed casts the model whatever dtype it was loaded in
			j.Precision.Offer(d.half, d.origin)
			j.ParamDtype.Offer(d.half, d.origin)
			j.MasterFP32.Offer(d.master, d.origin+": DeepSpeed keeps an fp32 copy of half-precision weights")
			j.Autocast.Offer(false, d.origin+": DeepSpeed computes in the dtype of the weights")
			return
		}
		j.MasterFP32.Offer(false, d.file+": neither bf16 nor fp16 is enabled")
		return
	}
	mixed, origin := r.autocast()
	if mixed == "" {
		return
	}
	j.Precision.Offer(mixed, origin)
	r.offerAutocast(mixed, origin)
	if (r.family.framework == "custom" || r.family.foreign) && r.deepspeed == nil && !r.fsdp {
		j.MasterFP32.Offer(false, "autocast keeps no second copy of the weights")
	}
	if zero := j.Sharding; zero.Known && strings.HasPrefix(zero.Value, "zero") && r.family.huggingFace() {
		j.ParamDtype.Offer(mixed, origin+" under DeepSpeed ("+zero.Origin+")")
		j.MasterFP32.Offer(true, "DeepSpeed keeps an fp32 copy of half-precision weights ("+zero.Origin+")")
	}
	if r.fsdp || j.Sharding.Known && strings.HasPrefix(j.Sharding.Value, "fsdp") && r.family.huggingFace() {
		j.ParamDtype.Offer("fp32", "accelerate keeps trained weights in fp32 under FSDP with mixed precision")
		j.MasterFP32.Offer(false, "the weights themselves are fp32")
	}
}

// autocast is what --bf16 and --fp16 ask for, or the variable that TrainingArguments reads in their place.
func (r *reader) autocast() (dtype, origin string) {
	bf16, fp16 := r.on("bf16"), r.on("fp16")
	switch {
	case bf16 && fp16:
		return "", "" // Trainer refuses to start
	case bf16:
		return "bf16", r.args["bf16"].origin
	case fp16:
		return "fp16", r.args["fp16"].origin
	}
	const variable = "ACCELERATE_MIXED_PRECISION"
	if v := r.variable(variable); r.accelerated() && (v.text == "bf16" || v.text == "fp16" || v.text == "fp8") {
		return v.text, v.origin
	}
	return "", ""
}
