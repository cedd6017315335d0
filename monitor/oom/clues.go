package oom

import (
	"slices"
	"strings"
)

// clue is a fixed text that gives away which framework trains, which engine shards, or on what platform it runs. It is
// looked for in the whole log: in the files of tracebacks and in what the programs print at their start.
type clue struct{ word, name string }

// clueTable: the packages' folders, which every traceback and every log line of theirs names.
func clueTable() []clue {
	return []clue{
		{"/axolotl/", "axolotl"}, {"axolotl.", "axolotl"},
		{"/llamafactory/", "llamafactory"}, {"/llmtuner/", "llamafactory"}, {"[INFO|llamafactory", "llamafactory"},
		{"/torchtune/", "torchtune"}, {"torchtune.", "torchtune"},
		{"/torchtitan/", "torchtitan"}, {"[titan]", "torchtitan"},
		{"/megatron/", "megatron"},
		{"/litgpt/", "litgpt"},
		{"/pytorch_lightning/", "lightning"}, {"/lightning/pytorch/", "lightning"}, {"/lightning/fabric/", "lightning"},
		{"/unsloth/", "unsloth"}, {"/unsloth_zoo/", "unsloth"},
		{"-packages/trl/", "trl"},
		{"/transformers/trainer", "hf-trainer"}, {"/transformers/training_args", "hf-trainer"},
		{"-packages/deepspeed/", "deepspeed"}, {"[launch.py:", "deepspeed"}, {"DeepSpeed info:", "deepspeed"},
		{"-packages/accelerate/", "accelerate"},
		{"/distributed/fsdp/", "fsdp"}, {"/_composable/fsdp/", "fsdp"}, {"FullyShardedDataParallel", "fsdp"},
		{"/distributed/_composable_state", "fsdp"},
		{"microsoft-standard", platformWSL}, {"/mnt/c/Users/", platformWSL}, {`\site-packages\`, platformWindows},
		{"NvMapMem", platformTegra}, {"CuMemAllocator", platformPool},
	}
}

// Platforms on which expandable segments are refused or break.
const (
	platformWSL     = "WSL"
	platformWindows = "Windows"
	platformTegra   = "Tegra"
	platformPool    = "memory pool"
)

type clueWord struct {
	word string
	read reader
}

// clueWords are the rows for the scanner. These words may stand on every line, so their reader does no more than count.
func clueWords() []clueWord {
	var list []clueWord
	for _, c := range clueTable() {
		list = append(list, clueWord{c.word, func(s *scanner, _ int) {
			if s.log.Clues == nil {
				s.log.Clues = map[string]int{}
			}
			s.log.Clues[c.name]++
		}})
	}
	return list
}

// trainers are the frameworks whose settings a user edits, the outermost first: axolotl is built on TRL, that on the HF
// Trainer, that on accelerate. engines shard beneath them.
func trainers() []string {
	return []string{"axolotl", "llamafactory", "torchtune", "torchtitan", "megatron", "litgpt", "lightning", "unsloth",
		"trl", "hf-trainer", "accelerate"}
}

func engines() []string { return []string{"deepspeed", "fsdp"} }

// framework is whose settings the remedies name: what the job was read as, else what the log gives away; "" unknown.
func (q *inquest) framework() string {
	if q.facts.Run != nil {
		if f := q.facts.Run.Job.Framework; f != "" && f != "custom" {
			return f
		}
	}
	for _, list := range [][]string{trainers(), engines()} {
		for _, name := range list {
			if q.log.Clues[name] > 0 {
				return name
			}
		}
	}
	return ""
}

// engine is what shards beneath the framework; "" unknown or the framework itself.
func (q *inquest) engine() string {
	if r := q.facts.Run; r != nil {
		for prefix, name := range map[string]string{"zero": "deepspeed", "fsdp": "fsdp"} {
			if strings.HasPrefix(r.Job.Sharding, prefix) && name != q.framework() {
				return name
			}
		}
	}
	for _, name := range engines() {
		if q.log.Clues[name] > 0 && name != q.framework() {
			return name
		}
	}
	return ""
}

// noExpandable says why expandable segments must not be advised, "" when nothing is known against them. The places are
// those where they are known to be refused or to break: WSL (pytorch issues 192330, 112957), Windows and Tegra
// (CUDAAllocatorConfig.h: no driver API), memory pools such as vLLM's sleep mode (pytorch issue 147851), the
// cudaMallocAsync backend, which ignores them.
func (q *inquest) noExpandable() string {
	if q.facts.NoExpandable != "" {
		return q.facts.NoExpandable
	}
	if q.msg != nil && q.msg.Form == FormAsync {
		return "the cudaMallocAsync backend, which ignores them"
	}
	reasons := map[string]string{
		platformWSL: "WSL, where the first allocation may fail with them", platformWindows: "Windows, which has none",
		platformTegra: "Tegra, which has none",
		platformPool:  "a memory pool (vLLM's sleep mode), which refuses them",
	}
	for _, p := range []string{platformWSL, platformWindows, platformTegra, platformPool} {
		if q.log.Clues[p] > 0 {
			return reasons[p]
		}
	}
	return ""
}

// runEvidence is what a run folder adds to the evidence.
func (q *inquest) runEvidence() []string {
	r := q.facts.Run
	if r == nil {
		return nil
	}
	var list []string
	if r.OptimizerBytes > 0 || r.GradBytes > 0 {
		list = append(list, "exact sizes after the first optimizer step: "+size(r.ParamBytes)+" parameters, "+
			size(r.GradBytes)+" gradients, "+size(r.OptimizerBytes)+" optimizer state")
	}
	if k, ok := r.leak(); ok {
		list = append(list, "held after a step: "+size(k.firstBytes)+" early, "+size(k.lastBytes)+" at the end")
	}
	if r.strangerTotal() > 0 {
		list = append(list, "NVML: "+describeStrangers(r.Strangers)+" are not of this run")
	}
	if slices.ContainsFunc(r.Course, func(p CoursePoint) bool { return p.Step > 0 }) {
		before, last := r.highest()
		list = append(list, "highest peak before the last step "+size(before)+", in it "+size(last))
	}
	return list
}
