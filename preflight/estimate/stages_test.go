package estimate

import (
	"fmt"
	"strings"
	"testing"

	"oomguard/preflight/job"
)

// Every way of sharing has all stages. Evaluation that nothing asks for never exceeds training's stages, but for
// a cuBLAS workspace that backward made.
func TestEveryShardingHasAllStages(t *testing.T) {
	for name, edit := range jobs() {
		e := run(t, small(t, edit))
		eval, forward, step, save := stageOf(t, e, Eval), stageOf(t, e, Forward), stageOf(t, e, OptimizerStep),
			stageOf(t, e, CheckpointSave)
		if most := max(forward.AllocatedBytes, stageOf(t, e, Backward).AllocatedBytes,
			step.AllocatedBytes); eval.AllocatedBytes > most+largeWorkspace {
			t.Errorf("%s: evaluation %d is above training's %d", name, eval.AllocatedBytes, most)
		}
		if save.AllocatedBytes < eval.Components[Parameters] {
			t.Errorf("%s: saving holds %d bytes, less than the weights", name, save.AllocatedBytes)
		}
	}
}

// What saving gathers beyond the states between steps, for Llama-3.2-1B in fp32 shards of eight ranks: its embedding is
// 128256 x 2048, a layer 60821504 parameters, the root group the embedding and the last norm.
func TestSavingGathers(t *testing.T) {
	const embedding, layer, root = 128256 * 2048, 60821504, 128256*2048 + 2048
	for name, c := range map[string]struct {
		sharding string
		version  int
		form     string
		want     int64
	}{
		"ddp":              {"ddp", 0, "", 0},
		"zero1":            {"zero1", 0, "", 0},
		"zero2":            {"zero2", 0, "", 0},
		"zero3":            {"zero3", 0, "", 2 * embedding},
		"fsdp2 by default": {"fsdp-full", 2, "", 0},
		"fsdp2 whole":      {"fsdp-full", 2, "full", 4 * embedding},
		"fsdp1 by default": {"fsdp-full", 1, "", 4 * (root + layer)},
		"fsdp1 shards":     {"fsdp-full", 1, "sharded", 4*(root+layer) + 4*(llama1B/8)},
	} {
		in := small(t, func(j *job.Job) {
			j.Sharding, j.WorldSize, j.NProc, j.Precision = known(c.sharding), known(8), known(8), known("bf16")
			if c.form != "" {
				j.StateDict = flagged("state-dict", c.form).StateDict
			}
			if j.ParamDtype = known("fp32"); c.sharding == "zero3" {
				j.ParamDtype = known("bf16")
			}
			if c.version > 0 {
				j.FSDPVersion = known(c.version)
			}
		})
		p, err := predict(in)
		if err != nil {
			t.Fatal(err)
		}
		var between, saving int64
		for _, m := range p.moments[0] {
			switch {
			case m.name == betweenSteps:
				between = m.at[Communication]
			case m.stage == CheckpointSave:
				saving = m.at[Communication]
			}
		}
		if got := saving - between; got < c.want || got > c.want+8<<20 {
			t.Errorf("%s: saving gathers %d bytes, want %d", name, got, c.want)
		}
	}
}

// Trainer's batch of an evaluation is 8 unless given; without any evaluation it is training's.
func TestEvaluationBatch(t *testing.T) {
	at := func(args ...string) int64 {
		return stageOf(t, run(t, small(t, func(j *job.Job) {
			pureBF16(j)
			read := job.Read(job.Sources{Argv: append([]string{"python", "run_clm.py", "--output_dir=out"}, args...),
				GPUs:     1,
				Versions: map[string]string{"transformers": "5.1.0"}})
			j.Framework, j.Versions, j.EvalBatch, j.Evaluation = read.Framework, read.Versions, read.EvalBatch,
				read.Evaluation
		})), Eval).Components[Logits]
	}
	row := at("--do_eval") / 8
	for args, want := range map[string]int64{"--eval_strategy=steps": 8, "--eval_strategy epoch": 8,
		"--eval_strategy=no --do_eval":             8,
		"--do_eval --per_device_eval_batch_size=5": 5, "--do_eval --per_device_eval_batch_size 5": 5} {
		if got := at(strings.Fields(args)...); got != want*row {
			t.Errorf("%s: %d bytes of logits, want %d rows of %d", args, got, want, row)
		}
	}
}

