package estimate

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"oomguard/preflight/job"
	"oomguard/preflight/model"
)

// The rules that turn a row's words into the job's vocabulary: the first whose words occur in the text wins. They look
// at settings and at the framework, never at ids or names of models.
type wording struct{ words, value string }

func translate(table []wording, text string) (string, bool) {
	text = strings.ToLower(text)
	for _, w := range table {
		if strings.Contains(text, w.words) {
			return w.value, true
		}
	}
	return "", false
}

var frameworkWords = []wording{
	{"megatron-deepspeed", "deepspeed"}, {"megatron", "megatron"}, {"litgpt", "litgpt"}, {"torchtitan", "torchtitan"},
	{"torchtune", "torchtune"},
	{"axolotl", "axolotl"}, {"unsloth", "unsloth"}, {"trl", "trl"}, {"ms-swift", "hf-trainer"},
	{"transformers + deepspeed", "deepspeed"},
	{"deepspeed", "deepspeed"}, {"fsdp_qlora", "fsdp_qlora"}, {"llama-recipes", "llama-recipes"},
	{"lightning", "lightning"},
	{"transformers", "hf-trainer"}, {"stanford_alpaca", "hf-trainer"}, {"accelerate", "hf-trainer"},
}

var optimizerWords = []wording{
	{"cpuadam", "cpu_adam"}, {"cpuoffload", "cpu_adam"}, {"pagedadamw8bit", "paged_adamw_8bit"},
	{"paged_adamw_8bit", "paged_adamw_8bit"},
	{"paged", "paged_adamw"}, {"galore", "galore_adamw"}, {"badam", ""}, {"hybridadam", ""},
	{"8bit", "adamw_8bit"}, {"8-bit", "adamw_8bit"}, {"fp8", "adamw_8bit"}, {"4bit", "adamw_4bit"},
	{"adafactor", "adafactor"},
	{"zero-offload", "cpu_adam"}, {"sgd momentum", "sgd_momentum"}, {"sgd", "sgd"}, {"muon", "muon"},
	{"adamw_hf", "adamw_loop"}, // transformers' own AdamW walked over the parameters one by one
	{"foreach", "adamw_foreach"}, {"fused", "adamw_fused"}, {"adamw", "adamw"}, {"adam", "adam"},
}

var attentionWords = []wording{
	{"unfused", "eager"}, {"eager (", "eager"}, {"flash_attention_2", "flash_attention_2"}, {"sdpa", "sdpa"},
	{"flash", "flash_attention_2"},
	{"eager", "eager"}, {"xformers", "sdpa"},
}

var lossWords = []wording{
	{"none", "none"}, {"n/a", "none"}, {"liger", "liger-flce"}, {"triton", "triton-ce"}, {"cut-cross", "cut-ce"},
	{"te fused", "te"},
	{"megatron fused", "native-fused"}, {"chunked", "chunked"}, {"unsloth", "cut-ce"},
}

var checkpointingWords = []wording{
	{"none", "none"}, {"unsloth offloaded", "unsloth"}, {"full", "full"}, {"every 2nd layer", "selective:2"},
	{"selective", "selective"},
}

var shardingWords = []wording{
	{"no_shard", "ddp"}, {"fsdp", "fsdp-full"}, {"zero3 or zero2", ""}, {"zero1", "zero1"}, {"zero2", "zero2"},
	{"zero3", "zero3"}, {"zero0", "ddp"},
	{"ddp", "ddp"}, {"none", "none"}, {"distributed optimizer", "zero1"}, {"gemini", ""},
}

// A rowError says why a row cannot be estimated: a setting that the job's vocabulary has no word for, or a missing one.
type rowError string

func (e rowError) Error() string { return string(e) }

// job is the row as a job on architecture a. What the row does not state stays unknown.
func (r measuredRow) job(a *model.Architecture) (*job.Job, error) {
	j := &job.Job{Versions: map[string]string{}}
	method := func(j *job.Job) error { return r.method(j, a) }
	steps := []func(*job.Job) error{r.layout, r.work, method, r.precision, r.buckets}
	for _, step := range steps {
		if err := step(j); err != nil {
			return nil, err
		}
	}
	return j, nil
}

