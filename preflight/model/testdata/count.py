"""Writes modules.json: for small models of every family and class, each weight's name, role and size as transformers has them,
and the trainable parameters that PEFT adds. Run it where torch, transformers and peft can be imported:

    python testdata/count.py > testdata/modules.json
"""
import collections
import json
import re
import warnings

import peft
import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.pytorch_utils import Conv1D

warnings.simplefilter("ignore")
transformers.logging.set_verbosity_error()

COMMON = dict(hidden_size=48, num_hidden_layers=3, num_attention_heads=4, vocab_size=100, intermediate_size=80, pad_token_id=0)
KV = dict(COMMON, num_key_value_heads=2)
GPT2 = dict(n_embd=48, n_layer=3, n_head=4, vocab_size=100, pad_token_id=0)
BLOOM = dict(hidden_size=48, n_layer=3, n_head=4, vocab_size=100, pad_token_id=0)
OPT = dict(COMMON, ffn_dim=80, word_embed_proj_dim=48, max_position_embeddings=64)
NEO = dict(hidden_size=48, num_layers=3, num_heads=4, vocab_size=100, attention_types=[[["global"], 3]])
DISTIL = dict(dim=48, n_layers=3, n_heads=4, hidden_dim=80, vocab_size=100)
QWEN_MOE = dict(KV, num_experts=5, moe_intermediate_size=24)

