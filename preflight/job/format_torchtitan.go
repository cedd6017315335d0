package job

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"oomguard/preflight/job/document"
	"oomguard/preflight/job/shell"
	"oomguard/preflight/optim"
)

// torchtitan with TOML files (until February 2026, v0.2.2: torchtitan/config/job_config.py, config/manager.py,
// train.py, distributed/parallel_dims.py). Older spellings are those of v0.1.0 and of its config_manager.py of 2024.

const titanModule = "-m torchtitan.train"

func recogniseTorchtitan(r *reader) (family, bool) {
	script := r.job.Script.Value
	given := func(name string) bool {
		return slices.ContainsFunc(r.job.ScriptArgs, func(word string) bool {
			option, _, _ := strings.Cut(strings.ReplaceAll(word, "-", "_"), "=")
			return option == "__"+name
		})
	}
	if script == titanModule || filepath.Base(script) == "train.py" && given("job.config_file") {
		return family{framework: "torchtitan", task: "pretrain", origin: "torchtitan's train"}, true
	}
	return family{}, false
}

// titanScript is what torchtitan's run_train.sh starts, which takes the number of processes and the configuration from
// the environment (run_train.sh of v0.2.2 and of August 2026; run_llama_train.sh in 2024); nil when the environment
// names no configuration.
func (r *reader) titanScript(name string) []string {
	file, module, config := r.getenv("CONFIG_FILE"), r.getenv("MODULE"), r.getenv("CONFIG")
	words := []string{"torchrun", "--nproc_per_node=" + cmp.Or(r.getenv("NGPU"), "8"), "--rdzv_backend", "c10d",
		"--rdzv_endpoint=localhost:0"}
	switch {
	case name == "run_llama_train.sh" && file != "":
		return append(words, "train.py", "--job.config_file", file)
	case name != "run_train.sh" || file == "" && module == "" && config == "":
		return nil
	case file != "":
		return append(words, "-m", "torchtitan.train", "--job.config_file", file)
	}
	return append(words, "-m", "torchtitan.train", "--module", cmp.Or(module, "llama3"), "--config",
		cmp.Or(config, "llama3_debugmodel"))
}

func (r *reader) readTorchtitan() {
	doc := &document.Node{Value: map[string]*document.Node{}, Source: "command line"}
	arguments := titanArguments(r.job.ScriptArgs)
	if isTitanRegistry(arguments) {
		r.readTitanRegistry(arguments)
		return
	}
	for _, a := range arguments {
		if a.path != "job.config_file" {
			continue
		}
		if doc = r.loadDocument(a.text); doc == nil {
			r.lost("the configuration of torchtitan could not be read")
			return
		}
	}
	r.titanOverrides(doc, arguments)
	r.titanSettings(&configuration{r: r, doc: doc, fallback: "default of " + r.installed("torchtitan")})
}

// A titanArgument is one option of torchtitan's command line.
type titanArgument struct{ path, text, word string }

// titanArguments splits --section.key value in the grammar of tyro: dashes or underscores, =, lists of several words,
// --x.flag and
// --x.no-flag.
func titanArguments(words []string) []titanArgument {
	var list []titanArgument
	for i := 0; i < len(words); i++ {
		option, text, attached := strings.Cut(words[i], "=")
		name, isOption := strings.CutPrefix(option, "--")
		if !isOption {
			continue
		}
		a := titanArgument{path: strings.ReplaceAll(name, "-", "_"), text: text, word: words[i]}
		var values []string
		for !attached && i+1 < len(words) && !strings.HasPrefix(words[i+1], "--") &&
			(len(values) == 0 || !shell.Several(words[i+1])) {
			i++
			values = append(values, words[i])
		}
		switch {
		case attached:
		case len(values) == 0:
			a.text = "true"
			if section, key, ok := strings.Cut(a.path, ".no_"); ok {
				a.path, a.text = section+"."+key, "false"
			}
		case len(values) == 1:
			a.text = values[0]
		default:
			a.text = "[" + strings.Join(values, ", ") + "]"
		}
		a.word += strings.TrimRight(" "+strings.Join(values, " "), " ")
		list = append(list, a)
	}
	return list
}

// titanOverrides lays the command line over a configuration. Where the file has an older spelling of a key the newer
// one is found first.
func (r *reader) titanOverrides(doc *document.Node, arguments []titanArgument) {
	for _, a := range arguments {
		if err := document.Set(doc, a.path, a.text, "command line "+a.word); err != nil {
			r.unread(err)
		}
	}
}

