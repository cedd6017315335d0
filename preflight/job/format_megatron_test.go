package job

import (
	"maps"
	"strings"
	"testing"
)

// megatronGPT is a small model of Megatron-LM on 8 ranks: 4 layers of 64, with 10 parameters to set.
const megatronGPT = "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 4 --hidden-size 64 " +
	"--num-attention-heads 4 --seq-length 128 --max-position-embeddings 128 " +
	"--micro-batch-size 2 --vocab-size 1000 "

// Defaults and derived values: megatron/training/arguments.py and megatron/core/transformer/transformer_config.py of
// core_v0.13.1.
func TestMegatron(t *testing.T) {
	gpt := func(sizes map[string]any) map[string]any {
		all := map[string]any{"num_layers": 4., "hidden": 64., "ffn": 256., "heads": 4., "kv_heads": 4., "vocab": 1000.,
			"tied": true}
		maps.Copy(all, sizes)
		return all
	}
	// A layer: qkv and proj 4*64*64+4*64, MLP 2*64*256+256+64, two LayerNorms 4*64; embeddings 1024*64 (vocabulary
	// padded to 128) and 128*64 positions; final norm 128.
	const layer, outside = 16640 + 33088 + 256, 1024*64 + 128*64 + 128
	for _, c := range []formatCase{
		{name: "defaults", cmd: megatronGPT,
			want: map[string]any{"framework": "megatron", "task": "pretrain", "model": gpt(nil),
				"model_params": 4*layer + outside, "param_dtype": "fp32", "precision": "fp32",
				"master_fp32": false, "optimizer": "adamw", "grad_accum": 1, "global_batch": 16, "packing": true,
				"checkpointing": "none", "sharding": "ddp", "attention": "fused", "fused_loss": "none",
				"tp": 1, "pp": 1, "cp": 1, "ep": 1, "method": "full", "ref_model": false, "activation_offload": false}},
		{name: "padding by tensor parallelism", cmd: megatronGPT + "--tensor-model-parallel-size 2",
			want: map[string]any{"model_params": 4*layer + outside, "tp": 2}},
		{name: "padding by a larger unit",
			cmd:  megatronGPT + "--make-vocab-size-divisible-by 1000 --tensor-model-parallel-size 2",
			want: map[string]any{"model_params": 4*layer + outside + 976*64}},
		{name: "swiglu without a width",
			cmd: megatronGPT + "--swiglu --disable-bias-linear --normalization RMSNorm " +
				"--untie-embeddings-and-output-weights --position-embedding-type rope",
			// int(4*64*2/3/64)*64 = 128
			want: map[string]any{"model": gpt(map[string]any{"ffn": 128., "tied": false}),
				"model_params": 4*(4*64*64+3*64*128+2*64) + 2*1024*64 + 64}},
		{name: "queries share one group unless told", cmd: megatronGPT + "--group-query-attention",
			want: map[string]any{"model": gpt(map[string]any{"kv_heads": 1.}),
				"model_params": 4*(layer-2*3*16*(64+1)) + outside}},
		{name: "groups without the flag", cmd: megatronGPT + "--num-query-groups 2",
			want: map[string]any{"model": gpt(nil)}},
		{name: "experts in every second layer",
			cmd: megatronGPT + "--num-experts 8 --moe-layer-freq ([0]+[1])*2 --moe-ffn-hidden-size 32 " +
				"--expert-model-parallel-size 4 --disable-bias-linear",
			want: map[string]any{"ep": 4, "model": gpt(map[string]any{"experts": 8., "topk": 2., "moe_ffn": 32.}),
				"model_params": 4*(4*64*64+4*64) + 2*2*64*256 + 2*(8*64+8*2*64*32) + outside}},
		{name: "vocabulary of the tokenizer",
			cmd:  strings.Replace(megatronGPT, "--vocab-size 1000", "--tokenizer-type GPT2BPETokenizer", 1),
			want: map[string]any{"model": gpt(map[string]any{"vocab": 50257.})}},
		{name: "vocabulary of a file", cmd: strings.Replace(megatronGPT, "--vocab-size 1000",
			"--tokenizer-type GPT2BPETokenizer --vocab-file vocab.json", 1), file: "vocab.json",
			text: `{"a": 0, "b": 1}`,
			want: map[string]any{"model": gpt(map[string]any{"vocab": 2.})}},
		{name: "vocabulary unknown", cmd: strings.Replace(megatronGPT, "--vocab-size 1000",
			"--tokenizer-type HuggingFaceTokenizer", 1),
			want: map[string]any{"model": nil, "model_params": nil, "seq_len": 128}},
		{name: "sizes in the checkpoint",
			cmd: "torchrun --nproc-per-node 8 pretrain_gpt.py --use-checkpoint-args --micro-batch-size 2 " +
				"--seq-length 128 --bf16", want: map[string]any{"model": nil, "model_params": nil,
				"param_dtype": "bf16"}},
		{name: "another model", cmd: strings.Replace(megatronGPT, "gpt", "bert", 1),
			want: map[string]any{"framework": "megatron", "model": nil, "model_params": nil, "micro_batch": 2}},
		{name: "mixed precision", cmd: megatronGPT + "--bf16 --fp8-format hybrid --optimizer sgd",
			want: map[string]any{"param_dtype": "bf16", "precision": "fp8", "master_fp32": true,
				"optimizer": "sgd_momentum"}},
		{name: "FSDP of its own", cmd: megatronGPT +
			"--use-megatron-fsdp --use-distributed-optimizer --data-parallel-sharding-strategy optim_grads_params",
			want: map[string]any{"sharding": "fsdp-full"}},
		{name: "FSDP of its own shards nothing by default",
			cmd:  megatronGPT + "--use-custom-fsdp --use-distributed-optimizer",
			want: map[string]any{"sharding": "ddp"}},
		{name: "FSDP of its own since 0.18", cmd: megatronGPT + "--use-megatron-fsdp",
			versions: map[string]string{"megatron-core": "0.18.0"}, want: map[string]any{"sharding": "fsdp-full"}},
		{name: "FSDP of its own until 0.17", cmd: megatronGPT + "--use-megatron-fsdp",
			versions: map[string]string{"megatron-core": "0.17.0"}, want: map[string]any{"sharding": "ddp"}},
		{name: "FSDP of its own, version unknown", cmd: megatronGPT + "--use-megatron-fsdp",
			want: map[string]any{"sharding": nil}},
		{name: "on DeepSpeed", cmd: megatronGPT + "--bf16 --deepspeed --zero-stage 2 --checkpoint-activations",
			want: map[string]any{"sharding": "zero2", "checkpointing": "full"}},
		{name: "FSDP of torch", cmd: megatronGPT + "--use-torch-fsdp2",
			want: map[string]any{"sharding": "fsdp-full", "fsdp_version": 2}},
		{name: "one replica", cmd: megatronGPT + "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2",
			want: map[string]any{"sharding": "none", "global_batch": 2}},
		{name: "offloaded optimizer", cmd: megatronGPT +
			"--bf16 --use-distributed-optimizer --use-precision-aware-optimizer --optimizer-cpu-offload",
			want: map[string]any{"offload": map[string]any{"optimizer": "cpu", "params": "none"}}},
		{name: "uniform recomputation",
			cmd:  megatronGPT + "--recompute-granularity full --recompute-method uniform --recompute-num-layers 2",
			want: map[string]any{"checkpointing": "full"}},
		{name: "all layers of the stage",
			cmd: megatronGPT + "--recompute-granularity full --recompute-method block --recompute-num-layers 2 " +
				"--pipeline-model-parallel-size 2", want: map[string]any{"checkpointing": "full"}},
		{name: "one of two layers of the stage",
			cmd: megatronGPT + "--recompute-granularity full --recompute-method block --recompute-num-layers 1 " +
				"--pipeline-model-parallel-size 2", want: map[string]any{"checkpointing": "selective:2"}},
		{name: "offloaded activations", cmd: megatronGPT + "--cpu-offloading-num-layers 2",
			want: map[string]any{"activation_offload": true}},
		{name: "losses and kernels", cmd: megatronGPT +
			"--cross-entropy-loss-fusion --cross-entropy-fusion-impl te --use-flash-attn",
			want: map[string]any{"fused_loss": "te", "attention": "flash"}},
		{name: "the last one wins", cmd: megatronGPT + "--micro-batch-size=4 --global-batch-size 64",
			want: map[string]any{"micro_batch": 4, "grad_accum": 2}},
		{name: "options of later releases",
			cmd:  megatronGPT + "--some-new-option 3 x --bf16 --rampup-batch-size 16 16 1000",
			want: map[string]any{"param_dtype": "bf16"}},
		{name: "from a file", cmd: "torchrun --nproc-per-node 8 pretrain_gpt.py --yaml-cfg m.yaml --num-layers 999",
			file: "m.yaml",
			text: "language_model:\n  num_layers: 4\n  hidden_size: 64\n  num_attention_heads: 4\n  " +
				"ffn_hidden_size: null\n  add_bias_linear: False\n  activation_func: swiglu\n" +
				"model_parallel:\n  tensor_model_parallel_size: 2\n  bf16: True\n  sequence_parallel: " +
				"False\nmicro_batch_size: 2\nseq_length: 128\nmax_position_embeddings: 128\nvocab_size: 1000\n",
			want: map[string]any{"model": gpt(map[string]any{"ffn": 128.}), "tp": 2, "precision": "bf16",
				"micro_batch": 2}},
		{name: "from a broken file", cmd: "torchrun --nproc-per-node 8 pretrain_gpt.py --yaml-cfg m.yaml",
			file: "m.yaml", text: "a: [", problem: "m.yaml", want: map[string]any{"micro_batch": nil, "model": nil}},
		{name: "from no file", cmd: "torchrun --nproc-per-node 8 pretrain_gpt.py --yaml-cfg m.yaml",
			problem: "no such file", want: map[string]any{"micro_batch": nil}},
		{name: "variables that nobody set", cmd: "bash gpt.sh", file: "gpt.sh",
			text:    strings.Replace(megatronGPT, "--micro-batch-size 2", "--micro-batch-size $MBS", 1) + "$(extra)\n",
			problem: "$(extra) is not known",
			want: map[string]any{"micro_batch": nil, "param_dtype": nil, "checkpointing": nil, "model": nil,
				"seq_len": 128}},
		{name: "arrays of a script", cmd: "bash gpt.sh", file: "gpt.sh",
			text: "GPT=(\n  --num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 128 " +
				"--max-position-embeddings 128\n)\n" +
				"torchrun --nproc-per-node 8 pretrain_gpt.py ${GPT[@]} --micro-batch-size 2 --vocab-size 1000\n",
			want: map[string]any{"model": gpt(nil), "micro_batch": 2}},
	} {
		t.Run(c.name, c.run)
	}
}

