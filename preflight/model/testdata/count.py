"""Writes modules.json: for small models of every family and class, each weight's name, role and size as transformers has them,
and the trainable parameters that PEFT adds. Run it where torch, transformers and peft can be imported:

    python testdata/count.py > testdata/modules.json
"""
import collections
import copy
import json
import os
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
SEQ2SEQ = dict(d_model=48, vocab_size=100, encoder_layers=2, decoder_layers=3, encoder_attention_heads=4, decoder_attention_heads=6,
               encoder_ffn_dim=80, decoder_ffn_dim=96, pad_token_id=0)
SPEECH = dict(SEQ2SEQ, max_source_positions=60, max_target_positions=40)
T5 = dict(d_model=48, d_kv=16, num_heads=4, d_ff=80, num_layers=3, vocab_size=100)
MLA = dict(KV, num_key_value_heads=4, kv_lora_rank=20, qk_nope_head_dim=10, qk_rope_head_dim=6, v_head_dim=14, n_routed_experts=5,
           moe_intermediate_size=24, num_experts_per_tok=2)
IMAGE = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=28, patch_size=14)
DEBERTA = dict(COMMON, relative_attention=True, pos_att_type="c2p|p2c", position_buckets=16, norm_rel_ebd="layer_norm")
LLAVA = dict(text_config=dict(KV, model_type="llama"), vision_config=dict(IMAGE, model_type="clip_vision_model"))
GEMMA3 = dict(text_config=KV, vision_config=dict(IMAGE, vision_use_head=False))
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
    ("deepseek_v2", "DeepseekV2ForCausalLM", MLA),
    ("deepseek_v2", "DeepseekV2ForCausalLM", dict(MLA, q_lora_rank=None, first_k_dense_replace=2, attention_bias=True, n_shared_experts=1)),
    ("deepseek_v3", "DeepseekV3ForCausalLM", dict(MLA, first_k_dense_replace=1)), ("deepseek_v3", "DeepseekV3ForCausalLM", MLA),
    ("deepseek_v3", "DeepseekV3Model", dict(MLA, q_lora_rank=None, first_k_dense_replace=0, attention_bias=True, n_shared_experts=3)),
    ("deepseek_v3", "DeepseekV3ForSequenceClassification", dict(MLA, first_k_dense_replace=1)),
    ("olmoe", "OlmoeForCausalLM", dict(KV, num_experts=5)), ("olmoe", "OlmoeForCausalLM", dict(KV, num_experts=5, attention_bias=True)),
    ("phimoe", "PhimoeForCausalLM", KV),
    ("phimoe", "PhimoeForCausalLM", dict(KV, num_local_experts=5, attention_bias=True, lm_head_bias=True)),
    ("mpt", "MptForCausalLM", dict(d_model=48, n_layers=3, n_heads=4, vocab_size=100)),
    ("mpt", "MptForSequenceClassification", dict(d_model=48, n_layers=3, n_heads=4, vocab_size=100)),
    *[("electra", "Electra" + c, dict(COMMON, **k)) for c, k in [
        ("Model", {}), ("ForMaskedLM", {}), ("ForMaskedLM", dict(tie_word_embeddings=False, embedding_size=48)), ("ForPreTraining", {}),
        ("ForCausalLM", dict(is_decoder=True)), ("ForSequenceClassification", dict(num_labels=4)), ("ForTokenClassification", {}),
        ("ForQuestionAnswering", {})]],
    *[("deberta-v2", "DebertaV2" + c, dict(DEBERTA, **k)) for c, k in [
        ("Model", {}), ("Model", dict(share_att_key=True, position_biased_input=False, conv_kernel_size=3, conv_groups=2)),
        ("Model", dict(relative_attention=False, norm_rel_ebd="none", type_vocab_size=2, embedding_size=24)),
        ("Model", dict(pos_att_type=["p2c"], position_buckets=-1, max_relative_positions=20)),
        ("ForMaskedLM", {}), ("ForMaskedLM", dict(tie_word_embeddings=False)), ("ForSequenceClassification", dict(num_labels=3)),
        ("ForTokenClassification", {}), ("ForQuestionAnswering", {}), ("ForMultipleChoice", {})]],
    *[("t5", "T5" + c, dict(T5, **k)) for c, k in [
        ("ForConditionalGeneration", {}), ("ForConditionalGeneration", dict(feed_forward_proj="gated-gelu", num_decoder_layers=1)),
        ("ForConditionalGeneration", dict(tie_word_embeddings=False, num_layers=1)), ("Model", {}), ("EncoderModel", {}),
        ("ForSequenceClassification", {}), ("ForTokenClassification", dict(num_labels=5)), ("ForQuestionAnswering", {})]],
    ("mt5", "MT5ForConditionalGeneration", T5), ("mt5", "MT5EncoderModel", T5), ("mt5", "MT5Model", dict(T5, feed_forward_proj="relu")),
    *[("bart", "Bart" + c, dict(SEQ2SEQ, **k)) for c, k in [
        ("ForConditionalGeneration", {}), ("ForConditionalGeneration", dict(tie_word_embeddings=False)), ("Model", {}),
        ("ForSequenceClassification", {}), ("ForSequenceClassification", dict(num_labels=7)), ("ForQuestionAnswering", {})]],
    *[("whisper", "Whisper" + c, dict(SPEECH, **k)) for c, k in [
        ("ForConditionalGeneration", {}), ("ForConditionalGeneration", dict(tie_word_embeddings=False, num_mel_bins=128)), ("Model", {}),
        ("ForAudioClassification", dict(num_labels=6)), ("ForAudioClassification", dict(use_weighted_layer_sum=True))]],
    *[("vit", "ViT" + c, dict(IMAGE, **k)) for c, k in [
        ("Model", {}), ("Model", dict(qkv_bias=False, image_size=[28, 42], patch_size=[14, 7], num_channels=1, pooler_output_size=20)),
        ("ForImageClassification", dict(num_labels=10)), ("ForImageClassification", dict(num_labels=0))]],
    ("clip", "CLIPModel", dict(text_config=COMMON, vision_config=IMAGE)),
    ("clip", "CLIPModel", dict(text_config=dict(hidden_size=16), vision_config=dict(hidden_size=24), projection_dim=40)),
    ("clip", "CLIPForImageClassification", dict(text_config=COMMON, vision_config=IMAGE, num_labels=5)),
    ("llava", "LlavaForConditionalGeneration", LLAVA), ("llava", "LlavaModel", LLAVA),
    ("llava", "LlavaForConditionalGeneration", dict(LLAVA, multimodal_projector_bias=False, vision_feature_layer=[-2, -1])),
    ("llava", "LlavaForConditionalGeneration",
     dict(text_config=dict(KV, model_type="qwen2", tie_word_embeddings=True), vision_config=dict(IMAGE, model_type="siglip_vision_model"))),
    *[("llava", "LlavaForConditionalGeneration",
       dict(text_config=dict(model_type=t, pad_token_id=0), vision_config=dict(model_type="siglip_vision_model")))
      for t in ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "phi3")],
    ("gemma3", "Gemma3ForConditionalGeneration", GEMMA3), ("gemma3", "Gemma3Model", GEMMA3),
    ("gemma3", "Gemma3ForConditionalGeneration", dict(text_config=KV, tie_word_embeddings=False)),
    ("electra", "ElectraForMultipleChoice", COMMON),
    ("glm4", "Glm4ForCausalLM", KV), ("glm4", "Glm4ForCausalLM", dict(KV, head_dim=20, attention_bias=False)),
    ("glm4_moe", "Glm4MoeForCausalLM", dict(KV, n_routed_experts=5, moe_intermediate_size=24, first_k_dense_replace=2)),
    ("glm4_moe", "Glm4MoeModel", dict(KV, n_routed_experts=5, attention_bias=True, use_qk_norm=True, n_shared_experts=2)),
    ("exaone4", "Exaone4ForCausalLM", KV), ("exaone4", "Exaone4ForSequenceClassification", dict(COMMON, num_attention_heads=32, hidden_size=64)),
    ("ernie4_5", "Ernie4_5ForCausalLM", COMMON), ("ernie4_5", "Ernie4_5ForCausalLM", dict(KV, use_bias=True, head_dim=20)),
    ("ernie4_5_moe", "Ernie4_5_MoeForCausalLM", dict(COMMON, moe_num_experts=5, moe_intermediate_size=24, moe_k=2)),
    ("ernie4_5_moe", "Ernie4_5_MoeForCausalLM",
     dict(KV, moe_num_experts=5, use_bias=True, moe_num_shared_experts=0, moe_layer_interval=2, moe_layer_end_index=1, tie_word_embeddings=False)),
    ("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", dict(KV, head_dim=12)),
    ("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", dict(COMMON, attention_bias=True, head_dim=20)),
    ("seed_oss", "SeedOssForCausalLM", KV),
    ("seed_oss", "SeedOssForTokenClassification", dict(COMMON, num_attention_heads=8, attention_out_bias=True, mlp_bias=True)),
    ("nemotron", "NemotronForCausalLM", KV), ("nemotron", "NemotronForCausalLM", dict(KV, attention_bias=True, mlp_bias=True, head_dim=20)),
    ("arcee", "ArceeForCausalLM", KV), ("arcee", "ArceeForCausalLM", dict(COMMON, attention_bias=True, mlp_bias=True)),
    ("ministral", "MinistralForCausalLM", dict(KV, head_dim=12)), ("ministral3", "Ministral3ForCausalLM", KV), ("olmo3", "Olmo3ForCausalLM", KV),
    ("cohere2", "Cohere2ForCausalLM", KV), ("cohere2", "Cohere2ForCausalLM", dict(COMMON, attention_bias=True, tie_word_embeddings=False)),
    ("gpt_oss", "GptOssForCausalLM", dict(KV, num_local_experts=5)),
    ("gpt_oss", "GptOssForSequenceClassification", dict(KV, attention_bias=False, head_dim=12)),
    ("granitemoe", "GraniteMoeForCausalLM", KV), ("granitemoe", "GraniteMoeForCausalLM", dict(KV, num_local_experts=5, attention_bias=True)),
    ("granitemoeshared", "GraniteMoeSharedForCausalLM", KV),
    ("granitemoeshared", "GraniteMoeSharedForCausalLM", dict(KV, num_local_experts=5, shared_intermediate_size=28)),
    ("minimax_m2", "MiniMaxM2ForCausalLM", dict(KV, num_local_experts=5)),
    ("mixtral", "MixtralForCausalLM", KV), ("olmoe", "OlmoeForCausalLM", KV), ("qwen3_moe", "Qwen3MoeForCausalLM", KV),
    ("qwen2_moe", "Qwen2MoeForCausalLM", dict(COMMON, num_attention_heads=16)),
    ("stablelm", "StableLmForCausalLM", dict(KV, head_dim=20)),
    *[("xlm-roberta", "XLMRoberta" + c, COMMON) for c in ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")],
    *[("camembert", "Camembert" + c, COMMON) for c in ("Model", "ForMaskedLM", "ForSequenceClassification", "ForQuestionAnswering")],
    ("qwen2_vl", "Qwen2VLForConditionalGeneration", dict(text_config=KV, vision_config=dict(depth=2, embed_dim=32, hidden_size=48, num_heads=4))),
    ("qwen2_vl", "Qwen2VLModel", dict(KV, vision_config=dict(depth=2, embed_dim=32, hidden_size=48, num_heads=4, mlp_ratio=2, patch_size=7))),
    ("qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration",
     dict(KV, tie_word_embeddings=True, vision_config=dict(depth=2, hidden_size=32, out_hidden_size=48, intermediate_size=40, num_heads=4))),
    ("qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", dict(text_config=KV, vision_config=dict(depth=1, spatial_merge_size=1))),
    ("qwen3_vl", "Qwen3VLForConditionalGeneration", dict(text_config=KV, vision_config=dict(depth=2, hidden_size=32, num_heads=4))),
    ("qwen3_vl", "Qwen3VLForConditionalGeneration",
     dict(text_config=KV, tie_word_embeddings=True, vision_config=dict(depth=3, hidden_size=32, out_hidden_size=48, deepstack_visual_indexes=[0, 2]))),
    ("qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration",
     dict(text_config=QWEN_MOE, vision_config=dict(depth=2, hidden_size=32, num_heads=4))),
    # as published: Qwen/Qwen2-VL-2B-Instruct, Qwen/Qwen2.5-VL-7B-Instruct
    ("qwen2_vl", "Qwen2VLForConditionalGeneration",
     dict(hidden_size=1536, intermediate_size=8960, num_attention_heads=12, num_hidden_layers=28, num_key_value_heads=2, vocab_size=151936,
          tie_word_embeddings=True, vision_config=dict(depth=32, embed_dim=1280, mlp_ratio=4, num_heads=16, in_chans=3, hidden_size=1536, patch_size=14))),
    ("qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration",
     dict(hidden_size=3584, intermediate_size=18944, num_attention_heads=28, num_hidden_layers=28, num_key_value_heads=4, vocab_size=152064,
          vision_config=dict(depth=32, hidden_size=1280, intermediate_size=3420, num_heads=16, in_chans=3, out_hidden_size=3584))),
    ("llava_next", "LlavaNextForConditionalGeneration", LLAVA),
    ("llava_onevision", "LlavaOnevisionForConditionalGeneration",
     dict(text_config=dict(KV, model_type="qwen2"), vision_config=dict(IMAGE, model_type="siglip_vision_model"))),
    ("paligemma", "PaliGemmaForConditionalGeneration",
     dict(text_config=dict(KV, model_type="gemma"), vision_config=dict(IMAGE, model_type="siglip_vision_model"), projection_dim=40)),
    ("paligemma", "PaliGemmaForConditionalGeneration", dict(text_config=dict(model_type="gemma2"), vision_config={})),
    ("idefics3", "Idefics3ForConditionalGeneration", dict(text_config=dict(KV, model_type="llama"), vision_config=IMAGE)),
    ("idefics3", "Idefics3Model", dict(text_config=dict(KV, model_type="llama"), vision_config={}, scale_factor=4)),
    ("smolvlm", "SmolVLMForConditionalGeneration", dict(text_config=dict(KV, model_type="llama"), vision_config=IMAGE, tie_word_embeddings=True)),
    ("mistral3", "Mistral3ForConditionalGeneration",
     dict(text_config=dict(KV, model_type="mistral"), vision_config=dict(IMAGE, model_type="pixtral"), tie_word_embeddings=False)),
    ("mistral3", "Mistral3ForConditionalGeneration", dict(text_config=dict(model_type="mistral"), vision_config=dict(model_type="pixtral"))),
    *[("modernbert", "ModernBert" + c, dict(COMMON, cls_token_id=1, **k)) for c, k in [
        ("Model", {}), ("ForMaskedLM", {}), ("ForMaskedLM", dict(tie_word_embeddings=False, norm_bias=True, attention_bias=True, decoder_bias=False)),
        ("ForSequenceClassification", dict(num_labels=4, mlp_bias=True, classifier_bias=True)), ("ForTokenClassification", {}),
        ("ForQuestionAnswering", {}), ("ForMultipleChoice", {})]],
    # as published: google/gemma-3-4b-it, llava-hf/llava-1.5-7b-hf, openai/whisper-large-v3, facebook/bart-large, microsoft/deberta-v3-base,
    # openai/clip-vit-large-patch14
    ("gemma3", "Gemma3ForConditionalGeneration",
     dict(text_config=dict(hidden_size=2560, intermediate_size=10240, model_type="gemma3_text", num_hidden_layers=34, sliding_window=1024),
          vision_config=dict(hidden_size=1152, image_size=896, intermediate_size=4304, model_type="siglip_vision_model",
                             num_attention_heads=16, num_hidden_layers=27, patch_size=14, vision_use_head=False))),
    ("llava", "LlavaForConditionalGeneration",
     dict(text_config=dict(max_position_embeddings=4096, model_type="llama", vocab_size=32064),
          vision_config=dict(hidden_size=1024, image_size=336, intermediate_size=4096, model_type="clip_vision_model",
                             num_attention_heads=16, num_hidden_layers=24, patch_size=14, projection_dim=768))),
    ("whisper", "WhisperForConditionalGeneration",
     dict(d_model=1280, encoder_layers=32, decoder_layers=32, encoder_attention_heads=20, decoder_attention_heads=20,
          encoder_ffn_dim=5120, decoder_ffn_dim=5120, vocab_size=51866, num_mel_bins=128)),
    ("bart", "BartModel", dict(d_model=1024, encoder_layers=12, decoder_layers=12, encoder_attention_heads=16, decoder_attention_heads=16,
                               encoder_ffn_dim=4096, decoder_ffn_dim=4096, vocab_size=50265, max_position_embeddings=1024)),
    ("deberta-v2", "DebertaV2Model",
     dict(hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072, vocab_size=128100, type_vocab_size=0,
          position_buckets=256, norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type="p2c|c2p", relative_attention=True,
          max_relative_positions=-1, position_biased_input=False)),
    ("clip", "CLIPModel",
     dict(projection_dim=768, text_config=dict(hidden_size=768, intermediate_size=3072, num_attention_heads=12),
          vision_config=dict(hidden_size=1024, intermediate_size=4096, num_attention_heads=16, num_hidden_layers=24, patch_size=14))),
]

