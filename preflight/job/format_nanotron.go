package job

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"oomguard/preflight/job/document"
	"oomguard/preflight/model"
	"oomguard/preflight/optim"
)

// nanotron: a run is configured in one YAML file (nanotron/config/config.py, parallelism_config.py, models_config.py).
// Most fields have no default there: a file without them does not start.

// nanotronOption names the configuration file on the command line (run_train.py).
const nanotronOption = "config-file"

// recogniseNanotron: the option that names its configuration, together with the script's usual name or a file that has
// its sections.
func recogniseNanotron(r *reader) (family, bool) {
	file, given := optionWord(r.job.ScriptArgs, nanotronOption)
	if !given {
		return family{}, false
	}
	base := filepath.Base(r.job.Script.Value)
	f := family{framework: "nanotron", task: "pretrain", origin: base + " takes --" + nanotronOption}
	if t := r.scriptText(); t != nil && t.requires("nanotron") {
		return f, true
	}
	doc, _, err := r.loadFile(file)
	if err != nil {
		return f, false
	}
	f.origin = file + " has the sections of nanotron"
	return f, doc.Get("parallelism", "dp") != nil && doc.Get("model", "model_config") != nil
}

// optionWord finds the value of one option of a script, given as two words or as --option=value, with either dash; the
// last one wins.
func optionWord(words []string, option string) (value string, given bool) {
	dashes := strings.NewReplacer("_", "-")
	for i, word := range words {
		name, text, attached := strings.Cut(word, "=")
		switch {
		case dashes.Replace(name) != "--"+option:
		case attached:
			value, given = text, true
		case i+1 < len(words):
			value, given = words[i+1], true
		}
	}
	return value, given
}

func (r *reader) readNanotron() {
	file, _ := optionWord(r.job.ScriptArgs, nanotronOption)
	doc := r.loadDocument(file)
	if doc == nil {
		r.lost("nanotron's configuration could not be read")
		return
	}
	for _, section := range []string{"general", "parallelism", "model", "tokens", "optimizer"} {
		if n := doc.Get(section); n == nil || n.Value == nil {
			r.fail("the configuration has no section "+section+", which nanotron needs", file)
		}
	}
	c := &configuration{r: r, doc: doc, fallback: "default of " + r.installed("nanotron")}
	r.nanotronParallel(c)
	r.nanotronBatch(c)
	r.nanotronOptimizer(c)
	r.nanotronMemory(c)
	r.nanotronModel(c.below("model.model_config"), c.size(1, "model.make_vocab_size_divisible_by"))
}

// listed are the items of a list; none for anything else.
func listed(n *document.Node) []*document.Node {
	if n == nil {
		return nil
	}
	items, _ := n.Value.([]*document.Node)
	return items
}

// nanotronParallel: all ranks are replicas x stages x parts (nanotron/parallel/context.py).
func (r *reader) nanotronParallel(c *configuration) {
	j := r.job
	var dp Setting[int]
	c.need(&dp, "parallelism.dp")
	c.need(&j.PP, "parallelism.pp")
	c.need(&j.TP, "parallelism.tp")
	j.CP.take(c.size(1, "parallelism.context_parallel_size"))
	j.EP.take(c.size(1, "parallelism.expert_parallel_size"))
	// REDUCE_SCATTER splits the sequence between layers; the default does not (nanotron/config/parallelism_config.py)
	if mode := c.word("ALL_REDUCE", "parallelism.tp_mode"); mode.Known {
		j.SequenceParallel.Offer(strings.EqualFold(mode.Value, "REDUCE_SCATTER"), mode.Origin)
	}
	world, wanted := product(j.NNodes.Or(0), j.NProc.Or(0)),
		product(dp.Or(0), j.PP.Or(0), j.TP.Or(0), j.CP.Or(0), j.EP.Or(0))
	if world > 0 && wanted > 0 && world != wanted {
		why := fmt.Sprintf("dp %d x pp %d x tp %d x cp %d x ep %d = %d, but %d processes are started", dp.Value,
			j.PP.Value, j.TP.Value, j.CP.Value, j.EP.Value, wanted, world)
		r.fail("ValueError: "+why, dp.Origin)
		r.problem(fmt.Errorf("%s: %s; change the sizes or the number of processes", dp.Origin, why))
	}
	j.DeepSpeed.Offer(nil, "nanotron shards the optimizer itself")
	stage := c.number(0, "optimizer.zero_stage")
	switch {
	case !dp.Known || !stage.Known:
		j.Sharding.Unknown("dp or zero_stage could not be read")
	case stage.Value > 0 && dp.Value > 1:
		j.Sharding.Offer("zero1", stage.Origin)
	case dp.Value > 1:
		j.Sharding.Offer("ddp", fmt.Sprintf("%s: no ZeRO over dp %d", stage.Origin, dp.Value))
	default:
		j.Sharding.Offer("none", dp.Origin+": one replica")
	}
}

func (r *reader) nanotronBatch(c *configuration) {
	j := r.job
	c.need(&j.MicroBatch, "tokens.micro_batch_size")
	c.need(&j.GradAccum, "tokens.batch_accumulation_per_replica")
	j.Packing.Offer(true, "nanotron cuts its text into full rows")
	// Stages may have longer rows than the rest; the longest one decides about memory.
	longest := Setting[int]{}
	for _, n := range listed(c.find("data_stages")) {
		stage := &configuration{r: r, doc: n, fallback: c.fallback}
		if length := stage.size(0, "sequence_length"); stage.find("sequence_length") != nil && length.Known &&
			length.Value > longest.Value {
			longest = length
		}
		if stage.find("data.dataset.sft_dataloader") != nil {
			j.Task.become(Setting[string]{Value: "sft", Known: true, Origin: n.Origin() + ": a stage of instructions"})
		}
	}
	if all := c.size(0, "tokens.sequence_length"); longest.Known && longest.Value >= all.Value {
		j.SeqLen.take(longest)
	}
	c.need(&j.SeqLen, "tokens.sequence_length")
}

