package job

import (
	"slices"
	"strings"

	"oomguard/preflight/job/document"
)

// Lightning CLI: python x.py fit --config c.yaml, with a trainer of lightning.pytorch and classes of the user's for
// model and data (lightning/pytorch/cli.py, trainer/trainer.py, strategies/*.py; 2.0 to 2.6).

// lightningCommands are the subcommands of LightningCLI. Only fit trains.
func lightningCommands() []string { return []string{"fit", "validate", "test", "predict"} }

func recogniseLightning(r *reader) (family, bool) {
	words := r.job.ScriptArgs
	command := len(words) > 0 && slices.Contains(lightningCommands(), words[0])
	typical := func(word string) bool {
		option, _, _ := strings.Cut(word, "=")
		name, ok := strings.CutPrefix(option, "--trainer.")
		name, _, _ = strings.Cut(name, ".")
		return ok && containsWord(lightningTrainerFields, name)
	}
	config := func(word string) bool {
		option, _, _ := strings.Cut(word, "=")
		return option == "--config" || option == "-c"
	}
	file, _ := optionWord(words, "trainer")
	found := slices.ContainsFunc(words, typical) || isArgumentFile(file) ||
		command && slices.ContainsFunc(words, config)
	if !found && slices.ContainsFunc(words, config) { // LightningCLI without subcommands: its file shows it
		var doc *document.Node
		r.trial(func() { doc = r.classArguments(words).doc })
		found = doc.Get("model") != nil && onlyFields(doc, lightningSections) &&
			onlyFields(doc.Get("trainer"), lightningTrainerFields)
	}
	if t := r.scriptText(); t != nil && t.unseen() == "" && !t.requires("lightning") &&
		!t.requires("pytorch_lightning") {
		return family{}, false
	}
	if !found || r.job.Framework.Known {
		return family{}, false
	}
	return family{framework: "lightning", origin: "arguments of Lightning CLI"}, true
}

// lightningSections are all that Lightning CLI's parser takes at the top of a file, unless a program adds something.
const lightningSections = `seed_everything trainer model data optimizer lr_scheduler ckpt_path verbose return_predictions weights_only config`

// lightningTrainerFields are the arguments of Lightning's Trainer (1.5 to 2.6).
const lightningTrainerFields = `accelerator strategy devices num_nodes precision logger callbacks fast_dev_run
	max_epochs min_epochs max_steps min_steps max_time
	limit_train_batches limit_val_batches limit_test_batches limit_predict_batches overfit_batches val_check_interval
	check_val_every_n_epoch
	num_sanity_val_steps log_every_n_steps enable_checkpointing enable_progress_bar enable_model_summary
	accumulate_grad_batches gradient_clip_val
	gradient_clip_algorithm deterministic benchmark inference_mode use_distributed_sampler profiler detect_anomaly
	barebones plugins sync_batchnorm
	reload_dataloaders_every_n_epochs default_root_dir enable_autolog_hparams model_registry gpus amp_backend amp_level
	auto_lr_find
	auto_scale_batch_size auto_select_gpus replace_sampler_ddp resume_from_checkpoint move_metrics_to_cpu`

// onlyFields reports whether a section has fields, and none but those that are listed: another tool's file may have
// sections of the same names.
func onlyFields(section *document.Node, known string) bool {
	if section == nil {
		return false
	}
	fields, ok := section.Value.(map[string]*document.Node)
	for name := range fields {
		ok = ok && containsWord(known, name)
	}
	return ok && len(fields) > 0
}

func (r *reader) readLightning() {
	words := r.job.ScriptArgs
	command := "fit"
	if len(words) > 0 && slices.Contains(lightningCommands(), words[0]) {
		command, words = words[0], words[1:]
	}
	arguments := r.classArguments(words)
	if command != "fit" {
		r.lost("the command " + command + " does not train")
		return
	}
	if arguments.lost {
		r.startsProcesses(Setting[int]{Origin: "a configuration of Lightning could not be read"},
			Setting[int]{Origin: "a configuration of Lightning could not be read"})
		r.lost("a configuration of Lightning could not be read")
		return
	}
	doc := arguments.doc
	// a file may hold the subcommand's settings below its name
	if inner := doc.Get("fit"); inner != nil && doc.Get("trainer") == nil {
		doc = inner
	}
	r.lightningSettings(&configuration{r: r, doc: doc, fallback: "default of " + r.installedLightning()})
}

// lightningSettings turns the trainer's arguments, and what the user's classes are told, into settings.
func (r *reader) lightningSettings(c *configuration) {
	r.lightningProcesses(c)
	r.lightningStrategy(c)
	r.lightningPrecisionOf(c)
	r.lightningUser(c)
	r.job.GradAccum.take(c.size(1, "trainer.accumulate_grad_batches"))
}

