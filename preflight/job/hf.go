package job

import (
	"fmt"
	"strconv"
	"strings"
)

// adapterParts collects what is said of LoRA until all sources have spoken.
type adapterParts struct {
	use           Setting[bool]
	r, alpha      Setting[int]
	dropout       Setting[float64]
	targets, save Setting[[]string]
	dora, rslora  bool
	folder        bool // the model is an adapter's folder, which is not read yet
}

// sequenceArguments are the names under which scripts take the length of a row, strongest first.
func sequenceArguments() []string {
	return []string{"block_size", "max_seq_length", "max_length", "model_max_length", "max_seq_len"}
}

// readTrainingArguments turns the script's arguments into settings, each on its own; what depends on several is decided later.
func (r *reader) readTrainingArguments() {
	j := r.job
	r.integer("per_device_train_batch_size", &j.MicroBatch)
	r.integer("per_gpu_train_batch_size", &j.MicroBatch)
	r.integer("gradient_accumulation_steps", &j.GradAccum)
	for _, name := range sequenceArguments() {
		r.integer(name, &j.SeqLen)
	}
	if on, given := r.boolean("gradient_checkpointing"); given {
		j.Checkpointing.Offer(map[bool]string{true: "full", false: "none"}[on], r.args["gradient_checkpointing"].origin)
	}
	if on, given := r.boolean("packing"); given {
		j.Packing.Offer(on, r.args["packing"].origin)
	}
	if r.family.packs {
		j.Packing.Offer(true, r.family.origin+" and cuts its text into full rows")
	}
	if on, given := r.boolean("activation_offloading"); given {
		j.ActivationOffload.Offer(on, r.args["activation_offloading"].origin)
	}
	if a := r.args["attn_implementation"]; a.text != "" {
		j.Attention.Offer(a.text, a.origin)
	}
	for _, name := range []string{"use_liger_kernel", "use_liger"} {
		if r.on(name) {
			j.FusedLoss.Offer("liger-flce", r.args[name].origin)
		}
	}
	r.readOptimizer()
	r.readAdapter()
	r.readQuantisation()
}

// optimizerWords maps names of transformers' OptimizerNames to the job vocabulary where they differ. Names that are not listed
// keep theirs.
func optimizerWords() map[string]string {
	return map[string]string{
		"adamw_torch": "adamw", "adamw_torch_xla": "adamw",
		"adamw_torch_fused": "adamw_fused", "adamw_torch_npu_fused": "adamw_fused", "adamw_apex_fused": "adamw_fused",
		"adamw_hf":       "adamw_loop", // transformers' own AdamW went over the parameters one by one
		"adamw_bnb_8bit": "adamw_8bit", "adamw_torch_8bit": "adamw_8bit", "adamw_torch_4bit": "adamw_4bit",
		"paged_adamw_32bit": "paged_adamw", "lion_32bit": "lion", "paged_lion_32bit": "paged_lion",
		"rmsprop_bnb": "rmsprop", "rmsprop_bnb_8bit": "rmsprop_8bit", "rmsprop_bnb_32bit": "rmsprop",
	}
}

func (r *reader) readOptimizer() {
	if r.on("adafactor") {
		r.job.Optimizer.Offer("adafactor", r.args["adafactor"].origin)
	}
	a := r.args["optim"]
	if a.text == "" {
		return
	}
	name := strings.ToLower(a.text)
	if known, ok := optimizerWords()[name]; ok {
		name = known
	}
	if momentum := optimArgument(r.args["optim_args"].text, "momentum"); name == "sgd" && momentum != "" && momentum != "0" && momentum != "0.0" {
		name = "sgd_momentum"
	}
	r.job.Optimizer.Offer(name, a.origin)
}

// optimArgument finds one value in optim_args, "rank=128,momentum=0.9".
func optimArgument(text, key string) string {
	for _, pair := range splitList(text) {
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
	p.dora, p.rslora = r.on("use_dora"), r.on("use_rslora")
}

// readQuantisation reads load_in_4bit and load_in_8bit. TRL's ModelConfig defaults to nf4 without nested scales and computes in the
// dtype of loading; another script's defaults are its own, so its type stays open.
func (r *reader) readQuantisation() {
	switch {
	case r.on("load_in_4bit"):
		q := &Quant{Method: "bnb", Bits: 4, Type: r.args["bnb_4bit_quant_type"].text, Double: r.on("use_bnb_nested_quant"), Storage: "uint8"}
		if q.Type == "" && r.family.framework == "trl" {
			q.Type = "nf4"
		}
		if storage := r.args["bnb_4bit_quant_storage"].text; storage != "" {
			q.Storage = storage
		}
		r.job.Quant.Offer(q, r.args["load_in_4bit"].origin)
	case r.on("load_in_8bit"):
		r.job.Quant.Offer(&Quant{Method: "bnb", Bits: 8, Type: "int8"}, r.args["load_in_8bit"].origin)
	}
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
		if r.family.huggingFace() {
			r.fail("ValueError: At most one of fp16 and bf16 can be True, but not both", r.args["fp16"].origin)
			r.problem(fmt.Errorf("%s and %s contradict each other; keep one", r.args["bf16"].origin, r.args["fp16"].origin))
		}
		return "", ""
	case bf16:
		return "bf16", r.args["bf16"].origin
	case fp16:
		return "fp16", r.args["fp16"].origin
	}
	const variable = "ACCELERATE_MIXED_PRECISION"
	if word := r.getenv(variable); r.family.huggingFace() && (word == "bf16" || word == "fp16") {
		return word, "environment " + variable
	}
	return "", ""
}
