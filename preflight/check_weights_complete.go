package preflight

import (
	"fmt"
	"strings"

	"oomguard/checklists"
	"oomguard/preflight/model"
)

func weightsComplete() check {
	return check{
		ID:    "weights-complete",
		Title: "The model's weight files are whole and are those of its config",
		Judge: judgeWeightsComplete,
	}
}

// Weights is what the headers of the model's safetensors files say. Read is nil when there are none to read: Err says
// why.
type Weights struct {
	Read *model.Weights
	Err  error
	// Mismatch is where files and config disagree.
	Mismatch []string
}

// A truncated or missing shard ends every rank minutes after the start, and some loaders go on with random weights
// instead.
func judgeWeightsComplete(f Facts, _ checklists.Params) checklists.Verdict {
	w := f.Weights
	switch {
	case w.Read == nil && w.Err != nil:
		return skipped("no weights were read: "+w.Err.Error(),
			"nothing to do when training starts from random weights or from a hub name")
	case w.Read == nil:
		return skipped("the model is not a folder on this machine", "give --model DIR to have its files looked at")
	case len(w.Read.Problems) > 0:
		return failed(few(w.Read.Problems), "download or copy the files that are named once more")
	case len(w.Mismatch) > 0:
		return warned(few(w.Mismatch), "see that config.json and the weights belong together; a head that is "+
			"missing is normal when a base model is fine-tuned")
	}
	return passed(fmt.Sprintf("%d files of %s, %d tensors", len(w.Read.Files), f.bytes(w.Read.Bytes),
		len(w.Read.Tensors)))
}

// few joins the first three.
func few(texts []string) string {
	const most = 3
	if len(texts) > most {
		texts = append(texts[:most:most], fmt.Sprintf("and %d more", len(texts)-most))
	}
	return strings.Join(texts, "; ")
}
