package job

// llamafactoryReference: DPO and KTO load the model once more unless adapters can be switched off
// (train/trainer_utils.py, create_ref_model); PPO holds one too.
func (r *reader) llamafactoryReference(stage argument) {
	ref := &r.job.RefModel
	named := r.args["ref_model"]
	r.llamafactorySecondModels(stage.text, named)
	loss := r.args["pref_loss"]
	switch {
	case stage.text != "dpo" && stage.text != "kto" && stage.text != "ppo":
		ref.Offer(false, "the stage "+stage.text+" has no reference model")
	case stage.text == "dpo" && (loss.text == "orpo" || loss.text == "simpo"):
		ref.Offer(false, loss.origin+" needs no reference model")
	case named.text != "":
		ref.Offer(true, named.origin)
	case r.adapter.use.Value:
		ref.Offer(false, "the model with its adapters switched off is the reference")
	default:
		ref.Offer(true, "the stage "+stage.text+" without adapters loads the model once more")
	}
}

// llamafactorySecondModels: a reference of its own, and PPO's reward model unless it is adapters on the policy; the
// value head sits on the policy (train/ppo/trainer.py, train/trainer_utils.py: create_reward_model).
func (r *reader) llamafactorySecondModels(stage string, reference argument) {
	hold := func(role string, a argument) {
		r.hold(role, Setting[string]{Value: a.text, Known: true, Origin: a.origin}, false, false)
	}
	if reference.text != "" && (stage == "dpo" || stage == "kto" || stage == "ppo") {
		hold("reference", reference)
	}
	if reward := r.args["reward_model"]; stage == "ppo" && reward.text != "" &&
		r.args["reward_model_type"].text == "full" {
		hold("reward", reward)
	}
	r.holdsNoOther("the stage " + stage + " has no other model")
}
