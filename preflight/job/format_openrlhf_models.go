package job

import "strings"

// reference decides whether the frozen copy of the actor is on its GPUs.
func (o *openrlhf) reference() {
	ref := &o.r.job.RefModel
	weight := o.word("init_kl_coef", "0.01")
	// train_ppo, until 0.6, holds all models in each of its processes.
	together := o.flag("colocate_all_models").Value || o.flag("colocate_actor_ref").Value ||
		o.program.name == "train_ppo"
	o.judges(o.flag("colocate_all_models").Value || o.program.name == "train_ppo")
	switch {
	case isZero(weight.Value):
		ref.Offer(false, weight.Origin+": no reference")
	case together:
		ref.Offer(true, weight.Origin+", on the actor's GPUs")
	default:
		ref.Offer(false, "the reference has GPUs of its own: neither --colocate_all_models nor --colocate_actor_ref")
	}
}

// judges are the reward model and the critic, on GPUs of their own unless all models are together. A critic is there
// for gae alone, and begins as the reward model, else as the actor (openrlhf/cli/train_ppo_ray.py).
func (o *openrlhf) judges(together bool) {
	if !together {
		o.r.holdsNoOther("reward model and critic have GPUs of their own: no --colocate_all_models")
		return
	}
	reward, critic := o.word("reward_pretrain", ""), o.word("critic_pretrain", "")
	reward.Value, _, _ = strings.Cut(reward.Value, ",")
	remote := o.word("remote_rm_url", "")
	if !remote.Known && reward.Known {
		o.r.hold("reward", reward, false, false)
	}
	if !critic.Known {
		critic = reward
	}
	if !critic.Known || remote.Known && !o.word("critic_pretrain", "").Known {
		critic = o.r.job.Model
	}
	if estimator := o.word("advantage_estimator", "gae"); estimator.Value == "gae" {
		o.r.hold("critic", critic, true, false)
	}
	o.r.holdsNoOther("neither a reward model nor a critic")
}

// inference: vLLM's engines share the GPUs only with --colocate_all_models; with --vllm_enable_sleep their memory is
// free while the model is trained.
func (o *openrlhf) inference() {
	share := &o.r.job.InferenceShare
	together, sleeps := o.flag("colocate_all_models"), o.flag("vllm_enable_sleep")
	part := o.word("vllm_gpu_memory_utilization", "0.95")
	value, err := pythonFloat(part.Value)
	switch {
	case o.program.task != "ppo" || o.size("vllm_num_engines", 0).Value == 0:
		share.Offer(0, "no inference engine beside the training")
	case !together.Value:
		share.Offer(0, "vLLM has GPUs of its own: no --colocate_all_models")
	case sleeps.Value:
		share.Offer(0, "vLLM sleeps while the model is trained: "+sleeps.Origin)
	case err != nil || value <= 0 || value > 1:
		share.Unknown(part.Origin + " is not a share of the GPU")
	default:
		share.Offer(value, part.Origin)
	}
}
