package job

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"oomguard/preflight/job/document"
)

// torchtune: recipes that are configured in YAML with overrides key=value (torchtune 0.6: torchtune/config/_utils.py,
// recipes/*.py).

// torchtuneRecipes are the recipes that train, and their tasks. Their names end in where they run.
func torchtuneRecipes() map[string]string {
	return map[string]string{
		"full_finetune": "sft", "lora_finetune": "sft", "qat": "sft", "qat_lora_finetune": "sft",
		"lora_finetune_distributed_multi_dataset": "sft", "early_exit_finetune": "sft",
		"full_dpo": "dpo", "lora_dpo": "dpo", "ppo_full_finetune": "ppo", "grpo_full_finetune": "grpo",
		"async_grpo_full_finetune": "grpo", "knowledge_distillation": "kd",
	}
}

// recipeParts splits dev/full_finetune_distributed, or a path to it, into its kind and where it runs: "distributed" or
// "single_device".
func recipeParts(script string) (kind, place string) {
	kind = strings.TrimSuffix(filepath.Base(script), ".py")
	for _, place := range []string{"single_device", "distributed"} {
		if before, found := strings.CutSuffix(kind, "_"+place); found {
			return before, place
		}
	}
	if strings.Contains(kind, "_distributed") {
		place = "distributed"
	}
	return kind, place
}

func recogniseTorchtune(r *reader) (family, bool) {
	kind, place := recipeParts(r.job.Script.Value)
	task, known := torchtuneRecipes()[kind]
	tune := r.job.Launcher.Value == "tune"
	if !tune && (!known || place == "" ||
		!slices.ContainsFunc(r.job.ScriptArgs,
			func(word string) bool { return word == "--config" || strings.HasPrefix(word, "--config=") })) {
		return family{}, false
	}
	origin := kind + " is a recipe of torchtune"
	if !known {
		origin = "a recipe for tune run"
	}
	return family{framework: "torchtune", task: task, origin: origin}, true
}

func (r *reader) readTorchtune() {
	kind, place := recipeParts(r.job.Script.Value)
	starts := strings.HasPrefix(kind, "async_") // its processes are Ray's
	if r.job.Launcher.Value == "tune" && place == "distributed" && !starts && !r.job.NNodes.Known &&
		r.getenv("RANK") == "" {
		r.fail("RuntimeError: a distributed recipe in one process; start it with tune run --nproc_per_node N "+
			r.job.Script.Value, "command line")
	}
	r.startedAlone()
	doc := r.torchtuneConfig(place)
	if doc == nil {
		r.lost("the recipe's configuration could not be read")
		return
	}
	c := &configuration{r: r, doc: doc, fallback: "default of " + r.installed("torchtune")}
	model := "model"
	if doc.Get("model") == nil && doc.Get("policy_model") != nil {
		model = "policy_model"
	}
	if data := c.word("", "dataset._component_"); strings.HasSuffix(data.Value, ".text_completion_dataset") &&
		r.family.task == "sft" {
		r.job.Task.become(Setting[string]{Value: "pretrain", Known: true,
			Origin: data.Origin + ": every token of the text has a loss"})
	}
	r.torchtuneBatch(c, kind)
	if every := c.find("run_val_every_n_steps"); every == nil || c.find("dataset_val") == nil {
		r.job.EvalBatch.Offer(0, "run_val_every_n_steps and dataset_val are not both given")
	} else {
		r.job.EvalBatch.take(c.size(r.job.MicroBatch.Or(1), "batch_size_val"))
	}
	r.torchtunePrecision(c)
	r.torchtuneMemory(c)
	r.torchtuneParallel(c, place)
	r.torchtuneModel(c, model)
	r.torchtuneAdapter(c.below(model), c.word("", model+"._component_"))
	if c.find("optimizer") == nil {
		r.job.Optimizer.Unknown("the configuration has no optimizer; give --optimizer")
		return
	}
	r.optimizerClass(c.word("", "optimizer._component_", "optimizer").Or(""), c.below("optimizer"), false,
		c.originOf("optimizer._component_", "optimizer"))
}

