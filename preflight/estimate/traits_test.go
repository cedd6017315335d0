package estimate

import (
	"bytes"
	"encoding/json"
	"testing"

	"oomguard/preflight/job"
)

// A framework that does what Trainer does has Trainer's memory to the byte, whatever it is called.
func TestBuiltOnTrainer(t *testing.T) {
	for name, edit := range map[string]func(*job.Job){
		"8-bit optimizer, accumulation under FSDP": func(j *job.Job) {
			j.Sharding, j.WorldSize, j.NProc, j.GradAccum, j.Optimizer = known("fsdp-full"), known(8), known(8),
				known(4), known("adamw_8bit")
			j.Precision, j.ParamDtype = known("bf16"), known("fp32")
		},
		"adapters": func(j *job.Job) {
			j.Precision, j.BaseDtype = known("bf16"), known("bf16")
			j.Method, j.LoRA = known("lora"), known(&job.LoRA{R: 16, Targets: []string{"all-linear"}})
		},
	} {
		answer := func(framework string) []byte {
			in := small(t, edit)
			in.Job.Framework, in.Job.Versions = known(framework), map[string]string{"transformers": "4.44.0"}
			e := run(t, in)
			e.Job = nil
			text, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
		trainer := answer("hf-trainer")
		if got := answer("llamafactory"); !bytes.Equal(got, trainer) { // whose row adds nothing
			t.Errorf("%s: %s\nTrainer: %s", name, got, trainer)
		}
		if got := answer("lightning"); bytes.Equal(got, trainer) {
			t.Errorf("%s: Trainer's traits change nothing", name)
		}
	}
}
