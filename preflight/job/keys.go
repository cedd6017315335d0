package job

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"oomguard/preflight/model"
	"oomguard/preflight/optim"
)

// A Key is one job setting that a person may give: as a flag, and under the same name in oomguard.yaml.
type Key struct {
	Name   string   // in oomguard.yaml: micro_batch (micro-batch is accepted too)
	Flag   string   // without dashes in front: "micro-batch"
	Usage  string   // one line of help
	Values []string // the words that are allowed; nil: a number or free text, which Usage describes
	also   []string // words that others have for the same, allowed too
	set    func(r *reader, text, origin string) error
}

// Keys lists every job setting that can be given, in the order of the help text. It serves the command line's flags,
// oomguard.yaml and the documentation; a new setting is one row here.
func Keys() []Key {
	keys := slices.Concat(modelKeys(), trainingKeys(), adapterKeys(), parallelKeys())
	for i, k := range keys {
		keys[i].Flag = strings.ReplaceAll(k.Name, "_", "-")
	}
	return keys
}

func modelKeys() []Key {
	return []Key{
		{Name: "model", Usage: "model folder, config.json or hub name",
			set: func(r *reader, text, origin string) error {
				return offerText(&r.job.Model, text, origin)
			}},
		{Name: "params", Usage: "number of parameters when there is no config: 7B, 350M, 6738415616",
			set: func(r *reader, text, origin string) error {
				n, err := model.ParseParams(text)
				if err == nil {
					r.params.Offer(n, origin)
				}
				return err
			}},
		{Name: "precision", Usage: "weights, compute and master copy at once", Values: precisionNames(),
			set: setPrecision},
		wordKey("grad_dtype", "gradients, where the engine gives them a dtype of their own",
			[]string{"fp32", "bf16", "fp16"},
			func(r *reader) *Setting[string] { return &r.job.GradDtype }),
		{Name: "versions", Usage: "package versions instead of the installed ones: torch=2.6.0,transformers=4.51.3",
			set: func(r *reader, text, _ string) error {
				versions, err := ParseVersions(text)
				for name, version := range versions {
					if r.versions[name] == "" {
						r.versions[name] = version
					}
				}
				return err
			}},
	}
}

func trainingKeys() []Key {
	return []Key{
		numberKey("micro_batch", "rows that one GPU works on at a time",
			func(r *reader) *Setting[int] { return &r.job.MicroBatch }),
		numberKey("grad_accum", "micro-batches before an optimizer step",
			func(r *reader) *Setting[int] { return &r.job.GradAccum }),
		numberKey("seq_len", "tokens in a row", func(r *reader) *Setting[int] { return &r.job.SeqLen }),
		boolKey("compile", "torch.compile compiles the model",
			func(r *reader) *Setting[bool] { return &r.job.Compile }),
		boolKey("packing", "rows are filled to the sequence length",
			func(r *reader) *Setting[bool] { return &r.job.Packing }),
		{Name: "optimizer", Usage: "optimizer and its implementation (transformers' names are understood too)",
			Values: optim.Words(optim.Ours),
			also:   optim.Words(optim.Trainer), set: func(r *reader, text, origin string) error {
				r.offerOptimizer(text, origin, optim.Ours, optim.Trainer)
				return nil
			}},
		boolKey("optimizer_in_backward", "each weight is updated as soon as its gradient is there",
			func(r *reader) *Setting[bool] { return &r.job.OptimizerInBackward }),
		numberKey("projection_rank", "rank that GaLore and APOLLO project gradients to",
			func(r *reader) *Setting[int] { return &r.job.ProjectionRank }),
		boolKey("evaluation", "the training evaluates", func(r *reader) *Setting[bool] { return &r.job.Evaluation }),
		numberKey("eval_batch", "rows that one GPU evaluates at a time",
			func(r *reader) *Setting[int] { return &r.job.EvalBatch }),
		boolKey("eval_generates", "an evaluation generates answers (predict_with_generate)",
			func(r *reader) *Setting[bool] { return &r.job.EvalGenerates }),
		{Name: "checkpointing", Usage: "activation checkpointing; selective:N is every N-th block",
			Values: []string{"none", "full", "selective", "selective:N", "offload"}, set: setCheckpointing},
		boolKey("checkpointing_reentrant", "checkpointed layers run on detached inputs (use_reentrant=True)",
			func(r *reader) *Setting[bool] { return &r.job.Reentrant }),
		wordKey("attention", "attention implementation",
			[]string{"eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"},
			func(r *reader) *Setting[string] { return &r.job.Attention }),
		wordKey("fused_loss", "loss that avoids whole logits",
			[]string{"none", "chunked", "liger-flce", "cut-ce", "triton-ce"},
			func(r *reader) *Setting[string] { return &r.job.FusedLoss }),
		wordKey("layer_kernels", "fused kernels in place of the layers' own code",
			[]string{"none", "liger", "liger:rope+rms_norm+glu"},
			func(r *reader) *Setting[string] { return &r.job.LayerKernels }),
	}
}