// lightningProcesses: Lightning starts the processes of a node itself, unless torchrun or Slurm has.
func (r *reader) lightningProcesses(c *configuration) {
	devices := "auto"
	if accelerator := c.word("auto", "trainer.accelerator"); accelerator.Value == "cpu" {
		devices = "1"
	}
	r.startsProcesses(c.devices(devices, "trainer.devices"), c.size(1, "trainer.num_nodes"))
}

// lightningPrecisionOf reads trainer.precision. DeepSpeed casts the weights for mixed precision too, and keeps fp32
// masters.
func (r *reader) lightningPrecisionOf(c *configuration) {
	j := r.job
	word := c.word("32-true", "trainer.precision")
	weights, compute, known := lightningPrecision(word.Value)
	switch {
	case !word.Known:
		j.Precision.Unknown(word.Origin)
	case strings.HasPrefix(word.Value, "64"):
		j.Precision.Unknown(word.Origin + ": 64 bits are not estimated; give --precision")
	case !known:
		r.fail("ValueError: Precision "+word.Value+" is invalid", word.Origin)
	}
	if !known {
		j.ParamDtype.Unknown(word.Origin)
		return
	}
	half := compute != "fp32" && compute != "fp8"
	if r.deepspeed != nil && half {
		r.deepspeed.half, r.deepspeed.origin = compute, word.Origin
		weights = compute
	}
	if r.deepspeed == nil && strings.HasSuffix(word.Value, "-mixed") && !strings.HasPrefix(j.Sharding.Value, "fsdp") {
		r.offerAutocast(compute, word.Origin)
	}
	// else autocast leaves the weights as they were loaded
	if !j.Autocast.Value || r.seen() == nil || len(r.seen().modelCalls("from_pretrained")) == 0 {
		r.load.Offer(weights, word.Origin)
		j.ParamDtype.Offer(weights, word.Origin)
	}
	j.Precision.Offer(compute, word.Origin)
	j.MasterFP32.Offer(r.deepspeed != nil && half,
		map[bool]string{true: "DeepSpeed keeps an fp32 copy",
			false: "Lightning keeps no second copy of the weights"}[r.deepspeed != nil])
}

// lightningUser reads what the user's own classes are told, by the names that most of them use.
func (r *reader) lightningUser(c *configuration) {
	j := r.job
	const user = "the user's own module decides"
	names := func(sections []string, keys ...string) []string {
		var paths []string
		for _, section := range sections {
			for _, key := range keys {
				paths = append(paths, section+".init_args."+key, section+"."+key)
			}
		}
		return paths
	}
	both := []string{"data", "model"}
	if n := c.find(names([]string{"model"}, "model_name_or_path", "model_name", "pretrained_model_name_or_path",
		"model_id", "base_model", "checkpoint")...); n != nil {
		if text, ok := n.Value.(string); ok {
			j.Model.Offer(text, n.Origin())
		}
	}
	j.Model.Unknown(user)
	for _, size := range []struct {
		set   *Setting[int]
		paths []string
	}{
		{&j.MicroBatch, names(both, "batch_size", "train_batch_size", "micro_batch_size",
			"per_device_train_batch_size")},
		{&j.SeqLen, names(both, "max_length", "max_seq_length", "max_seq_len", "seq_len", "seq_length", "block_size",
			"context_length")},
	} {
		if c.find(size.paths...) != nil {
			size.set.take(c.size(1, size.paths...))
		}
		size.set.Unknown(user)
	}
	packing := c.find(names(both, "packing", "packed")...)
	if packing != nil {
		j.Packing.take(c.flag(false, names(both, "packing", "packed")...))
	}
	j.Packing.Offer(false, "assumed: nothing names it")
	if name, arguments := document.Class(c.doc.Get("optimizer")); name != "" {
		path := c.word("", "optimizer.class_path", "optimizer")
		below := &configuration{r: r, doc: arguments, fallback: c.fallback}
		if arguments == nil {
			below = c.below("optimizer.init_args")
		}
		r.optimizerClass(path.Value, below, false, path.Origin)
	}
	j.Optimizer.Unknown(user)
	if j.Model.Known {
		j.Task.Offer("sft", "assumed: it starts from a model that has a name")
	}
	j.Task.Unknown(user)
	for _, f := range []fact{&j.Attention, &j.FusedLoss, &j.Checkpointing} {
		f.Unknown(user)
	}
	j.InferenceShare.Offer(0, "nothing names an inference engine")
	j.OptimizerInBackward.Offer(false, "Lightning steps after the backward pass")
}