SOUND = dict(d_model=32, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=64)
SIGLIP = dict(text_config=COMMON, vision_config=IMAGE)
XGLM = dict(d_model=48, ffn_dim=80, num_layers=3, attention_heads=4, vocab_size=100)
NEXT = dict(QWEN_MOE, num_hidden_layers=5, linear_num_value_heads=4, linear_num_key_heads=2, linear_key_head_dim=8, linear_value_head_dim=6)
JAMBA = dict(KV, num_hidden_layers=9, num_experts=3)
HYBRID = dict(KV, num_local_experts=3, mamba_n_heads=8, mamba_d_state=8)
SCOUT = dict(KV, num_local_experts=3, head_dim=12)
INTERN = dict(text_config=dict(KV, model_type="qwen2"), vision_config=dict(IMAGE, image_size=[28, 28], patch_size=[14, 14]))

# Types that came last.
CASES += [
    *[("albert", "Albert" + c, dict(COMMON, **k)) for c, k in [
        ("Model", dict(num_hidden_groups=3, inner_group_num=2, embedding_size=16)), ("Model", {}), ("ForMaskedLM", {}),
        ("ForMaskedLM", dict(tie_word_embeddings=False)), ("ForPreTraining", {}), ("ForSequenceClassification", dict(num_labels=5)),
        ("ForTokenClassification", {}), ("ForQuestionAnswering", {}), ("ForMultipleChoice", {})]],
    *[("deberta", "Deberta" + c, dict(COMMON, **k)) for c, k in [
        ("Model", {}), ("Model", dict(relative_attention=True, pos_att_type="c2p|p2c", max_relative_positions=20, position_biased_input=False)),
        ("Model", dict(relative_attention=True, pos_att_type=["p2c"], type_vocab_size=2)), ("ForMaskedLM", {}), ("ForMaskedLM", dict(tie_word_embeddings=False)),
        ("ForSequenceClassification", dict(num_labels=4)), ("ForTokenClassification", {}), ("ForQuestionAnswering", {})]],
    ("dinov2", "Dinov2Model", dict(IMAGE, use_swiglu_ffn=True, mlp_ratio=3)), ("dinov2", "Dinov2ForImageClassification", dict(IMAGE, num_labels=7)),
    ("dinov2", "Dinov2ForImageClassification", dict(hidden_size=1536, num_hidden_layers=4, num_attention_heads=24, use_swiglu_ffn=True, image_size=518)),
    ("siglip", "SiglipModel", SIGLIP), ("siglip", "SiglipForImageClassification", dict(SIGLIP, num_labels=5)),
    ("siglip", "SiglipModel", dict(text_config=dict(projection_size=32), vision_config=dict(hidden_size=32, num_attention_heads=4))),
    ("siglip2", "Siglip2Model", SIGLIP), ("siglip2", "Siglip2ForImageClassification", dict(SIGLIP, num_labels=5)),
    *[("mbart", "MBart" + c, SEQ2SEQ) for c in ("Model", "ForConditionalGeneration", "ForSequenceClassification", "ForQuestionAnswering")],
    ("mbart", "MBartForConditionalGeneration", dict(SEQ2SEQ, tie_word_embeddings=False)),
    ("pegasus", "PegasusForConditionalGeneration", SEQ2SEQ), ("pegasus", "PegasusModel", dict(SEQ2SEQ, max_position_embeddings=40)),
    ("xglm", "XGLMForCausalLM", XGLM), ("xglm", "XGLMModel", XGLM),
    *[("codegen", "CodeGen" + c, dict(GPT2, rotary_dim=4)) for c in ("ForCausalLM", "Model")],
    *[("biogpt", "BioGpt" + c, COMMON) for c in ("ForCausalLM", "Model", "ForTokenClassification", "ForSequenceClassification")],
    ("llama4_text", "Llama4ForCausalLM", SCOUT),
    ("llama4_text", "Llama4ForCausalLM", dict(SCOUT, interleave_moe_layer_step=2, tie_word_embeddings=True, attention_bias=True, intermediate_size_mlp=96)),
    ("llama4", "Llama4ForConditionalGeneration",
     dict(text_config=dict(SCOUT, moe_layers=[2]), vision_config=dict(IMAGE, projector_input_dim=36, projector_output_dim=44, vision_output_dim=52))),
    # as published: meta-llama/Llama-4-Scout-17B-16E
    ("llama4", "Llama4ForConditionalGeneration",
     dict(text_config=dict(num_local_experts=16, vocab_size=202048),
          vision_config=dict(hidden_size=1408, image_size=336, vision_output_dim=4096))),
    ("internvl", "InternVLForConditionalGeneration", INTERN), ("internvl", "InternVLModel", INTERN),
    ("internvl", "InternVLForConditionalGeneration",
     dict(text_config=dict(KV, model_type="qwen3"), tie_word_embeddings=False,
          vision_config=dict(IMAGE, image_size=[28, 42], use_qk_norm=True, use_mask_token=True, attention_bias=True, norm_type="rms_norm",
                             use_absolute_position_embeddings=False, use_mean_pooling=False))),
    ("internvl", "InternVLForConditionalGeneration", dict(text_config=dict(KV, model_type="llama"), vision_config={}, downsample_ratio=0.25)),
    ("glm4v", "Glm4vForConditionalGeneration", dict(text_config=KV, vision_config=dict(depth=2, hidden_size=32, num_heads=4, intermediate_size=64, out_hidden_size=48))),
    ("glm4v", "Glm4vForConditionalGeneration",
     dict(text_config=dict(COMMON, num_key_value_heads=4), tie_word_embeddings=True,
          vision_config=dict(depth=1, hidden_size=24, num_heads=4, attention_bias=True, image_size=28, spatial_merge_size=1, out_hidden_size=48))),
    ("qwen2_audio", "Qwen2AudioForConditionalGeneration", dict(text_config=dict(KV, model_type="qwen2"), audio_config=SOUND)),
    ("qwen2_audio", "Qwen2AudioForConditionalGeneration", dict(text_config=dict(KV, model_type="qwen2"), audio_config={})),
    ("qwen3_next", "Qwen3NextForCausalLM", NEXT), ("qwen3_next", "Qwen3NextForCausalLM", dict(COMMON, num_experts=5)),
    ("qwen3_next", "Qwen3NextForCausalLM", dict(NEXT, mlp_only_layers=[1], head_dim=12, attention_bias=True,
                                                layer_types=["full_attention"] * 2 + ["linear_attention"] * 3)),
    ("mamba", "MambaForCausalLM", dict(hidden_size=40, num_hidden_layers=3, vocab_size=100)),
    ("mamba", "MambaForCausalLM", dict(hidden_size=40, num_hidden_layers=3, vocab_size=100, time_step_rank=5, use_bias=True, use_conv_bias=False,
                                       expand=3, tie_word_embeddings=False)),
    ("mamba2", "Mamba2ForCausalLM", dict(hidden_size=48, num_hidden_layers=3, vocab_size=100, state_size=8, num_heads=12, head_dim=8, n_groups=2)),
    ("mamba2", "Mamba2Model", dict(hidden_size=4096, num_hidden_layers=2, use_bias=True, use_conv_bias=False, tie_word_embeddings=True)),
    ("falcon_mamba", "FalconMambaForCausalLM", dict(hidden_size=48, num_hidden_layers=3, vocab_size=100, state_size=8)),
    ("jamba", "JambaForCausalLM", JAMBA), ("jamba", "JambaForSequenceClassification", dict(JAMBA, num_experts=1)),
    ("jamba", "JambaForCausalLM", dict(COMMON, num_attention_heads=8, num_experts=3, attn_layer_period=3, attn_layer_offset=1, expert_layer_period=3,
                                       expert_layer_offset=2, mamba_dt_rank=5, mamba_d_state=8, mamba_proj_bias=True, mamba_conv_bias=False)),
    ("falcon_h1", "FalconH1ForCausalLM", dict(KV, mamba_d_ssm=64, mamba_n_heads=8, mamba_n_groups=2, mamba_d_state=8, mamba_rms_norm=True)),
    ("falcon_h1", "FalconH1ForCausalLM", dict(COMMON, num_attention_heads=8, mamba_d_ssm=None, mamba_n_heads=8, attention_bias=True, mlp_bias=True,
                                              projectors_bias=True, mamba_proj_bias=True, tie_word_embeddings=True, head_dim=12)),
    ("granitemoehybrid", "GraniteMoeHybridForCausalLM", dict(HYBRID, layer_types=["linear_attention", "full_attention", "linear_attention"])),
    ("granitemoehybrid", "GraniteMoeHybridForCausalLM", dict(COMMON, mamba_n_heads=8, num_local_experts=0, attention_bias=True, mamba_proj_bias=True,
                                                             layer_types=["full_attention"] * 2 + ["linear_attention"])),
]