# (model_type, class, settings)
CASES = [
    *[("llama", "Llama" + c, dict(KV, **k)) for c, k in [
        ("ForCausalLM", {}), ("ForCausalLM", dict(tie_word_embeddings=True)), ("Model", {}),
        ("ForCausalLM", dict(attention_bias=True, mlp_bias=True, head_dim=20)),
        ("ForSequenceClassification", dict(num_labels=7)), ("ForTokenClassification", dict(num_labels=5)),
        ("ForTokenClassification", {}), ("ForQuestionAnswering", dict(num_labels=3))]],
    ("llama", "LlamaForCausalLM", COMMON),
    ("mistral", "MistralForCausalLM", KV), ("mistral", "MistralForCausalLM", dict(COMMON, num_attention_heads=8)),
    ("mistral", "MistralForSequenceClassification", dict(KV, num_labels=1)),
    ("qwen2", "Qwen2ForCausalLM", KV), ("qwen2", "Qwen2Model", dict(KV, tie_word_embeddings=True)),
    ("qwen3", "Qwen3ForCausalLM", KV), ("qwen3", "Qwen3ForCausalLM", dict(KV, head_dim=12, attention_bias=True)),
    ("gemma", "GemmaForCausalLM", KV), ("gemma", "GemmaForCausalLM", dict(KV, attention_bias=True, tie_word_embeddings=False)),
    ("gemma2", "Gemma2ForCausalLM", KV), ("gemma2", "Gemma2ForSequenceClassification", KV),
    ("gemma3_text", "Gemma3ForCausalLM", KV),
    ("phi", "PhiForCausalLM", KV), ("phi", "PhiForCausalLM", dict(KV, qk_layernorm=True)),
    ("phi", "PhiForSequenceClassification", KV),
    ("phi3", "Phi3ForCausalLM", KV), ("glm", "GlmForCausalLM", KV),
    ("granite", "GraniteForCausalLM", dict(KV, attention_bias=True, mlp_bias=True)),
    ("smollm3", "SmolLM3ForCausalLM", KV), ("smollm3", "SmolLM3ForCausalLM", dict(KV, mlp_bias=True)),
    ("starcoder2", "Starcoder2ForCausalLM", KV), ("starcoder2", "Starcoder2ForCausalLM", dict(KV, use_bias=False)),
    ("stablelm", "StableLmForCausalLM", KV),
    ("stablelm", "StableLmForCausalLM", dict(KV, use_qkv_bias=True, use_parallel_residual=True)),
    ("olmo", "OlmoForCausalLM", dict(KV, attention_bias=True)), ("olmo2", "Olmo2ForCausalLM", KV),
    ("cohere", "CohereForCausalLM", KV), ("cohere", "CohereForCausalLM", dict(KV, use_qk_norm=True)),
    ("mixtral", "MixtralForCausalLM", dict(KV, num_local_experts=5)),
    ("qwen2_moe", "Qwen2MoeForCausalLM", dict(QWEN_MOE, shared_expert_intermediate_size=32)),
    ("qwen2_moe", "Qwen2MoeForCausalLM",
     dict(QWEN_MOE, shared_expert_intermediate_size=32, decoder_sparse_step=2, qkv_bias=False)),
    ("qwen3_moe", "Qwen3MoeForCausalLM", QWEN_MOE),
    ("qwen3_moe", "Qwen3MoeForCausalLM", dict(QWEN_MOE, mlp_only_layers=[0, 2])),
    *[("gpt2", "GPT2" + c, dict(GPT2, **k)) for c, k in [
        ("LMHeadModel", {}), ("LMHeadModel", dict(tie_word_embeddings=False, n_inner=100)), ("Model", {}),
        ("ForSequenceClassification", {}), ("ForTokenClassification", dict(num_labels=9)), ("ForQuestionAnswering", {})]],
    ("gpt_bigcode", "GPTBigCodeForCausalLM", GPT2), ("gpt_bigcode", "GPTBigCodeForCausalLM", dict(GPT2, multi_query=False)),
    ("gptj", "GPTJForCausalLM", dict(GPT2, rotary_dim=4)),
    *[("gpt_neo", "GPTNeo" + c, NEO) for c in ("ForCausalLM", "ForSequenceClassification")],
    ("gptj", "GPTJForCausalLM", dict(GPT2, rotary_dim=4, tie_word_embeddings=True)),
    *[("gpt_neox", "GPTNeoX" + c, dict(COMMON, **k)) for c, k in [
        ("ForCausalLM", {}), ("ForCausalLM", dict(attention_bias=False, use_parallel_residual=False)), ("Model", {}),
        ("ForSequenceClassification", {}), ("ForTokenClassification", {}), ("ForQuestionAnswering", {})]],
    ("opt", "OPTForCausalLM", OPT), ("opt", "OPTModel", OPT),
    ("opt", "OPTForCausalLM", dict(OPT, word_embed_proj_dim=16, do_layer_norm_before=False)),
    ("opt", "OPTForCausalLM", dict(OPT, enable_bias=False, layer_norm_elementwise_affine=False)),
    ("opt", "OPTForSequenceClassification", OPT),
    ("bloom", "BloomForCausalLM", BLOOM), ("bloom", "BloomForTokenClassification", BLOOM),
    ("falcon", "FalconForCausalLM", COMMON),
    ("falcon", "FalconForCausalLM", dict(COMMON, new_decoder_architecture=True, num_kv_heads=2)),
    ("falcon", "FalconForCausalLM", dict(COMMON, new_decoder_architecture=True, num_kv_heads=2, num_ln_in_parallel_attn=1)),
    ("falcon", "FalconForCausalLM", dict(COMMON, parallel_attn=False, bias=True, multi_query=False)),
    *[("bert", "Bert" + c, dict(COMMON, **k)) for c, k in [
        ("Model", {}), ("ForMaskedLM", {}), ("ForMaskedLM", dict(tie_word_embeddings=False)), ("ForPreTraining", {}),
        ("LMHeadModel", dict(is_decoder=True)), ("ForNextSentencePrediction", {}),
        ("ForSequenceClassification", dict(num_labels=4)), ("ForTokenClassification", dict(num_labels=9)),
        ("ForQuestionAnswering", {}), ("ForMultipleChoice", {})]],
    *[("distilbert", "DistilBert" + c, dict(DISTIL, **k)) for c, k in [
        ("Model", {}), ("ForMaskedLM", {}), ("ForMaskedLM", dict(tie_word_embeddings=False)), ("ForSequenceClassification", {}),
        ("ForTokenClassification", {}), ("ForQuestionAnswering", {}), ("ForMultipleChoice", {})]],
    *[("roberta", "Roberta" + c, dict(COMMON, **k)) for c, k in [
        ("Model", {}), ("ForMaskedLM", {}), ("ForMaskedLM", dict(tie_word_embeddings=False)), ("ForCausalLM", dict(is_decoder=True)),
        ("ForSequenceClassification", dict(num_labels=4)), ("ForTokenClassification", {}), ("ForQuestionAnswering", {}),
        ("ForMultipleChoice", {})]],
]

