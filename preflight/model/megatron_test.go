package model

import "testing"

// TestMegatronGPT compares with published totals of the same sizes, and with counts worked by hand from the formulas of
// Megatron's modules.
func TestMegatronGPT(t *testing.T) {
	llama := MegatronGPT{Layers: 32, Hidden: 4096, FFN: 14336, Heads: 32, QueryGroups: 8, HeadDim: 128, Vocab: 128256,
		MaxPositions: 8192, Untied: true, Gated: true, RMSNorm: true}
	mixtral := llama
	mixtral.Vocab, mixtral.Experts, mixtral.ExpertFFN, mixtral.TopK = 32000, 8, 14336, 2
	gpt2 := MegatronGPT{Layers: 12, Hidden: 768, FFN: 3072, Heads: 12, QueryGroups: 12, HeadDim: 64, Vocab: 50304,
		MaxPositions: 1024, LearnedPositions: true, LinearBias: true}
	deepseek := MegatronGPT{Layers: 61, Hidden: 7168, FFN: 18432, Heads: 128, QueryGroups: 128, HeadDim: 56,
		Vocab: 129280, MaxPositions: 4096, Untied: true, Gated: true, RMSNorm: true,
		QKNorm: true, Experts: 256, ExpertFFN: 2048, TopK: 8, SharedFFN: 2048, Sparse: make([]bool, 61),
		Latent: true, QueryRank: 1536, KVRank: 512, NopeDim: 128, RopeDim: 64, ValueDim: 128}
	for i := 3; i < 61; i++ {
		deepseek.Sparse[i] = true
	}
	ahead := llama
	ahead.Predictors = 1
	qwen := llama
	qwen.QKNorm, qwen.QKVBias = true, true
	for _, test := range []struct {
		name string
		gpt  MegatronGPT
		want int64
	}{
		{"Llama-3.1-8B", llama, 8_030_261_248},                           // model card
		{"Mixtral-8x7B", mixtral, 46_702_792_704},                        // model card
		{"GPT-2 with 50304 rows", gpt2, 124_439_808 + (50304-50257)*768}, // gpt2's 124439808 and the padding
		// the card's main model without MTP; the correction biases are buffers
		{"DeepSeek-V3", deepseek, 671_026_419_200 - 58*256},
		// a Llama layer (218112000), eh_proj, and three norms
		{"Llama with a predictor", ahead, 8_030_261_248 + 218_112_000 + 2*4096*4096 + 3*4096},
		// two norms of 128 and a bias of 6144 a layer
		{"Llama with q/k norms and biases", qwen, 8_030_261_248 + 32*(2*128+6144)},
	} {
		a, err := test.gpt.Architecture("arguments")
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if got := a.Parameters(); got != test.want {
			t.Errorf("%s: %d parameters, want %d (%+d)", test.name, got, test.want, got-test.want)
		}
		if a.Blocks() != test.gpt.Layers+test.gpt.Predictors || a.LogitsWidth != test.gpt.Vocab || !a.Causal {
			t.Errorf("%s: %d blocks, %d logits", test.name, a.Blocks(), a.LogitsWidth)
		}
	}
	for _, wrong := range []MegatronGPT{{},
		{Layers: 1 << 40, Hidden: 1, FFN: 1, Heads: 1, QueryGroups: 1, HeadDim: 1, Vocab: 1},
		{Layers: 60000, Hidden: maxSize, FFN: maxSize, Heads: 1, QueryGroups: 1, HeadDim: maxSize, Vocab: maxSize},
		{Layers: 2, Hidden: 8, FFN: 8, Heads: 1, QueryGroups: 1, HeadDim: 8, Vocab: 8, Experts: 2, ExpertFFN: 8,
			Sparse: []bool{true}}} {
		if a, err := wrong.Architecture("arguments"); err == nil {
			t.Errorf("%+v: %d parameters, want an error", wrong, a.Parameters())
		}
	}
	for _, test := range [][4]int64{{128256, 128, 2, 128256}, {50257, 128, 1, 50304}, {50257, 128, 8, 51200},
		{32000, 128, 2, 32000}, {1, 1, 1, 1}} {
		if got := PadVocab(test[0], test[1], test[2]); got != test[3] {
			t.Errorf("PadVocab(%d, %d, %d) = %d, want %d", test[0], test[1], test[2], got, test[3])
		}
	}
}