// titanSettings turns the sections and keys of a configuration into settings.
func (r *reader) titanSettings(c *configuration) {
	j := r.job
	r.titanModel(c)
	mesh, ok := r.readTitanMesh(c)
	if !ok {
		j.Sharding.Withhold("the parallel degrees are not known or do not fit the processes")
	}
	r.titanSharding(c, mesh, ok)
	r.titanBatch(c, mesh, ok)
	r.titanValidation(c)
	r.titanOptimizer(c)
	r.titanCheckpointing(c)
	j.Method.Offer("full", "torchtitan trains every weight")
	j.MasterFP32.Offer(false, "torchtitan keeps no second copy of the weights")
	j.FusedLoss.Offer("none", "torchtitan's cross-entropy takes whole logits")
	j.ActivationOffload.Offer(false, "torchtitan does not offload activations")
	j.RefModel.Offer(false, "pretraining holds one model")
	j.InferenceShare.Offer(0, "pretraining has no inference engine")
	j.Packing.Offer(true, "torchtitan's text datasets cut full rows")
}

func titanDtype(word Setting[string]) Setting[string] {
	if name := dtypeName(word.Value); word.Known && name != "" {
		word.Value = name
	}
	return word
}

// titanNarrow is the precision of linear layers that compute in less than 16 bits; "" when they do not.
func (r *reader) titanNarrow(c *configuration) Setting[string] {
	converters := c.words("model.converters")
	for _, word := range converters.Value {
		for name := range strings.SplitSeq(word, ",") {
			last := name[strings.LastIndexByte(name, '.')+1:]
			if precision := map[string]string{"float8": "fp8", "mx": "fp8", "nvfp4": "fp4"}[last]; precision != "" {
				return Setting[string]{Value: precision, Known: true, Origin: converters.Origin}
			}
		}
	}
	if old := c.flag(false, "float8.enable_float8_linear"); old.Value {
		return Setting[string]{Value: "fp8", Known: true, Origin: old.Origin}
	}
	return Setting[string]{}
}

// titanBatch: the file gives rows of a rank and of all; accumulation follows. A pipeline works on its rows in smaller
// micro-batches.
func (r *reader) titanBatch(c *configuration, m titanMesh, ok bool) {
	j := r.job
	length := c.size(2048, "training.seq_len")
	j.SeqLen.take(length)
	local := c.size(8, "training.local_batch_size", "training.batch_size")
	global := c.number(-1, "training.global_batch_size")
	if !ok || !local.Known || !global.Known {
		j.MicroBatch.take(local)
		j.GradAccum.Unknown("it depends on the parallel degrees and batch sizes, which are not known")
		return
	}
	if divisor := product(2, m.tp, m.cp); length.Known && divisor > 0 && length.Value%divisor != 0 {
		r.fail(fmt.Sprintf("AssertionError: Sequence length %d must be divisible by the product of TP degree (%d) "+
			"and 2 * CP degree (%d)", length.Value, m.tp, m.cp), length.Origin)
	}
	accum, origin := 1, "default of "+r.installed("torchtitan")+": global_batch_size is what all ranks take at once"
	if each := product(local.Value, m.replicate, m.shard); global.Value > 0 && each > 0 {
		accum, origin = global.Value/each,
			fmt.Sprintf("%s: %d rows / (%d x %d data-parallel ranks)", global.Origin, global.Value, local.Value,
				m.replicate*m.shard)
		if global.Value%each != 0 {
			r.fail(fmt.Sprintf("AssertionError: global batch size must be multiple of local batch size times "+
				"data-parallel degree (%d %% (%d * %d) != 0)",
				global.Value, local.Value, m.replicate*m.shard), global.Origin)
			j.GradAccum.Unknown("the batch sizes contradict each other")
			return
		}
	}
	if m.pp > 1 {
		rows := c.size(1, "parallelism.pipeline_parallel_microbatch_size",
			"experimental.pipeline_parallel_microbatch_size")
		// in 2024: their number, by default that of the stages
		const parts = "experimental.pipeline_parallel_microbatches"
		if old := c.find("experimental.pipeline_parallel_degree") != nil &&
			c.find("experimental.pipeline_parallel_microbatch_size") == nil; old || c.find(parts) != nil {
			rows = c.size(m.pp, parts)
			rows.Value = max(1, local.Value/max(1, rows.Value))
		}
		if rows.Known && local.Value%rows.Value == 0 {
			accum *= local.Value / rows.Value
			local = Setting[int]{Value: rows.Value, Known: true, Origin: rows.Origin + ": micro-batch of the pipeline"}
		}
	}
	j.MicroBatch.take(local)
	j.GradAccum.Offer(accum, origin)
}

// titanValidation: rows of validation, which is off unless it is asked for.
func (r *reader) titanValidation(c *configuration) {
	switch on := c.flag(false, "validation.enable"); {
	case !on.Known:
		r.job.EvalBatch.Unknown(on.Origin)
	case on.Value:
		r.job.EvalBatch.take(c.size(8, "validation.local_batch_size"))
	default:
		r.job.EvalBatch.Offer(0, on.Origin)
	}
}

