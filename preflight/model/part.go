package model

import (
	"slices"
	"strings"
)

// Part is what a weight does in the model's code, which its module's name does not tell: every family has names of
// its own. A bias has the part of the weight that it belongs to. What no rule asks for has none.
type Part string

// The parts of attention.
const (
	PartQ     Part = "q"
	PartK     Part = "k"
	PartV     Part = "v"
	PartQKV   Part = "qkv" // queries, keys and values in one product
	PartO     Part = "o"   // attention's output projection
	PartQDown Part = "q_down"
	PartQUp   Part = "q_up"    // of latent attention (DeepSeek): to the latent, and from it to the heads
	PartKDown Part = "kv_down" // to the latent of keys and values, with the rotated key part
	PartKUp   Part = "kv_up"
	// PartPositionQ and PartPositionK make queries and keys of relative positions (DeBERTa).
	PartPositionQ Part = "position_q"
	PartPositionK Part = "position_k"
	PartTalking   Part = "talking_heads" // mixes the scores of heads (DeBERTa)
	// the table of relative positions that all blocks share, and its norm (DeBERTa)
	PartPositions Part = "positions"
)

// The parts of an MLP and of a mixture of experts.
const (
	PartGate         Part = "gate"
	PartUp           Part = "up"
	PartGateUp       Part = "gate_up" // gate and up in one product
	PartDown         Part = "down"
	PartRouter       Part = "router"
	PartSharedGate   Part = "shared_gate" // opens the shared expert (Qwen2-MoE)
	PartExperts      Part = "experts"     // the stacked weights of routed experts
	PartExpertGate   Part = "expert_gate" // of one expert, or an adapter on its part of a stacked weight
	PartExpertUp     Part = "expert_up"
	PartExpertGateUp Part = "expert_gate_up"
	PartExpertDown   Part = "expert_down"
	PartMixer        Part = "mixer" // a projection of a recurrence, for which there is no formula
)

// The parts around the blocks, and those that stand everywhere.
const (
	PartEmbedding     Part = "embedding"
	PartNorm          Part = "norm"
	PartFrontNorm     Part = "front_norm"       // between an encoder's embeddings and its blocks
	PartStackNorm     Part = "stack_norm"       // behind an encoder's blocks
	PartConvolution   Part = "convolution"      // over time
	PartFirstFrames   Part = "first_frames"     // the first convolution over a spectrogram
	PartSecondFrames  Part = "second_frames"    // the second, of half as many positions
	PartProjector     Part = "projector"        // the first of the layers between a vision tower and the text
	PartProjection    Part = "projection"       // any other linear layer around the blocks
	PartTransform     Part = "transform"        // the dense layer between a masked language model and its head
	PartHead          Part = "head"             // to the vocabulary or to labels
	PartScore         Part = "score"            // to labels for every token, of which the last one's count
	crossedPartPrefix Part = "cross_attention_" // see Crossed
)

// Crossed is the same part in the attention to an encoder.
func (p Part) Crossed() Part { return crossedPartPrefix + p }

// crossed are the weights of attention to an encoder.
func crossed(tensors []Tensor) []Tensor {
	for i, t := range tensors {
		if t.Role != Norm {
			tensors[i].Part = t.Part.Crossed()
		}
	}
	return tensors
}

// partOfRole is the part of weights whose role tells it.
var partOfRole = map[Role]Part{Embedding: PartEmbedding, Norm: PartNorm, Head: PartHead, Expert: PartExperts}

// as is t as another part.
func (t Tensor) as(p Part) Tensor {
	t.Part = p
	return t
}

// as makes all of these another part.
func as(p Part, tensors []Tensor) []Tensor {
	for i := range tensors {
		tensors[i].Part = p
	}
	return tensors
}

// IsConvolution says that the weight is one of a convolution over time.
func (p Part) IsConvolution() bool {
	return p == PartConvolution || p == PartFirstFrames || p == PartSecondFrames
}

// ModulesOf names the modules that are one of parts, as adapters' targets do: by the last part of the path, and by
// the one before where another module ends alike. Of stacked experts these are the projections that PEFT knows.
func (a *Architecture) ModulesOf(parts ...Part) []string {
	var names []string
	add := func(name string) {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	units := append(slices.Clone(a.Units), Unit{Tensors: a.tied()})
	for _, u := range units {
		for _, t := range u.Tensors {
			switch {
			case !slices.Contains(parts, t.Part) || len(t.Shape) < 2:
			case t.Part == PartExperts:
				for _, name := range []string{a.Facts.experts.gate, a.Facts.experts.up, a.Facts.experts.down} {
					add(name)
				}
			case a.ambiguous(t, parts):
				around, _ := strings.CutSuffix(t.Path, "."+t.Module)
				add(lastPart(around) + "." + t.Module)
			default:
				add(t.Module)
			}
		}
	}
	return names
}

// ambiguous says that another linear layer, which is none of parts, has a name like t's.
func (a *Architecture) ambiguous(t Tensor, parts []Part) bool {
	other := func(o Tensor) bool { return o.Module == t.Module && !slices.Contains(parts, o.Part) }
	for _, u := range a.adaptableUnits() {
		if slices.ContainsFunc(u.Tensors, other) {
			return true
		}
	}
	return false
}
