"""Makes the list of cases: small models of every family, each trained in the ways that families differ by.

    python cases.py > cases.json

Sizes are small (so that the simulation is quick), unlike one another (so that a formula cannot be right by coincidence), and such that
activations outweigh weights. A third of the cases of each family is set apart as "held-out".
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
    "gpt_bigcode": ("GPTBigCodeForCausalLM", GPT2 | {"n_inner": 1536, "multi_query": True}, NO_DROPOUT_GPT2),
    "gpt_neo": ("GPTNeoForCausalLM", {"hidden_size": 512, "num_layers": 4, "num_heads": 8, "vocab_size": 3072, "max_position_embeddings": 2048,
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
        {"first_step": True}, {"optimizer": "adamw_fused"}, {"optimizer": "adamw_loop"}, {"optimizer": "sgd"}, {"optimizer": "adafactor"},
        {"optimizer": "adafactor_hf"}, {"optimizer": "rmsprop"}, {"optimizer": "adagrad"},
        {"checkpointing": "selective:2"}, {"loss": "chunked", "seq_len": 1024}, {"loss": "chunked", "autocast": True, "param_dtype": "fp32"},
        {"method": "lora", "autocast": True, "lora_r": 32}, {"method": "lora", "lora_dropout": 0.05},
        LORA | {"adapter_fp32": True}, LORA | {"autocast": True, "checkpointing": "full"},
        LORA | {"adapter_fp32": False, "lora_dropout": 0.1}, {"micro_batch": 4, "seq_len": 2048, "checkpointing": "full"},
    ],
    "gpt2": [{"optimizer": "adamw_fused"}, {"checkpointing": "selective:3"}],
}

def describe(way):
    def word(key, value):
        return value if isinstance(value, str) else "+".join(value) if isinstance(value, list) else f"{key}={value}"

    return " ".join(word(k, v) for k, v in way.items() if k != "name") or "plain"


def main():
    chance = random.Random(20261129)
    cases = []
    for family, (kind, config, still) in FAMILIES.items():
        base = {"model_type": family.split("-")[0], "architectures": [kind]} | config
        ways = [(base | still, w) for w in WAYS + MORE.get(family, [])]
        if still:
            ways += [(base, w | {"name": "dropout "}) for w in DROPOUT_WAYS]
        for full, way in ways:
            way = dict(way)
            if "experts" in str(sorted(full)) and "lora_targets" in way:  # PEFT adapts stacked experts in ways of its own
                way["lora_targets"] = ["q_proj", "k_proj", "v_proj", "o_proj"]
            name = f"{family}: {way.pop('name', '')}{describe(way)}"
            cases.append({"name": name, "config": full, "set": "held-out" if chance.random() < 0.36 else "develop"} | way)
    json.dump(cases, sys.stdout)


if __name__ == "__main__":
    main()