// nanotronOptimizer: with accumulate_grad_in_fp32 the optimizer works on an fp32 copy of the weights, with fp32
// gradients beside it (nanotron/optim/gradient_accumulator.py); without it on the weights themselves.
func (r *reader) nanotronOptimizer(c *configuration) {
	j := r.job
	dtype := c.word("bfloat16", "model.dtype")
	if word := dtypeName(dtype.Value); dtype.Known && word != "" {
		j.ParamDtype.Offer(word, dtype.Origin)
		j.Precision.Offer(word, dtype.Origin)
	} else if dtype.Known {
		r.unread(fmt.Errorf("%s: model.dtype is %q, need bfloat16, float16 or float32", dtype.Origin, dtype.Value))
	}
	fp32 := c.flag(false, "optimizer.accumulate_grad_in_fp32")
	if fp32.Known {
		j.MasterFP32.Offer(fp32.Value && j.ParamDtype.Or("") != "fp32", fp32.Origin)
	}
	name := c.word("adamW", "optimizer.optimizer_factory.name")
	o, known := optim.Find(strings.ToLower(name.Value), optim.Nanotron)
	if !known {
		r.fail("ValueError: Optimizer "+name.Value+" is not supported", name.Origin)
		return
	}
	if c.flag(false, "optimizer.optimizer_factory.torch_adam_is_fused").Value {
		o = o.In(optim.Fused)
	}
	j.Optimizer.Offer(o.Name, name.Origin)
}

func (r *reader) nanotronMemory(c *configuration) {
	j := r.job
	if recompute := c.flag(false, "parallelism.recompute_layer"); recompute.Known {
		j.Checkpointing.Offer(map[bool]string{true: "full", false: "none"}[recompute.Value], recompute.Origin)
	} else {
		j.Checkpointing.Unknown(recompute.Origin)
	}
	if attention := c.word("", "model.model_config._attn_implementation"); attention.Value != "" {
		j.Attention.Offer(attention.Value, attention.Origin)
	}
	j.Attention.Unknown("nanotron chooses among its flash attention kernels by version; give --attention")
	j.Method.Offer("full", "nanotron trains all weights")
	j.FusedLoss.Offer("none", "nanotron computes whole logits, split over tensor-parallel ranks")
	j.RefModel.Offer(false, "nanotron holds one model")
}

// nanotronModel makes the architecture of the sizes in the configuration; absent ones have the defaults of LlamaConfig.
func (r *reader) nanotronModel(c *configuration, unit Setting[int]) {
	j := r.job
	own := j.Model.Known // --model
	heads := c.size(32, "num_attention_heads")
	sizes := map[string]Setting[int]{
		"num_layers": c.size(32, "num_hidden_layers"), "hidden": c.size(4096, "hidden_size"),
		"ffn":   c.size(11008, "intermediate_size"),
		"heads": heads, "kv_heads": c.size(heads.Value, "num_key_value_heads"), "vocab": c.size(32000, "vocab_size"),
	}
	tied := c.flag(false, "tie_word_embeddings")
	described := map[string]any{"tied": tied.Value}
	for name, size := range sizes {
		if !size.Known {
			j.Model.Unknown(size.Origin)
			j.ModelParams.Unknown(size.Origin)
			return
		}
		described[name] = size.Value
	}
	if text, err := json.Marshal(described); err == nil {
		j.Model.Offer(string(text), c.doc.Origin())
	}
	switch {
	case own:
		return
	case c.find("moe_config") != nil, c.find("is_starcoder2_config") != nil,
		c.find("is_llama_config", "is_qwen2_config") == nil:
		j.ModelParams.Unknown(c.doc.Origin() +
			" is not of nanotron's Llama or Qwen2 kind, whose weights are counted; --params N gives a lower bound")
		return
	}
	vocabulary := model.PadVocab(int64(sizes["vocab"].Value), int64(unit.Or(1)), int64(j.TP.Or(1)))
	j.Architecture = r.llamaOf(described, vocabulary, c)
}

// llamaOf counts a model of the Llama kind from its sizes; vocabulary has been padded to a multiple for the
// tensor-parallel ranks.
func (r *reader) llamaOf(sizes map[string]any, vocabulary int64, c *configuration) *model.Architecture {
	config := map[string]any{
		"model_type": "llama", "architectures": []string{"LlamaForCausalLM"}, "hidden_size": sizes["hidden"],
		"intermediate_size": sizes["ffn"],
		"num_hidden_layers": sizes["num_layers"], "num_attention_heads": sizes["heads"],
		"num_key_value_heads": sizes["kv_heads"],
		"vocab_size":          vocabulary, "tie_word_embeddings": sizes["tied"],
		"attention_bias":          c.flag(false, "attention_bias").Value,
		"max_position_embeddings": c.size(2048, "max_position_embeddings").Value,
	}
	text, err := json.Marshal(config)
	if err != nil {
		r.unread(err)
		return nil
	}
	architecture, err := model.Parse(text, c.doc.Origin())
	if err != nil {
		r.unread(err)
		r.job.ModelParams.Unknown("the model's sizes could not be counted")
		return nil
	}
	return architecture
}
