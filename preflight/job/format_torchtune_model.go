package job

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"oomguard/preflight/model"
)

// torchtuneHubNames maps torchtune's builders, without lora_ and qlora_ in front and _base and _instruct behind, to
// public models of the same architecture (torchtune/models/*/_model_builders.py). Those whose tables differ from the
// hub's are left out.
func torchtuneHubNames() map[string]string {
	return map[string]string{
		"llama2_7b": "meta-llama/Llama-2-7b-hf", "llama2_13b": "meta-llama/Llama-2-13b-hf",
		"llama2_70b": "meta-llama/Llama-2-70b-hf",
		"llama3_8b":  "meta-llama/Meta-Llama-3-8B", "llama3_70b": "meta-llama/Meta-Llama-3-70B",
		"llama3_1_8b": "meta-llama/Llama-3.1-8B", "llama3_1_70b": "meta-llama/Llama-3.1-70B",
		"llama3_1_405b": "meta-llama/Llama-3.1-405B",
		"llama3_2_1b":   "meta-llama/Llama-3.2-1B", "llama3_2_3b": "meta-llama/Llama-3.2-3B",
		"llama3_3_70b": "meta-llama/Llama-3.3-70B-Instruct",
		"mistral_7b":   "mistralai/Mistral-7B-v0.1", "gemma_2b": "google/gemma-2b", "gemma_7b": "google/gemma-7b",
		"gemma2_2b": "google/gemma-2-2b", "gemma2_9b": "google/gemma-2-9b", "gemma2_27b": "google/gemma-2-27b",
		"phi3_mini": "microsoft/Phi-3-mini-4k-instruct", "phi4_14b": "microsoft/phi-4",
		"qwen2_0_5b": "Qwen/Qwen2-0.5B", "qwen2_1_5b": "Qwen/Qwen2-1.5B", "qwen2_7b": "Qwen/Qwen2-7B",
		"qwen2_5_0_5b": "Qwen/Qwen2.5-0.5B", "qwen2_5_1_5b": "Qwen/Qwen2.5-1.5B", "qwen2_5_3b": "Qwen/Qwen2.5-3B",
		"qwen2_5_7b":  "Qwen/Qwen2.5-7B",
		"qwen2_5_14b": "Qwen/Qwen2.5-14B", "qwen2_5_32b": "Qwen/Qwen2.5-32B", "qwen2_5_72b": "Qwen/Qwen2.5-72B",
		"qwen3_0_6b": "Qwen/Qwen3-0.6B", "qwen3_1_7b": "Qwen/Qwen3-1.7B", "qwen3_4b": "Qwen/Qwen3-4B",
		"qwen3_8b":  "Qwen/Qwen3-8B",
		"qwen3_14b": "Qwen/Qwen3-14B", "qwen3_32b": "Qwen/Qwen3-32B",
		"smollm2_135m": "HuggingFaceTB/SmolLM2-135M", "smollm2_360m": "HuggingFaceTB/SmolLM2-360M",
		"smollm2_1_7b": "HuggingFaceTB/SmolLM2-1.7B",
	}
}

// builderDecoration is what a builder's name has around the model.
var builderDecoration = regexp.MustCompile(`^q?lora_|_(?:base|instruct)$`)

// torchtuneModel names the model by its builder and its folder. The folder's config.json says the architecture; without
// one the builder does.
func (r *reader) torchtuneModel(c *configuration, section string) {
	builder, folder := c.word("", section+"._component_"), c.word("", "checkpointer.checkpoint_dir")
	parts := map[string]string{"builder": builder.Value, "checkpoint_dir": folder.Value}
	own := r.job.Model.Known // --model
	offerParts(&r.job.Model, parts, c.originOf(section+"._component_", "checkpointer.checkpoint_dir"))
	if own {
		return
	}
	if folder.Value != "" && exists(r.path(folder.Value), "config.json") {
		r.architectureIn(folder.Value)
		return
	}
	name := builder.Value[strings.LastIndexByte(builder.Value, '.')+1:]
	r.publicModel(torchtuneHubNames()[builderDecoration.ReplaceAllString(name, "")], builder.Origin)
}