func adapterKeys() []Key {
	return []Key{
		wordKey("method", "what is trained", []string{"full", "lora", "qlora"},
			func(r *reader) *Setting[string] { return &r.job.Method }),
		numberKey("lora_r", "rank of the adapters", func(r *reader) *Setting[int] { return &r.adapter.r }),
		numberKey("lora_alpha", "scale of the adapters", func(r *reader) *Setting[int] { return &r.adapter.alpha }),
		{Name: "lora_dropout", Usage: "dropout before the adapters, 0 to 1",
			set: func(r *reader, text, origin string) error {
				p, err := strconv.ParseFloat(text, 64)
				if err != nil || !(p >= 0 && p < 1) {
					return fmt.Errorf("need a number from 0 up to 1, such as 0.05")
				}
				r.adapter.dropout.Offer(p, origin)
				return nil
			}},
		{Name: "lora_targets", Usage: "modules that get adapters: q_proj,v_proj or all-linear",
			set: func(r *reader, text, origin string) error {
				targets := splitList(text)
				if len(targets) == 0 {
					return fmt.Errorf("need module names separated by commas, such as q_proj,v_proj, or all-linear")
				}
				r.adapter.targets.Offer(targets, origin)
				return nil
			}},
		{Name: "quant", Usage: "how frozen weights are stored (nf4-dq: scales quantised too)", Values: quantNames(),
			set: setQuant},
	}
}

func parallelKeys() []Key {
	return []Key{
		wordKey("sharding", "how training state is spread over the ranks",
			[]string{"none", "ddp", "dp", "zero1", "zero2", "zero3", "fsdp-full", "fsdp-grad", "fsdp-hybrid",
				"dist-optim"},
			func(r *reader) *Setting[string] { return &r.job.Sharding }),
		{Name: "fsdp_version", Usage: "FSDP generation", Values: []string{"1", "2"},
			set: func(r *reader, text, origin string) error {
				return offerNumber(&r.job.FSDPVersion, text, origin)
			}},
		wordKey("state_dict", "how FSDP saves", []string{"full", "sharded"},
			func(r *reader) *Setting[string] { return &r.job.StateDict }),
		boolKey("gradient_as_bucket_view", "DDP's gradients are views of its buckets",
			func(r *reader) *Setting[bool] { return &r.job.BucketView }),
		{Name: "offload", Usage: "what lives in host memory", Values: []string{"none", "optimizer", "params", "all"},
			set: func(r *reader, text, origin string) error {
				offload := Offload{Optimizer: "none", Params: "none"}
				if text == "optimizer" || text == "all" {
					offload.Optimizer = "cpu"
				}
				if text == "params" || text == "all" {
					offload.Params = "cpu"
				}
				r.job.Offload.Offer(offload, origin)
				return nil
			}},
		numberKey("tp", "tensor-parallel size", func(r *reader) *Setting[int] { return &r.job.TP }),
		numberKey("pp", "pipeline stages", func(r *reader) *Setting[int] { return &r.job.PP }),
		numberKey("cp", "context-parallel size", func(r *reader) *Setting[int] { return &r.job.CP }),
		numberKey("ep", "expert-parallel size", func(r *reader) *Setting[int] { return &r.job.EP }),
		numberKey("etp", "ranks that split one expert's matrices", func(r *reader) *Setting[int] { return &r.job.ETP }),
		boolKey("sequence_parallel", "tensor parallelism splits the sequence between its layers",
			func(r *reader) *Setting[bool] { return &r.job.SequenceParallel }),
		numberKey("virtual_stages", "chunks of a pipeline stage in an interleaved schedule",
			func(r *reader) *Setting[int] { return &r.job.VirtualStages }),
		numberKey("nproc", "processes a node", func(r *reader) *Setting[int] { return &r.job.NProc }),
		numberKey("nnodes", "nodes", func(r *reader) *Setting[int] { return &r.job.NNodes }),
	}
}

// A quantWord is one value of --quant.
type quantWord struct {
	name  string
	quant Quant
}

