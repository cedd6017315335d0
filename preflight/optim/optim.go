// Package optim is what is known of optimizers: one row each, with all its names, the bytes of its state and of its
// step. The job's readers ask it what a word means, the estimate asks it for bytes. It is pure and imports nothing of
// ours.
package optim

import (
	"cmp"
	"slices"
	"strings"
)

// An Optimizer is one row of the table in table.go, one implementation of one algorithm.
type Optimizer struct {
	Name  string // ours: of --optimizer, the job and the reports
	Title string // for a person
	// words are the names that others have for it; see Vocabulary.
	words words
	// forms names the rows of other implementations of it.
	forms forms

	// state is the bytes of optimizer state for one tensor.
	state func(t Tensor, s Setting) int64
	// step is what a step holds besides gradients and states, in bytes.
	step func(u Update) int64
	// embeddings32, if not 0, is the bytes of state per element of an nn.Embedding under HF Trainer, which registers
	// {"optim_bits": 32} for every such weight of bitsandbytes' 8-bit optimizers (transformers/trainer.py).
	embeddings32 int64
	// InBackward: each weight is updated, and its gradient freed, while backward goes on. It counts the gradients alive
	// at once.
	InBackward int64
	// EmptyStep is the bytes an element that torch holds beside the states in a step without gradients on one flat
	// tensor.
	EmptyStep int64
	OnHost    bool // states, master weights and the step are in host memory
	Paged     bool // states of Tensor.Paged are in managed memory, which may move to the host
	Projects  bool // gradients of hidden matrices are projected to a rank
	// Rough marks rules that need tensor shapes and can only approximate a model known by its parameter count.
	Rough  bool
	source string // of the bytes of state and step
}

// A Vocabulary is somebody's own names for optimizers.
type Vocabulary int

// The vocabularies, with the place where their owner lists them.
const (
	Ours Vocabulary = iota
	// transformers' OptimizerNames (training_args.py, 4.40 to 5.24), without the suffix of Layerwise
	Trainer
	Class        // a Python class, by any module of its package
	Axolotl      // utils/schemas/enums.py, CustomSupportedOptimizers
	DeepSpeed    // runtime/engine.py, _configure_basic_optimizer; in lower case
	Megatron     // training/arguments.py, --optimizer
	Nanotron     // config/config.py, optimizer_factory.name; in lower case
	LLaMAFactory // hparams/finetuning_args.py, the switches use_*
)

// words are names by vocabulary, several parted by blanks.
type words map[Vocabulary]string

// A Form is an implementation or a variant of an optimizer that an argument asks for.
type Form int

// The forms. Which row has one is said by the row that one starts from.
const (
	Fused    Form = iota // one kernel for all tensors
	Loop                 // one tensor after the other: foreach=False
	Momentum             // of SGD: a momentum that is not 0
	EightBit             // states in 8 bits
	Host                 // stepped on the host
)

type forms map[Form]string

// Layerwise is how Trainer marks optimizers that work on one weight at a time, in backward
// (transformers/trainer_optimizer.py).
const Layerwise = "_layerwise"

// Find gives the optimizer that a word of one of these vocabularies names; the first that has it decides.
func Find(word string, in ...Vocabulary) (Optimizer, bool) {
	for _, v := range in {
		for _, o := range optimizers {
			if slices.ContainsFunc(o.Words(v),
				func(w string) bool { return w == word || v == Class && sameClass(w, word) }) {
				return o, true
			}
		}
	}
	return Optimizer{}, false
}

// sameClass: torch.optim.adamw.AdamW is torch.optim.AdamW. Packages have one optimizer of a name, wherever they keep
// it.
func sameClass(a, b string) bool {
	packageA, _, _ := strings.Cut(a, ".")
	packageB, _, _ := strings.Cut(b, ".")
	return packageA == packageB && a[strings.LastIndex(a, ".")+1:] == b[strings.LastIndex(b, ".")+1:]
}

// Words are the optimizer's names in a vocabulary.
func (o Optimizer) Words(v Vocabulary) []string {
	if v == Ours {
		return []string{o.Name}
	}
	return strings.Fields(o.words[v])
}

// Words are all names of a vocabulary, in the order of the table.
func Words(v Vocabulary) []string {
	var list []string
	for _, o := range optimizers {
		list = append(list, o.Words(v)...)
	}
	return list
}

// Has says whether the optimizer has a form of that kind beside itself.
func (o Optimizer) Has(f Form) bool { return o.forms[f] != "" }

// In gives the optimizer in that form; where it has none, itself.
func (o Optimizer) In(f Form) Optimizer {
	if other, has := Find(o.forms[f], Ours); has {
		return other
	}
	return o
}

// StateBytes is the bytes of optimizer state of all those tensors.
func (o Optimizer) StateBytes(tensors []Tensor, s Setting) int64 {
	var sum int64
	for _, t := range tensors {
		if o.embeddings32 > 0 && s.Trainer && t.Embedding {
			sum += o.embeddings32 * t.total()
			continue
		}
		own := s
		own.Width = cmp.Or(t.Width, s.Width)
		sum += o.state(t, own)
	}
	return sum
}

// StepBytes is the most bytes that a step holds besides gradients and states.
func (o Optimizer) StepBytes(u Update) int64 { return o.step(u) }
