package job

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"oomguard/preflight/model"
)

// write puts a file into a folder and returns the folder.
func write(t testing.TB, dir, name, text string) string {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// readWith reads a command in a folder that holds ds.json; models have a hidden size of 4096.
func readWith(t testing.TB, ds, argv string) *Job {
	t.Helper()
	dir := write(t, t.TempDir(), "ds.json", ds)
	if err := os.Mkdir(filepath.Join(dir, "model"), 0o700); err != nil {
		t.Fatal(err)
	}
	return Read(Sources{Argv: shellWords(argv), Dir: dir, GPUs: 8, CPUs: 4,
		Versions: map[string]string{"transformers": "4.51.3", "torch": "2.6.0"},
		LoadModel: func(path string) (*model.Architecture, error) {
			return &model.Architecture{Name: path, Source: "config.json", Hidden: 4096, Params: 7e9, Dtype: "bf16"}, nil
		}})
}

const trainer = "torchrun --nproc-per-node 4 run_clm.py --model_name_or_path ./model --output_dir out --deepspeed " +
	"ds.json "

// The expectations are DeepSpeed's documented defaults (deepspeed/runtime/zero/config.py, offload_config.py) and
// Trainer's rules for "auto" (transformers integrations/deepspeed.py, trainer_config_process and
// trainer_config_finalize).
func TestDeepSpeedResolved(t *testing.T) {
	auto := `{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "bf16": {"enabled": "auto"},
		"zero_optimization": {"stage": 3, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto"}}`
	defaults := DeepSpeed{ReduceBucketSize: 5e8, AllgatherBucketSize: 5e8, PrefetchBucketSize: 5e7,
		ParamPersistenceThreshold: 1e5, MaxLiveParameters: 1e9, MaxReuseDistance: 1e9,
		SubGroupSize: 1e9, ContiguousGradients: true, OffloadOptimizer: "none", OffloadParam: "none",
		OffloadOptimizerRatio: 1, File: "ds.json",
		TrainMicroBatchSizePerGPU: 8, GradientAccumulationSteps: 1, TrainBatchSize: 32}
	with := func(change func(*DeepSpeed)) DeepSpeed {
		d := defaults
		change(&d)
		return d
	}
	tests := []struct {
		name, ds, argv string
		want           DeepSpeed
		sharding       string
	}{
		{"empty", `{}`, trainer, defaults, "ddp"},
		{"stage 2 defaults", `{"zero_optimization": {"stage": 2}}`, trainer, with(func(d *DeepSpeed) { d.Stage = 2 }),
			"zero2"},
		{"stage 3 overlaps", `{"zero_optimization": {"stage": 3}}`, trainer,
			with(func(d *DeepSpeed) { d.Stage, d.OverlapComm = 3, true }), "zero3"},
		{"auto", auto, trainer + "--bf16 --per_device_train_batch_size 2 --gradient_accumulation_steps=4",
			with(func(d *DeepSpeed) {
				d.Stage, d.OverlapComm, d.BF16Enabled = 3, true, true
				// h², 0.9 h², 10 h
				d.ReduceBucketSize, d.PrefetchBucketSize, d.ParamPersistenceThreshold = 16777216, 15099494, 40960
				d.TrainMicroBatchSizePerGPU, d.GradientAccumulationSteps, d.TrainBatchSize = 2, 4, 32
			}), "zero3"},
		{"auto without a model", auto, strings.Replace(trainer, "./model", "org/name", 1), with(func(d *DeepSpeed) {
			d.Stage, d.OverlapComm = 3, true
			d.ReduceBucketSize, d.PrefetchBucketSize, d.ParamPersistenceThreshold = UnknownSize, UnknownSize,
				UnknownSize
		}), "zero3"},
		{"floats, bare names, offload",
			`{"zero_optimization": {"stage": 3, "reduce_bucket_size": 2e8, "max_live_parameters": 0, "sub_group_size": 1e6, "contiguous_gradients": false,
			"overlap_comm": false, "offload_optimizer": {"device": "cpu", "ratio": 0.5}, "offload_param": {"device": "nvme"}}, "data_types": {"grad_accum_dtype": "fp32"}}`, trainer,
			with(func(d *DeepSpeed) {
				d.Stage, d.ReduceBucketSize, d.MaxLiveParameters, d.SubGroupSize, d.ContiguousGradients = 3, 2e8, 0,
					1e6, false
				d.OffloadOptimizer, d.OffloadParam, d.OffloadOptimizerRatio, d.GradAccumDtype = "cpu", "nvme", 0.5,
					"fp32"
			}), "zero3"},
		{"old booleans", `{"zero_optimization": {"stage": 2, "cpu_offload": true}}`, trainer,
			with(func(d *DeepSpeed) { d.Stage, d.OffloadOptimizer = 2, "cpu" }), "zero2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j := readWith(t, tt.ds, tt.argv)
			if len(told(j)) > 0 || j.WillFail.Value != "" {
				t.Fatalf("problems %v, will fail %q", told(j), j.WillFail.Value)
			}
			if j.Sharding.Value != tt.sharding {
				t.Errorf("sharding %q, want %q", j.Sharding.Value, tt.sharding)
			}
			if got := *j.DeepSpeed.Value; got != tt.want {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func TestDeepSpeedContradictions(t *testing.T) {
	native := "torchrun --nproc-per-node 4 train.py --deepspeed --deepspeed_config ds.json"
	tests := []struct {
		name, ds, argv string
		want           []string // in the one problem, which is also why the job will fail
	}{
		{"product", `{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4}`,
			native,
			[]string{"ds.json:1:", "train_batch_size is 64", "micro-batch 2 x accumulation 4 x 4 ranks is 32",
				"set train_batch_size to 32"}},
		{"not a multiple", `{"train_batch_size": 50, "train_micro_batch_size_per_gpu": 4}`, native,
			[]string{"train_batch_size is 50", "not a multiple", "= 16"}},
		{"no batch", `{}`, native, []string{"neither train_batch_size nor"}},
		{"product under Trainer", "{\n\"train_batch_size\": 64}", trainer + "--per_device_train_batch_size 2",
			[]string{"ds.json:2:", "64", "micro-batch 2 x accumulation 1 x 4 ranks is 8", `to "auto"`}},
		{"differs from Trainer", "{\n\n\"train_micro_batch_size_per_gpu\": 4}",
			trainer + "--per_device_train_batch_size 2",
			[]string{"ds.json:3:", "is 4", "--per_device_train_batch_size, which is 2", `write "auto"`}},
		{"differs from Trainer's default", `{"train_micro_batch_size_per_gpu": 4}`, trainer,
			[]string{"whose default is 8", "pass --per_device_train_batch_size 4"}},
		{"precision differs", `{"bf16": {"enabled": true}}`, trainer,
			[]string{"bf16.enabled is true", "--bf16 is false"}},
		{"two precisions", `{"bf16": {"enabled": true}, "fp16": {"enabled": true}, "train_batch_size": 4}`, native,
			[]string{"bf16 and fp16 are both enabled", "disable one"}},
		{"auto that nobody fills", `{"zero_optimization": {"stage": "auto"}}`, trainer,
			[]string{`zero_optimization.stage is "auto"`, "does not fill in"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j := readWith(t, tt.ds, tt.argv)
			if len(told(j)) != 1 {
				t.Fatalf("problems %v", told(j))
			}
			for _, want := range tt.want {
				if !strings.Contains(told(j)[0].Error(), want) || !strings.Contains(j.WillFail.Value, want) {
					t.Errorf("%q not in problem %q or in will_fail %q", want, told(j)[0], j.WillFail.Value)
				}
			}
		})
	}
}

// Two of the three batch numbers give the third (deepspeed/runtime/config.py, _set_batch_related_parameters); 4 ranks.
func TestDeepSpeedBatch(t *testing.T) {
	native := "torchrun --nproc-per-node 4 train.py --deepspeed --deepspeed_config ds.json"
	tests := []struct {
		ds, argv             string
		micro, accum, global int
	}{
		{`{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4}`, native, 4, 4, 64},
		{`{"train_batch_size": 64, "gradient_accumulation_steps": 2}`, native, 8, 2, 64},
		{`{"train_batch_size": 64}`, native, 16, 1, 64},
		{`{"train_micro_batch_size_per_gpu": 3}`, native, 3, 1, 12},
		{`{"train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 2}`, native, 3, 2, 24},
		{`{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2, "train_batch_size": 1.6e1}`, native,
			2, 2, 16},
		// The script's own code fills "auto" in; nothing is derived from what is left.
		{`{"train_micro_batch_size_per_gpu": "auto", "train_batch_size": 16}`, native, 0, 0, 0},
		{`{"train_micro_batch_size_per_gpu": 4}`, trainer + "--per_device_train_batch_size 4", 4, 1, 16},
		{`{"train_micro_batch_size_per_gpu": 4}`, trainer + "--auto_find_batch_size", 4, 1, 16},
	}
	for _, tt := range tests {
		t.Run(tt.ds, func(t *testing.T) {
			j := readWith(t, tt.ds, tt.argv)
			if len(told(j)) > 0 {
				t.Errorf("problems %v", told(j))
			}
			if j.MicroBatch.Or(0) != tt.micro || j.GradAccum.Or(0) != tt.accum || j.GlobalBatch.Or(0) != tt.global {
				t.Errorf("micro %+v accum %+v global %+v, want %d %d %d", j.MicroBatch, j.GradAccum, j.GlobalBatch,
					tt.micro, tt.accum, tt.global)
			}
		})
	}
}

// DeepSpeed's own optimizers (deepspeed/runtime/engine.py, _configure_basic_optimizer).
func TestDeepSpeedOptimizer(t *testing.T) {
	tests := []struct{ ds, want string }{
		{`{"optimizer": {"type": "AdamW"}}`, "adamw_fused"},
		{`{"optimizer": {"type": "Adam", "params": {"torch_adam": true}}}`, "adamw"},
		{`{"optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}`,
			"cpu_adam"},
		{`{"optimizer": {"type": "Lion"}}`, "lion"},
		{`{}`, "adafactor"},
	}
	for _, tt := range tests {
		j := readWith(t, tt.ds, trainer+"--optim adafactor")
		if len(told(j)) > 0 || j.Optimizer.Value != tt.want {
			t.Errorf("%s: %+v %v, want %s", tt.ds, j.Optimizer, told(j), tt.want)
		}
	}
}

func TestDeepSpeedBadInput(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 1200) + "1" + strings.Repeat("}", 1200)
	tests := []struct {
		name, ds string
		want     []string
	}{
		{"broken", "{\n  \"bf16\": {\"enabled\" true}\n}", []string{"ds.json:2:22:", "broken JSON"}},
		{"trailing comma", "{\"stage\": 1,}", []string{"ds.json:1:13:", "trailing commas"}},
		{"comment", "// zero\n{}", []string{"ds.json:1:1:", "comments"}},
		{"trailing garbage", "{}\n}", []string{"ds.json:2:1:", "broken JSON"}},
		{"cut off", `{"zero_optimization": {`, []string{"ds.json:1:23:", "unexpected end"}},
		{"empty", "", []string{"ds.json:1:1:", "unexpected end"}},
		{"no object", "[1]", []string{"ds.json:1:", "a list", "need an object"}},
		{"not UTF-8", "{\"a\": \"\xff\"}", []string{"ds.json:1:8:", "UTF-8"}},
		{"byte order mark", "\xef\xbb\xbf{}", []string{"byte order mark"}},
		{"too deep", deep, []string{"ds.json:1:", "nested more than 1000 levels"}},
		{"bad stage", "{\"zero_optimization\":\n{\"stage\": 4}}", []string{"ds.json:2:", `stage is "4"`, "0 to 3"}},
		{"bad size", `{"zero_optimization": {"reduce_bucket_size": 1.5}}`,
			[]string{`reduce_bucket_size is "1.5"`, "whole number"}},
		{"bad device", `{"zero_optimization": {"offload_optimizer": {"device": "disk"}}}`,
			[]string{`"disk"`, "none, cpu or nvme"}},
		{"bad boolean", `{"bf16": {"enabled": "maybe"}}`, []string{`bf16.enabled is "maybe"`, "true or false"}},
		{"bad batch", `{"train_batch_size": {"a": 1}}`, []string{"train_batch_size is an object", "whole number"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j := readWith(t, tt.ds, trainer)
			if len(told(j)) != 1 {
				t.Fatalf("problems %v", told(j))
			}
			for _, want := range tt.want {
				if !strings.Contains(told(j)[0].Error(), want) {
					t.Errorf("%q not in %q", want, told(j)[0])
				}
			}
		})
	}
}

func TestUnreadableFiles(t *testing.T) {
	dir := t.TempDir()
	big, err := os.Create(filepath.Join(dir, "big.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := big.Truncate(100 << 20); err != nil {
		t.Fatal(err)
	}
	if err := big.Close(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"none.json": "none.json: no such file",
		".":         "is a directory",
		"big.json":  "more than the 4 MiB",
		"/dev/null": "not a regular file",
	} {
		j := Read(Sources{Argv: shellWords(strings.Replace(trainer, "ds.json", name, 1)), Dir: dir,
			LoadModel: loadNothing})
		if len(told(j)) != 2 || !strings.Contains(fmt.Sprint(told(j)), want) { // the other one: ./model is missing
			t.Errorf("%s: %v, want %q", name, told(j), want)
		}
		if j.Sharding.Known || j.Precision.Known || j.ParamDtype.Known {
			t.Errorf("%s: sharding %+v precision %+v param_dtype %+v were guessed", name, j.Sharding, j.Precision,
				j.ParamDtype)
		}
	}
}

func loadNothing(path string) (*model.Architecture, error) { return nil, os.ErrNotExist }

func FuzzDeepSpeed(f *testing.F) {
	for _, seed := range []string{`{}`, `{"zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"}}`,
		`{"train_batch_size": 5e8, "bf16": {"enabled": "auto"}}`,
		`{"a":{"a":[{"a":1}]}}`, "{\"a\":1,\n\"a\":2}", `[`, `{"optimizer":{"type":1}}`,
		`{"zero_optimization":[],"fp16":7}`} {
		f.Add(seed)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		write(t, dir, "ds.json", text)
		j := Read(Sources{Argv: shellWords(trainer), Dir: dir, GPUs: 4, LoadModel: loadNothing})
		for _, s := range j.Settings() {
			if s.Origin == "" {
				t.Errorf("%s has no origin", s.Key)
			}
		}
		if d := j.DeepSpeed.Value; d != nil && (d.ReduceBucketSize < UnknownSize || d.Stage < 0 || d.Stage > 3) {
			t.Errorf("impossible numbers: %+v", d)
		}
	})
}