func (r *reader) titanOptimizer(c *configuration) {
	name := c.word("AdamW", "optimizer.name")
	if name.Known && name.Value != "AdamW" && name.Value != "Adam" {
		r.job.Optimizer.Unknown(name.Origin + " names the optimizer " + name.Value +
			", which is not known here; give --optimizer")
		return
	}
	how := c.word("fused", "optimizer.implementation")
	if old := c.find("optimizer.fused"); old != nil { // 2024: a flag, off by default
		how = Setting[string]{Value: map[bool]string{true: "fused",
			false: "foreach"}[c.flag(false, "optimizer.fused").Value], Known: true, Origin: old.Origin()}
	}
	if o, known := optim.Find("torch.optim."+name.Value, optim.Class); known &&
		containsWord("fused foreach for-loop", how.Value) {
		if how.Value != "foreach" {
			o = o.In(map[string]optim.Form{"fused": optim.Fused, "for-loop": optim.Loop}[how.Value])
		}
		r.job.Optimizer.Offer(o.Name, name.Origin+", "+how.Origin)
	}
	r.job.OptimizerInBackward.take(c.flag(false, "optimizer.early_step_in_backward"))
	r.job.Compile.take(c.flag(false, "compile.enable", "training.compile")) // the older name up to v0.1.0
}

// titanCheckpointing: selective every second block unless something else is said
// (distributed/activation_checkpoint.py).
func (r *reader) titanCheckpointing(c *configuration) {
	mode, option := c.word("selective", "activation_checkpoint.mode"),
		c.word("2", "activation_checkpoint.selective_ac_option")
	checkpointing := &r.job.Checkpointing
	switch n, err := strconv.Atoi(option.Value); {
	case !mode.Known:
		checkpointing.Unknown(mode.Origin)
	case mode.Value == "full", mode.Value == "none":
		checkpointing.Offer(mode.Value, mode.Origin)
	case mode.Value == "memory_budget":
		checkpointing.Unknown("the compiler chooses what it keeps within activation_checkpoint.memory_budget (" +
			mode.Origin + ")")
	case mode.Value != "selective":
		r.fail("ValueError: Invalid AC mode: "+mode.Value+". Valid modes: full, selective, memory_budget, none",
			mode.Origin)
	case option.Value == "op":
		checkpointing.Offer("selective", option.Origin+": an operation at a time")
	case err == nil && n > 0:
		checkpointing.Offer("selective:"+option.Value, option.Origin)
	default:
		r.fail("ValueError: Invalid selective AC option: "+option.Value+
			". Valid options: 'op' or a positive int representing layer frequency", option.Origin)
	}
}

// titanHubNames maps torchtitan's families and flavours to public models of the same architecture
// (torchtitan/models/*/__init__.py).
func titanHubNames() map[string]string {
	return map[string]string{
		"llama3 8b": "meta-llama/Llama-3.1-8B", "llama3 70b": "meta-llama/Llama-3.1-70B",
		"llama3 405b": "meta-llama/Llama-3.1-405B",
		"llama2 7b":   "meta-llama/Llama-2-7b-hf", "llama2 13b": "meta-llama/Llama-2-13b-hf",
		"llama2 70b": "meta-llama/Llama-2-70b-hf",
		"qwen3 0.6b": "Qwen/Qwen3-0.6B", "qwen3 1.7b": "Qwen/Qwen3-1.7B", "qwen3 4b": "Qwen/Qwen3-4B",
		"qwen3 8b":  "Qwen/Qwen3-8B",
		"qwen3 14b": "Qwen/Qwen3-14B", "qwen3 32b": "Qwen/Qwen3-32B", "qwen3 30b-a3b": "Qwen/Qwen3-30B-A3B",
		"qwen3 235b-a22b": "Qwen/Qwen3-235B-A22B",
		"deepseek_v3 16b": "deepseek-ai/DeepSeek-V2-Lite", "deepseek_v3 671b": "deepseek-ai/DeepSeek-V3",
	}
}

// titanModel names the model by family and flavour, whose sizes stand in torchtitan's code. Flavours for other
// attention end in _flex or _varlen; the larger DeepSeek and all gpt-oss models use flex_attention.
func (r *reader) titanModel(c *configuration) {
	name, flavour := c.word("llama3", "model.name"), c.word("debugmodel", "model.flavor")
	own := r.job.Model.Known // --model
	offerParts(&r.job.Model, map[string]string{"family": name.Value, "flavor": flavour.Value},
		c.originOf("model.flavor", "model.name"))
	size, kind := flavour.Value, "sdpa"
	for suffix, attention := range map[string]string{"_flex": "flex_attention", "_flex_attn": "flex_attention",
		"_varlen": "flash_attention_2", "_varlen_attn": "flash_attention_2"} {
		if before, found := strings.CutSuffix(flavour.Value, suffix); found {
			size, kind = before, attention
		}
	}
	flex := name.Value == "deepseek_v3" && size != "debugmodel" || name.Value == "gpt_oss" ||
		strings.HasSuffix(size, "_irope")
	if flex || c.flag(false, "model.use_flex_attn").Value {
		kind = "flex_attention"
	}
	r.job.Attention.Offer(kind, "torchtitan's "+name.Value+" "+flavour.Value)
	if !own {
		r.publicModel(titanHubNames()[strings.ToLower(name.Value+" "+size)], c.originOf("model.flavor", "model.name"))
	}
}