# Five of each of these types whose sizes and switches were drawn by chance.
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "drawn.json"), encoding="utf-8") as f:
    CASES += map(tuple, json.load(f))

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
    ("DeepseekV3ForCausalLM", ["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"], 4, False),
    ("DeepseekV3ForCausalLM", ["kv_b_proj", "o_proj"], 4, True), ("MptForCausalLM", None, 8, False),
    ("ElectraForMaskedLM", None, 8, False), ("ElectraModel", "all-linear", 4, True),
    ("DebertaV2Model", None, 8, False), ("DebertaV2ForSequenceClassification", ["query_proj", "pos_key_proj", "dense"], 4, True),
    ("T5ForConditionalGeneration", None, 8, False), ("T5ForConditionalGeneration", "all-linear", 4, True),
    ("T5ForConditionalGeneration", ["EncDecAttention.q", "wo", "relative_attention_bias"], 4, False),
    ("T5ForConditionalGeneration", ["encoder.block.0.layer.0.SelfAttention.q", "shared"], 4, False),
    ("T5ForConditionalGeneration", r"decoder.*\.(q|v)", 4, False), ("MT5ForConditionalGeneration", None, 8, True),
    ("BartForConditionalGeneration", None, 8, False), ("BartForConditionalGeneration", ["encoder_attn.q_proj", "fc1"], 4, False),
    ("WhisperForConditionalGeneration", ["q_proj", "v_proj"], 8, False), ("WhisperForConditionalGeneration", "all-linear", 4, True),
    ("ViTForImageClassification", ["q_proj", "v_proj"], 8, False), ("ViTModel", "all-linear", 4, True),
    ("CLIPModel", ["q_proj", "v_proj"], 8, False), ("CLIPModel", ["visual_projection", "token_embedding"], 4, False),
    ("LlavaForConditionalGeneration", ["q_proj", "v_proj"], 8, False), ("LlavaForConditionalGeneration", "all-linear", 4, False),
    ("LlavaForConditionalGeneration", r".*language_model.*\.(q|v)_proj", 8, True), ("Gemma3ForConditionalGeneration", ["q_proj"], 8, False),
    ("OlmoeForCausalLM", ["q_proj", "o_proj"], 8, False), ("PhimoeForCausalLM", ["q_proj", "o_proj"], 8, False),
    # without a task_type PEFT adapts the heads of all but sequence classifiers
    ("LlamaForTokenClassification", "all-linear", 4, True), ("LlamaForQuestionAnswering", "all-linear", 4, False),
    ("BertForPreTraining", "all-linear", 4, False), ("RobertaForSequenceClassification", "all-linear", 4, False),
    ("T5ForTokenClassification", "all-linear", 4, False), ("T5EncoderModel", ["embed_tokens", "wi"], 4, True), ("ViTForImageClassification", ["projection", "q_proj"], 4, False),
    ("Qwen2VLModel", ["proj"], 4, True), ("WhisperForConditionalGeneration", ["conv1", "conv2"], 4, False),
    ("T5ForConditionalGeneration", ["embed_tokens", "q"], 4, False), ("BartForConditionalGeneration", ["embed_tokens", "q_proj"], 4, True), ("GPTNeoXForCausalLM", ["lm_head"], 4, False),
    # experts: transformers 5 stacks them, and PEFT turns old names into adapters on the stacked weights where it knows the type
    *[(cls, "all-linear", 4, False) for cls in (
        "MixtralForCausalLM", "Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM", "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "Glm4MoeForCausalLM",
        "Ernie4_5_MoeForCausalLM", "GptOssForCausalLM", "GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM", "OlmoeForCausalLM", "PhimoeForCausalLM",
        "MiniMaxM2ForCausalLM", "Qwen3NextForCausalLM", "JambaForCausalLM", "Llama4ForCausalLM", "GraniteMoeHybridForCausalLM", "Qwen3VLMoeForConditionalGeneration")],
    ("MixtralForCausalLM", ["q_proj", "w1", "w2", "w3"], 4, False), ("MixtralForCausalLM", ["q_proj", "gate"], 4, False),
    ("Qwen3MoeForCausalLM", ["q_proj", "v_proj", "gate_proj", "up_proj", "down_proj"], 4, False),
    ("Qwen3MoeForCausalLM", ["q_proj", "down_proj"], 4, False),
    ("Qwen3MoeForCausalLM", r".*\.(q_proj|gate_proj|up_proj)", 4, False),
    ("Qwen2MoeForCausalLM", ["q_proj", "gate_proj", "up_proj", "down_proj"], 4, False),
    ("DeepseekV3ForCausalLM", ["q_b_proj", "gate_proj", "up_proj", "down_proj"], 4, False), ("PhimoeForCausalLM", ["q_proj", "w1", "w2", "w3"], 4, False),
    ("GptOssForCausalLM", ["q_proj", "gate_proj"], 4, False), ("MambaForCausalLM", ["in_proj", "x_proj"], 4, False), ("JambaForCausalLM", ["in_proj", "x_proj", "q_proj"], 4, True),
    ("DebertaModel", None, 4, False), ("CodeGenForCausalLM", None, 4, False), ("AlbertForMaskedLM", "all-linear", 4, False),
    ("Dinov2ForImageClassification", "all-linear", 4, False), ("SiglipModel", ["q_proj", "v_proj"], 4, False), ("SiglipModel", "all-linear", 4, False),
    ("InternVLForConditionalGeneration", "all-linear", 4, False), ("Qwen2AudioForConditionalGeneration", "all-linear", 4, False),
    ("Llama4ForConditionalGeneration", None, 4, False), ("Glm4vForConditionalGeneration", "all-linear", 4, False), ("MBartForConditionalGeneration", ["q_proj", "v_proj"], 4, False),
]