// Assertions of validate_args and TransformerConfig.
func TestMegatronRefusals(t *testing.T) {
	for args, want := range map[string]string{
		"--tensor-model-parallel-size 3": "world size (8) is not divisible",
		"--tensor-model-parallel-size 8": "num_attention_heads (4) must be a multiple " +
			"of tensor_model_parallel_size (8)",
		"--num-attention-heads 3":          "hidden size 64 is not divisible by 3",
		"--pipeline-model-parallel-size 8": "number of layers (4) should be divisible",
		"--context-parallel-size 2 --seq-length 126": "seq-length (126) should be a multiple of 2 " +
			"* context-parallel-size (2)",
		"--seq-length 256":                                             "max_position_embeddings (128) must be greater",
		"--global-batch-size 20":                                       "global batch size (20) is not divisible",
		"--num-experts 8 --tensor-model-parallel-size 2":               "sequence parallelism must be used",
		"--expert-model-parallel-size 2":                               "num_moe_experts must be non None",
		"--num-experts 6 --expert-model-parallel-size 4":               "6 experts are not divisible",
		"--bf16 --fp16":                                                "--fp16 and --bf16",
		"--recompute-granularity full":                                 "--recompute-method",
		"--recompute-granularity selective --recompute-method uniform": "not supported for selective",
		"--optimizer-cpu-offload":                                      "--use-precision-aware-optimizer",
		"--use-custom-fsdp":                                            "distributed optimizer",
		"--batch-size 4":                                               "no longer valid",
		"--model-parallel-size 4":                                      "no longer valid",
		"--checkpoint-activations":                                     "no longer valid",
		"--micro-batch-size two":                                       "invalid int value: 'two'",
		"--micro-batch-size":                                           "expected one argument",
		"--num-layers 4 --pipeline-model-parallel-size 0 --recompute-granularity full --recompute-method block " +
			"--recompute-num-layers 1": "must be above 0",
		"--micro-batch-size 0": "must be above 0",
		"--global-batch 32":    "takes no abbreviations; write --global-batch-size",
		"--num-layers-per-virtual-pipeline-stage 3 --pipeline-model-parallel-size 2": "must be divisible by number " +
			"of layers per virtual",
		"--cpu-offloading-num-layers 1 --recompute-activations": "CPU offloading does not work",
	} {
		t.Run(args, func(t *testing.T) {
			j := Read(Sources{Argv: strings.Fields(megatronGPT + args)})
			if !strings.Contains(j.WillFail.Value, want) {
				t.Errorf("will_fail %q (%s), want %q", j.WillFail.Value, j.WillFail.Origin, want)
			}
		})
	}
	// Sizes that nobody knows are not refused.
	j := Read(Sources{Argv: strings.Fields("torchrun --nnodes 1:4 --nproc-per-node 8 pretrain_gpt.py " +
		"--use-checkpoint-args --tensor-model-parallel-size 8 --micro-batch-size 1 --seq-length 8 --global-batch-size 7")})
	if j.WillFail.Value != "" {
		t.Errorf("will_fail %q", j.WillFail.Value)
	}
}

