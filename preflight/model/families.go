package model

// family is one row of the table of architectures: how a model_type's config becomes weights.
//
// To add an architecture: if it is a decoder like Llama, add a row to decoders.go; otherwise write a function that returns its
// blueprint (gpt_neox.go is a short example). Then add a row here, put a config with its exact count into known, and run
// testdata/count.py over it so that every tensor's name and size is compared with transformers' own.
type family struct {
	modelType string
	usual     string // the class that is meant when a config names none
	build     func(*config) *blueprint
	// lora are PEFT's default targets (TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING in peft/utils/constants.py, 0.21.2); nil: it
	// has none and asks for target_modules.
	lora []string
}

var families = []family{
	{"baichuan", "BaichuanForCausalLM", baichuan.blueprint, nil},
	{"bart", "BartForConditionalGeneration", bart, []string{"q_proj", "v_proj"}},
	{"bert", "BertModel", bert, []string{"query", "value"}},
	{"bloom", "BloomForCausalLM", bloom, []string{"query_key_value"}},
	{"chatglm", "ChatGLMForConditionalGeneration", chatGLM, []string{"query_key_value"}},
	{"clip", "CLIPModel", clipTowers, nil},
	{"cohere", "CohereForCausalLM", cohere.blueprint, nil},
	{"deberta-v2", "DebertaV2Model", debertaV2, []string{"query_proj", "value_proj"}},
	{"deepseek", "DeepseekForCausalLM", deepseek.blueprint, nil},
	{"deepseek_v2", "DeepseekV2ForCausalLM", deepseekV2.blueprint, nil},
	{"deepseek_v3", "DeepseekV3ForCausalLM", deepseekV3.blueprint, nil},
	{"distilbert", "DistilBertModel", distilBERT, nil},
	{"electra", "ElectraModel", electra, []string{"query", "value"}},
	{"falcon", "FalconForCausalLM", falcon, []string{"query_key_value"}},
	{"gemma", "GemmaForCausalLM", gemma.blueprint, []string{"q_proj", "v_proj"}},
	{"gemma2", "Gemma2ForCausalLM", gemma2.blueprint, []string{"q_proj", "v_proj"}},
	{"gemma3", "Gemma3ForConditionalGeneration", gemma3Multimodal, nil},
	{"gemma3_text", "Gemma3ForCausalLM", gemma3.blueprint, []string{"q_proj", "v_proj"}},
	{"glm", "GlmForCausalLM", glm.blueprint, nil},
	{"gpt2", "GPT2LMHeadModel", gpt2, []string{"c_attn"}},
	{"gpt_bigcode", "GPTBigCodeForCausalLM", gptBigCode, []string{"c_attn"}},
	{"gpt_neo", "GPTNeoForCausalLM", gptNeo, []string{"q_proj", "v_proj"}},
	{"gpt_neox", "GPTNeoXForCausalLM", gptNeoX, []string{"query_key_value"}},
	{"gptj", "GPTJForCausalLM", gptJ, []string{"q_proj", "v_proj"}},
	{"granite", "GraniteForCausalLM", granite.blueprint, nil},
	{"internlm2", "InternLM2ForCausalLM", internLM2, nil},
	{"llama", "LlamaForCausalLM", llama.blueprint, []string{"q_proj", "v_proj"}},
	{"llava", "LlavaForConditionalGeneration", llava, nil},
	{"mistral", "MistralForCausalLM", mistral.blueprint, []string{"q_proj", "v_proj"}},
	{"mixtral", "MixtralForCausalLM", mixtral.blueprint, []string{"q_proj", "v_proj"}},
	{"mpt", "MptForCausalLM", mpt, []string{"Wqkv"}},
	{"mt5", "MT5ForConditionalGeneration", mt5, []string{"q", "v"}},
	{"olmo", "OlmoForCausalLM", olmo.blueprint, nil},
	{"olmo2", "Olmo2ForCausalLM", olmo2.blueprint, nil},
	{"olmoe", "OlmoeForCausalLM", olmoe.blueprint, nil},
	{"opt", "OPTForCausalLM", opt, []string{"q_proj", "v_proj"}},
	{"phi", "PhiForCausalLM", phi.blueprint, []string{"q_proj", "v_proj", "fc1", "fc2"}},
	{"phi3", "Phi3ForCausalLM", phi3.blueprint, nil},
	{"phimoe", "PhimoeForCausalLM", phimoe.blueprint, nil},
	{"qwen", "QWenLMHeadModel", qwen, nil},
	{"qwen2", "Qwen2ForCausalLM", qwen2.blueprint, []string{"q_proj", "v_proj"}},
	{"qwen2_moe", "Qwen2MoeForCausalLM", qwen2MoE.blueprint, nil},
	{"qwen3", "Qwen3ForCausalLM", qwen3.blueprint, []string{"q_proj", "v_proj"}},
	{"qwen3_moe", "Qwen3MoeForCausalLM", qwen3MoE.blueprint, nil},
	{"roberta", "RobertaModel", roberta, []string{"query", "value"}},
	{"smollm3", "SmolLM3ForCausalLM", smolLM3.blueprint, nil},
	{"stablelm", "StableLmForCausalLM", stableLM.blueprint, []string{"q_proj", "v_proj"}},
	{"starcoder2", "Starcoder2ForCausalLM", starcoder2.blueprint, nil},
	{"t5", "T5ForConditionalGeneration", t5, []string{"q", "v"}},
	{"vit", "ViTForImageClassification", vit, nil},
	{"whisper", "WhisperForConditionalGeneration", whisper, nil},
}