// quantWords have the bits and storage of transformers' BitsAndBytesConfig, GPTQConfig and AwqConfig.
func quantWords() []quantWord {
	return []quantWord{
		{"nf4", Quant{Method: "bnb", Bits: 4, Type: "nf4", Storage: "uint8"}},
		{"nf4-dq", Quant{Method: "bnb", Bits: 4, Type: "nf4", Double: true, Storage: "uint8"}},
		{"fp4", Quant{Method: "bnb", Bits: 4, Type: "fp4", Storage: "uint8"}},
		{"int8", Quant{Method: "bnb", Bits: 8, Type: "int8"}},
		{"gptq", Quant{Method: "gptq", Bits: 4}},
		{"awq", Quant{Method: "awq", Bits: 4}},
	}
}

func quantNames() []string {
	var names []string
	for _, w := range quantWords() {
		names = append(names, w.name)
	}
	return names
}

func setQuant(r *reader, text, origin string) error {
	for _, w := range quantWords() {
		if w.name == text {
			r.job.Quant.Offer(&w.quant, origin)
		}
	}
	return nil
}

// A precision says what one word of --precision means.
type precision struct {
	names   []string
	params  string // dtype of the weights
	compute string
	master  bool // an fp32 copy beside them
}

func precisions() []precision {
	return []precision{
		{names: []string{"fp32"}, params: "fp32", compute: "fp32"},
		{names: []string{"bf16-mixed"}, params: "fp32", compute: "bf16"},
		{names: []string{"fp16-mixed"}, params: "fp32", compute: "fp16"},
		{names: []string{"bf16-master", "bf16"}, params: "bf16", compute: "bf16", master: true},
		{names: []string{"fp16-master", "fp16"}, params: "fp16", compute: "fp16", master: true},
		{names: []string{"bf16-true"}, params: "bf16", compute: "bf16"},
		{names: []string{"fp16-true"}, params: "fp16", compute: "fp16"},
	}
}

func precisionNames() []string {
	var names []string
	for _, p := range precisions() {
		names = append(names, p.names...)
	}
	return names
}

func setPrecision(r *reader, text, origin string) error {
	for _, p := range precisions() {
		if slices.Contains(p.names, text) {
			r.load.Offer(p.params, origin)
			r.job.ParamDtype.Offer(p.params, origin)
			r.job.Precision.Offer(p.compute, origin)
			r.job.MasterFP32.Offer(p.master, origin)
			r.job.Autocast.Offer(p.params == "fp32" && p.compute != "fp32", origin)
		}
	}
	return nil
}

func setCheckpointing(r *reader, text, origin string) error {
	if every, ok := strings.CutPrefix(text, "selective:"); ok {
		if n, err := strconv.Atoi(every); err != nil || n < 1 {
			return fmt.Errorf("need a whole number of blocks after selective:, such as selective:2")
		}
	}
	return offerText(&r.job.Checkpointing, text, origin)
}

func numberKey(name, usage string, field func(*reader) *Setting[int]) Key {
	return Key{Name: name, Usage: usage,
		set: func(r *reader, text, origin string) error { return offerNumber(field(r), text, origin) }}
}

func boolKey(name, usage string, field func(*reader) *Setting[bool]) Key {
	return Key{Name: name, Usage: usage, Values: []string{"true", "false"},
		set: func(r *reader, text, origin string) error {
			field(r).Offer(text == "true", origin)
			return nil
		}}
}

func wordKey(name, usage string, values []string, field func(*reader) *Setting[string]) Key {
	return Key{Name: name, Usage: usage, Values: values, set: func(r *reader, text, origin string) error {
		return offerText(field(r), text, origin)
	}}
}

func offerText(s *Setting[string], text, origin string) error {
	if text == "" {
		return fmt.Errorf("need a value")
	}
	s.Offer(text, origin)
	return nil
}

func offerNumber(s *Setting[int], text, origin string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return fmt.Errorf("need a whole number from 1")
	}
	s.Offer(n, origin)
	return nil
}

func splitList(text string) []string {
	return strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == ' ' })
}

// give checks a value and offers it. name is how the person wrote the key ("--quant", "quant"); the error names it, the
// value and what is allowed.
func (k Key) give(r *reader, name, text, origin string) error {
	if k.Values != nil && !k.allows(text) {
		hint := ""
		if k.Name == "precision" && (text == "int8" || text == "int4") {
			hint = " (weights stored in integers: use --quant " +
				map[string]string{"int8": "int8", "int4": "nf4"}[text] + ")"
		}
		return fmt.Errorf("%s: %q is not one of %s%s", name, text, strings.Join(k.Values, ", "), hint)
	}
	if err := k.set(r, text, origin); err != nil {
		return fmt.Errorf("%s: %q: %w", name, text, err)
	}
	return nil
}

func (k Key) allows(text string) bool {
	if k.Name == "checkpointing" && strings.HasPrefix(text, "selective:") {
		return true
	}
	return slices.Contains(k.Values, text) || slices.Contains(k.also, text)
}