func offer[T any](s *job.Setting[T], value T) { s.Offer(value, "the row") }

func positive(s *job.Setting[int], value int) {
	if value > 0 {
		offer(s, value)
	}
}

// versionPattern finds "torch 2.4.1", "bitsandbytes 0.41.1", "transformers 4.4x" in a row's words.
var versionPattern = regexp.MustCompile(`\b(torch|transformers|bitsandbytes|bnb|peft|DeepSpeed) v?([0-9]+\.[0-9][0-9x.]*)`)

func (r measuredRow) versions(j *job.Job) {
	for _, m := range versionPattern.FindAllStringSubmatch(r.Framework, -1) {
		name, version := strings.ToLower(m[1]), strings.TrimSuffix(m[2], ".")
		if name == "bnb" {
			name = "bitsandbytes"
		}
		if version == "4.4x" {
			version = "4.46.0" // what goes with the row's accelerate 1.0.1, of October 2024
		}
		j.Versions[name] = version
	}
	if strings.Contains(r.Framework, "torchtitan") &&
		(strings.Contains(r.Framework, "2024") || strings.Contains(r.Framework, "early 2025")) {
		j.Versions["torchtitan"] = "0.0.2" // its first release on PyPI, 0.1.0, is of June 2025
	}
	// the release of that time
	for when, version := range map[string]string{"DeepSpeed-Chat April 2023": "0.9.0", "DeepSpeed, 2025-11": "0.18.2"} {
		if strings.Contains(r.Framework, when) && j.Versions["deepspeed"] == "" {
			j.Versions["deepspeed"] = version
		}
	}
	if strings.Contains(r.Framework, "litgpt") && j.Versions["bitsandbytes"] == "" {
		j.Versions["bitsandbytes"] = "0.42.0" // the one that litgpt asked for through 2024
	}
}

func (r measuredRow) layout(j *job.Job) error {
	r.versions(j)
	framework, _ := translate(frameworkWords, r.Framework)
	if framework == "" {
		framework = "custom" // a program of its own
	}
	offer(&j.Framework, framework)
	if r.GPUs == 0 && r.Sharding != "none" {
		return rowError("the number of GPUs is not stated")
	}
	offer(&j.WorldSize, max(r.GPUs, 1))
	offer(&j.NProc, min(max(r.GPUs, 1), 8))
	offer(&j.TP, max(r.TP, 1))
	offer(&j.PP, max(r.PP, 1))
	offer(&j.CP, max(r.CP, 1))
	offer(&j.EP, max(r.EP, 1))
	sharding, ok := translate(shardingWords, r.Sharding)
	switch {
	case ok && sharding == "", !ok && r.Sharding != "":
		return rowError("no formula for sharding " + r.Sharding)
	case !ok:
		return rowError("the sharding is not stated")
	case framework == "megatron" && sharding == "zero1":
		sharding = "dist-optim"
	}
	offer(&j.Sharding, sharding)
	if strings.HasPrefix(sharding, "fsdp") {
		version := 2
		if strings.Contains(r.Sharding, "FSDP1") || !strings.Contains(r.Sharding, "FSDP2") && framework != "torchtune" {
			version = 1 // accelerate, Lightning and fsdp_qlora of those years
		}
		offer(&j.FSDPVersion, version)
	}
	return r.offload(j, sharding)
}

func (r measuredRow) offload(j *job.Job, sharding string) error {
	o := job.Offload{Optimizer: "none", Params: "none"}
	switch text := strings.ToLower(r.Offload); {
	case text == "", strings.Contains(text, "pageable"), strings.Contains(text, "paged"):
	case strings.HasPrefix(text, "activations"):
		if strings.Contains(text, "expert") {
			return rowError("no formula for offloading some modules' activations")
		}
		offer(&j.ActivationOffload, true)
	case strings.HasPrefix(text, "zero3 cpu"), strings.HasPrefix(text, "fsdp params"), strings.Contains(text, "params"):
		o = job.Offload{Optimizer: "cpu", Params: "cpu"}
	case strings.HasPrefix(text, "optimizer"):
		o.Optimizer = "cpu"
	default:
		return rowError("no formula for offload " + r.Offload)
	}
	offer(&j.Offload, o)
	return nil
}