# (case, targets, modules_to_save, rank, DoRA): everything that is trainable then
SAVED = [
    ("LlamaForCausalLM", ["q_proj"], ["lm_head", "embed_tokens"], 4, False), ("LlamaForCausalLM", ["q_proj", "lm_head"], ["lm_head"], 4, True),
    ("LlamaForCausalLM", ["q_proj"], ["norm"], 4, False), ("LlamaForSequenceClassification", "all-linear", ["score"], 4, False),
    ("GPT2LMHeadModel", None, ["lm_head"], 4, False), ("GPT2LMHeadModel", None, ["wte"], 4, False),
    ("BertForSequenceClassification", None, ["classifier"], 4, False), ("BertForSequenceClassification", None, ["pooler", "classifier"], 4, False),
    ("ElectraForSequenceClassification", None, ["classifier"], 4, False),
    ("DebertaV2ForSequenceClassification", ["query_proj", "dense"], ["pooler", "classifier"], 4, True),
    ("T5ForConditionalGeneration", None, ["lm_head"], 4, False), ("T5ForSequenceClassification", None, ["classification_head"], 4, False),
    ("BartForConditionalGeneration", None, ["fc1", "final_layer_norm"], 4, False),
    ("WhisperForConditionalGeneration", ["q_proj"], ["proj_out", "conv1"], 4, False),
    ("ViTForImageClassification", ["q_proj", "v_proj"], ["classifier"], 4, False),
    ("LlavaForConditionalGeneration", r".*language_model.*\.(q|v)_proj", ["multi_modal_projector"], 4, False),
    ("DeepseekV3ForCausalLM", ["q_b_proj", "o_proj"], ["lm_head", "gate"], 4, False), ("PhimoeForCausalLM", ["q_proj"], ["router"], 4, False),
]


