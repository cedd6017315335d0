package estimate

import (
	"math"
	"testing"

	"oomguard/preflight/job"
	"oomguard/preflight/model"
)

// momentsOf predicts every moment of one pipeline stage.
func momentsOf(t *testing.T, in Input, stage int) []moment {
	t.Helper()
	p, err := predict(in)
	if err != nil {
		t.Fatal(err)
	}
	return p.moments[stage]
}

// perParameter is the memory of a moment, without workspaces, in bytes for each of the given parameters.
func perParameter(t *testing.T, in Input, name string, parameters int64) float64 {
	t.Helper()
	c, ok := at(momentsOf(t, in, 0), name)
	if !ok {
		t.Fatalf("no moment %q", name)
	}
	return float64(c.Allocated()) / float64(parameters)
}

func zero(stage string, gpus int, version, optimizer string) Input {
	return paramsOnly(1_600_000_000, func(j *job.Job) {
		j.Framework, j.Sharding, j.WorldSize, j.NProc = known("deepspeed"), known(stage), known(gpus), known(gpus)
		j.Optimizer, j.Versions = known(optimizer), map[string]string{"deepspeed": version}
		small := deepSpeedDefaults
		small.ReduceBucketSize, small.AllgatherBucketSize = 0, 0
		j.DeepSpeed = known(&small)
	})
}

// What see_memory_usage of DeepSpeed printed, as bytes a parameter of the rank's partition (ZeRO-3: 0.16.9 on 4 GPUs,
// Qwen2.5-1.5B; 0.3.17, 52B), or of the model (ZeRO-1: 0.5.4 and 0.15.1 on 4 GPUs, GPT-2):
// testdata/measured/sharded.json, lfq15-z3-*, bigsci-z3-*, gpt2-z1-*.
func TestZeROBytesPerParameterByMoment(t *testing.T) {
	tests := []struct {
		stage, version, optimizer, moment string
		want                              float64 // x parameters / 4
	}{
		{"zero3", "0.16.9", "adamw", weightsInPlace, 2},
		{"zero3", "0.16.9", "adamw", fp32PartitionsPeak, 8},
		{"zero3", "0.16.9", "adamw", fp32Partitions, 6},
		{"zero3", "0.16.9", "adamw", optimizerStatesPeak, 10},
		{"zero3", "0.16.9", "adamw", optimizerStates, 6},
		{"zero3", "0.16.9", "adamw", initialised, 8},
		{"zero3", "0.16.9", "adamw", betweenSteps, 16},
		{"zero3", "0.3.17", "adamw", optimizerStates, 14},
		{"zero3", "0.3.17", "adamw", initialised, 14},
		{"zero3", "0.3.17", "adamw", loadPeak, 26},
		{"zero1", "0.5.4", "adam", fp32Partitions, 4*2 + 4},
		{"zero1", "0.5.4", "adam", optimizerStates, 4*2 + 12},
		{"zero1", "0.5.4", "adam", optimizerStatesPeak, 4*2 + 4 + 24},
		{"zero1", "0.15.1", "adam", optimizerStates, 4*2 + 4},
		{"zero1", "0.15.1", "adam", optimizerStatesPeak, 4*2 + 4 + 4},
		{"zero2", "0.13.1", "adamw", initialised, 4*2 + 12},
		{"zero2", "0.13.2", "adamw", initialised, 4*2 + 4},
	}
	for _, tt := range tests {
		t.Run(tt.stage+" "+tt.version+" "+tt.moment, func(t *testing.T) {
			in := zero(tt.stage, 4, tt.version, tt.optimizer)
			got := perParameter(t, in, tt.moment, in.Model.Parameters()/4) - workspacesPerParameter(tt.moment, in)
			if math.Abs(got-tt.want) > 0.01 {
				t.Errorf("%.3f bytes for each of the partition's parameters, want %.2f", got, tt.want)
			}
		})
	}
}

// workspacesPerParameter is the cuBLAS workspaces that are there between steps, for each parameter of a partition of
// four.
func workspacesPerParameter(moment string, in Input) float64 {
	if moment != betweenSteps {
		return 0
	}
	return 4 * 2 * smallWorkspace / float64(in.Model.Parameters())
}

