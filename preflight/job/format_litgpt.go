package job

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"oomguard/preflight/model"
)

// LitGPT (0.5: litgpt/finetune/*.py, litgpt/pretrain.py, litgpt/args.py): one function a command, whose arguments are
// read by jsonargparse.

func recogniseLitGPT(r *reader) (family, bool) {
	command := litgptScript(r.job.Script.Value)
	if command == "" || r.job.Launcher.Value != "litgpt" && command == r.job.Script.Value {
		return family{}, false
	}
	task := "sft"
	if command == "pretrain" {
		task = "pretrain"
	}
	return family{framework: "litgpt", task: task, origin: command + " is a command of LitGPT"}, true
}

func (r *reader) readLitGPTArguments() {
	j := r.job
	command := litgptScript(j.Script.Value)
	arguments := r.classArguments(j.ScriptArgs)
	if arguments.lost {
		if len(arguments.positional) > 0 { // stands above every file
			j.Model.Offer(arguments.positional[0], "command line")
		}
		r.lost("a configuration of LitGPT could not be read")
		return
	}
	c := &configuration{r: r, doc: arguments.doc, fallback: "default of " + r.installed("litgpt")}
	pretrain := command == "pretrain"
	devices := c.devices(map[bool]string{true: "auto", false: "1"}[pretrain], "devices")
	nodes := c.size(1, "num_nodes")
	r.startsProcesses(devices, nodes)
	ranks := product(j.NProc.Or(0), j.NNodes.Or(0))
	r.litgptModel(c, arguments.positional, pretrain)
	precision := r.litgptPrecision(c)
	r.litgptAdapter(c, command, precision, ranks)
	r.litgptBatch(c, pretrain, ranks)
	r.litgptSharding(command, ranks)
	r.litgptOptimizer(c, pretrain)
	j.MasterFP32.Offer(false, "LitGPT keeps no second copy of the weights")
	j.Attention.Offer("sdpa", "LitGPT's own models")
	j.FusedLoss.Offer("none", "LitGPT keeps the logits and takes the loss in chunks of 128 rows")
	j.ActivationOffload.Offer(false, "LitGPT does not offload activations")
	j.RefModel.Offer(false, "the command holds one model")
	j.InferenceShare.Offer(0, "the command has no inference engine")
	j.OptimizerInBackward.Offer(false, "LitGPT steps after the backward pass")
}

// litgptModel finds the model: a folder with model_config.yaml, or a name.
func (r *reader) litgptModel(c *configuration, positional []string, pretrain bool) {
	j := r.job
	name := c.word("", "checkpoint_dir")
	if pretrain {
		name = c.word("", "initial_checkpoint_dir", "model_name")
	}
	if name.Value == "" && len(positional) > 0 {
		name = Setting[string]{Value: positional[0], Known: true, Origin: "command line"}
	}
	own := j.Model.Known // --model
	switch {
	case own, !name.Known:
		return
	case name.Value == "":
		j.Model.Unknown("no model named")
		return
	}
	j.Model.Offer(name.Value, name.Origin)
	for _, folder := range []string{name.Value, filepath.Join("checkpoints", name.Value)} {
		if exists(r.path(folder), "config.json") {
			r.architectureIn(folder)
			return
		}
		if file := filepath.Join(folder, "model_config.yaml"); isFile(r.path(file)) {
			if doc := r.loadDocument(file); doc != nil {
				hub := &configuration{r: r, doc: doc, fallback: file}
				org, hubName := hub.word("", "hf_config.org"), hub.word("", "hf_config.name", "name")
				r.publicModel(litgptHubName(org.Value, hubName.Value), file)
			}
			return
		}
	}
	org, hubName := "", strings.TrimPrefix(filepath.ToSlash(filepath.Clean(name.Value)), "checkpoints/")
	if before, after, ok := strings.Cut(hubName, "/"); ok && !strings.Contains(after, "/") {
		org, hubName = before, after
	}
	r.publicModel(litgptHubName(org, hubName), name.Origin)
	if j.Architecture == nil {
		j.Model.Origin += " (neither config.json nor model_config.yaml is there)"
	}
}

// litgptHubName is the hub's name for LitGPT's; names without an organisation are looked for among those that LitGPT
// brings (litgpt/config.py).
func litgptHubName(org, name string) string {
	if org != "" || name == "" || strings.Contains(name, "/") {
		return strings.Trim(org+"/"+name, "/")
	}
	name = strings.Replace(name, "tiny-llama-1.1b", "TinyLlama-1.1B-intermediate-step-1431k-3T", 1)
	for _, org := range []string{"EleutherAI", "meta-llama", "mistralai", "google", "Qwen", "microsoft", "TinyLlama",
		"allenai", "HuggingFaceTB", "tiiuae", "stabilityai", "deepseek-ai"} {
		if a, err := model.Known(org + "/" + name); err == nil && a != nil {
			return org + "/" + name
		}
	}
	return ""
}

