"""Makes the list of cases about adapters, and about evaluation between steps, for simulate.py.

    python adapters.py > cases.json

Adapters in every combination of their own dtype, dropout and autocast, on modules of different kinds; DoRA, trained biases and modules that are trained
whole. Sizes are unlike those of cases.py.
"""

import itertools
import json

LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 448, "num_hidden_layers": 3, "num_attention_heads": 7,
         "num_key_value_heads": 7, "intermediate_size": 1216, "vocab_size": 2560, "max_position_embeddings": 4096}
TIED = LLAMA | {"tie_word_embeddings": True, "num_attention_heads": 14, "num_key_value_heads": 2}
PHI = {"model_type": "phi", "architectures": ["PhiForCausalLM"], "hidden_size": 448, "num_hidden_layers": 3, "num_attention_heads": 7,
       "intermediate_size": 1792, "vocab_size": 2560, "max_position_embeddings": 4096, "partial_rotary_factor": 0.5}
QWEN2 = LLAMA | {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
ATTENTION = ["q_proj", "v_proj"]
MLP = ["gate_proj", "up_proj", "down_proj"]


def name(model, way):
    words = (v if isinstance(v, str) else "+".join(v) if isinstance(v, list) else f"{k}={v}" for k, v in way.items())
    return f"{model['model_type']}{'-tied' if model.get('tie_word_embeddings') else ''}: " + " ".join(words)


def adapters():
    for targets, fp32, autocast, dropout in itertools.product([ATTENTION, MLP, "all-linear"], [True, False], [True, False], [0.0, 0.1]):
        yield LLAMA, {"lora_targets": targets, "adapter_fp32": fp32, "autocast": autocast, "lora_dropout": dropout}
    common = {"lora_targets": "all-linear", "autocast": True}
    for more in ({"lora_dora": True}, {"lora_dora": True, "lora_dropout": 0.1}, {"lora_bias": "lora_only"}, {"lora_bias": "all"}, {"lora_r": 64},
                 {"modules_to_save": ["lm_head"]}, {"modules_to_save": ["embed_tokens"]}, {"modules_to_save": ["embed_tokens", "lm_head"]},
                 {"modules_to_save": ["lm_head"], "checkpointing": "full"}, {"checkpointing": "full", "lora_dropout": 0.1},
                 {"param_dtype": "fp32"}, {"attention": "eager"}, {"grad_accum": 2}):
        yield LLAMA, common | more
    yield QWEN2, common | {"lora_bias": "all"}
    yield QWEN2, common | {"lora_bias": "lora_only", "lora_targets": ATTENTION}
    yield PHI, {"autocast": True}
    yield PHI, {"autocast": False, "adapter_fp32": False, "lora_targets": "all-linear", "lora_dropout": 0.1}
    for modules in (["lm_head"], ["embed_tokens"], ["embed_tokens", "lm_head"]):
        yield TIED, common | {"modules_to_save": modules}
    yield TIED, {"lora_targets": ["embed_tokens", "q_proj"], "autocast": True}


def evaluations():
    for more in ({}, {"attention": "eager"}, {"param_dtype": "fp32"}, {"param_dtype": "fp32", "autocast": True}, {"checkpointing": "full"},
                 {"method": "lora", "lora_targets": "all-linear", "autocast": True}, {"method": "lora", "lora_targets": "all-linear", "adapter_fp32": False}):
        for model in (LLAMA, TIED, PHI):
            yield model, more | {"evaluates": True, "optimizer": "adamw_fused"}


def frozen():
    """Method freeze: whole layers are trained, and nothing else."""
    gpt2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 448, "n_layer": 4, "n_head": 7, "vocab_size": 2560,
            "n_positions": 1024, "n_ctx": 1024, "attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
    for model in (LLAMA | {"num_hidden_layers": 4}, TIED | {"num_hidden_layers": 4}, gpt2):
        for more in ({"autocast": True}, {"adapter_fp32": False}, {"autocast": True, "checkpointing": "full"}, {"autocast": True, "grad_accum": 2}):
            yield model, {"method": "freeze", "trained_layers": 2} | more
    yield LLAMA, {"method": "freeze", "trained_layers": 1, "autocast": True, "seq_len": 1024}


def main():
    cases = [(m, {"method": "lora"} | w) for m, w in adapters()] + list(evaluations()) + list(frozen())
    print(json.dumps([{"name": name(m, w), "config": m} | w for m, w in cases]))


if __name__ == "__main__":
    main()