// megatron is Llama-2-7B under Megatron-LM, its parameters counted on the rank.
func megatron(t *testing.T, edit func(*job.Job)) Input {
	t.Helper()
	in := paramsOnly(1, func(j *job.Job) {
		j.Framework, j.MicroBatch, j.SeqLen, j.GradAccum = known("megatron"), known(1), known(4096), known(8)
		edit(j)
	})
	in.Model = loadModel(t, "meta-llama/Llama-2-7b-hf")
	return in
}

// pretrained is what is read of Megatron-LM's command line for a model of 32 layers.
func pretrained(options ...string) *job.Job {
	command := []string{"torchrun", "--nproc-per-node", "8", "pretrain_gpt.py", "--num-layers", "32", "--hidden-size",
		"4096",
		"--num-attention-heads", "32", "--micro-batch-size", "1"}
	return job.Read(job.Sources{Argv: append(command, options...), GPUs: 8})
}

// Model states of Megatron in bytes for each parameter on the rank. Distributed optimizer: 2 weights, 4 gradient
// buffer, (4 + 8) / N; DDP: all 18 on every rank; fp16 with an fp16 buffer: 2 + 2 + 4 + 4 + 8. Seen: 12.00 to 12.06 for
// N = 2 (Llama-2-7B PP4, GPT 7B TP4), 6.06 for N = 252, 18.1 (Qwen3-4B), 20.00 to 20.06 (bigscience n16 and n32).
func TestMegatronBytesPerParameter(t *testing.T) {
	tests := []struct {
		name string
		edit func(*job.Job)
		want float64
	}{
		{"distributed optimizer, 2 ranks", func(j *job.Job) { j.Sharding, j.WorldSize = known("dist-optim"), known(2) },
			6 + 12./2},
		{"distributed optimizer, PP4, 2 ranks",
			func(j *job.Job) { j.Sharding, j.WorldSize, j.PP = known("dist-optim"), known(8), known(4) }, 6 + 12./2},
		{"distributed optimizer over DP x CP",
			func(j *job.Job) { j.Sharding, j.WorldSize, j.CP = known("dist-optim"), known(8), known(4) }, 6 + 12./8},
		{"distributed optimizer, 252 ranks",
			func(j *job.Job) { j.Sharding, j.WorldSize = known("dist-optim"), known(252) }, 6 + 12./252},
		{"DDP", func(j *job.Job) { j.Sharding, j.WorldSize = known("ddp"), known(8) }, 18},
		{"one GPU", func(j *job.Job) { j.Sharding = known("none") }, 18},
		{"fp16 gradients", func(j *job.Job) {
			j.Sharding, j.WorldSize, j.Precision, j.ParamDtype = known("ddp"), known(8), known("fp16"), known("fp16")
		}, 20},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := megatron(t, tt.edit)
			s, err := newScenario(in)
			if err != nil {
				t.Fatal(err)
			}
			c, _ := at(momentsOf(t, in, 0), betweenSteps)
			got := float64(c.ModelStates()) / float64(count(s.rankOf(0).base, nil))
			if math.Abs(got-tt.want) > 0.001 {
				t.Errorf("%.3f bytes a parameter, want %.3f", got, tt.want)
			}
		})
	}
}

// Megatron's own lines while it builds a 13B shard: weights 2, the contiguous gradient buffer 4, fp32 master weights 4
// bytes a parameter, and nothing for Adam yet (sharded.json, codegeex-*).
func TestMegatronConstructionOrder(t *testing.T) {
	in := megatron(t, func(j *job.Job) {
		j.Sharding, j.WorldSize, j.Precision, j.ParamDtype = known("ddp"), known(8), known("fp16"), known("fp16")
		j.GradDtype = pretrained("--fp16", "--accumulate-allreduce-grads-in-fp32").GradDtype
	})
	for name, want := range map[string]float64{weightsInPlace: 2, gradientBuffer: 6, initialised: 10} {
		if got := perParameter(t, in, name, in.Model.Parameters()); math.Abs(got-want) > 0.001 {
			t.Errorf("%s: %.3f bytes a parameter, want %.0f", name, got, want)
		}
	}
}

