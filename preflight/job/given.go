package job

import (
	"fmt"
	"strings"
	"sync"
)

// Options that look as if they were about a setting, and that nothing here understood. They decide nothing; but "not
// given" would be untrue.

// lookalikes are the words that options about a setting have in their names, on any side of a dash, a dot or an
// underscore. A word with such a mark in it is a whole name.
var lookalikes = sync.OnceValue(func() map[string]string {
	precision := "amp fp16 bf16 fp8 fp32 half precision dtype float16 bfloat16 mixed_precision"
	adapter := "lora qlora dora peft adapter adapters tuner sft_type train_type finetuning_type network_dim " +
		"network_module"
	return map[string]string{
		"model": "model arch architecture backbone pretrained base_model checkpoint hf_checkpoint " +
			"model_name network",
		"model_params": "model arch architecture backbone pretrained base_model hf_checkpoint num_layers " +
			"n_layer hidden_size n_embd",
		"param_dtype":  precision,
		"base_dtype":   precision,
		"precision":    precision,
		"autocast":     precision,
		"master_fp32":  precision,
		"optimizer":    "opt optim optimizer optimizer_type use_8bit_adam adam_8bit",
		"micro_batch":  "b bs bsz batch batchsize ims_per_batch max_tokens",
		"global_batch": "b bs bsz batch batchsize ims_per_batch",
		"grad_accum":   "accum accumulation accumulate accum_iter update_freq iter_size",
		"seq_len": "length seqlen seq_len block_size context_size ctx_len tokens_per_sample resolution " +
			"imgsz image_size cutoff_len",
		"packing": "packing pack",
		"checkpointing": "gradient_checkpointing activation_checkpointing recompute recomputation remat " +
			"grad_checkpointing grad_checkpoint checkpoint_activations gradient_checkpoint use_checkpoint",
		"activation_offload": "offloading offload",
		"method":             adapter,
		"lora":               adapter,
		"quant":              "quant quantization quantize bits 4bit 8bit qlora int8 nf4",
		"sharding":           "fsdp zero ddp deepspeed strategy shard sharding plugin zero_stage distributed_optimizer",
		"offload":            "offload offloading cpu_offload",
		"tp":                 "tp tensor_parallel tensor_model_parallel model_parallel",
		"pp":                 "pp pipeline_parallel pipeline_model_parallel pipe_parallel pipeline_stages",
		"cp":                 "cp context_parallel sp ulysses sequence_parallel ring_attention",
		"ep":                 "ep expert_parallel expert_model_parallel ep_world num_experts",
		"nproc":              "gpus gpu devices device ngpu nproc num_workers num_processes world_size",
		"nnodes":             "nodes num_nodes nnodes num_machines world_size",
		"attention":          "attn attention flash sdpa xformers",
		"compile":            "compile torchcompile",
		"fused_loss":         "liger fused_loss cut_cross_entropy",
		"ref_model":          "ref reference ref_load",
	}
})

// looksLike reports whether an option's name is about a setting.
func looksLike(option, words string) bool {
	notInWords := func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') }
	name := "_" + strings.Join(strings.FieldsFunc(strings.ToLower(option), notInWords), "_") + "_"
	for word := range strings.FieldsSeq(words) {
		if strings.Contains(name, "_"+word+"_") {
			return true
		}
	}
	return false
}

// silence is why a setting that nothing set is not decided by that: an option that looks like it was given to a script
// of the user's, or the program is not known. "" when silence decides.
func (r *reader) silence(key string) string {
	switch given := ""; {
	case r.family.foreign:
		return r.family.origin
	case r.family.ownScript:
		if given = r.givenAs(key); given != "" {
			return given
		}
	}
	return ""
}

// givenAs says how the command line gives what looks like a setting, and that it was not understood; "" when nothing
// does.
func (r *reader) givenAs(key string) string {
	words := lookalikes()[key]
	if words == "" {
		return ""
	}
	list := r.job.ScriptArgs
	for i, word := range list {
		option, value, attached := strings.Cut(word, "=")
		if !isOption(option) && !attached || !looksLike(option, words) {
			continue
		}
		if !attached && i+1 < len(list) && !isOption(list[i+1]) {
			value = list[i+1]
		}
		shown := option
		switch {
		case attached:
			shown += "=" + value
		case value != "":
			shown += " " + value
		}
		return fmt.Sprintf("given as %s and not understood", shortened(shown))
	}
	return ""
}

// shortened keeps a word that a person typed within a line.
func shortened(text string) string {
	const most = 80
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return text
}
