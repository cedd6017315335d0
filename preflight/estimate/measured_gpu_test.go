package estimate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"oomguard/preflight/job"
)

// A measuredCase is a training that lab/measured_cases.py lists and lab/measure.py has run on a GPU.
type measuredCase struct {
	shardedCase
	Compiled bool             `json:"compiled"`
	Zero     map[string]int64 `json:"zero"`
	Second   [5]int64         `json:"second"`
	Eval     int64            `json:"eval"`
	// Reserved: the highest in forward, backward and optimizer step, and between steps.
	Reserved struct {
		Loaded                int64
		First, Second, Steady [4]int64
	} `json:"reserved"`
	// Context is what the process held of the GPU outside PyTorch's allocator, at its start and at its end.
	Context [2]int64 `json:"context"`
}

type measuredFile struct {
	Versions map[string]string `json:"versions"`
	Configs  []json.RawMessage `json:"configs"`
	Cases    []measuredCase    `json:"cases"`
}

func (c measuredCase) input(t testing.TB, file measuredFile) Input {
	t.Helper()
	zero := strings.HasPrefix(c.Sharding, "zero")
	sharded := c.shardedCase
	if c.Method == "qlora" {
		sharded.Method = "lora"
	}
	in := sharded.familyCase.input(t, asBuilt(file.Configs[c.Config]))
	switch {
	case zero:
		in.Job.WorldSize, in.Job.NProc, in.Job.Sharding = known(c.Ranks), known(c.Ranks), known(c.Sharding)
		in.Job.Precision, in.Job.ParamDtype, in.Job.MasterFP32 = known("bf16"), known("bf16"), known(true)
		in.Job.DeepSpeed = known(c.deepSpeed())
	case c.Sharding != "" && c.Sharding != "none":
		in = sharded.input(t, file.Configs[c.Config])
	}
	j := in.Job
	j.Versions = file.Versions
	if c.Method == "qlora" {
		j.Method, j.Quant = known("qlora"),
			known(&job.Quant{Method: "bnb", Bits: 4, Type: "nf4", Double: true, ComputeDtype: "bf16"})
		j.BaseDtype = known("fp32") // peft.prepare_model_for_kbit_training
	}
	if c.Loss == "liger" {
		j.FusedLoss, j.LayerKernels = known("liger-flce"), known("liger")
	}
	j.Compile = known(c.Compiled)
	in.Options = DefaultOptions()
	in.Hardware = Hardware{Kind: "cuda", Name: "NVIDIA H200", Count: 1, TotalBytes: 143073 * mib, ContextBytes: -1,
		NCCLBytes: -1, ComputeCapability: "9.0"}
	return in
}

// asBuilt is the configuration of a model that was built from it, without a checkpoint: transformers 5 then ties T5's
// head (T5Config.__post_init__), which saved configurations may not.
func asBuilt(config json.RawMessage) json.RawMessage {
	if !bytes.Contains(config, []byte(`"model_type":"t5"`)) {
		return config
	}
	return bytes.Replace(config, []byte(`"tie_word_embeddings":false`), []byte(`"tie_word_embeddings":true`), 1)
}

// deepSpeed is DeepSpeed's configuration with its own defaults (deepspeed/runtime/zero/config.py).
func (c measuredCase) deepSpeed() *job.DeepSpeed {
	or := func(key string, fallback int64) int64 {
		if v, ok := c.Zero[key]; ok {
			return v
		}
		return fallback
	}
	stage := int(c.Sharding[4] - '0')
	return &job.DeepSpeed{
		Stage: stage, TrainMicroBatchSizePerGPU: c.MicroBatch, GradientAccumulationSteps: max(c.GradAccum, 1),
		TrainBatchSize:   c.MicroBatch * max(c.GradAccum, 1) * c.Ranks,
		ReduceBucketSize: or("reduce_bucket_size", 5e8), AllgatherBucketSize: or("allgather_bucket_size", 5e8),
		PrefetchBucketSize:        or("stage3_prefetch_bucket_size", 5e7),
		ParamPersistenceThreshold: or("stage3_param_persistence_threshold", 1e5), MaxLiveParameters: 1e9,
		MaxReuseDistance: 1e9, SubGroupSize: 1e9,
		OverlapComm: stage == 3, ContiguousGradients: true, BF16Enabled: true, OffloadOptimizer: "none",
		OffloadParam: "none", OffloadOptimizerRatio: 1,
	}
}

// steady is the peak of forward, backward or optimizer step when training runs. An engine of DeepSpeed that accumulates
// gradients was measured with half the calls of step() that it wants, so that it updated weights in the second step but
// not in the third.
func (c measuredCase) steady(stage int) int64 {
	if stage == 2 && strings.HasPrefix(c.Sharding, "zero") && c.GradAccum > 1 {
		return max(c.Second[stage], c.Steady[stage])
	}
	return c.Steady[stage]
}

func measuredCases(t testing.TB, name string) measuredFile {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var file measuredFile
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestMeasuredOnGPU compares every stage with what a GPU showed.
func TestMeasuredOnGPU(t *testing.T) {
	file := measuredCases(t, "measured_gpu.json")
	t.Logf("measured with %v", file.Versions)
	sums := errorSums{}
	for _, c := range file.Cases {
		e, err := Run(c.input(t, file))
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		peak := slices.Max(slices.Concat(c.First[:3], c.Second[:3], c.Steady[:3]))
		reserved := slices.Max(slices.Concat(c.Reserved.First[:], c.Reserved.Second[:], c.Reserved.Steady[:]))
		p := percent(e.PerGPU.AllocatedBytes, peak)
		line := fmt.Sprintf("%-84s %6.2f GiB peak %+6.2f %%", c.Name, float64(peak)/gib, p)
		sums.add("peak", c.Name, p)
		for i, s := range []Stage{Forward, Backward, OptimizerStep} {
			p := percent(stageOf(t, e, s).AllocatedBytes, c.steady(i))
			line += fmt.Sprintf("  %s %+6.2f", s, p)
			sums.add(string(s), c.Name, p)
		}
		p = percent(e.PerGPU.ReservedBytes, reserved)
		// a model that is split after it was made whole on the GPU leaves its whole size in the cache
		if c.Sharding == "" || c.Sharding == "ddp" {
			sums.add("reserved", c.Name, p)
		}
		line += fmt.Sprintf("  reserved %+6.2f (%+.1f over allocated)", p, percent(reserved, peak))
		t.Log(line)
	}
	for _, k := range slices.Sorted(maps.Keys(sums)) {
		t.Logf("%-24s %s", k, sums[k])
		if k != "reserved" && (sums[k].mean() > 1 || math.Abs(sums[k].worst) > 8) {
			t.Errorf("%s: want a mean of at most 1 %% and at worst 8 %%", k)
		}
	}
}