func (r measuredRow) work(j *job.Job) error {
	positive(&j.MicroBatch, r.MicroBatch)
	positive(&j.GradAccum, r.GradAccum)
	var length int
	switch {
	case json.Unmarshal(r.SeqLen, &length) == nil && length > 0:
		offer(&j.SeqLen, length)
	case len(r.SeqLen) > 0 && !r.statesOnly():
		return rowError("no formula for inputs of " + string(r.SeqLen))
	}
	if w, ok := translate(checkpointingWords, r.Checkpointing); ok {
		offer(&j.Checkpointing, w)
	}
	if w, ok := translate(attentionWords, r.Attention); ok {
		offer(&j.Attention, w)
	}
	if w, ok := translate(lossWords, r.FusedLoss); ok {
		offer(&j.FusedLoss, w)
	}
	w, ok := translate(optimizerWords, r.Optimizer)
	if ok && w == "" {
		return rowError("no formula for optimizer " + r.Optimizer)
	}
	if w == "adamw" && j.Framework.Value == "torchtune" {
		w = "adamw_fused" // its recipes' own default
	}
	if ok {
		offer(&j.Optimizer, w)
	}
	if strings.Contains(r.Optimizer, "into backward") || strings.Contains(r.Optimizer, "per-layer") {
		j.OptimizerInBackward = flagged("optimizer-in-backward", "true").OptimizerInBackward
	}
	if r.Compile {
		offer(&j.Compile, true)
	}
	return r.megatronArguments(j)
}

// megatronArguments reads the command line, as far as the source prints it.
func (r measuredRow) megatronArguments(j *job.Job) error {
	var args map[string]any
	if j.Framework.Value != "megatron" || json.Unmarshal(r.RunArgs, &args) != nil {
		return nil
	}
	names := make([]string, 0, len(args))
	for name := range args {
		names = append(names, name)
	}
	slices.Sort(names)
	command := []string{"torchrun", "--nproc-per-node", "8", "pretrain_gpt.py", "--micro-batch-size", "1"}
	for _, name := range names {
		command = append(command, "--"+strings.ReplaceAll(name, "_", "-"))
		if v := args[name]; v != true {
			command = append(command, fmt.Sprint(v))
		}
	}
	read := job.Read(job.Sources{Argv: command, GPUs: 8})
	j.SequenceParallel, j.VirtualStages, j.ETP = read.SequenceParallel, read.VirtualStages, read.ETP
	// otherwise the dtype is not printed
	if args["accumulate_allreduce_grads_in_fp32"] != nil || read.ParamDtype.Value != "fp32" {
		j.GradDtype = read.GradDtype
	}
	return nil
}

func (r measuredRow) method(j *job.Job, a *model.Architecture) error {
	method, _, _ := strings.Cut(r.Method, " (")
	switch method {
	case "full", "lora", "qlora":
	case "dpo", "grpo":
		offer(&j.Task, method)
		// TRL's GRPO and DeepSpeed-Chat's DPO hold a frozen copy of the policy; a reference engine's own line counts
		// that engine alone
		reference := strings.Contains(r.Framework, "TRL") || strings.Contains(r.Model, "reference")
		offer(&j.RefModel, reference && !strings.Contains(r.Stage, "reference"))
		method = "full"
	default:
		return rowError("no formula for method " + r.Method)
	}
	offer(&j.Method, method)
	if method == "full" {
		return nil
	}
	lora := &job.LoRA{R: r.LoRARank, Alpha: r.LoRARank, Targets: targets(a, r.LoRATargets)}
	if lora.R == 0 {
		return rowError("the adapters' rank is not stated")
	}
	if strings.Contains(r.Framework, "litgpt") || strings.Contains(r.Framework, "fsdp_qlora") {
		lora.Dropout = map[bool]float64{true: 0.05, false: 0.1}[strings.Contains(r.Framework, "litgpt")]
	}
	for _, t := range r.LoRATargets {
		if strings.Contains(t, "modules_to_save") {
			return rowError("no word for modules trained in full beside adapters of this model type")
		}
	}
	offer(&j.LoRA, lora)
	return r.quant(j)
}