// What an offloaded optimizer takes of each rank's host: fp32 master weights, two states and fp32 gradients are 16
// bytes a parameter, shared among all ranks; ZeRO-3 keeps a flat buffer of 16-bit gradients too, and offloaded weights.
// Pinned parts may take up to twice as much.
func TestHostMemory(t *testing.T) {
	const ranks = 8
	for name, c := range map[string]struct {
		sharding string
		offload  job.Offload
		bytes    int64 // a parameter
	}{
		"nothing":                     {"zero2", job.Offload{}, 0},
		"zero2, optimizer":            {"zero2", job.Offload{Optimizer: "cpu"}, 16},
		"zero3, optimizer":            {"zero3", job.Offload{Optimizer: "cpu"}, 18},
		"zero3, optimizer and params": {"zero3", job.Offload{Optimizer: "cpu", Params: "cpu"}, 20},
		"nvme":                        {"zero3", job.Offload{Optimizer: "nvme"}, 0},
	} {
		e := run(t, small(t, func(j *job.Job) {
			j.ParamDtype, j.Precision, j.MasterFP32 = known("bf16"), known("bf16"), known(true)
			j.Sharding, j.Offload, j.WorldSize, j.NProc = known(c.sharding), known(c.offload), known(2*ranks),
				known(ranks)
		}))
		h, want := e.Host, c.bytes*llama1B/(2*ranks)
		if h.PerRankBytes < want || h.PerRankBytes > want+want/20 || h.RanksPerNode != ranks ||
			h.PerNodeBytes != ranks*h.PerRankBytes {
			t.Errorf("%s: %+v, want %d bytes a rank", name, h, want)
		}
		var sum int64
		for _, p := range h.Parts {
			sum += p.Bytes
			if p.HighBytes < p.Bytes || p.HighBytes >= 2*p.Bytes {
				t.Errorf("%s: %s: %d to %d", name, p.What, p.Bytes, p.HighBytes)
			}
		}
		if sum != h.PerRankBytes {
			t.Errorf("%s: parts sum to %d, want %d", name, sum, h.PerRankBytes)
		}
	}
}

// Checkpointed layers' inputs on the host: a 16-bit hidden state for each layer.
func TestHostMemoryOfActivations(t *testing.T) {
	e := run(t, small(t, func(j *job.Job) { pureBF16(j); j.Checkpointing = known("offload") }))
	if got, want := e.Host.PerRankBytes, int64(16*2*2048*2*512); got != want {
		t.Errorf("%d bytes, want %s", got, fmt.Sprint(want))
	}
}

// Inputs that reentrant checkpointing detaches, and their gradients, stay with FSDP 1 while layers are frozen: two
// states of the stream for each of the layers in front of the last. Where nobody says which kind it is, the interval
// reaches down to the other.
func TestReentrantCheckpointing(t *testing.T) {
	with := func(reentrant job.Setting[bool], version int) *Estimate {
		return run(t, small(t, func(j *job.Job) {
			pureBF16(j)
			j.Method, j.LoRA, j.Checkpointing = known("lora"), known(&job.LoRA{R: 8, Targets: []string{"q_proj"}}),
				known("full")
			j.Sharding, j.FSDPVersion, j.WorldSize, j.NProc, j.Reentrant = known("fsdp-full"), known(version), known(8),
				known(8), reentrant
			j.MicroBatch, j.FusedLoss = known(16), known("chunked") // so that the layers make the peak
		}))
	}
	on, off, unknown := with(known(true), 1), with(known(false), 1), with(job.Setting[bool]{}, 1)
	const layers, tokens, hidden = 16, 16 * 512, 2048 // of Llama-3.2-1B
	backward := func(e *Estimate) int64 { return stageOf(t, e, Backward).AllocatedBytes }
	if got, most := backward(on)-backward(off), int64(2*2*(layers-1)*tokens*hidden); got <= 0 || got > most {
		t.Errorf("reentrant checkpointing takes %d bytes more, want up to %d", got, most)
	}
	if backward(unknown) != backward(on) || unknown.PerGPU.LowBytes >= on.PerGPU.LowBytes {
		t.Errorf("unknown: %d bytes from %d, want %d from less than %d", backward(unknown), unknown.PerGPU.LowBytes,
			backward(on), on.PerGPU.LowBytes)
	}
	if backward(with(known(true), 2)) != backward(with(known(false), 2)) {
		t.Error("FSDP 2 has no such hook")
	}
}
