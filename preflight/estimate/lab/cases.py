"""Makes the list of cases: small models of every family, each trained in the ways that families differ by.

    python cases.py > cases.json
    python cases.py held-out > cases.json
    python cases.py half > cases.json

The third list is 16-bit weights under autocast, which is what Trainer's bf16=True makes of a model that was loaded in 16 bit.

Sizes are small (so that the simulation is quick), unlike one another (so that a formula cannot be right by coincidence), and such that
activations outweigh weights. The second list has other sizes, drawn by chance, to judge formulas that were made with the first.
"""

import json
import random
import sys

COMMON = {"hidden_size": 512, "num_hidden_layers": 3, "num_attention_heads": 8, "vocab_size": 3072, "max_position_embeddings": 4096}
LLAMA = COMMON | {"intermediate_size": 1344, "num_key_value_heads": 4}
GPT2 = {"n_embd": 512, "n_layer": 3, "n_head": 8, "vocab_size": 3072, "n_positions": 4096, "n_ctx": 4096}
BERT = COMMON | {"intermediate_size": 1792}
NO_DROPOUT_GPT2 = {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
NO_DROPOUT_BERT = {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}

# model_type -> class, config; and, where the family has dropout by default, what switches it off.
FAMILIES = {
    "llama": ("LlamaForCausalLM", LLAMA, {}),
    "mistral": ("MistralForCausalLM", LLAMA | {"sliding_window": None, "intermediate_size": 1792}, {}),
    "mixtral": ("MixtralForCausalLM", LLAMA | {"num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 640, "sliding_window": None}, {}),
    "qwen2": ("Qwen2ForCausalLM", LLAMA | {"num_key_value_heads": 2, "tie_word_embeddings": True}, {}),
    "qwen3": ("Qwen3ForCausalLM", LLAMA | {"head_dim": 96}, {}),
    "qwen2_moe": ("Qwen2MoeForCausalLM", LLAMA | {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 320, "shared_expert_intermediate_size": 704}, {}),
    "qwen3_moe": ("Qwen3MoeForCausalLM", LLAMA | {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 320, "head_dim": 80}, {}),
    "gemma": ("GemmaForCausalLM", LLAMA | {"head_dim": 128, "num_key_value_heads": 1}, {}),
    "gemma2": ("Gemma2ForCausalLM", LLAMA | {"head_dim": 96, "sliding_window": 4096}, {}),
    "gemma3_text": ("Gemma3ForCausalLM", LLAMA | {"head_dim": 96, "sliding_window": 4096}, {}),
    "phi": ("PhiForCausalLM", BERT | {"partial_rotary_factor": 0.5}, {}),
    "phi3": ("Phi3ForCausalLM", LLAMA | {"pad_token_id": 0}, {}),
    "gpt2": ("GPT2LMHeadModel", GPT2, NO_DROPOUT_GPT2),
    "gpt_bigcode": ("GPTBigCodeForCausalLM", GPT2 | {"n_inner": 1536, "multi_query": True, "n_positions": 1024, "n_ctx": 1024}, NO_DROPOUT_GPT2),
    "gpt_neo": ("GPTNeoForCausalLM", {"hidden_size": 512, "num_layers": 4, "num_heads": 8, "vocab_size": 3072, "max_position_embeddings": 1024,
                                      "attention_types": [[["global", "local"], 2]], "window_size": 256}, {}),
    "gpt_neox": ("GPTNeoXForCausalLM", BERT | {"rotary_pct": 0.25}, {}),
    "gptj": ("GPTJForCausalLM", GPT2 | {"rotary_dim": 32}, NO_DROPOUT_GPT2),
    "opt": ("OPTForCausalLM", {"hidden_size": 512, "num_hidden_layers": 3, "num_attention_heads": 8, "vocab_size": 3072, "ffn_dim": 1792,
                               "word_embed_proj_dim": 512, "max_position_embeddings": 4096}, {"dropout": 0.0}),
    "bloom": ("BloomForCausalLM", {"hidden_size": 512, "n_layer": 3, "n_head": 8, "vocab_size": 3072}, {}),
    "falcon": ("FalconForCausalLM", COMMON | {"multi_query": True, "parallel_attn": True, "bias": False, "new_decoder_architecture": False}, {}),
    "falcon-new": ("FalconForCausalLM", COMMON | {"num_kv_heads": 4, "new_decoder_architecture": True, "bias": False}, {}),
    "stablelm": ("StableLmForCausalLM", LLAMA | {"num_key_value_heads": 8, "partial_rotary_factor": 0.25}, {}),
    "starcoder2": ("Starcoder2ForCausalLM", LLAMA | {"num_key_value_heads": 2, "sliding_window": None}, {"residual_dropout": 0.0, "embedding_dropout": 0.0}),
    "olmo": ("OlmoForCausalLM", LLAMA | {"num_key_value_heads": 8}, {}),
    "olmo2": ("Olmo2ForCausalLM", LLAMA, {}),
    "cohere": ("CohereForCausalLM", LLAMA, {}),
    "glm": ("GlmForCausalLM", LLAMA | {"head_dim": 64, "num_key_value_heads": 2, "pad_token_id": 0}, {}),
    "granite": ("GraniteForCausalLM", LLAMA, {}),
    "smollm3": ("SmolLM3ForCausalLM", LLAMA | {"pad_token_id": 0}, {}),
    "bert": ("BertForMaskedLM", BERT, NO_DROPOUT_BERT),
    "bert-classify": ("BertForSequenceClassification", BERT, NO_DROPOUT_BERT),
    "roberta": ("RobertaForMaskedLM", BERT | {"pad_token_id": 1}, NO_DROPOUT_BERT),
    "distilbert": ("DistilBertForMaskedLM", {"dim": 512, "n_layers": 3, "n_heads": 8, "hidden_dim": 1792, "vocab_size": 3072, "max_position_embeddings": 4096},
                   {"dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0}),
}

# Families with parts of their own, tried in the first few ways only.
YOUNG = {
    "vit": ("ViTForImageClassification", {"hidden_size": 384, "num_hidden_layers": 3, "num_attention_heads": 6, "intermediate_size": 1536,
                                          "image_size": 224, "patch_size": 16, "num_channels": 3, "hidden_dropout_prob": 0.0,
                                          "attention_probs_dropout_prob": 0.0}),
    "t5": ("T5ForConditionalGeneration", {"d_model": 384, "d_kv": 64, "d_ff": 1280, "num_layers": 3, "num_decoder_layers": 3, "num_heads": 6,
                                          "vocab_size": 3072, "dropout_rate": 0.0, "feed_forward_proj": "relu", "decoder_start_token_id": 0,
                                          "pad_token_id": 0}),
    "bart": ("BartForConditionalGeneration", {"d_model": 384, "encoder_layers": 3, "decoder_layers": 3, "encoder_attention_heads": 6,
                                              "decoder_attention_heads": 6, "encoder_ffn_dim": 1536, "decoder_ffn_dim": 1536, "vocab_size": 3072,
                                              "max_position_embeddings": 1024, "dropout": 0.0, "attention_dropout": 0.0,
                                              "activation_dropout": 0.0, "decoder_start_token_id": 2}),
    "mt5": ("MT5ForConditionalGeneration", {"d_model": 384, "d_kv": 32, "d_ff": 1088, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 6,
                                            "vocab_size": 3072, "dropout_rate": 0.0, "feed_forward_proj": "gated-gelu",
                                            "decoder_start_token_id": 0, "pad_token_id": 0}),
    "whisper": ("WhisperForConditionalGeneration", {"d_model": 384, "encoder_layers": 3, "decoder_layers": 2, "encoder_attention_heads": 6,
                                                    "decoder_attention_heads": 6, "encoder_ffn_dim": 1536, "decoder_ffn_dim": 1280,
                                                    "vocab_size": 3072, "num_mel_bins": 80, "max_source_positions": 600,
                                                    "max_target_positions": 512, "dropout": 0.0, "decoder_start_token_id": 2, "pad_token_id": 1}),
    "deberta-v2": ("DebertaV2ForMaskedLM", {"hidden_size": 384, "num_hidden_layers": 3, "num_attention_heads": 6, "intermediate_size": 1280,
                                            "vocab_size": 3072, "max_position_embeddings": 512, "relative_attention": True,
                                            "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": True,
                                            "pos_att_type": ["p2c", "c2p"], "position_biased_input": False, "type_vocab_size": 0,
                                            "max_relative_positions": -1, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}),
    "clip": ("CLIPModel", {"projection_dim": 256,
                           "text_config": {"hidden_size": 320, "intermediate_size": 1088, "num_hidden_layers": 2, "num_attention_heads": 5,
                                           "vocab_size": 3072, "max_position_embeddings": 77},
                           "vision_config": {"hidden_size": 384, "intermediate_size": 1280, "num_hidden_layers": 3, "num_attention_heads": 6,
                                             "image_size": 224, "patch_size": 16, "num_channels": 3}}),
    "llava": ("LlavaForConditionalGeneration", {"image_token_index": 1, "vision_feature_layer": -2, "vision_feature_select_strategy": "default",
                                                "text_config": LLAMA | {"model_type": "llama"},
                                                "vision_config": {"model_type": "clip_vision_model", "hidden_size": 384,
                                                                  "intermediate_size": 1280, "num_hidden_layers": 4, "num_attention_heads": 6,
                                                                  "image_size": 224, "patch_size": 14, "num_channels": 3,
                                                                  "projection_dim": 256}}),
    "deepseek_v2": ("DeepseekV2ForCausalLM", {"hidden_size": 384, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 6,
                                              "intermediate_size": 1280, "vocab_size": 3072, "q_lora_rank": None, "kv_lora_rank": 128,
                                              "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64, "n_routed_experts": 8,
                                              "n_shared_experts": 2, "num_experts_per_tok": 2, "moe_intermediate_size": 256,
                                              "first_k_dense_replace": 1}),
    "deepseek_v3": ("DeepseekV3ForCausalLM", {"hidden_size": 384, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 6,
                                              "intermediate_size": 1280, "vocab_size": 3072, "q_lora_rank": 192, "kv_lora_rank": 128,
                                              "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64, "n_routed_experts": 8,
                                              "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 256,
                                              "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1}),
    "olmoe": ("OlmoeForCausalLM", {"hidden_size": 512, "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 4,
                                   "intermediate_size": 320, "vocab_size": 3072, "num_experts": 6, "num_experts_per_tok": 2}),
    "mpt": ("MptForCausalLM", {"d_model": 512, "n_heads": 8, "n_layers": 3, "vocab_size": 3072, "expansion_ratio": 4, "max_seq_len": 1024}),
    "electra": ("ElectraForMaskedLM", {"hidden_size": 512, "embedding_size": 128, "num_hidden_layers": 3, "num_attention_heads": 8,
                                       "intermediate_size": 1792, "vocab_size": 3072, "max_position_embeddings": 1024,
                                       "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}),
}

# Families that came later, tried in a few ways.
_MOE = LLAMA | {"num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 640, "pad_token_id": 0}
_MODERN = COMMON | {"num_hidden_layers": 6, "intermediate_size": 768, "pad_token_id": 0, "cls_token_id": 1, "bos_token_id": 1, "eos_token_id": 2,
                    "sep_token_id": 2}
RECENT = {
    "glm4": ("Glm4ForCausalLM", LLAMA | {"head_dim": 64, "num_key_value_heads": 2, "pad_token_id": 0}),
    "glm4_moe": ("Glm4MoeForCausalLM", LLAMA | {"n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 320, "n_shared_experts": 1,
                                                "first_k_dense_replace": 1, "use_qk_norm": True, "pad_token_id": 0, "head_dim": 64}),
    "exaone4": ("Exaone4ForCausalLM", LLAMA | {"sliding_window": 4096, "head_dim": 64}),
    "ernie4_5": ("Ernie4_5ForCausalLM", LLAMA | {"head_dim": 96}),
    "ernie4_5_moe": ("Ernie4_5_MoeForCausalLM", LLAMA | {"moe_num_experts": 6, "moe_k": 2, "moe_intermediate_size": 320, "moe_num_shared_experts": 1,
                                                         "head_dim": 64}),
    "hunyuan_v1_dense": ("HunYuanDenseV1ForCausalLM", LLAMA | {"head_dim": 96, "pad_token_id": 0}),
    "seed_oss": ("SeedOssForCausalLM", LLAMA | {"head_dim": 96}),
    "nemotron": ("NemotronForCausalLM", LLAMA | {"head_dim": 64}),
    "arcee": ("ArceeForCausalLM", LLAMA),
    "ministral": ("MinistralForCausalLM", LLAMA | {"head_dim": 64, "sliding_window": 4096}),
    "ministral3": ("Ministral3ForCausalLM", LLAMA | {"head_dim": 64, "pad_token_id": 0}),
    "olmo3": ("Olmo3ForCausalLM", LLAMA | {"pad_token_id": 0}),
    "cohere2": ("Cohere2ForCausalLM", LLAMA | {"head_dim": 64, "pad_token_id": 0}),
    "gpt_oss": ("GptOssForCausalLM", _MOE | {"head_dim": 64}),
    "granitemoe": ("GraniteMoeForCausalLM", _MOE),
    "granitemoeshared": ("GraniteMoeSharedForCausalLM", _MOE | {"shared_intermediate_size": 704}),
    "minimax_m2": ("MiniMaxM2ForCausalLM", _MOE | {"head_dim": 64}),
    "xlm-roberta": ("XLMRobertaForMaskedLM", BERT | {"pad_token_id": 1} | NO_DROPOUT_BERT),
    "camembert": ("CamembertForSequenceClassification", BERT | {"pad_token_id": 1}),
    "modernbert": ("ModernBertForMaskedLM", _MODERN),
    "modernbert-classify": ("ModernBertForSequenceClassification", _MODERN),
}

# The latest ones.
_BART = {"d_model": 384, "encoder_layers": 3, "decoder_layers": 3, "encoder_attention_heads": 6, "decoder_attention_heads": 6, "encoder_ffn_dim": 1536,
         "decoder_ffn_dim": 1536, "vocab_size": 3072, "max_position_embeddings": 1024, "dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0,
         "decoder_start_token_id": 2, "pad_token_id": 1}
LATEST = {
    "mbart": ("MBartForConditionalGeneration", _BART),
    "pegasus": ("PegasusForConditionalGeneration", _BART),
    "xglm": ("XGLMForCausalLM", {"d_model": 512, "ffn_dim": 1792, "num_layers": 3, "attention_heads": 8, "vocab_size": 3072, "dropout": 0.0,
                                 "attention_dropout": 0.0}),
    "codegen": ("CodeGenForCausalLM", GPT2 | {"rotary_dim": 32}),
    "biogpt": ("BioGptForCausalLM", BERT | {"max_position_embeddings": 1024} | NO_DROPOUT_BERT),
    "deberta": ("DebertaForMaskedLM", BERT | {"max_position_embeddings": 512, "relative_attention": True, "pos_att_type": ["p2c", "c2p"],
                                              "position_biased_input": False} | NO_DROPOUT_BERT),
    "albert": ("AlbertForMaskedLM", BERT | {"embedding_size": 128, "max_position_embeddings": 1024}),
    "albert-classify": ("AlbertForSequenceClassification", BERT | {"embedding_size": 128, "max_position_embeddings": 1024, "num_hidden_layers": 6}),
    "llama4_text": ("Llama4ForCausalLM", LLAMA | {"head_dim": 64, "num_local_experts": 4, "intermediate_size": 640, "intermediate_size_mlp": 1344,
                                                  "interleave_moe_layer_step": 1, "pad_token_id": 0}),
    "dinov2": ("Dinov2ForImageClassification", {"hidden_size": 384, "num_hidden_layers": 3, "num_attention_heads": 6, "image_size": 224, "patch_size": 14}),
    "siglip": ("SiglipModel", {"text_config": {"hidden_size": 320, "intermediate_size": 1088, "num_hidden_layers": 2, "num_attention_heads": 5,
                                               "vocab_size": 3072, "max_position_embeddings": 64, "projection_size": 384},
                               "vision_config": {"hidden_size": 384, "intermediate_size": 1280, "num_hidden_layers": 3, "num_attention_heads": 6,
                                                 "image_size": 224, "patch_size": 16}}),
}

# Sizes of a batch that such a family's images or sounds fix.
SIZES = {"vit": {"micro_batch": 8, "seq_len": 197}, "clip": {"micro_batch": 8, "seq_len": 77},  # patches and a class token; words
         "dinov2": {"micro_batch": 8, "seq_len": 257}, "siglip": {"micro_batch": 8, "seq_len": 64}}

# Ways of training, by what they show. "lora" names all linear modules.
LORA = {"method": "lora", "lora_targets": "all-linear"}
WAYS = [
    {"attention": "sdpa"},
    {"attention": "eager"},
    {"param_dtype": "fp32", "autocast": True},
    {"param_dtype": "fp32", "autocast": True, "attention": "eager", "outputs_kept": True},
    {"checkpointing": "full"},
    {"param_dtype": "fp32", "autocast": True, "checkpointing": "full", "grad_accum": 2},
    {"padded": True, "micro_batch": 3, "seq_len": 384},
    {"param_dtype": "fp32", "grad_accum": 2},
    {"optimizer": "sgd_momentum", "micro_batch": 1, "seq_len": 1024, "outputs_kept": True},
    LORA | {"autocast": True},
    LORA | {"autocast": True, "lora_dropout": 0.1, "attention": "eager"},
    LORA | {"autocast": False, "adapter_fp32": False},
]
DROPOUT_WAYS = [
    {"attention": "sdpa"},
    {"attention": "eager"},
    {"param_dtype": "fp32", "autocast": True},
    {"param_dtype": "fp32", "autocast": True, "attention": "eager"},
]
MORE = {
    "llama": [
        {"both_steps": True}, {"optimizer": "adamw_fused"}, {"optimizer": "adamw_loop"}, {"optimizer": "sgd"}, {"optimizer": "adafactor"},
        {"optimizer": "rmsprop"}, {"optimizer": "adagrad"},
        {"checkpointing": "selective:2"}, {"loss": "chunked", "seq_len": 1024}, {"loss": "chunked", "autocast": True, "param_dtype": "fp32"},
        {"method": "lora", "autocast": True, "lora_r": 32}, {"method": "lora", "lora_dropout": 0.05},
        LORA | {"adapter_fp32": True}, LORA | {"autocast": True, "checkpointing": "full"},
        LORA | {"adapter_fp32": False, "lora_dropout": 0.1}, {"micro_batch": 4, "seq_len": 2048, "checkpointing": "full"},
    ],
    "gpt2": [{"optimizer": "adamw_fused"}, {"checkpointing": "selective:3"}],
}

# Adapters on stacked experts, where PEFT knows the type; for Qwen2-MoE it does not, and passes over them.
EXPERTS = [
    ("qwen3_moe", LORA | {"autocast": True}), ("qwen3_moe", LORA | {"adapter_fp32": False}), ("qwen3_moe", LORA | {"autocast": True, "checkpointing": "full"}),
    ("mixtral", LORA | {"autocast": True}), ("mixtral", LORA | {"adapter_fp32": False, "micro_batch": 1, "seq_len": 1024}),
    ("qwen2_moe", LORA | {"autocast": True}), ("deepseek_v3", LORA | {"autocast": True}),
    ("qwen3_moe", LORA | {"adapter_fp32": True, "lora_targets": ["q_proj", "gate_proj", "up_proj", "down_proj"]}),
]


def describe(way):
    def word(key, value):
        return value if isinstance(value, str) else "+".join(value) if isinstance(value, list) else f"{key}={value}"

    return " ".join(word(k, v) for k, v in way.items() if k != "name") or "plain"


HALF = [{"autocast": True} | way for way in (
    {"attention": "sdpa"}, {"attention": "eager"}, {"checkpointing": "full", "grad_accum": 2}, {"padded": True, "micro_batch": 3, "seq_len": 384},
    {"outputs_kept": True, "optimizer": "adamw_loop"})]


def main():
    lists = {"held-out": held_out, "half": half}
    print(json.dumps(lists.get(sys.argv[-1], develop)()))


def ways_of(family, still):
    """What a family is tried with; its own dropout where it has any."""
    ways = [(still, w) for w in WAYS + MORE.get(family, [])]
    return ways + [({}, w | {"name": "dropout "}) for w in DROPOUT_WAYS if still]


def case(family, config, way, **more):
    way = dict(way)
    if "experts" in str(sorted(config)) and "lora_targets" in way:  # PEFT adapts stacked experts in ways of its own
        way["lora_targets"] = ["q_proj", "k_proj", "v_proj", "o_proj"]
    return {"name": f"{family}: {way.pop('name', '')}{describe(way)}", "config": config} | way | more


def develop():
    cases = []
    for family, (kind, config, still) in FAMILIES.items():
        base = {"model_type": family.split("-")[0], "architectures": [kind]} | config
        cases += [(i, case(family, base | off, way)) for i, (off, way) in enumerate(ways_of(family, still))]
    for family, (kind, config) in YOUNG.items():
        base = {"model_type": family, "architectures": [kind]} | config
        size = SIZES.get(family, {})
        few = [way for way in WAYS[:6] if not way.get("outputs_kept")]
        cases += [(i, case(family, base, way) | size) for i, way in enumerate(few)]
    for family, (kind, config) in RECENT.items():
        base = {"model_type": family.removesuffix("-classify"), "architectures": [kind]} | config
        cases += [(i, case(family, base, WAYS[i])) for i in (0, 1, 2, 4, 6, 9)]
    for family, (kind, config) in LATEST.items():
        base = {"model_type": family.removesuffix("-classify"), "architectures": [kind]} | config
        few = (0, 1, 2, 4, 6) if kind.endswith(("LM", "SequenceClassification")) else (0, 1, 2, 4)
        if family == "deberta":  # its Python code adds fp32 numbers to 16-bit scores, and stops
            few = (2, 3, 5, 7)
        if family.startswith("albert"):  # it knows no checkpointing
            few = (0, 1, 2, 6)
        cases += [(i, case(family, base, WAYS[i]) | SIZES.get(family, {})) for i in few]
    cases += [(len(WAYS), expert_case(family, way)) for family, way in EXPERTS]
    return [c for _, c in sorted(cases, key=lambda c: c[0])]  # all families first in one way, then in the next


def expert_case(family, way):
    kind, config = (FAMILIES | YOUNG)[family][:2]
    return {"name": f"{family}: experts {describe(way)}", "config": {"model_type": family, "architectures": [kind]} | config} | way


def half():
    """16-bit weights under autocast."""
    cases = []
    for family, (kind, config, still) in FAMILIES.items():
        base = {"model_type": family.split("-")[0], "architectures": [kind]} | config
        cases += [(i, case(family, base | still, way)) for i, way in enumerate(HALF)]
        cases += [(i + len(HALF), case(family, base, way | {"name": "dropout "})) for i, way in enumerate(HALF[:2]) if still]
    for family, (kind, config) in (YOUNG | RECENT).items():
        base = {"model_type": family.removesuffix("-classify"), "architectures": [kind]} | config
        few = HALF[:3] if family in YOUNG else HALF[:2]
        cases += [(i, case(family, base, way) | SIZES.get(family, {})) for i, way in enumerate(few)]
    return [c for _, c in sorted(cases, key=lambda c: c[0])]


def held_out():
    """Other sizes, drawn by chance, in ways that are mixtures of those above; made after the formulas were."""
    chance = random.Random(8472)
    cases = []
    for family, (kind, config, still) in FAMILIES.items():
        for number in range(6):
            base = {"model_type": family.split("-")[0], "architectures": [kind]} | config
            grow(base, chance)
            off = still if chance.random() < 0.5 else {}
            first, second = chance.sample(WAYS, 2)
            way = second | first | {"micro_batch": chance.choice([1, 2, 3, 5]), "seq_len": chance.choice([200, 320, 512, 768])}
            if way.get("padded"):
                way["micro_batch"] = max(way["micro_batch"], 2)
            if way.get("method") == "lora":
                way |= {"param_dtype": "bf16", "outputs_kept": False}
            cases.append(case(family, base | off, way, set="held-out") | {"name": f"{family} {number}: {describe(way)}"})
    return cases + held_out_young(random.Random(1215))


def held_out_young(chance):
    cases = []
    simple = [way for way in WAYS[:8] if not way.get("outputs_kept")]
    for family, (kind, config) in YOUNG.items():
        for number in range(3):
            base = {"model_type": family, "architectures": [kind]} | config
            base = grown(base, chance)
            first, second = chance.sample(simple, 2)
            size = {"micro_batch": chance.choice([2, 3, 5]), "seq_len": chance.choice([200, 320, 512])}
            if family in SIZES:
                size["seq_len"] = SIZES[family]["seq_len"]
            way = second | first | size
            cases.append(case(family, base, way, set="held-out") | {"name": f"{family} {number}: {describe(way)}"})
    return cases


def grown(config, chance):
    """A copy with every size changed, in the sections of models that have several as well."""
    out = {key: grown(value, chance) if isinstance(value, dict) else value for key, value in config.items()}
    grow(out, chance)
    return out


def grow(config, chance):
    """Changes every size that a config names."""
    heads = chance.choice([4, 8, 12])
    width = heads * chance.choice([32, 64, 96])
    for key in ("hidden_size", "n_embd", "dim", "word_embed_proj_dim", "d_model"):
        if key in config:
            config[key] = width
    for key in ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads"):
        if key in config:
            config[key] = heads
    for key in ("num_key_value_heads", "num_kv_heads"):
        if config.get(key, 1) > 1:
            config[key] = chance.choice([2, 4, heads]) if config.get(key) != 8 and "kv_lora_rank" not in config else heads
    for key in ("intermediate_size", "ffn_dim", "hidden_dim", "n_inner", "moe_intermediate_size", "shared_expert_intermediate_size", "d_ff",
                "encoder_ffn_dim", "decoder_ffn_dim"):
        if key in config:
            config[key] = 32 * chance.randint(10, 60)
    for key in ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers", "encoder_layers", "decoder_layers"):
        if key in config:
            config[key] = chance.choice([2, 3, 4]) if "attention_types" not in config else config[key]
    if "vocab_size" in config or "model_type" in config:
        config["vocab_size"] = 64 * chance.randint(30, 120)


if __name__ == "__main__":
    main()
