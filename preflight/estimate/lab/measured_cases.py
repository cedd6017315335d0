"""The list of cases that measure.py tries: published models of 0.1 to 8 billion parameters, trained as people train them."""

AUTOCAST = {"param_dtype": "fp32", "autocast": True}
LORA = {"method": "lora", "lora_targets": "all-linear", "lora_r": 16, "autocast": True}
QLORA = LORA | {"method": "qlora", "lora_dropout": 0.05}
FULL = {"checkpointing": "full"}


def size(micro_batch, seq_len):
    return {"micro_batch": micro_batch, "seq_len": seq_len}


ALONE = [
    ("openai-community/gpt2", AUTOCAST | size(8, 1024)),
    ("openai-community/gpt2-large", AUTOCAST | size(4, 1024) | {"optimizer": "adamw_fused", "outputs_kept": True}),
    ("meta-llama/Llama-3.2-1B", size(4, 2048)),
    ("meta-llama/Llama-3.2-1B", AUTOCAST | size(2, 2048) | {"evaluates": True}),
    ("meta-llama/Llama-3.2-1B", AUTOCAST | FULL | size(8, 4096) | {"heavy": True}),
    ("meta-llama/Llama-3.2-1B", size(2, 2048) | {"attention": "eager", "heavy": True}),
    ("meta-llama/Llama-3.2-1B", size(4, 2048) | {"loss": "chunked"}),
    ("meta-llama/Llama-3.2-1B", AUTOCAST | size(4, 2048) | {"loss": "liger"}),
    ("meta-llama/Llama-3.2-3B", size(1, 2048) | {"optimizer": "adamw_fused", "heavy": True}),
    ("meta-llama/Llama-3.1-8B", FULL | size(1, 4096) | {"heavy": True}),
    ("meta-llama/Llama-3.1-8B", FULL | size(4, 2048) | {"optimizer": "sgd_momentum", "heavy": True}),
    ("meta-llama/Llama-3.1-8B", LORA | size(1, 2048) | {"heavy": True}),
    ("meta-llama/Llama-3.1-8B", LORA | FULL | size(4, 4096) | {"lora_dropout": 0.05, "heavy": True}),
    ("meta-llama/Llama-3.1-8B", QLORA | FULL | size(2, 2048)),
    ("meta-llama/Llama-3.2-1B", QLORA | size(4, 1024)),
    ("meta-llama/Llama-3.2-1B", FULL | size(4, 2048) | {"optimizer": "adamw_8bit"}),
    ("meta-llama/Llama-3.2-1B", FULL | size(4, 2048) | {"optimizer": "paged_adamw_8bit"}),
    ("Qwen/Qwen2.5-0.5B", AUTOCAST | size(4, 2048)),
    ("Qwen/Qwen2.5-1.5B", FULL | size(2, 8192) | {"grad_accum": 2, "heavy": True}),
    ("Qwen/Qwen2.5-7B", LORA | FULL | size(2, 4096) | {"lora_targets": ["q_proj", "v_proj"]}),
    ("Qwen/Qwen3-0.6B", size(8, 1024) | {"padded": True}),
    ("Qwen/Qwen3-1.7B", AUTOCAST | FULL | size(2, 4096)),
    ("Qwen/Qwen3-4B", FULL | size(1, 2048) | {"optimizer": "adamw_fused"}),
    ("mistralai/Mistral-7B-v0.1", LORA | size(1, 1024) | {"autocast": False, "adapter_fp32": False}),
    ("google/gemma-2-2b", size(1, 2048) | {"attention": "eager"}),
    ("google/gemma-3-1b-pt", AUTOCAST | size(2, 1024)),
    ("microsoft/phi-2", FULL | size(2, 2048)),
    ("microsoft/Phi-3-mini-4k-instruct", LORA | size(1, 4096)),
    ("EleutherAI/pythia-410m", AUTOCAST | size(8, 1024)),
    ("EleutherAI/pythia-1.4b", {"param_dtype": "fp32"} | size(1, 2048)),
    ("facebook/opt-1.3b", AUTOCAST | size(2, 1024)),
    ("bigscience/bloom-560m", size(4, 1024)),
    ("tiiuae/falcon-7b", LORA | FULL | size(1, 2048)),
    ("bigcode/starcoder2-3b", FULL | size(1, 4096) | {"optimizer": "sgd"}),
    ("TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T", size(4, 2048) | {"optimizer": "adamw_loop", "grad_accum": 2}),
    ("HuggingFaceTB/SmolLM-360M", {"param_dtype": "fp32"} | size(4, 2048)),
    ("google-bert/bert-large-uncased", AUTOCAST | size(16, 512) | {"config": {"architectures": ["BertForMaskedLM"]}}),
    ("FacebookAI/roberta-base", size(32, 256) | {"padded": True, "config": {"architectures": ["RobertaForMaskedLM"]}}),
    ("google/vit-large-patch16-224", AUTOCAST | size(32, 197)),
    ("google/flan-t5-large", AUTOCAST | size(4, 512) | {"config": {"decoder_start_token_id": 0, "pad_token_id": 0}}),
    ("Qwen/Qwen1.5-MoE-A2.7B", LORA | FULL | size(1, 2048) | {"lora_targets": ["q_proj", "k_proj", "v_proj", "o_proj"]}),
    ("Qwen/Qwen1.5-MoE-A2.7B", size(1, 2048) | {"optimizer": "sgd", "heavy": True}),
    ("openai-community/gpt2-medium", AUTOCAST | size(4, 1024) | {"compiled": True}),
    ("meta-llama/Llama-3.1-8B", FULL | size(4, 2048) | {"optimizer": "sgd_momentum", "expandable": True, "heavy": True}),
    ("Qwen/Qwen3-1.7B", AUTOCAST | FULL | size(2, 4096) | {"expandable": True}),
]

