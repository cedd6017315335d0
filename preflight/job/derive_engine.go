package job

import (
	"strings"

	"oomguard/preflight/optim"
)

// deriveEngine settles what the engines leave open: gradients, evaluation and checkpoints.
func (r *reader) deriveEngine() {
	j := r.job
	r.deriveEvaluation()
	if r.seen() != nil {
		r.bucketViewInSource()
		r.stateDictInSource()
	}
	if traits := j.Traits(); traits.SequenceParallel {
		j.SequenceParallel.Offer(true, "what "+j.Framework.Value+" does with tensor parallelism")
	}
	if j.TP.Known && j.TP.Value == 1 {
		j.SequenceParallel.Unknown("no tensor parallelism")
	}
	if j.EP.Known && j.EP.Value == 1 {
		j.ETP.Unknown("no expert parallelism")
	}
	if j.PP.Known && j.PP.Value == 1 {
		j.VirtualStages.Offer(1, "no pipeline")
	}
	if j.Optimizer.Known && !projects(j.Optimizer.Value) {
		j.ProjectionRank.Unknown("the optimizer projects no gradients")
	}
	switch s := j.Sharding; {
	case s.Known && s.Value != "ddp":
		j.BucketView.Unknown("DDP is not used")
	case s.Known && r.family.huggingFace():
		j.BucketView.Offer(false, "Trainer leaves it at the default of DDP")
	}
	if s := j.Sharding; s.Known && !strings.HasPrefix(s.Value, "fsdp") {
		j.StateDict.Unknown("FSDP is not used")
	}
}

// deriveEvaluation: rows of an evaluation say that there is one. A script of the user's evaluates when it is told to as
// Trainer is.
func (r *reader) deriveEvaluation() {
	j := r.job
	asked := r.evaluationAsked()
	if asked != "" && !r.family.huggingFace() {
		j.Evaluation.Offer(true, asked)
		r.integer("per_device_eval_batch_size", &j.EvalBatch)
	}
	for _, name := range []string{"eval_strategy", "evaluation_strategy"} {
		if strategy := r.args[name]; r.family.foreign && asked == "" && strategy.text == "no" {
			j.Evaluation.Offer(false, strategy.origin)
		}
	}
	switch {
	case j.EvalBatch.Known:
		j.Evaluation.Offer(j.EvalBatch.Value > 0, j.EvalBatch.Origin)
	case j.Evaluation.Known && !j.Evaluation.Value:
		j.EvalBatch.Offer(0, j.Evaluation.Origin)
	}
}

// projects reports whether an optimizer works on gradients of a lower rank, as GaLore and APOLLO do.
func projects(name string) bool {
	o, known := optim.Find(name, optim.Ours)
	return known && o.Projects
}
