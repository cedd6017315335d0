package job

import "fmt"

// An assertion is a test that Megatron-LM makes at start: whether it holds, and what is said when it does not. Sizes
// that are not known are 0, and hold.
type assertion struct {
	holds  bool
	why    string
	origin string
}

// refusals repeats the assertions of validate_args and of TransformerConfig that concern the sizes (core_v0.13.1).
func (m *megatron) refusals() {
	j := m.r.job
	size := func(name string) (int, string) {
		s := m.size(name, 0)
		return s.Value, s.Origin
	}
	world := product(j.NNodes.Or(0), j.NProc.Or(0))
	tp, pp, cp, ep := j.TP.Or(0), j.PP.Or(0), j.CP.Or(0), j.EP.Or(0)
	layers, layersAt := size("num_layers")
	heads, headsAt := size("num_attention_heads")
	hidden, _ := size("hidden_size")
	experts, expertsAt := size("num_experts")
	groups := heads
	if m.flag("group_query_attention").Value {
		groups = m.size("num_query_groups", 1).Value
	}
	etp := max(m.size("expert_tensor_parallel_size", tp).Value, 1)
	uneven := m.given("decoder_first_pipeline_num_layers") || m.given("decoder_last_pipeline_num_layers") ||
		m.given("pipeline_model_parallel_layout") ||
		m.given("num_virtual_stages_per_pipeline_rank")
	staged := layers
	for _, extra := range []string{"account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"} {
		if m.flag(extra).Value {
			staged++
		}
	}
	seq, positions := j.SeqLen.Or(0), m.size("max_position_embeddings", 0)
	m.check([]assertion{
		{divides(product(tp, pp, cp), world),
			fmt.Sprintf("world size (%d) is not divisible by tensor %d x pipeline %d x context %d parallel size", world,
				tp, pp, cp), j.TP.Origin},
		{m.given("kv_channels") || divides(heads, hidden),
			fmt.Sprintf("hidden size %d is not divisible by %d attention heads", hidden, heads), headsAt},
		{divides(tp, heads), fmt.Sprintf("num_attention_heads (%d) must be a multiple of tensor_model_parallel_size "+
			"(%d)", heads, tp), j.TP.Origin},
		{divides(tp, groups) || divides(groups, tp),
			fmt.Sprintf("num_query_groups (%d) must be a multiple of tensor_model_parallel_size (%d)", groups, tp),
			j.TP.Origin},
		{divides(groups, heads), fmt.Sprintf("%d attention heads are not divisible by %d query groups", heads, groups),
			headsAt},
		{uneven || divides(pp, staged),
			fmt.Sprintf("number of layers (%d) should be divisible by the pipeline-model-parallel size (%d)", staged,
				pp), layersAt},
		{cp < 2 || divides(2*cp, seq), fmt.Sprintf("seq-length (%d) should be a multiple of 2 * "+
			"context-parallel-size (%d)", seq, cp), j.SeqLen.Origin},
		{!positions.Known || !m.given("max_position_embeddings") || seq <= positions.Value,
			fmt.Sprintf("max_position_embeddings (%d) must be greater than or equal to seq_length (%d)",
				positions.Value, seq), positions.Origin},
		{ep < 2 || experts > 0 || m.open != "", "num_moe_experts must be non None to use expert-parallel", j.EP.Origin},
		{experts == 0 || divides(ep, experts),
			fmt.Sprintf("%d experts are not divisible by expert-model-parallel-size %d", experts, ep), expertsAt},
		{ep < 2 || divides(product(etp, ep, pp), world),
			fmt.Sprintf("world size (%d) is not divisible by expert tensor %d x expert %d x pipeline %d parallel size",
				world, etp, ep, pp), j.EP.Origin},
		{experts == 0 || tp < 2 || m.flag("sequence_parallel").Value || m.open != "",
			"When using expert parallelism and tensor parallelism, sequence parallelism must be used", j.TP.Origin},
		{!m.given("num_experts") || !m.flag("moe_grouped_gemm").Value || j.ParamDtype.Or("bf16") == "bf16",
			"GroupedGEMM for MoE only supports bf16", expertsAt},
	})
	m.refuseOptions()
	m.refuseInterleaving(layers, pp)
}

