package model

import (
	"slices"
	"strings"
	"testing"
)

// published reads a published model from the built-in table.
func published(t testing.TB, file string) *Architecture {
	t.Helper()
	var model struct{ Config jsonText }
	readJSON(t, "known/"+file, &model)
	a, err := Parse(model.Config, file)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// jsonText keeps the text of a JSON value.
type jsonText []byte

func (j *jsonText) UnmarshalJSON(data []byte) error {
	*j = slices.Clone(data)
	return nil
}

func TestLoRAParameters(t *testing.T) {
	seven := []string{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
	tests := []struct {
		file    string
		r       int
		targets []string
		want    int64
	}{
		// printed by print_trainable_parameters in many public logs of Llama-3-8B
		{"meta-llama__Meta-Llama-3-8B.json", 16, seven, 41_943_040},
		{"meta-llama__Meta-Llama-3-8B.json", 16, []string{"all-linear"}, 41_943_040},
		{"meta-llama__Meta-Llama-3-8B.json", 16, []string{"All-Linear"}, 41_943_040},
		// r * (4096+4096 + 4096+1024) * 32 layers
		{"meta-llama__Meta-Llama-3-8B.json", 8, nil, 3_407_872},
		{"meta-llama__Llama-2-7b-hf.json", 8, []string{"q_proj", "v_proj"}, 4_194_304},
		{"openai-community__gpt2.json", 8, nil, 294_912}, // 8 * (768 + 2304) * 12
	}
	for _, test := range tests {
		got, err := published(t, test.file).LoRAParameters(test.r, test.targets, false)
		if err != nil || got != test.want {
			t.Errorf("%s r=%d %q: %d (%v), want %d", test.file, test.r, test.targets, got, err, test.want)
		}
	}
}

// TestOldNames: transformers 4 called ViT's projections query, key and value.
func TestOldNames(t *testing.T) {
	vit := published(t, "google__vit-base-patch16-224.json")
	got, err := vit.LoRAParameters(16, []string{"query", "value"}, false)
	if want := int64(16 * 2 * 768 * 2 * 12); err != nil || got != want {
		t.Errorf("%d, %v, want %d", got, err, want)
	}
}

func TestSavedWeights(t *testing.T) {
	llama := published(t, "meta-llama__Meta-Llama-3-8B.json")
	for _, test := range []struct {
		names []string
		count int
		want  int64
	}{
		{nil, 0, 0},
		{[]string{"embed_tokens", "lm_head"}, 2, 2 * 128256 * 4096},
		{[]string{"layers.7.self_attn.k_proj"}, 1, 1024 * 4096},
		{[]string{"norm"}, 3, 65 * 4096},       // PEFT compares ends of names: input_layernorm too
		{[]string{"layers.0"}, 9, 218_112_000}, // all that is in the block
		{[]string{"elsewhere"}, 0, 0},
	} {
		saved := llama.SavedWeights(test.names)
		var n int64
		for _, s := range saved {
			n += s.Count * s.Elements()
		}
		if n != test.want || len(saved) != test.count {
			t.Errorf("%q: %d weights in %d tensors, want %d in %d", test.names, n, len(saved), test.want, test.count)
		}
	}
	if _, err := llama.TrainableParameters(Adapter{R: 8, Targets: []string{"lm_head"},
		ModulesToSave: []string{"lm_head"}}); err == nil {
		t.Error("the only target is trained whole: PEFT has nothing to adapt and stops")
	}
	if n, err := llama.TrainableParameters(Adapter{R: 8, Targets: []string{"q_proj"},
		ModulesToSave: []string{"("}}); err != nil || n != 8*8192*32 {
		t.Errorf("a broken name: %d, %v", n, err)
	}
}

func TestLoRATargets(t *testing.T) {
	found, err := published(t, "meta-llama__Meta-Llama-3-8B.json").LoRATargets([]string{"down_proj"})
	if err != nil || len(found) != 1 {
		t.Fatalf("%v, %v", found, err)
	}
	if d := found[0]; d.Module != "down_proj" || d.Count != 32 || !slices.Equal(d.Shape, []int64{4096, 14336}) {
		t.Errorf("%+v", d)
	}
}

func TestLoRAErrors(t *testing.T) {
	llama, gpt2 := published(t, "meta-llama__Meta-Llama-3-8B.json"), published(t, "openai-community__gpt2.json")
	tests := []struct {
		name    string
		model   *Architecture
		r       int
		targets []string
		want    []string
	}{
		{"none matches", llama, 8, []string{"c_attn"}, []string{"c_attn", "q_proj, k_proj", "down_proj", "lm_head"}},
		{"a norm", gpt2, 8, []string{"ln_1"}, []string{"ln_1", "c_attn", "wte", "lm_head"}},
		{"half a name", llama, 8, []string{"proj"}, []string{"proj"}},
		{"broken pattern", llama, 8, []string{"(q_proj"}, []string{"(q_proj", "regular expression"}},
		{"rank", llama, 0, nil, []string{"rank 0"}},
		{"only a count", FromParams(7e9), 8, nil, []string{"config.json", "--model"}},
		{"no default", published(t, "microsoft__phi-4.json"), 8, nil,
			[]string{"PEFT has no default", "phi3", "qkv_proj"}},
		{"all experts", published(t, "mistralai__Mixtral-8x7B-v0.1.json"), 8, []string{"experts"},
			[]string{"experts", "projections"}},
		{"half of a stacked weight", published(t, "mistralai__Mixtral-8x7B-v0.1.json"), 8, []string{"q_proj", "w1"},
			[]string{"w1 and w3", "both"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n, err := test.model.LoRAParameters(test.r, test.targets, false)
			if err == nil || n != 0 {
				t.Fatalf("%d, %v, want an error", n, err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
	if got := llama.UnknownTargets([]string{"q_proj", "c_attn", "v_proj", "x"}); !slices.Equal(got,
		[]string{"c_attn", "x"}) {
		t.Errorf("unknown targets %q", got)
	}
}

// TestExpertsOfReleases: what "all-linear" means for Mixtral-8x7B, whose attention has 2*(4096+4096) + 2*(4096+1024)
// rows and columns, whose router has 4096+8, and each of whose 8 experts three matrices of 4096 and 14336, in 32
// blocks. In transformers 5 gate and up share an adapter of twice the rank, which has 2*(4096+2*14336).
func TestExpertsOfReleases(t *testing.T) {
	const attention, router = 2*(4096+4096) + 2*(4096+1024), 4096 + 8
	for kind, want := range map[ExpertKind]int64{
		StackedExperts:   32 * (attention + router + 8*(2*(4096+2*14336)+(4096+14336))),
		UnreachedExperts: 32 * attention,
		SeparateExperts:  32 * (attention + router + 8*3*(4096+14336)),
	} {
		mixtral := published(t, "mistralai__Mixtral-8x7B-v0.1.json")
		mixtral.ExpertKind = kind
		if got, err := mixtral.LoRAParameters(16, []string{"all-linear"}, false); err != nil || got != 16*want {
			t.Errorf("kind %d: %d, %v, want %d", kind, got, err, 16*want)
		}
	}
	mixtral := published(t, "mistralai__Mixtral-8x7B-v0.1.json")
	if got := mixtral.UnknownTargets([]string{"w1", "gate_proj"}); !slices.Equal(got, []string{"gate_proj"}) {
		t.Errorf("unknown targets %q", got)
	}
	if _, err := mixtral.LoRAParameters(16, []string{"w1", "w2", "w3"}, true); err == nil ||
		!strings.Contains(err.Error(), "DoRA") {
		t.Errorf("DoRA on stacked experts: %v", err)
	}
}