def build(model_type, cls, settings):
    config = CONFIG_MAPPING[model_type](**copy.deepcopy(settings))
    with torch.device("meta"):
        return getattr(transformers, cls)(config)


HEADS = ("score", "classifier", "classifier.out_proj", "qa_outputs", "cls.seq_relationship", "classification_head.out_proj",
         "discriminator_predictions.dense_prediction")


def role(module, name, path, head):
    if isinstance(module, torch.nn.Embedding):
        return "embedding"
    if isinstance(module, (torch.nn.Linear, Conv1D)):
        if name == "bias":
            return "bias"
        return "head" if module is head or path in HEADS else "linear"
    if "Norm" in type(module).__name__:
        return "norm"
    if type(module).__name__.endswith(("Experts", "NaiveMoe")):
        return "expert"
    return "bias" if name == "bias" else "other"


def unique(model, modules):
    """Every parameter once; one that a head shares is the embedding's, whichever was made first."""
    found = {}
    for full, p in model.named_parameters(remove_duplicate=False):
        if id(p) not in found or isinstance(modules[full.rpartition(".")[0]], torch.nn.Embedding) and isinstance(modules[found[id(p)][0].rpartition(".")[0]], torch.nn.Linear):
            found[id(p)] = full, p
    return found.values()


def weights(model):
    """Total size by module path (block numbers as *) and role, over all blocks."""
    head, sizes = model.get_output_embeddings(), collections.Counter()
    modules = dict(model.named_modules())
    for full, p in unique(model, modules):
        path, _, name = full.rpartition(".")
        sizes[re.sub(r"\.norms\.\d+$", "", re.sub(r"(^|\.)(layers|h|layer|blocks|block)\.\d+(\.|$)", r"\1\2.*\3", path, count=1)),
              role(modules[path], name, path, head)] += p.numel()
    return {f"{path} {r}": n for (path, r), n in sizes.items()}