func (r measuredRow) quant(j *job.Job) error {
	q := strings.ToLower(r.Quantization)
	switch {
	case q == "" && j.Method.Value == "qlora":
		return rowError("the quantisation is not stated")
	case q == "", q == "none":
	case strings.Contains(q, "gptq"):
		bits := 4
		if strings.Contains(q, "int8") {
			bits = 8
		}
		offer(&j.Quant, &job.Quant{Method: "gptq", Bits: bits})
	default:
		// fms-acceleration and torchtune quantise the scales too; litgpt says -dq where it does.
		double := strings.Contains(q, "dq") || strings.Contains(q, "double") || strings.Contains(q, "bitsandbytes") ||
			strings.Contains(q, "torchao")
		offer(&j.Quant, &job.Quant{Method: "bnb", Bits: 4, Type: "nf4", Double: double, ComputeDtype: "bf16"})
	}
	return nil
}

// targetWords are the names that programs give to the modules of a layer, and the names that they have in transformers'
// classes.
var targetWords = []struct {
	words   []string
	modules []string
}{
	{[]string{"query", "q_proj", "q", "c_attn", "q,k,v,output_proj"},
		[]string{"q_proj", "query", "query_key_value", "qkv_proj", "c_attn"}},
	{[]string{"key", "k_proj", "k", "c_attn", "q,k,v,output_proj"},
		[]string{"k_proj", "key", "query_key_value", "qkv_proj", "c_attn"}},
	{[]string{"value", "v_proj", "v", "c_attn", "q,k,v,output_proj"},
		[]string{"v_proj", "value", "query_key_value", "qkv_proj", "c_attn"}},
	{[]string{"projection", "o_proj", "o", "output_proj", "c_proj", "q,k,v,output_proj"},
		[]string{"o_proj", "dense", "out_proj"}},
	{[]string{"mlp", "gate_proj", "gate", "w1"}, []string{"gate_proj", "gate_up_proj"}},
	{[]string{"mlp", "up_proj", "up", "w2"}, []string{"up_proj", "fc1", "dense_h_to_4h", "c_fc"}},
	{[]string{"mlp", "down_proj", "down", "c_proj"}, []string{"down_proj", "fc2", "dense_4h_to_h"}},
	{[]string{"head", "output"}, []string{"lm_head"}},
}

// targets finds the modules that the row's words name in this architecture; nil means PEFT's default.
func targets(a *model.Architecture, words []string) []string {
	var found []string
	for _, word := range words {
		word, _, _ = strings.Cut(word, " (")
		switch {
		case strings.HasPrefix(word, "all"):
			return []string{"all-linear"}
		case strings.HasPrefix(word, "DEFAULT"):
			word = "c_attn" // ms-swift's default: the model's query, key and value projections
		case strings.HasPrefix(word, "peft default"):
			return nil
		}
		for _, t := range targetWords {
			if !slices.Contains(t.words, word) {
				continue
			}
			for _, module := range t.modules {
				if a.Elements(func(t model.Tensor) bool { return t.Module == module }) > 0 &&
					!slices.Contains(found, module) {
					found = append(found, module)
				}
			}
		}
	}
	return found
}

