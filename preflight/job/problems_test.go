package job

import (
	"strings"
	"testing"
)

// What is not here counts by where the command will run, and what cannot be seen never contradicts.
func TestPlaces(t *testing.T) {
	dir := lay(t, map[string]string{
		"z.json": `{"zero_optimization": {"stage": 2}, "train_batch_size": 7, "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}`,
		"one.sh": "torchrun --nproc_per_node 2 run_clm.py --model_name_or_path $M --per_device_train_batch_size 2 " +
			"--bf16 --output_dir o $EXTRA\n",
		"two.sh": "torchrun --nproc_per_node 2 run_clm.py --deepspeed z.json --per_device_train_batch_size 2 " +
			"--output_dir $(date +%F) --run_name x$N\n",
		"three.sh": "torchrun --nproc_per_node 2 run_clm.py --deepspeed z.json --per_device_train_batch_size 2 " +
			"--output_dir o $EXTRA\n",
		"four.sh": "torchrun $ARGS run_clm.py --per_device_train_batch_size 2 --output_dir o\n",
	})
	const model = "torchrun --nproc_per_node 2 run_clm.py --output_dir o --do_train --model_name_or_path ./models/x"
	for _, tt := range []struct {
		argv  string
		place Place
		want  string // problem, unread, absent or nothing, with a text in it
		sets  string
	}{
		{model, Here, "problem models/x: no such file", "micro_batch=8"},
		{model, Unsaid, "problem models/x: no such file", ""},
		{model, Elsewhere, "absent models/x: no such file", "micro_batch=8 model=./models/x"},
		{"docker run --gpus all image " + model, Here, "absent models/x: no such file", "nproc=2"},
		{"ray job submit -- " + model, Here, "absent models/x: no such file", ""},
		{"torchrun --nproc_per_node 2 run_clm.py --deepspeed gone.json --output_dir o", Here,
			"problem gone.json: no such file", "sharding=unknown"},
		{"torchrun --nproc_per_node 2 run_clm.py --deepspeed gone.json --output_dir o", Elsewhere,
			"absent gone.json: no such file", "sharding=unknown micro_batch=8"},
		{"accelerate launch --config_file gone.yaml run_clm.py --output_dir o", Elsewhere,
			"absent gone.yaml: no such file", ""},
		{"axolotl train gone.yaml", Elsewhere, "absent gone.yaml: no such file", ""},
		{"bash gone.sh", Elsewhere, "absent gone.sh: no such file", ""},
		{"bash one.sh", Elsewhere, "unread $M is not known", "micro_batch=2 grad_accum=1 model=unknown precision=bf16"},
		{"bash one.sh", Here, "nothing", "micro_batch=2 grad_accum=1"},
		{"bash two.sh", Elsewhere, "problem train_batch_size is 7", ""},
		{"bash three.sh", Here, "unread train_batch_size is 7", ""},
		{"bash four.sh", Elsewhere, "unread $ARGS is not known", "nproc=unknown"},
		{"bash four.sh", Here, "nothing", "nproc=1"},
	} {
		t.Run(tt.argv, func(t *testing.T) {
			j := Read(Sources{Argv: words(tt.argv), Dir: dir, GPUs: 2, Place: tt.place})
			check(t, j, tt.sets)
			kind, text, _ := strings.Cut(tt.want, " ")
			for name, list := range map[string][]error{"problem": j.Problems, "unread": j.Unreadable,
				"absent": j.Absent} {
				found := false
				for _, err := range list {
					found = found || strings.Contains(err.Error(), text)
				}
				if found != (name == kind) && (name == kind || len(list) > 0 && name == "problem") {
					t.Errorf("%s: %v, want %q", name, list, tt.want)
				}
			}
			if kind != "problem" && j.WillFail.Value != "" {
				t.Errorf("will fail: %s", j.WillFail.Value)
			}
		})
	}
}
