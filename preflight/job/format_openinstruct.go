package job

import (
	"fmt"
	"maps"
	"path/filepath"
	"strings"

	"oomguard/preflight/job/document"
	"oomguard/preflight/optim"
)

// openInstructTasks maps its programs to tasks.
func openInstructTasks() map[string]string {
	return map[string]string{"finetune": "sft", "dpo_tune_cache": "dpo", "dpo_tune": "dpo", "dpo": "dpo",
		"reward_modeling": "rm", "grpo_fast": "grpo", "grpo_vllm_thread_ray_gtrl": "grpo",
		"ppo_fast": "ppo", "ppo_vllm_thread_ray_gtrl": "ppo"}
}

// recogniseOpenInstruct: programs in the folder open_instruct. They have loops of their own on top of accelerate, not
// Trainer.
func recogniseOpenInstruct(r *reader) (family, bool) {
	slashes := "/" + strings.TrimPrefix(filepath.ToSlash(r.job.Script.Value), "-m ")
	for program, task := range openInstructTasks() {
		if strings.HasSuffix(slashes, "/open_instruct/"+program+".py") || slashes == "/open_instruct."+program {
			return family{framework: "open-instruct", task: task, program: program, fields: openInstructFields,
				origin: program + " is a program of open-instruct"}, true
		}
	}
	return family{}, false
}

func openInstructFields(*reader) fieldSet {
	return fieldSet{
		wordArgument: `model_revision tokenizer_name lora_rank sequence_parallel_size deepspeed_stage pack_length
			response_length max_prompt_token_length
			beta vllm_num_engines vllm_gpu_memory_utilization zero_stage max_token_length dpo_loss_type loss_type
			optimizer_type tensor_parallel_degree
			activation_memory_budget activation_checkpointing_mode fsdp_shard_degree fsdp_num_replicas`,
		boolArgument: `use_lora use_qlora use_8bit_optimizer fused_optimizer use_flash_attn single_gpu_mode load_ref_policy dpo_use_paged_optimizer offload_optimizer offload_param`,
		listArgument: `dataset_mixer_list num_learners_per_node`,
	}
}

// readOpenInstruct reads its arguments (open_instruct/finetune.py, dpo_utils.py and grpo_utils.py of August 2026): a
// YAML file with
// --field=value words over it, or a command line.
func (r *reader) readOpenInstruct() {
	words := r.job.ScriptArgs
	r.args = map[string]argument{}
	if len(words) > 0 && strings.HasSuffix(words[0], ".yaml") {
		args, err := r.argumentsIn(words[0])
		if err != nil {
			err = fmt.Errorf("arguments of open-instruct: %w", err)
			r.rejected(err, "command line")
			r.lost("the arguments of open-instruct could not be read")
			r.args = nil
			return
		}
		r.args, words = args, words[1:]
	}
	maps.Copy(r.args, parseArguments(words, r.grammarOf(true, "command line")))
	if a, given := r.args["lora_rank"]; given {
		r.args["lora_r"] = a
	}
	if r.family.program == "dpo" && r.job.Launcher.Value == "torchrun" {
		r.openInstructOLMo()
	}
	r.openInstructZeRO()
	r.openInstructModel()
	r.openInstructRay()
	const origin = "default of open-instruct"
	switch r.job.Task.Value {
	case "grpo":
		r.fallbackTo("open-instruct", "", []fieldHistory{{"per_device_train_batch_size", "", since("1")}})
	case "rm":
		r.fallbackTo("open-instruct", "",
			[]fieldHistory{{"per_device_train_batch_size", "", since("1")},
				{"gradient_accumulation_steps", "", since("8")}})
	}
	r.readSettings()
	r.job.Packing.Offer(r.job.Task.Value == "grpo", origin)
	if a := r.args["sequence_parallel_size"]; a.text != "" {
		r.integer("sequence_parallel_size", &r.job.CP)
	}
}