// precisionWords: dtype of trained weights (or of the frozen base below adapters), compute, whether there is an fp32
// master copy.
var precisionWords = []struct {
	words, stored, compute string
	master                 bool
}{
	{"weight-only", "", "", false},
	{"active block", "", "", false},
	{"fp32 adam states", "", "", false},
	{"bf16 master", "", "", false},
	{"colossalai", "", "", false},
	{"backbone", "", "", false},
	{"float8", "fp32", "fp8", false},
	{"mxfp8", "fp32", "fp8", false},
	{"fp8", "bf16", "fp8", true},
	{"nvfp4", "fp32", "fp8", false},
	{"fp32 sharded", "fp32", "bf16", false},
	{"torchtitan mixed", "fp32", "bf16", false},
	{"fp32 frozen", "fp32", "bf16", false},
	{"bf16-autocast over fp32", "fp32", "bf16", false},
	{"bf16-autocast (fp32", "fp32", "bf16", false},
	{"bf16 autocast, fp32 weights", "fp32", "bf16", false},
	{"fp16 mixed", "fp32", "fp16", false},
	{"fp16 or bf16", "", "fp16", false},
	{"fp16-amp", "fp32", "fp16", false},
	{"fp16 amp", "fp32", "fp16", false},
	{"fp16 deepspeed", "fp16", "fp16", true},
	{"bf16 pure", "bf16", "bf16", false},
	{"bf16-pure", "bf16", "bf16", false},
	{"bf16 base", "bf16", "bf16", false},
	{"bf16 weights + bf16", "bf16", "bf16", false},
	{"bf16 megatron", "bf16", "bf16", true},
	{"bf16 (deepspeed", "bf16", "bf16", true},
	{"bf16 with fp32 master", "bf16", "bf16", true},
	{"bf16, fp32", "bf16", "bf16", true},
	{"bf16 weights, fp32", "bf16", "bf16", true},
	{"bf16 weights and grads, fp32", "bf16", "bf16", true},
	{"fp16, fp32 master", "fp16", "fp16", true},
	{"fp16 (deepspeed", "fp16", "fp16", true},
	{"fp16 weights and", "fp16", "fp16", true},
	{"fp16 weights, fp32", "fp16", "fp16", true},
	{"bf16", "", "bf16", false},
	{"fp32", "fp32", "fp32", false},
	{"fp16", "", "fp16", false},
}

func (r measuredRow) precision(j *job.Job) error {
	text := strings.ToLower(r.Precision)
	for _, p := range precisionWords {
		if !strings.Contains(text, p.words) {
			continue
		}
		if p.compute == "" {
			return rowError("no word for precision " + r.Precision)
		}
		offer(&j.Precision, p.compute)
		if j.Method.Value != "full" {
			r.adapterPrecision(j, p.stored, p.compute)
			return nil
		}
		if p.stored != "" {
			offer(&j.ParamDtype, p.stored)
			offer(&j.MasterFP32, p.master)
		}
		return nil
	}
	return rowError("the precision is not stated")
}

// adapterPrecision: fp32 adapters where the row or PEFT's default says so, else the base model's dtype.
func (r measuredRow) adapterPrecision(j *job.Job, stored, compute string) {
	offer(&j.MasterFP32, false)
	if stored == "fp32" && compute == "fp16" {
		stored = "fp16" // fp16-amp over a quantised base: the rest of it is fp16
	}
	base := stored
	if strings.Contains(r.Notes, "prepare_model_for_kbit_training") {
		base = "fp32"
	}
	if base != "" {
		offer(&j.BaseDtype, base)
	}
	// PEFT upcasts adapters, the others do not
	own := !slices.Contains([]string{"trl", "hf-trainer", "axolotl", "unsloth"}, j.Framework.Value)
	switch {
	case own && stored != "" && !strings.Contains(r.Precision, "adapter weights fp32"):
		offer(&j.ParamDtype, stored)
	default:
		offer(&j.ParamDtype, "fp32")
	}
}

// buckets are DeepSpeed's sizes where the row prints them.
func (r measuredRow) buckets(j *job.Job) error {
	if !strings.HasPrefix(j.Sharding.Value, "zero") {
		return nil
	}
	ds := deepSpeedDefaults
	ds.OverlapComm = j.Sharding.Value == "zero3"
	for name, to := range map[string]*int64{"reduce_bucket_size": &ds.ReduceBucketSize,
		"allgather_bucket_size": &ds.AllgatherBucketSize,
		"prefetch_bucket_size":  &ds.PrefetchBucketSize} {
		if n := r.number(name); n > 0 {
			*to = n
		}
	}
	if n, ok := r.script("param_persistence_threshold"); ok {
		ds.ParamPersistenceThreshold = r.number("param_persistence_threshold")
		_ = n
	}
	if overlap, ok := r.script("overlap_comm"); ok {
		ds.OverlapComm = overlap == "true"
	}
	if len(r.RunArgs) > 0 {
		offer(&j.DeepSpeed, &ds)
	}
	return nil
}
