"""Draws cases that nobody has tried: a family, every size of it and every setting by chance; or lists again those that were simulated.

    python random_cases.py SEED NUMBER > cases.json
    python random_cases.py again ../testdata/simulated_random.json > cases.json
"""

import dataclasses
import json
import random
import sys

import cases

# Keys that a family's configuration knows beside its sizes.
FLAGS = {
    "llama": ["attention_bias", "mlp_bias"], "qwen3": ["attention_bias"], "stablelm": ["use_qkv_bias", "use_parallel_residual"],
    "cohere": ["use_qk_norm", "attention_bias"], "gpt_neox": ["use_parallel_residual", "attention_bias"], "falcon": ["bias"],
    "granite": ["attention_bias", "mlp_bias"], "smollm3": ["attention_bias"], "phi": ["qk_layernorm"], "olmo": ["attention_bias"],
    "starcoder2": ["use_bias"], "seed_oss": ["attention_out_bias", "mlp_bias"], "nemotron": ["attention_bias", "mlp_bias"],
    "hunyuan_v1_dense": ["attention_bias"], "glm": ["attention_bias"], "qwen2_moe": ["qkv_bias"], "olmoe": ["attention_bias"],
    "gpt_oss": ["attention_bias"],
}
FUSED = ("phi3", "gpt_neox", "falcon", "falcon-new")  # no q_proj
TWO_STACKS = ("bart", "t5", "mt5", "whisper", "clip", "llava")
OPTIMIZERS = ["adamw_foreach", "adamw_foreach", "adamw_fused", "adamw_loop", "sgd", "sgd_momentum", "rmsprop", "adagrad"]


def families():
    """Name, class, config, and what switches dropout off."""
    yield from ((name, *rest) for name, rest in cases.FAMILIES.items())
    yield from ((name, kind, config, {}) for name, (kind, config) in (cases.YOUNG | cases.RECENT).items())


def architecture(name, kind, config, still, chance):
    base = {"model_type": name if name in ("xlm-roberta", "deberta-v2") else name.partition("-")[0], "architectures": [kind]} | config
    base = cases.grown(base, chance)
    if "vocab_size" in config:
        base["vocab_size"] = chance.randint(900, 9000)
    if "head_dim" in base:
        base["head_dim"] = chance.choice([32, 48, 64, 80, 96, 128])
    if "num_key_value_heads" in base and "kv_lora_rank" not in base and name != "phi":
        heads = base["num_attention_heads"]
        base["num_key_value_heads"] = chance.choice([n for n in (1, 2, 4, heads) if heads % n == 0])
    for flag in FLAGS.get(name, []):
        if chance.random() < 0.5:
            base[flag] = chance.random() < 0.5
    if kind.endswith("ForCausalLM") and chance.random() < 0.4:
        base["tie_word_embeddings"] = chance.random() < 0.5
    return base | (still if chance.random() < 0.5 else {})


def settings(name, kind, base, chance):
    way = {"micro_batch": chance.choice([1, 2, 3, 4, 6]), "seq_len": chance.choice([96, 200, 256, 333, 512, 640, 900])}
    way["seq_len"] = cases.SIZES.get(name, way)["seq_len"]
    way["seq_len"] = min(way["seq_len"], base.get("max_position_embeddings", 9999) - 4)
    way |= chance.choice([{"param_dtype": "bf16"}, {"param_dtype": "bf16"}, {"param_dtype": "fp32", "autocast": True}, {"param_dtype": "fp32"},
                          {"param_dtype": "fp16"}])
    way["checkpointing"] = chance.choice(["none", "none", "none", "full", "full", "full" if name in TWO_STACKS else "selective:2"])
    way["attention"] = chance.choice(["sdpa", "sdpa", "eager"])
    way["optimizer"] = chance.choice(OPTIMIZERS)
    if chance.random() < 0.2:
        way["grad_accum"] = chance.choice([2, 3])
    decoder = kind.endswith("ForCausalLM")
    if decoder and chance.random() < 0.2:
        way |= {"padded": True, "micro_batch": max(2, way["micro_batch"])}
    if decoder and chance.random() < 0.3:
        named = "intermediate_size" in base and name not in FUSED and chance.random() < 0.4
        way |= {"method": "lora", "param_dtype": "bf16", "autocast": chance.random() < 0.6, "lora_r": chance.choice([8, 16, 64]),
                "lora_dropout": chance.choice([0, 0, 0.1]), "lora_targets": ["q_proj", "v_proj"] if named else "all-linear"}
        if not way["autocast"]:
            way["adapter_fp32"] = chance.random() < 0.5
    elif decoder and "kv_lora_rank" not in base and chance.random() < 0.25:
        way["outputs_kept"] = True
    return way


def draw(seed, number):
    chance = random.Random(seed)
    pool = list(families())
    chance.shuffle(pool)
    for i in range(number):
        name, kind, config, still = pool[i % len(pool)]
        base = architecture(name, kind, config, still, chance)
        way = settings(name, kind, base, chance)
        yield cases.case(name, base, way) | {"name": f"{name} random {seed}-{i}: {cases.describe(way)}"}


def again(path):
    """The cases of a file of results, without the results."""
    import simulate

    with open(path, encoding="utf-8") as f:
        file = json.load(f)
    keys = {field.name for field in dataclasses.fields(simulate.Case)}
    for case in file["cases"]:
        yield {k: v for k, v in case.items() if k in keys} | {"config": file["configs"][case["config"]]}


if __name__ == "__main__":
    print(json.dumps(list(again(sys.argv[2]) if sys.argv[1] == "again" else draw(int(sys.argv[1]), int(sys.argv[2])))))