cases = []
for model_type, cls, settings in CASES:
    model = build(model_type, cls, settings)
    # only the keys that were set: every other one tests that the Go table has the defaults of the configuration class
    cases.append(dict(config=dict(settings, model_type=model_type, architectures=[cls]), parameters=model.num_parameters(), weights=weights(model)))


def small(cls):
    """The first case of a class, not on meta: PEFT initialises its weights."""
    model_type, _, settings = next(c for c in CASES if c[1] == cls)
    return getattr(transformers, cls)(CONFIG_MAPPING[model_type](**copy.deepcopy(settings)))


def lora(cls, **settings):
    task = peft.TaskType.SEQ_CLS if cls.endswith("SequenceClassification") else None
    return peft.LoraConfig(task_type=task, **settings)


def names(targets):
    return [targets] if isinstance(targets, str) else targets


adapters = []
for cls, targets, rank, dora in ADAPTERS:
    tuned = peft.LoraModel(small(cls), lora(cls, r=rank, target_modules=targets, use_dora=dora), "default")
    added = sum(p.numel() for n, p in tuned.named_parameters() if "lora_" in n)
    adapters.append(dict({"class": cls}, targets=names(targets), r=rank, dora=dora, parameters=added))
for cls, targets, save, rank, dora in SAVED:
    tuned = peft.PeftModel(small(cls), lora(cls, r=rank, target_modules=targets, use_dora=dora, modules_to_save=save))
    trained = sum(p.numel() for p in tuned.parameters() if p.requires_grad)
    adapters.append(dict({"class": cls}, targets=names(targets), save=save, r=rank, dora=dora, parameters=trained))


def lines(items):
    return ",\n".join(map(json.dumps, items))


about = f"counted with transformers {transformers.__version__} and peft {peft.__version__} by count.py"
print(f'{{"about": {json.dumps(about)},\n"cases": [\n{lines(cases)}\n],\n"adapters": [\n{lines(adapters)}\n]}}')
