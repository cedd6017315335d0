package job

import (
	"strconv"
	"strings"

	"oomguard/preflight/job/shell"
	"oomguard/preflight/optim"
)

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