// refuseOptions are the assertions about options that exclude or need each other, and about those that are gone.
func (m *megatron) refuseOptions() {
	on := func(name string) bool { return m.flag(name).Value }
	at := func(name string) string { return m.args[name].origin }
	distributed := on("use_distributed_optimizer") || m.open != ""
	selective := m.word("recompute_granularity", "").Value == "selective" || on("recompute_activations")
	sequenceParallel := on("sequence_parallel") && m.r.job.TP.Or(2) > 1
	m.check([]assertion{
		{!m.given("model_parallel_size"), "--model-parallel-size is no longer valid, use --tensor-model-parallel-size",
			at("model_parallel_size")},
		{!m.given("batch_size"), "--batch-size is no longer valid, use --micro-batch-size", at("batch_size")},
		{!on("checkpoint_activations") || on("deepspeed"),
			"--checkpoint-activations is no longer valid, use --recompute-activations", at("checkpoint_activations")},
		{!on("use_custom_fsdp") || distributed, "--use-custom-fsdp is only supported with the distributed optimizer",
			at("use_custom_fsdp")},
		{!on("fp8_param_gather") || distributed || on("use_torch_fsdp2") || on("use_megatron_fsdp"),
			"--fp8-param-gather is only supported with the distributed optimizer", at("fp8_param_gather")},
		{!on("fp8_param_gather") || m.given("fp8_format") || m.open != "",
			"fp8_param must be used together with fp8 mode", at("fp8_param_gather")},
		{!on("overlap_param_gather") || distributed || on("use_megatron_fsdp") ||
			m.word("optimizer", "adam").Value != "adam",
			"--overlap-param-gather is only supported with the distributed optimizer", at("overlap_param_gather")},
		{!on("overlap_param_gather") || on("overlap_grad_reduce") || m.open != "",
			"--overlap-grad-reduce must be on with --overlap-param-gather", at("overlap_param_gather")},
		{!on("optimizer_cpu_offload") || on("use_precision_aware_optimizer") || m.open != "",
			"--optimizer-cpu-offload must be used with --use-precision-aware-optimizer", at("optimizer_cpu_offload")},
		{!on("use_precision_aware_optimizer") || distributed,
			"--use-precision-aware-optimizer is only supported with the distributed optimizer",
			at("use_precision_aware_optimizer")},
		{!selective || !m.given("recompute_method"), "recompute method is not supported for selective recomputation",
			at("recompute_method")},
		{!on("distribute_saved_activations") || m.r.job.TP.Or(2) > 1,
			"recomputed activations can be distributed only across tensor model parallel groups",
			at("distribute_saved_activations")},
		{!on("distribute_saved_activations") || !sequenceParallel,
			"distribute_saved_activations must be false when sequence parallel is enabled",
			at("distribute_saved_activations")},
		{m.size("cpu_offloading_num_layers", 0).Value == 0 || m.r.job.PP.Or(1) == 1,
			"there is no support for pipeline parallelism with CPU offloading", at("cpu_offloading_num_layers")},
		{m.size("cpu_offloading_num_layers", 0).Value == 0 ||
			!selective && m.word("recompute_granularity", "").Value == "",
			"CPU offloading does not work when activation recomputation is enabled",
			at("cpu_offloading_num_layers")},
		{!m.given("train_iters") || !m.given("rampup_batch_size"),
			"expected no batch-size rampup for iteration-based training", at("rampup_batch_size")},
		{!on("tp_comm_overlap") || on("sequence_parallel") || m.open != "",
			"tensor parallel communication overlap can happen only when sequence parallelism is enabled",
			at("tp_comm_overlap")},
		{!on("deterministic_mode") || !on("cross_entropy_loss_fusion"), "cross entropy fusion is not deterministic",
			at("cross_entropy_loss_fusion")},
	})
}

// refuseInterleaving: how the layers of a pipeline stage are cut into chunks.
func (m *megatron) refuseInterleaving(layers, pp int) {
	chunk := m.size("num_layers_per_virtual_pipeline_stage", 0)
	if !chunk.Known || chunk.Value == 0 {
		return
	}
	perStage := 0
	if pp > 0 && layers%pp == 0 {
		perStage = layers / pp
	}
	m.check([]assertion{
		{!m.given("num_virtual_stages_per_pipeline_rank") && !m.given("pipeline_model_parallel_layout"),
			"no more than one way to lay out virtual stages can be given", chunk.Origin},
		{divides(chunk.Value, perStage),
			fmt.Sprintf("number of layers per pipeline stage (%d) must be divisible by number of layers per virtual "+
				"pipeline stage (%d)", perStage, chunk.Value), chunk.Origin},
		{pp == 0 || pp > 2 || pp == 2 && !m.flag("no_overlap_p2p_communication").Value,
			fmt.Sprintf("the interleaved schedule needs more pipeline stages than %d", pp), chunk.Origin},
	})
}

// refuseBatch: the global batch is made of whole micro-batches on every replica (num_microbatches_calculator.py).
func (m *megatron) refuseBatch() {
	j := m.r.job
	each := product(j.MicroBatch.Or(0), m.replicas())
	global := m.size("global_batch_size", 0)
	m.check([]assertion{{global.Value == 0 || divides(each, global.Value),
		fmt.Sprintf("global batch size (%d) is not divisible by micro batch size (%d) times data parallel size (%d)",
			global.Value, j.MicroBatch.Or(0), m.replicas()), global.Origin}})
}

func (m *megatron) check(list []assertion) {
	for _, a := range list {
		if a.holds {
			continue
		}
		m.r.fail("AssertionError: "+a.why, a.origin)
		m.r.problem(fmt.Errorf("%s: Megatron-LM would end at start: %s; correct one of the options", a.origin, a.why))
	}
}

func (m *megatron) given(name string) bool {
	a, given := m.args[name]
	return given && a.text != "None"
}

// divides reports whether part divides whole; true when one of them is not known.
func divides(part, whole int) bool { return part == 0 || whole == 0 || whole%part == 0 }
