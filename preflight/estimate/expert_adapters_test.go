package estimate

import (
	"strings"
	"testing"

	"oomguard/preflight/job"
	"oomguard/preflight/model"
)

const (
	tinyMamba   = `{"model_type": "mamba", "architectures": ["MambaForCausalLM"], "hidden_size": 40, "num_hidden_layers": 3, "vocab_size": 100}`
	tinyMixtral = `{"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
		"num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 100, "num_local_experts": 4}`
)

func tinyInput(t *testing.T, config string) Input {
	t.Helper()
	a, err := model.Parse([]byte(config), "config.json")
	if err != nil {
		t.Fatal(err)
	}
	j := &job.Job{}
	j.MicroBatch, j.SeqLen = known(1), known(64)
	return Input{Job: j, Model: a, Hardware: Hardware{Kind: "cuda"}, Options: DefaultOptions()}
}

// TestNoFormula: activations of recurrences are never guessed, but what is given for them is taken, beside exact
// states.
func TestNoFormula(t *testing.T) {
	in := tinyInput(t, tinyMamba)
	if e, err := Run(in); err != nil || !e.Partial || e.PerGPU.HighBytes != nil ||
		!strings.Contains(e.Lacks(), "recurrences") || !strings.Contains(e.Give(), "--activation-factor") {
		t.Errorf("got %+v, %v", e, err)
	}
	in.Options.ActivationFactor = 16
	e, err := Run(in)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := e.Stages[len(e.Stages)-1].Components[Optimizer], 8*in.Model.Parameters(); got != want {
		t.Errorf("AdamW's states take %d bytes, want %d", got, want)
	}
}

// TestExpertAdaptersByRelease: what "all-linear" means by release, as in TestExpertsOfReleases of preflight/model; rows
// and columns of one block.
func TestExpertAdaptersByRelease(t *testing.T) {
	const rank, attention = 4, 64 + 64 + 2*(64+32) + 64 + 64
	for versions, want := range map[string]int64{
		"":                           attention + 64 + 4 + 4*(2*(64+2*128)+64+128),
		"transformers=4.57.1":        attention + 64 + 4 + 4*3*(64+128),
		"transformers=5.1 peft=0.18": attention,
	} {
		in := tinyInput(t, tinyMixtral)
		in.Job.Method, in.Job.LoRA = known("lora"), known(&job.LoRA{R: rank, Targets: []string{"all-linear"}})
		in.Job.Versions = map[string]string{}
		for word := range strings.FieldsSeq(versions) {
			name, version, _ := strings.Cut(word, "=")
			in.Job.Versions[name] = version
		}
		e, err := Run(in)
		if err != nil {
			t.Errorf("%q: %v", versions, err)
			continue
		}
		if e.Model.TrainableParameters != 2*rank*want {
			t.Errorf("%q: %d trained, want %d", versions, e.Model.TrainableParameters, 2*rank*want)
		}
		in.Job.LoRA = known(&job.LoRA{R: rank, Targets: []string{"all-linear"}, Dropout: 0.1})
		if _, err := Run(in); (err != nil) != (versions == "") {
			t.Errorf("%q with dropout: %v", versions, err)
		}
	}
}