// Adam's states are not there in the first step's passes: the peak of the run is 8 P / N above that of the first step
// where passes dominate. GPT 7B TP4, N = 2: 4.002 bytes a parameter against 4; PP4: 7.255 GiB against 7.254.
func TestFirstStepLacksAdamStates(t *testing.T) {
	for _, ranks := range []int{2, 8} {
		in := megatron(t, func(j *job.Job) {
			j.Sharding, j.WorldSize, j.MicroBatch = known("dist-optim"), known(ranks), known(8)
		})
		moments := momentsOf(t, in, 0)
		run, _ := at(moments, wholeRun)
		first, _ := at(moments, firstStep)
		want := 8 * float64(in.Model.Parameters()) / float64(ranks)
		if got := float64(run.Allocated() - first.Allocated()); math.Abs(got-want) > 0.001*want {
			t.Errorf("N = %d: the run peaks %.3f GB above its first step, want %.3f", ranks, got/gb, want/gb)
		}
	}
}

// 1F1B: stage j of p holds p - j micro-batches. Llama-2-7B on 8 RTX 4090, PP4: 16,869, 12,657 and 8,509 MiB of
// activations on stages 0 to 2 are 4, 3 and 2 times 4,217 to 4,254 MiB.
func TestPipelineLadder(t *testing.T) {
	in := megatron(t, func(j *job.Job) { j.Sharding, j.WorldSize, j.PP = known("dist-optim"), known(8), known(4) })
	var one float64
	for stage, want := range map[int]float64{1: 3, 2: 2} {
		c, _ := at(momentsOf(t, in, stage), forwardEnd)
		got := float64(c[Activations]) / want
		if one == 0 {
			one = got
		}
		if math.Abs(got/one-1) > 0.001 {
			t.Errorf("stage %d holds %d bytes, not %.0f micro-batches of %.0f", stage, c[Activations], want, one)
		}
	}
	e := run(t, in)
	if len(e.Ranks) != 4 || e.Ranks[0].AllocatedBytes <= e.Ranks[2].AllocatedBytes ||
		e.PerGPU.DeviceBytes != max(e.Ranks[0].DeviceBytes, e.Ranks[3].DeviceBytes) {
		t.Errorf("ranks %+v, per GPU %+v: want all four, and the worst of them", e.Ranks, e.PerGPU)
	}
}

// Interleaved: 2 (p - j - 1) + (v - 1) p + 1 chunks in flight (schedules.py). PP4 with 8 virtual stages and 4
// micro-batches: 29 of 32 on the last stage, where 1F1B holds 8; GPT 7B measured 60.7 GB there, which plain 1F1B misses
// by a quarter.
func TestInterleavedScheduleHoldsMoreChunks(t *testing.T) {
	plain := megatron(t, func(j *job.Job) {
		j.Sharding, j.WorldSize, j.PP, j.GradAccum = known("dist-optim"), known(8), known(4), known(4)
	})
	interleaved := megatron(t, func(j *job.Job) {
		*j = *plain.Job
		j.VirtualStages = pretrained("--pipeline-model-parallel-size", "4", "--num-layers-per-virtual-pipeline-stage",
			"1").VirtualStages
	})
	few, _ := at(momentsOf(t, plain, 3), forwardEnd)
	many, _ := at(momentsOf(t, interleaved, 3), forwardEnd)
	if got := float64(many[Activations]) / float64(few[Activations]); math.Abs(got-29./8) > 0.01 {
		t.Errorf("%.3f times the activations, want 29/8", got)
	}
}

// An unsharded 16-bit reference model costs 2 bytes a parameter on every GPU: open-r1's GRPO under ZeRO-2 on 7 devices
// prints 6.57 GiB before the optimizer states, 2 P + 2 P + 4 P / 7 (sharded.json, grpo-policy-z2-*).
func TestReferenceModelCostsItsWeights(t *testing.T) {
	in := zero("zero2", 7, "0.15.4", "adamw")
	in.Model = model.FromParams(1_543_714_304)
	in.Job.RefModel = known(true)
	c, _ := at(momentsOf(t, in, 0), fp32Partitions)
	if got := float64(c.Allocated()) / gib; math.Abs(got-6.572) > 0.002 {
		t.Errorf("%.3f GiB, want 6.572", got)
	}
}