# (case, targets, rank, DoRA); a target list of None is PEFT's default
ADAPTERS = [
    ("LlamaForCausalLM", None, 8, False), ("LlamaForCausalLM", "all-linear", 4, False), ("LlamaForCausalLM", "all-linear", 4, True),
    ("LlamaForCausalLM", ["q_proj", "lm_head", "embed_tokens"], 4, False), ("LlamaForCausalLM", ["embed_tokens", "o_proj"], 4, True),
    ("LlamaForCausalLM", ["model.layers.1.mlp.up_proj", "k_proj"], 4, False),
    ("LlamaForCausalLM", r".*layers\.[02]\..*\.(q|v)_proj", 4, False), ("LlamaForCausalLM", ["q_proj", "c_attn"], 4, False),
    ("LlamaModel", ["layers.1.mlp.up_proj"], 4, False), ("LlamaForSequenceClassification", "all-linear", 4, False),
    ("GPT2LMHeadModel", None, 8, False), ("GPT2LMHeadModel", ["c_proj"], 8, False), ("GPT2LMHeadModel", ["mlp.c_proj"], 8, False),
    ("GPT2LMHeadModel", ["lm_head"], 8, False), ("GPT2LMHeadModel", "all-linear", 8, True),
    ("GPTNeoXForCausalLM", None, 8, False), ("GPTNeoXForCausalLM", "all-linear", 8, False),
    ("GPTNeoXForCausalLM", ["dense", "dense_4h_to_h"], 8, False),
    ("BertForMaskedLM", None, 8, False), ("BertForMaskedLM", "all-linear", 8, False), ("BertForMaskedLM", ["output.dense"], 8, False),
    ("BertForSequenceClassification", "all-linear", 8, False),
    ("PhiForCausalLM", None, 8, False), ("Qwen3MoeForCausalLM", ["k_proj", "q_proj"], 8, False),
    ("FalconForCausalLM", None, 8, False), ("BloomForCausalLM", None, 8, False), ("OPTForCausalLM", None, 8, False),
    ("Gemma2ForCausalLM", None, 8, False), ("Qwen3ForCausalLM", None, 8, False), ("MixtralForCausalLM", ["q_proj", "v_proj"], 8, False),
]


def build(model_type, cls, settings):
    config = CONFIG_MAPPING[model_type](**settings)
    with torch.device("meta"):
        return getattr(transformers, cls)(config)


def role(module, name, path, head):
    if isinstance(module, torch.nn.Embedding):
        return "embedding"
    if isinstance(module, (torch.nn.Linear, Conv1D)):
        if name == "bias":
            return "bias"
        return "head" if module is head or path in ("score", "classifier", "classifier.out_proj", "qa_outputs", "cls.seq_relationship") else "linear"
    if "Norm" in type(module).__name__:
        return "norm"
    if type(module).__name__.endswith("Experts"):
        return "expert"
    return "bias" if name == "bias" else "other"


def weights(model):
    """Total size by module path (block numbers as *) and role, over all blocks."""
    head, sizes = model.get_output_embeddings(), collections.Counter()
    modules = dict(model.named_modules())
    for full, p in model.named_parameters():
        path, _, name = full.rpartition(".")
        sizes[re.sub(r"\.norms\.\d+$", "", re.sub(r"(^|\.)(layers|h|layer)\.\d+\.", r"\1\2.*.", path, count=1)),
              role(modules[path], name, path, head)] += p.numel()
    return {f"{path} {r}": n for (path, r), n in sizes.items()}


cases = []
for model_type, cls, settings in CASES:
    model = build(model_type, cls, settings)
    # only the keys that were set: every other one tests that the Go table has the defaults of the configuration class
    cases.append(dict(config=dict(settings, model_type=model_type, architectures=[cls]), parameters=model.num_parameters(), weights=weights(model)))

adapters = []
for cls, targets, rank, dora in ADAPTERS:
    model_type, _, settings = next(c for c in CASES if c[1] == cls)
    task = peft.TaskType.SEQ_CLS if cls.endswith("SequenceClassification") else None
    lora = peft.LoraConfig(r=rank, target_modules=targets, use_dora=dora, task_type=task)
    model = getattr(transformers, cls)(CONFIG_MAPPING[model_type](**settings))  # not on meta: PEFT initialises its weights
    tuned = peft.LoraModel(model, lora, "default")
    added = sum(p.numel() for n, p in tuned.named_parameters() if "lora_" in n)
    names = [targets] if isinstance(targets, str) else targets
    adapters.append(dict({"class": cls}, targets=names, r=rank, dora=dora, parameters=added))

def lines(items):
    return ",\n".join(map(json.dumps, items))


about = f"counted with transformers {transformers.__version__} and peft {peft.__version__} by count.py"
print(f'{{"about": {json.dumps(about)},\n"cases": [\n{lines(cases)}\n],\n"adapters": [\n{lines(adapters)}\n]}}')