// openInstructModel: weights are loaded in bf16, adapters reach all seven projections, and the fused AdamW is the
// default.
func (r *reader) openInstructModel() {
	j, p := r.job, &r.adapter
	const origin = "default of open-instruct"
	if r.family.program == "reward_modeling" { // a loop of its own, that loads without a dtype
		r.integer("max_token_length", &j.SeqLen)
		j.SeqLen.Offer(512, origin+": max_token_length")
		j.Optimizer.Offer("adamw", "reward_modeling uses torch.optim.AdamW")
		r.defaultLoad()
	}
	r.load.Offer("bf16", "open-instruct loads the weights in bf16")
	qlora := r.on("use_qlora")
	if !r.on("use_lora") {
		p.use.Offer(false, "no --use_lora")
	} else {
		p.use.Offer(true, r.args["use_lora"].origin)
		r.integer("lora_r", &p.r)
		p.r.Offer(64, origin)
		if a, given := r.args["lora_alpha"]; given {
			if alpha, err := pythonFloat(a.text); err == nil {
				p.alpha.Offer(int(alpha), a.origin)
			}
		}
		p.alpha.Offer(16, origin)
		if _, given := r.args["lora_dropout"]; !given {
			p.dropout.Offer(0.1, origin)
		}
		p.targets.Offer([]string{"q_proj", "o_proj", "v_proj", "k_proj", "gate_proj", "up_proj", "down_proj"},
			"open-instruct names them itself")
	}
	switch a := r.args["use_qlora"]; {
	case qlora, r.on("dpo_use_paged_optimizer"):
		if qlora {
			j.Quant.Offer(&Quant{Method: "bnb", Bits: 4, Type: "nf4", Double: true, ComputeDtype: "bf16",
				Storage: "uint8"}, a.origin)
		} else {
			a = r.args["dpo_use_paged_optimizer"]
		}
		if r.on("use_8bit_optimizer") {
			j.Optimizer.Offer("paged_adamw_8bit", r.args["use_8bit_optimizer"].origin)
		}
		j.Optimizer.Offer("paged_adamw", a.origin+": bitsandbytes' AdamW")
	case j.Task.Value != "grpo" && j.Task.Value != "ppo":
		if fused, given := r.boolean("fused_optimizer"); given && !fused {
			j.Optimizer.Offer("adamw", r.args["fused_optimizer"].origin)
		}
		j.Optimizer.Offer("adamw_fused", origin)
	}
	if on, given := r.boolean("use_flash_attn"); given {
		j.Attention.Offer(map[bool]string{true: "flash_attention_2", false: "sdpa"}[on],
			r.args["use_flash_attn"].origin)
	}
	switch loss := r.args["dpo_loss_type"]; j.Task.Value {
	case "dpo":
		if r.family.program == "dpo_tune" && !r.on("use_lora") && !strings.HasPrefix(loss.text, "simpo") {
			j.RefModel.Offer(true, "dpo_tune loads the model once more as reference")
		} else if r.family.program == "dpo_tune" {
			j.RefModel.Offer(false, "dpo_tune switches adapters off for the reference, and SimPO needs none")
		}
		j.RefModel.Offer(false, r.family.program+" caches what the reference model says before it trains")
	case "sft", "rm":
		j.RefModel.Offer(false, "nothing names a reference model")
	case "grpo":
		if load, given := r.boolean("load_ref_policy"); given {
			j.RefModel.Offer(load, r.args["load_ref_policy"].origin)
		}
		j.RefModel.Offer(true, origin+": load_ref_policy")
	}
}

// openInstructZeRO: dpo_tune_cache.py writes a DeepSpeed configuration of its own for --zero_stage
// (build_deepspeed_config), and checkpoints for a memory budget below 1.
func (r *reader) openInstructZeRO() {
	if r.family.program != "dpo_tune_cache" {
		return
	}
	if a := r.args["activation_memory_budget"]; a.text != "" {
		budget, err := pythonFloat(a.text)
		if err == nil {
			r.job.Checkpointing.Offer(map[bool]string{true: "full", false: "none"}[budget < 1], a.origin)
		}
	}
	stage := r.args["zero_stage"]
	if stage.text == "" {
		return
	}
	device := map[bool]string{true: "cpu", false: "none"}
	text := fmt.Sprintf(`{"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": %q, "overlap_comm": true, "reduce_bucket_size": "auto",
		"stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto", "offload_optimizer": {"device": %q}, "offload_param": {"device": %q}}}`,
		stage.text, device[r.on("offload_optimizer")], device[r.on("offload_param")])
	doc, _, err := document.JSON([]byte(text), stage.origin)
	if err != nil {
		r.unread(err)
		return
	}
	r.acceleratedHalf(doc)
	r.adoptDeepSpeed(&deepspeedFile{doc: doc, file: stage.origin, filled: true, lenient: true})
}