func TestLayerPattern(t *testing.T) {
	for _, test := range []struct {
		text   string
		layers int
		want   string // one letter a layer; "" for an error
	}{
		{"1", 3, "EEE"}, {"2", 5, "EdEdE"}, {"([0]*3+[1]*2)", 5, "dddEE"}, {"([1]*3+[0]*1)*2", 8, "EEEdEEEd"},
		{"[0,1]", 2, "dE"}, {"[1] * 2 + [0]", 3, "EEd"},
		{"0", 2, ""}, {"-1", 2, ""}, {"[0]*3", 2, ""}, {"[0", 1, ""}, {"[0]*99999999", 3, ""}, {"([0]", 1, ""},
		{"import os", 1, ""}, {"", 1, ""}, {"[0]*", 1, ""}, {strings.Repeat("(", 50) + "[1]", 1, ""},
	} {
		pattern, err := layerPattern(test.text, test.layers)
		got := ""
		for _, sparse := range pattern {
			got += map[bool]string{true: "E", false: "d"}[sparse]
		}
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s: %q, %v, want %q", test.text, got, err, test.want)
		}
	}
}

func FuzzMegatron(f *testing.F) {
	f.Add("--bf16 --num-experts 4 --moe-layer-freq ([0]+[1]*3)", "model_parallel: {tensor_model_parallel_size: 2}")
	f.Add("--num-layers 0 --pipeline-model-parallel-size 0 --recompute-granularity full --recompute-method block "+
		"--recompute-num-layers 1", "a: [1]")
	f.Add("--hidden-size 9999999999 --kv-channels -1 --vocab-size 1e9", "num_layers: {x: 1}\nbf16: maybe\n")
	f.Add("--group-query-attention --num-query-groups 0 --multi-latent-attention --mtp-num-layers 99999", "- 1")
	f.Fuzz(func(t *testing.T, words, text string) {
		dir := t.TempDir()
		write(t, dir, "m.yaml", text)
		for _, cmd := range []string{megatronGPT + words,
			"torchrun --nproc-per-node 4 pretrain_gpt.py --yaml-cfg m.yaml " + words} {
			settingValues(t, Read(Sources{Argv: strings.Fields(cmd), Dir: dir}))
		}
	})
}