// litgptPrecision offers what the word of --precision says and returns it.
func (r *reader) litgptPrecision(c *configuration) Setting[string] {
	word := c.word("bf16-mixed", "precision")
	if c.find("precision") == nil {
		word.Origin += " on GPUs that have bf16"
	}
	weights, compute, known := lightningPrecision(word.Value)
	if word.Known && !known {
		r.fail("ValueError: Precision "+word.Value+" is invalid", word.Origin)
		return word
	}
	if word.Known {
		r.load.Offer(weights, word.Origin)
		r.job.ParamDtype.Offer(weights, word.Origin)
		r.job.Precision.Offer(compute, word.Origin)
	}
	return word
}

// litgptAdapter reads what is trained, and the quantisation of what is not.
func (r *reader) litgptAdapter(c *configuration, command string, precision Setting[string], ranks int) {
	j := r.job
	switch command {
	case "finetune_full", "pretrain":
		j.Method.Offer("full", "command "+command)
		return
	case "finetune_adapter", "finetune_adapter_v2":
		j.Method.Offer("adapter", "command "+command)
	}
	j.BaseDtype.take(j.ParamDtype)
	method := "lora"
	if word := c.word("", "quantize"); word.Value != "" {
		method = r.litgptQuant(word, precision, ranks)
	}
	if command != "finetune_lora" {
		return
	}
	j.Method.Offer(method, "command "+command)
	rank, alpha, dropout := c.size(8, "lora_r"), c.number(16, "lora_alpha"), c.fraction(0.05, "lora_dropout")
	if !rank.Known || !alpha.Known || !dropout.Known {
		j.LoRA.Withhold("an argument of LoRA could not be read")
		return
	}
	var targets []string
	for _, target := range []string{"query", "key", "value", "projection", "mlp", "head"} {
		if c.flag(target == "query" || target == "value", "lora_"+target).Value {
			targets = append(targets, target)
		}
	}
	j.LoRA.Offer(&LoRA{R: rank.Value, Alpha: alpha.Value, Dropout: dropout.Value, Targets: targets,
		Modules: r.hubModules(targets)}, c.originOf("lora_r"))
}

// litgptQuant reads bnb.nf4, bnb.nf4-dq, bnb.fp4, bnb.fp4-dq and bnb.int8-training, and returns the method that they
// make of LoRA.
func (r *reader) litgptQuant(word, precision Setting[string], ranks int) string {
	j := r.job
	kind, double := strings.CutSuffix(strings.TrimPrefix(word.Value, "bnb."), "-dq")
	q := &Quant{Method: "bnb", Bits: 4, Type: kind, Double: double, ComputeDtype: j.Precision.Or(""), Storage: "uint8"}
	method := "qlora"
	switch kind {
	case "nf4", "fp4":
	case "int8-training", "int8":
		q.Bits, q.Type, q.Storage, method = 8, "int8", "", "lora8bit"
	default:
		r.fail("LitGPT knows no quantisation "+word.Value, word.Origin)
		j.Quant.Unknown(word.Origin + " is no quantisation of LitGPT")
		return method
	}
	if strings.Contains(precision.Value, "mixed") {
		r.fail("ValueError: Quantization and mixed precision is not supported; give --precision bf16-true", word.Origin)
	}
	if ranks > 1 {
		r.fail("NotImplementedError: Quantization is currently not supported for multi-GPU training; set devices=1 "+
			"and num_nodes=1", word.Origin)
	}
	j.Quant.Offer(q, word.Origin)
	return method
}

