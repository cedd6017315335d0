package job

import "fmt"

// gradients: the buffer is fp32 in bf16 training unless it is told to reduce in bf16, and has the weights' dtype in
// fp16 training unless told otherwise (megatron/training/arguments.py: accumulate_allreduce_grads_in_fp32).
func (m *megatron) gradients() {
	j := m.r.job
	wide, narrow := m.flag("accumulate_allreduce_grads_in_fp32"), m.flag("grad_reduce_in_bf16")
	switch dtype := j.ParamDtype; {
	case !dtype.Known:
		j.GradDtype.Unknown(dtype.Origin)
	case wide.Value:
		j.GradDtype.Offer("fp32", wide.Origin)
	case !wide.Known || !narrow.Known:
		j.GradDtype.Unknown(wide.Origin)
	case dtype.Value == "bf16" && narrow.Value:
		j.GradDtype.Offer("bf16", narrow.Origin)
	case dtype.Value == "fp16":
		j.GradDtype.Offer("fp16", m.origin+": the dtype of the weights")
	default:
		j.GradDtype.Offer("fp32", m.origin)
	}
}

// schedule reads how a stage of the pipeline is interleaved, and what tensor-parallel ranks share besides.
func (m *megatron) schedule() {
	j := m.r.job
	j.SequenceParallel.take(m.flag("sequence_parallel"))
	if experts := m.size("expert_tensor_parallel_size", 0); !experts.Known || experts.Value > 0 {
		j.ETP.take(experts)
	}
	j.ETP.Unknown(m.origin + ": experts are split as other layers are, by tp")
	j.VirtualStages.take(m.virtualStages())
}

// virtualStages: chunks of a stage, given as their number or by the layers of one (arguments.py:
// virtual_pipeline_model_parallel_size).
func (m *megatron) virtualStages() Setting[int] {
	const option = "num_layers_per_virtual_pipeline_stage"
	perChunk, layers, stages := m.size(option, 0), m.size("num_layers", 0), m.r.job.PP
	switch {
	case !perChunk.Known:
		return perChunk
	case perChunk.Value == 0:
		chunks := m.size("num_virtual_stages_per_pipeline_rank", 1)
		chunks.Value = max(chunks.Value, 1)
		return chunks
	case !layers.Known || layers.Value == 0 || !stages.Known || stages.Value == 0:
		return Setting[int]{Origin: perChunk.Origin + ", and the layers of a stage are not known"}
	}
	perStage := layers.Value / stages.Value
	origin := fmt.Sprintf("%s: %d layers of a stage in chunks of %d", perChunk.Origin, perStage, perChunk.Value)
	return Setting[int]{Value: max(perStage/perChunk.Value, 1), Known: true, Origin: origin}
}