# Other models and mixtures, to judge what was learned from the first ones.
LATER = [
    ("meta-llama/Llama-2-7b-hf", LORA | size(2, 1024)),
    ("google/gemma-2b", FULL | size(2, 2048)),
    ("Qwen/Qwen3-8B", QLORA | FULL | size(1, 4096)),
    ("microsoft/phi-1_5", AUTOCAST | size(4, 1024)),
    ("EleutherAI/pythia-160m", size(16, 512) | {"attention": "eager"}),
    ("HuggingFaceTB/SmolLM3-3B", FULL | size(1, 4096) | {"optimizer": "adamw_8bit"}),
    ("deepseek-ai/DeepSeek-V2-Lite", LORA | FULL | size(1, 1024) | {"lora_targets": ["q_proj", "o_proj"]}),
    ("openai-community/gpt2-xl", AUTOCAST | FULL | size(4, 1024)),
    ("google-bert/bert-base-uncased", {"param_dtype": "fp32"} | size(32, 128) | {"config": {"architectures": ["BertForMaskedLM"]}}),
    ("facebook/opt-350m", AUTOCAST | size(8, 512)),
    ("google-t5/t5-base", {"param_dtype": "fp32"} | size(8, 512) | {"config": {"decoder_start_token_id": 0, "pad_token_id": 0}}),
    ("ibm/PowerLM-3b", size(1, 1024)),
    ("meta-llama/Llama-3.2-1B", {"param_dtype": "fp32", "padded": True} | size(2, 1024)),
    ("meta-llama/Llama-3.2-1B", {"param_dtype": "fp32"} | size(1, 2048)),
    ("tiiuae/falcon-7b", FULL | size(1, 1024) | {"optimizer": "sgd"}),
    ("google/vit-base-patch16-224", size(64, 197)),
    ("Qwen/Qwen2.5-3B", AUTOCAST | FULL | size(1, 2048) | {"padded": True, "heavy": True}),
    ("Qwen/Qwen2.5-1.5B", FULL | size(4, 2048) | {"loss": "liger"}),
]

# One rank of several.
MIXED = {"param_dtype": "fp32", "mixed": True}

RANKS = [
    ("meta-llama/Llama-3.2-1B", "ddp", 8, AUTOCAST | size(2, 2048)),
    ("openai-community/gpt2-medium", "ddp", 4, AUTOCAST | size(4, 1024) | {"bucket_view": True, "grad_accum": 2, "no_sync": True}),
    ("meta-llama/Llama-3.1-8B", "fsdp2", 8, MIXED | FULL | size(1, 4096) | {"heavy": True}),
    ("Qwen/Qwen2.5-1.5B", "fsdp2", 4, MIXED | size(1, 2048) | {"reshard": False}),
    ("meta-llama/Llama-3.1-8B", "fsdp1", 8, MIXED | FULL | size(1, 4096) | {"heavy": True}),
    ("meta-llama/Llama-3.2-1B", "fsdp1", 2, MIXED | size(1, 2048)),
    ("meta-llama/Llama-3.2-1B", "zero1", 8, MIXED | FULL | size(2, 2048)),
    ("meta-llama/Llama-3.2-1B", "zero2", 8, MIXED | FULL | size(2, 2048)),
    ("meta-llama/Llama-3.2-1B", "zero3", 8, MIXED | FULL | size(2, 2048)),
    ("Qwen/Qwen2.5-7B", "zero3", 8, MIXED | FULL | size(1, 4096)),
    ("Qwen/Qwen2.5-1.5B", "zero2", 4, MIXED | size(1, 2048) | {"grad_accum": 2, "zero": {"reduce_bucket_size": 50_000_000, "allgather_bucket_size": 100_000_000}}),
]


def words(settings):
    return [k if v is True else f"{k}={'+'.join(v) if isinstance(v, list) else v}" for k, v in settings.items() if k not in ("heavy", "zero", "config")]


def cases():
    out = []
    for which, table in (("develop", ALONE), ("held-out", LATER)):
        for model, settings in table:
            out.append({"name": " ".join([model.rpartition("/")[2], *words(settings)]), "set": which, "model": model} | settings)
    for model, sharding, ranks, settings in RANKS:
        name = " ".join([model.rpartition("/")[2], sharding, f"ranks={ranks}", *words(settings)])
        out.append({"name": name, "model": model, "sharding": sharding, "ranks": ranks} | settings)
    return out