// litgptBatch: the batch of all devices is given, and accumulation follows (TrainArgs.gradient_accumulation_iters).
func (r *reader) litgptBatch(c *configuration, pretrain bool, ranks int) {
	j := r.job
	all, each := 16, 1
	if pretrain {
		all, each = 512, 4
	}
	global, micro := c.size(all, "train.global_batch_size"), c.size(each, "train.micro_batch_size")
	j.MicroBatch.take(micro)
	j.EvalBatch.take(micro)
	if ranks > 0 && global.Known && micro.Known {
		accum := global.Value / ranks / micro.Value
		if accum == 0 {
			r.fail(fmt.Sprintf("AssertionError: global_batch_size %d is less than micro_batch_size %d on %d devices",
				global.Value, micro.Value, ranks), global.Origin)
		} else {
			j.GradAccum.Offer(accum, fmt.Sprintf("%s: %d rows / (%d x %d devices)", global.Origin, global.Value,
				micro.Value, ranks))
		}
	}
	j.GradAccum.Unknown("it follows from the number of devices and the batch sizes, which are not known")
	length := c.size(0, "train.max_seq_length")
	switch {
	case length.Value > 0 || !length.Known:
		j.SeqLen.take(length)
	case pretrain:
		j.SeqLen.Unknown("train.max_seq_length is not given: the model's longest sequence (block_size)")
	default:
		j.SeqLen.Unknown("train.max_seq_length is not given: the longest text of the data decides")
	}
	j.Packing.Offer(pretrain, map[bool]string{true: "pretraining data has full rows",
		false: "rows are padded to the longest of a micro-batch"}[pretrain])
}

// litgptSharding: one device trains alone and without checkpointing; several shard with FSDP, fine-tuning with
// checkpointing of each block.
func (r *reader) litgptSharding(command string, ranks int) {
	j := r.job
	switch {
	case ranks == 0:
		j.Sharding.Unknown("the number of devices is not known")
		j.Checkpointing.Unknown("it depends on the number of devices, which is not known")
		return
	case ranks == 1:
		j.Sharding.Offer("none", "one device")
		j.Checkpointing.Offer("none", "LitGPT checkpoints only on several devices")
		return
	case command == "pretrain":
		j.Sharding.Offer("fsdp-hybrid", "LitGPT pretrains on several devices with FSDP HYBRID_SHARD")
		j.Checkpointing.Offer("none", "LitGPT's pretraining does not checkpoint")
	default:
		j.Sharding.Offer("fsdp-full", "LitGPT fine-tunes on several devices with FSDP")
		j.Checkpointing.Offer("full", "LitGPT's FSDP checkpoints each block")
	}
	version := 1
	if newer, known := r.atLeast("litgpt", 0, 5, 11); command == "finetune_lora" && (newer || !known) {
		version = 2 // ModelParallelStrategy with fully_shard, since 0.5.11
	}
	j.FSDPVersion.Offer(version, r.installed("litgpt"))
	j.FSDPWrap.Offer("layers", "LitGPT wraps each block")
}

// litgptOptimizer: over quantised weights LitGPT makes AdamW that of bitsandbytes (litgpt/utils.py,
// instantiate_bnb_optimizer).
func (r *reader) litgptOptimizer(c *configuration, pretrain bool) {
	n := c.find("optimizer")
	class, origin := "AdamW", c.fallback
	arguments := c.below("optimizer.init_args")
	if n != nil {
		origin = n.Origin()
		if path := n.Get("class_path"); path != nil {
			n = path
		}
		word, err := n.Text()
		if err != nil {
			r.unread(err)
			r.job.Optimizer.Unknown("the optimizer could not be read")
			return
		}
		class = word
	}
	if q := r.job.Quant; q.Known && q.Value != nil {
		if !strings.Contains(class, "AdamW") {
			r.fail("ValueError: The chosen quantization format only supports the AdamW optimizer.", origin)
		}
		r.job.Optimizer.Offer("adamw", origin+
			"; over quantised weights that of bitsandbytes, whose states are fp32 and paged")
		return
	}
	r.optimizerClass(class, arguments, pretrain, origin)
}

// litgptScript is the command that a script stands for: the command's name itself, or a file or module of the package;
// "" for others.
func litgptScript(script string) string {
	if slices.Contains([]string{"finetune_lora", "finetune_full", "finetune_adapter", "finetune_adapter_v2",
		"pretrain"}, script) {
		return script
	}
	path := "/" + strings.TrimSuffix(filepath.ToSlash(script), ".py")
	if module, ok := strings.CutPrefix(script, "-m "); ok {
		path = "/" + strings.ReplaceAll(module, ".", "/")
	}
	for _, name := range litgptCommands() {
		if strings.HasSuffix(path, "/litgpt/"+strings.Replace(name, "finetune_", "finetune/", 1)) {
			return name
		}
	}
	return ""
}

// litgptCommands are the commands of litgpt that train (litgpt/__main__.py) with the files of the package that they
// stand for.
func litgptCommands() map[string]string {
	return map[string]string{
		"finetune": "finetune_lora", "finetune_lora": "finetune_lora", "finetune_full": "finetune_full",
		"finetune_adapter":    "finetune_adapter",
		"finetune_adapter_v2": "finetune_adapter_v2", "pretrain": "pretrain",
	}
}