// openInstructOLMo: dpo.py under torchrun trains with OLMo-core, which shards with FSDP2 inside each node and
// replicates over nodes (open_instruct/dpo.py and olmo_core_utils.py of August 2026). Its weights stay in fp32 and
// compute in bf16.
func (r *reader) openInstructOLMo() {
	j := r.job
	const origin = "open-instruct's dpo.py trains with OLMo-core"
	for _, name := range []string{"use_lora", "use_8bit_optimizer", "dpo_use_paged_optimizer"} {
		if r.on(name) {
			why := "ValueError: " + name + " is not supported with OLMo-core DPO training"
			r.fail(why, r.args[name].origin)
			r.problem(fmt.Errorf("%s: %s; use dpo_tune_cache.py for it", r.args[name].origin, why))
		}
	}
	replicas := j.NNodes.Or(0)
	if n := r.number("fsdp_num_replicas"); n > 0 {
		replicas = n
	}
	if replicas > 1 {
		j.Sharding.Offer("fsdp-hybrid", fmt.Sprintf("%s: %d replicas", origin, replicas))
	} else if replicas == 1 && r.args["fsdp_shard_degree"].text == "" {
		j.Sharding.Offer("fsdp-full", origin)
	}
	j.FSDPVersion.Offer(2, origin)
	j.FSDPWrap.Offer("layers", origin)
	j.ParamDtype.Offer("fp32", origin)
	j.Precision.Offer("bf16", origin)
	j.MasterFP32.Offer(false, "the weights themselves are fp32")
	r.integer("tensor_parallel_degree", &j.TP)
	kind := r.word("optimizer_type", "adamw", "default of open-instruct")
	r.offerOptimizer(kind.text, kind.origin, optim.Ours)
	budget, err := pythonFloat(r.word("activation_memory_budget", "1", "").text)
	if mode := r.args["activation_checkpointing_mode"]; mode.text == "selected_modules" {
		j.Checkpointing.Offer("full", mode.origin)
	} else if err == nil && budget < 1 {
		j.Checkpointing.Offer("selective", r.args["activation_memory_budget"].origin)
	}
}

// openInstructRay: the programs of reinforcement learning start Ray actors, some of them learners under DeepSpeed.
func (r *reader) openInstructRay() {
	j := r.job
	if task := j.Task.Value; task != "grpo" && task != "ppo" || j.Launcher.Value != "python" {
		return
	}
	learners := r.args["num_learners_per_node"]
	counts := learners.list
	origin := learners.origin
	if len(counts) == 0 {
		counts, origin = []string{"1"}, "default of open-instruct: num_learners_per_node"
	}
	j.NNodes.replace(Setting[int]{})
	j.NProc.replace(Setting[int]{})
	j.NNodes.Offer(len(counts), origin)
	for _, count := range counts[1:] {
		if count != counts[0] {
			j.NProc.Unknown(origin + ": nodes differ in their learners (" + strings.Join(counts, " ") +
				"); give --nproc")
		}
	}
	if n, err := pythonInt(counts[0]); err == nil && n > 0 && j.NProc.Origin == "" {
		j.NProc.Offer(n, origin)
	}
	stage := r.word("deepspeed_stage", "0", "default of open-instruct")
	switch stage.text {
	case "0":
		j.Sharding.Offer("ddp", stage.origin)
	case "1", "2", "3":
		j.Sharding.Offer("zero"+stage.text, stage.origin)
	default:
		r.wrongArgument(stage, "0, 1, 2 or 3")
	}
	j.Precision.Offer("bf16", "open-instruct's learners train in bf16")
	j.ParamDtype.Offer("bf16", "open-instruct's learners train in bf16")
	j.MasterFP32.Offer(true, "DeepSpeed keeps an fp32 copy of half-precision weights")
	j.Optimizer.Offer("adamw", "open-instruct's learners use AdamW")
	if a := r.args["pack_length"]; a.text != "" {
		r.integer("pack_length", &j.SeqLen)
	}
	j.SeqLen.Offer(512, "default of open-instruct: pack_length")
}

// openInstructDefaults fills what nobody said.
func (r *reader) openInstructDefaults() {
	if r.args == nil { // they could not be read
		return
	}
	r.applyFallbacks()
	j := r.job
	const origin = "default of open-instruct"
	j.MicroBatch.Offer(8, origin)
	j.GradAccum.Offer(1, origin)
	j.Checkpointing.Offer("none", origin)
	j.ActivationOffload.Offer(false, origin)
	j.FusedLoss.Offer("none", origin)
	j.SeqLen.Unknown("max_seq_length is not given: rows are as long as the data; give --seq-len")
	j.Attention.Unknown("open-instruct takes the best attention that is installed (flash-attn, or else sdpa); give " +
		"--attention")
	r.defaultPrecision()
}
