package job

// Traits are what a framework does that memory depends on and that no option of the job says. The estimate reads them
// and never a framework's name.
type Traits struct {
	// NoDefaults: nobody here knows what the program takes for settings that are not given, so the estimate spans what
	// they may be.
	NoDefaults bool
	// Trainer: transformers' Trainer trains, with its arguments, defaults and refusals (transformers/training_args.py).
	Trainer bool

	// MegatronCore: weights in 16 bit with an fp32 copy, one gradient buffer that is never freed, Megatron's fused
	// kernels and its loss over split logits (megatron/core/distributed, megatron/core/fusions).
	MegatronCore bool
	// DeepSpeed: DeepSpeed's engine holds the states, also without ZeRO (deepspeed/runtime/engine.py).
	DeepSpeed bool
	// SequenceParallel: tensor parallelism always splits what lies between its layers too, along the sequence
	// (torchtitan/models/llama3/infra/parallelize.py).
	SequenceParallel bool
	// NoSync: gradients accumulate under no_sync(), so that each rank keeps them whole until the last micro-batch
	// (accelerate/accelerator.py).
	NoSync bool
	// ReducesInCompute: FSDP reduces gradients in the dtype of computation (accelerate's mixed precision policy);
	// otherwise in fp32.
	ReducesInCompute bool
	// ExpandableSegments: its launcher asks PyTorch's allocator for them, so that freed logits leave no gap
	// (torchtitan/run_train.sh).
	ExpandableSegments bool

	// OwnModels: it has models of its own instead of those of transformers, which repeat keys and values for grouped
	// attention and call torch's own activation functions.
	OwnModels bool
	// FusedQKV: its models have one projection for q, k and v, whatever those of transformers have (litgpt/model.py).
	FusedQKV bool
	// UntiesHead: a tied output projection becomes a weight of its own (litgpt/scripts/convert_hf_checkpoint.py).
	UntiesHead bool
	// QuantisesHead: the output projection is quantised too, and a dequantised weight is converted once more
	// (litgpt/finetune/lora.py through Fabric's BitsandbytesPrecision).
	QuantisesHead bool
	// FusedAdapter: one adapter for q, k and v, with one dropout, that keeps more than its code explains
	// (litgpt/lora.py; see litgptUnexplained).
	FusedAdapter bool
	// AutocastsAdapters: bf16=True runs a frozen 16-bit base under torch.autocast as well (transformers/trainer.py);
	// others run it in its own dtype.
	AutocastsAdapters bool
	// NarrowAdapters: adapters keep the base model's 16-bit dtype (autocast_adapter_dtype=False in
	// trl/trainer/sft_trainer.py).
	NarrowAdapters bool

	// FP32Outputs: under autocast what the model returns is turned to fp32 (accelerate/utils/operations.py:
	// convert_to_fp32).
	FP32Outputs bool
	// FP32Logits: the decoder itself puts out fp32, before any loss (torchtune/modules/transformer.py).
	FP32Logits bool
	// KeepsLogits: the training loop holds the model's output in a variable until the next step; Trainer drops it
	// before backward.
	KeepsLogits bool
	// TransformersLoss: the loss is transformers' own, which made copies of the logits before 4.50
	// (transformers/loss/loss_utils.py).
	TransformersLoss bool
	// FlashLoss: 16-bit logits go through flash-attn's cross entropy (verl/utils/torch_functional.py).
	FlashLoss bool
	// KeepsChunks: a loss in chunks still keeps the logits of all of them (litgpt/utils.py: chunked_cross_entropy).
	KeepsChunks bool
	// LossCompiledSince is the release since which torch.compile takes the loss too; zero: always.
	LossCompiledSince Release
	// CompilesLayers: each layer is a graph of its own; otherwise the model is one.
	CompilesLayers bool
	// RecomputesAttention: selective checkpointing recomputes core attention alone, as Megatron's does
	// (nanotron/nn/attention.py).
	RecomputesAttention bool

	// WideEmbeddings: bitsandbytes' 8-bit optimizers keep 32-bit states of embeddings (optim_bits in
	// transformers/trainer.py).
	WideEmbeddings bool
	// OptimArguments: the rank of projected gradients is one of optim_args (transformers/trainer_optimizer.py).
	OptimArguments bool
	// StateDictType: FSDP's checkpoints have the form of accelerate's fsdp_state_dict_type.
	StateDictType bool
	// PadsBatches: each batch is padded to its own longest row, so that unlike lengths leave gaps
	// (transformers/data/data_collator.py).
	PadsBatches bool
	// RemovesPadding: rows are joined without their padding (use_remove_padding of verl), so that short answers take
	// less.
	RemovesPadding bool
	// EvalBatch is the rows of an evaluation where nothing sets them; 0: as in training.
	EvalBatch int
	// EvalCache: evaluation keeps keys and values, by use_cache of the model's config, before transformers 5
	// (transformers/trainer.py).
	EvalCache bool
}

