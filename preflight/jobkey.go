package preflight

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"oomguard/preflight/job"
)

// JobKey is the same for two jobs exactly when what was measured of one can be expected of the other: same model and
// script, same training method, sharding, precision, optimizer and sizes. Where a setting came from does not matter.
func JobKey(j *job.Job) string {
	if j == nil {
		return ""
	}
	return hash(append(remedySettings(j), known(j.Model), known(j.ModelParams), known(j.Script), known(j.WorldSize),
		known(j.NProc), known(j.MicroBatch), known(j.SeqLen), known(j.Packing), known(j.TP), known(j.PP), known(j.CP),
		known(j.EP)))
}

// RemedyKey is the same for two jobs that save memory by the same means, whatever they train and however large it is.
func RemedyKey(j *job.Job) string {
	if j == nil {
		return ""
	}
	return hash(remedySettings(j))
}

// Tokens is micro-batch times sequence length, the size of one forward pass; 0 when either is unknown.
func Tokens(j *job.Job) int64 {
	return int64(j.MicroBatch.Or(0)) * int64(j.SeqLen.Or(0))
}

func remedySettings(j *job.Job) []any {
	return []any{
		known(j.Method), known(j.LoRA), known(j.Quant), known(j.Sharding), known(j.FSDPVersion), known(j.Offload),
		known(j.ParamDtype), known(j.BaseDtype), known(j.Precision), known(j.Autocast), known(j.MasterFP32),
		known(j.Optimizer),
		known(j.Checkpointing), known(j.ActivationOffload), known(j.Attention), known(j.FusedLoss),
	}
}

// known is a setting's value, or nil when it has none.
func known[T any](s job.Setting[T]) any {
	if !s.Known {
		return nil
	}
	return s.Value
}

// hash names a list of settings. Their JSON is the canonical form: it is ordered and does not depend on the machine.
func hash(settings []any) string {
	text, err := json.Marshal(settings)
	if err != nil { // only NaN in a LoRA dropout cannot be written; such a job is like no other
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