// architectureIn reads the architecture of a folder with a config.json, which the framework names in its own way.
func (r *reader) architectureIn(folder string) {
	architecture, err := r.src.LoadModel(filepath.Clean(r.path(folder)))
	if err != nil {
		r.job.ModelParams.Unknown("the model could not be read: " + err.Error())
		r.unread(err)
		return
	}
	r.job.Architecture = architecture
}

// publicModel takes the architecture of a public model that the framework has under a name of its own.
func (r *reader) publicModel(hub, origin string) {
	if hub == "" {
		r.job.ModelParams.Unknown("the size of the model that " + origin +
			" names is not known here; give --model DIR (--params N gives a lower bound)")
		return
	}
	architecture, err := model.Known(hub)
	switch {
	case err != nil:
		r.unread(err)
	case architecture == nil:
		r.job.ModelParams.Unknown(origin + " names the architecture of " + hub +
			", which is not in the built-in table; give --model DIR (--params N gives a lower bound)")
	default:
		r.job.Architecture = architecture
	}
}

// torchtuneAdapter reads LoRA's arguments of a builder (torchtune/models/*/_model_builders.py: rank 8, alpha 16, no
// dropout).
func (r *reader) torchtuneAdapter(c *configuration, builder Setting[string]) {
	j := r.job
	name := builder.Value[strings.LastIndexByte(builder.Value, '.')+1:]
	quantised := c.flag(strings.HasPrefix(name, "qlora_"), "quantize_base")
	switch {
	case name == "":
		return
	case !strings.HasPrefix(name, "lora_") && !strings.HasPrefix(name, "qlora_"):
		j.Method.Offer("full", builder.Origin)
		return
	case quantised.Value:
		j.Method.Offer("qlora", builder.Origin)
		j.Quant.Offer(&Quant{Method: "torchao", Bits: 4, Type: "nf4", Double: true, ComputeDtype: j.ParamDtype.Or(""),
			Storage: "uint8"}, quantised.Origin)
	default:
		j.Method.Offer("lora", builder.Origin)
	}
	j.BaseDtype.take(j.ParamDtype)
	rank, alpha := c.size(8, "lora_rank"), c.number(16, "lora_alpha")
	dropout, attention := c.fraction(0, "lora_dropout"), c.words("lora_attn_modules")
	if !rank.Known || !alpha.Known || !dropout.Known || !attention.Known {
		j.LoRA.Unknown("an argument of LoRA could not be read")
		return
	}
	targets := slices.Clone(attention.Value)
	for _, more := range []struct{ key, target string }{{"apply_lora_to_mlp", "mlp"},
		{"apply_lora_to_output", "output"}} {
		if c.flag(false, more.key).Value {
			targets = append(targets, more.target)
		}
	}
	j.LoRA.Offer(&LoRA{R: rank.Value, Alpha: alpha.Value, Dropout: dropout.Value, Targets: targets,
		DoRA:    c.flag(false, "use_dora").Value,
		Modules: r.hubModules(targets)}, c.originOf("lora_rank", "_component_"))
}

// hubModules are the names in Hugging Face's implementations for the targets of torchtune and LitGPT: those that the
// model has.
func (r *reader) hubModules(targets []string) []string {
	a := r.job.Architecture
	if a == nil {
		return nil
	}
	var modules []string
	for _, target := range targets {
		for _, name := range a.ModulesOf(partsOf()[target]...) {
			if !slices.Contains(modules, name) {
				modules = append(modules, name)
			}
		}
	}
	return modules
}

// partsOf are what torchtune's and LitGPT's targets mean (torchtune/modules/peft, litgpt/lora.py).
func partsOf() map[string][]model.Part {
	q, k, v := []model.Part{model.PartQ, model.PartQKV}, []model.Part{model.PartK, model.PartQKV},
		[]model.Part{model.PartV, model.PartQKV}
	out, head := []model.Part{model.PartO}, []model.Part{model.PartHead}
	return map[string][]model.Part{
		"q_proj": q, "k_proj": k, "v_proj": v, "output_proj": out, "output": head,
		"query": q, "key": k, "value": v, "projection": out, "head": head,
		"mlp": {model.PartGate, model.PartUp, model.PartGateUp, model.PartDown, model.PartExperts},
	}
}