// A Release is a version of a package from which something holds.
type Release struct {
	Package string
	Version []int
}

// A traitRow is a framework by its name: what the framework does that it is built on, and what it does otherwise.
type traitRow struct {
	name   string
	on     string // "": on nothing that is listed here
	change func(*Traits)
}

// traitRows has one row for each value of the job's key framework.
func traitRows() []traitRow {
	return []traitRow{
		{name: "hf-trainer", change: func(t *Traits) {
			*t = Traits{Trainer: true, NoSync: true, ReducesInCompute: true, AutocastsAdapters: true, FP32Outputs: true,
				TransformersLoss: true,
				WideEmbeddings:   true, OptimArguments: true, StateDictType: true, PadsBatches: true,
				EvalBatch: trainerEvalBatch, EvalCache: true}
		}},
		{name: "trl", on: "hf-trainer", change: func(t *Traits) { t.NarrowAdapters = true }},
		{name: "axolotl", on: "hf-trainer"},
		{name: "llamafactory", on: "hf-trainer"},
		{name: "unsloth", on: "hf-trainer"},
		{name: "open-instruct"},
		{name: "custom", change: func(t *Traits) { t.NoDefaults, t.KeepsLogits = true, true }},
		{name: "deepspeed", change: func(t *Traits) { t.DeepSpeed = true }},
		{name: "megatron", change: func(t *Traits) { t.MegatronCore = true }},
		{name: "nanotron", change: func(t *Traits) { t.RecomputesAttention = true }},
		{name: "torchtitan", change: func(t *Traits) {
			t.OwnModels, t.SequenceParallel, t.CompilesLayers, t.ExpandableSegments = true, true, true, true
			// train.py of 2024 notes that compiling the loss caused CUDA errors
			t.LossCompiledSince = Release{"torchtitan", []int{0, 1}}
		}},
		{name: "torchtune", change: func(t *Traits) { t.OwnModels, t.CompilesLayers, t.FP32Logits = true, true, true }},
		{name: "litgpt", change: func(t *Traits) {
			t.OwnModels, t.FusedQKV, t.UntiesHead, t.QuantisesHead, t.FusedAdapter, t.KeepsChunks = true, true, true,
				true, true, true
		}},
		{name: "verl", change: func(t *Traits) { t.FlashLoss, t.RemovesPadding = true, true }},
		{name: "openrlhf"},
		{name: "lightning"},
	}
}

// Traits are those of the job's framework.
func (j *Job) Traits() Traits { return traitsOf(traitRows(), j.Framework.Or("")) }

// traitsOf finds a framework's traits in a table. One that is not there has no defaults that anybody knows.
func traitsOf(rows []traitRow, name string) Traits {
	for _, row := range rows {
		if row.name != name || name == "" {
			continue
		}
		var t Traits
		if row.on != "" {
			t = traitsOf(rows, row.on)
		}
		if row.change != nil {
			row.change(&t)
		}
		return t
	}
	return Traits{NoDefaults: true}
}

// TrainingArguments' defaults for per_device_train_batch_size and gradient_accumulation_steps
// (transformers src/transformers/training_args.py).
const (
	trainerMicroBatch = 8
	trainerGradAccum  = 1
	trainerEvalBatch  = 8 // per_device_eval_batch_size
)