// startedAlone settles the processes of a program that starts none besides its own.
func (r *reader) startedAlone() {
	const origin = "one process: no launcher's options are given"
	r.job.NNodes.Offer(1, origin)
	r.job.NProc.Offer(1, origin)
}

// torchtuneConfig reads the file of --config and lays the overrides over it; nil when that fails.
func (r *reader) torchtuneConfig(place string) *document.Node {
	var name string
	var overrides []string
	words := r.job.ScriptArgs
	for i := 0; i < len(words); i++ {
		switch value, attached := strings.CutPrefix(words[i], "--config="); {
		case words[i] == "--config" && i+1 < len(words):
			i++
			name = words[i]
		case attached && r.job.Launcher.Value != "tune": // tune run looks for the word --config alone
			name = value
		case strings.HasPrefix(words[i], "--"):
			r.fail("torchtune takes "+words[i]+" for an unknown option; it reads --config FILE and key=value",
				"command line "+words[i])
		default:
			overrides = append(overrides, words[i])
		}
	}
	if name == "" {
		r.fail("tune run: error: The '--config' argument is required.", "command line")
		return nil
	}
	var doc *document.Node
	if file := r.torchtuneFile(name); file == "" {
		r.unread(fmt.Errorf("--config %s is a configuration of torchtune's own, and torchtune is not installed "+
			"here; write it to a file with tune cp %s FILE, and name that", name, name))
	} else {
		doc = r.loadDocument(file)
	}
	if doc == nil {
		r.torchtuneOverrides(overrides, place)
		return nil
	}
	for _, word := range overrides {
		if err := overrideTorchtune(doc, word); err != nil {
			r.fail(err.Error(), "command line "+word)
		}
	}
	document.Interpolate(doc, r.lookupEnv)
	return doc
}

// torchtuneOverrides takes what the command line itself says, above a configuration that cannot be read.
func (r *reader) torchtuneOverrides(words []string, place string) {
	j := r.job
	doc := &document.Node{Value: map[string]*document.Node{}, Source: "command line"}
	for _, word := range words {
		if err := overrideTorchtune(doc, word); err != nil {
			r.fail(err.Error(), "command line "+word)
		}
	}
	c := &configuration{r: r, doc: doc}
	for key, set := range map[string]*Setting[int]{"batch_size": &j.MicroBatch,
		"gradient_accumulation_steps": &j.GradAccum, "tokenizer.max_seq_len": &j.SeqLen} {
		if size := c.size(0, key); c.find(key) != nil && size.Value > 0 {
			set.take(size)
		}
	}
	if on := c.flag(false, "enable_activation_checkpointing"); c.find("enable_activation_checkpointing") != nil &&
		on.Known {
		j.Checkpointing.Offer(map[bool]string{true: "full", false: "none"}[on.Value], on.Origin)
	}
	if place == "single_device" {
		j.Sharding.Offer("none", "a recipe for one device")
	}
}

// torchtuneFile is the file of a configuration: a path, or a name such as llama3_1/8B_lora of one that torchtune brings
// along (recipes/configs beside the package); "" for such a name where there is no torchtune.
func (r *reader) torchtuneFile(name string) string {
	if r.hasFile(name) || strings.HasSuffix(name, ".yaml") {
		return name
	}
	for _, folder := range sitePackages(r.job.Interpreter) {
		if file := filepath.Join(folder, "recipes", "configs", name+".yaml"); isFile(file) {
			return file
		}
	}
	if filepath.Ext(name) == ".yml" {
		return name
	}
	return ""
}

// overrideTorchtune lays one word of the command line over the configuration by torchtune's rules: exactly one =, None
// is null, and optimizer=X names the component.
func overrideTorchtune(doc *document.Node, word string) error {
	if strings.HasPrefix(word, "~") {
		return document.Override(doc, word)
	}
	if strings.Count(word, "=") != 1 {
		return fmt.Errorf("command line %s: an override has the form key=value with one =", word)
	}
	key, text, _ := strings.Cut(word, "=")
	if text == "None" {
		text = "null"
	}
	if !strings.Contains(key, ".") && doc.Get(key, "_component_") != nil {
		key += "._component_"
	}
	return document.Set(doc, key, text, "command line "+word)
}
