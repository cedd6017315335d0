package model

import (
	"math/bits"
	"slices"
	"strings"
)

// blueprint is what a family makes of one config: the descriptive fields, and the weights of the base model and of the
// head.
type blueprint struct {
	Architecture
	// attribute that holds the base model inside a class with a head: LlamaForCausalLM.model; "": none does
	base       string
	embeddings []Tensor
	blocks     []Unit // paths from the base model on, with * for the block's number
	final      []Tensor
	head       []Tensor // paths from the class itself on
	tables     []Tensor // embeddings that share a weight of these
}

// assemble puts the weights in the order of the forward pass under their full names.
func (b *blueprint) assemble(t task) *Architecture {
	a := &b.Architecture
	a.Causal = t == causalLM || t == conditionalGeneration
	a.Tied = a.Tied && t.vocabulary
	head := slices.Clone(b.head)
	for i, tensor := range head {
		if tensor.Role != Head {
			continue
		}
		a.LogitsWidth = tensor.Shape[0]
		a.PooledLogits = t.pools && tensor.Part != PartScore
		if a.Tied {
			a.TiedHead = &tensor
			head = slices.Delete(head, i, i+1)
		}
		break
	}
	prefix := ""
	if b.base != "" && t != bareModel {
		prefix = b.base + "."
	}
	a.TiedTables = within(prefix, b.tables)
	a.Units = append(a.Units, Unit{Name: "embeddings", Repeat: 1, Tensors: within(prefix, b.embeddings)})
	for _, block := range b.blocks {
		block.Tensors = within(prefix, block.Tensors)
		a.Units = append(a.Units, block)
	}
	if final := append(within(prefix, b.final), head...); len(final) > 0 {
		a.Units = append(a.Units, Unit{Name: "final", Repeat: 1, Tensors: final})
	}
	return a
}

// after puts an encoder in front of b's own stack. All weights around the encoder's blocks count as embeddings.
func (b *blueprint) after(encoder *blueprint, path string) {
	encoder.under(path)
	encoder.inFront()
	around := slices.Concat(encoder.embeddings, encoder.final)
	e := &encoder.Architecture
	for _, t := range around {
		e.Params += t.Elements()
	}
	for i := range encoder.blocks {
		encoder.blocks[i].Name = "encoder layer"
		e.Params += encoder.blocks[i].Repeat * encoder.blocks[i].Elements()
	}
	b.embeddings = slices.Concat(around, b.embeddings)
	b.blocks = slices.Concat(encoder.blocks, b.blocks)
	b.Encoder = e
}

// inFront marks the weights of an encoder.
func (b *blueprint) inFront() {
	inFront(b.embeddings)
	inFront(b.final)
	for _, u := range b.blocks {
		inFront(u.Tensors)
	}
}

func inFront(tensors []Tensor) []Tensor {
	for i := range tensors {
		tensors[i].Front = true
	}
	return tensors
}

// under puts path before the names of all weights of the base model.
func (b *blueprint) under(path string) {
	b.embeddings, b.final = within(path, b.embeddings), within(path, b.final)
	for i := range b.blocks {
		b.blocks[i].Tensors = within(path, b.blocks[i].Tensors)
	}
}

// layers is a unit of n identical blocks.
func layers(n int64, path string, tensors ...[]Tensor) []Unit {
	return []Unit{{Name: "layer", Repeat: n, Tensors: within(path, slices.Concat(tensors...))}}
}

// firstDiffers is n blocks of which only the first has the tensors in extra.
func firstDiffers(n int64, path string, extra, tensors []Tensor) []Unit {
	return unlikeFirst(n, path, slices.Concat(extra, tensors), tensors)
}

// unlikeFirst is a block of one kind and n-1 of another.
func unlikeFirst(n int64, path string, one, others []Tensor) []Unit {
	first, rest := layers(1, path, one), layers(n-1, path, others)
	first[0].Indices = []int64{0}
	for i := int64(1); i < n; i++ {
		rest[0].Indices = append(rest[0].Indices, i)
	}
	if n == 1 {
		return first
	}
	return append(first, rest...)
}

// within returns the tensors with prefix before their paths.
func within(prefix string, tensors []Tensor) []Tensor {
	out := slices.Clone(tensors)
	for i := range out {
		if out[i].Path == "" { // a parameter of the model itself
			out[i].Path = strings.TrimSuffix(prefix, ".")
			out[i].Module = out[i].Path[strings.LastIndexByte(out[i].Path, '.')+1:]
			continue
		}
		out[i].Path = prefix + out[i].Path
	}
	return out
}

func tensor(path string, role Role, shape ...int64) Tensor {
	return Tensor{Module: path[strings.LastIndexByte(path, '.')+1:], Path: path, Role: role, Part: partOfRole[role],
		Shape: shape}
}

// linear is an nn.Linear from in to out features, which is that part of the model.
func linear(part Part, path string, in, out int64, bias bool) []Tensor {
	return as(part, projection(path, Linear, in, out, bias))
}

// projection is a linear of the given role.
func projection(path string, role Role, in, out int64, bias bool) []Tensor {
	tensors := []Tensor{tensor(path, role, out, in)}
	if bias {
		tensors = append(tensors, tensor(path, Bias, out).as(partOfRole[role]))
	}
	return tensors
}

func embedding(path string, rows, width int64) []Tensor {
	return []Tensor{tensor(path, Embedding, rows, width)}
}

// normWeights says which weights a normalisation layer has.
type normWeights int

const (
	scaleOnly     normWeights = iota // RMSNorm, LayerNorm(bias=False)
	scaleAndShift                    // LayerNorm
	noWeights                        // OLMo's LayerNorm
)

func (n normWeights) tensors(path string, shape ...int64) []Tensor {
	scale := tensor(path, Norm, shape...)
	return slices.Repeat([]Tensor{scale}, map[normWeights]int{scaleOnly: 1, scaleAndShift: 2}[n])
}

// layerNorm is PyTorch's nn.LayerNorm with its default weights.
func layerNorm(path string, width int64) []Tensor { return scaleAndShift.tensors(path, width) }

// decoderHeads are the heads that decoders have in common: a projection to the vocabulary, and those of
// transformers/modeling_layers.py. width is that of the last hidden state.
func decoderHeads(lmHead, tokenHead string, width, vocabulary, labels int64, lmBias bool) map[task][]Tensor {
	return map[task][]Tensor{
		bareModel:              nil,
		causalLM:               projection(lmHead, Head, width, vocabulary, lmBias),
		sequenceClassification: score(width, labels),
		tokenClassification:    projection(tokenHead, Head, width, labels, true),
		questionAnswering:      projection("qa_outputs", Head, width, 2, true), // start and end of the answer
	}
}

// score is the head of decoders that classify: it reads every token, and the last one's labels count.
func score(width, labels int64) []Tensor {
	return as(PartScore, projection("score", Head, width, labels, false))
}

// perHead divides the hidden size among the heads; 0 when it does not divide.
func perHead(hidden, heads int64) int64 {
	if hidden%heads != 0 {
		return 0
	}
	return hidden / heads
}

// countable reports whether every product of sizes, and their sum, stays within maxParameters.
func (a *Architecture) countable() bool {
	total := uint64(0)
	for _, u := range a.Units {
		for _, t := range u.Tensors {
			product := uint64(u.Repeat)
			for _, d := range t.Shape {
				high, low := bits.Mul64(product, uint64(d))
				if high != 0 || low > maxParameters {
					return false
				}
				product = low
			}
			if total += product; total > maxParameters {
				return false
			}
		}
	}
	return total > 0
}
