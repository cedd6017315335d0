package model

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Compare says, a sentence each, where the files and the architecture disagree: another vocabulary, tensors that are
// missing, too many or of another size, another dtype. Checkpoints may name their tensors as older or newer versions of
// transformers do; where the names differ too much to be matched, only the total is compared. Nothing is said about
// what is damaged or missing as a file: see Problems.
func (w *Weights) Compare(a *Architecture) []string {
	if len(a.Units) == 0 || len(w.Tensors) == 0 {
		return nil
	}
	found := w.vocabulary(a)
	expected := a.moduleElements()
	stored, matched := w.moduleElements(expected)
	const enough = 0.8 // of the modules must be found by name, or the names are another version's
	if float64(matched) >= enough*float64(min(len(expected), len(stored))) {
		found = append(found, w.differences(a, expected, stored)...)
	} else if n, ok := w.Parameters(); ok && n != a.Parameters() {
		found = append(found, fmt.Sprintf("%s holds %d parameters and %s has %d; the tensors' names do not tell "+
			"where they differ",
			w.Source, n, a.Class, a.Parameters()))
	}
	return append(found, w.dtypes(a)...)
}

// vocabulary compares the rows of the token embedding.
func (w *Weights) vocabulary(a *Architecture) []string {
	for _, u := range a.Units {
		for _, e := range u.Tensors {
			if e.Role != Embedding || e.Shape[0] != a.Vocab || u.isBlock() {
				continue
			}
			for _, t := range w.Tensors {
				module, ok := strings.CutSuffix(t.Name, ".weight")
				same := ok && (strings.HasSuffix(e.Path, module) || strings.HasSuffix(module, e.Path))
				if same && len(t.Shape) == 2 && t.Shape[1] == e.Shape[1] && t.Shape[0] != e.Shape[0] {
					return []string{fmt.Sprintf("%s: %s has %d rows and the config says vocab_size %d: the "+
						"vocabulary was resized; set vocab_size to %d",
						w.Source, t.Name, t.Shape[0], a.Vocab, t.Shape[0])}
				}
			}
		}
	}
	return nil
}

// dtypes compares the config's dtype with that of most of the data.
func (w *Weights) dtypes(a *Architecture) []string {
	names := map[string]string{"BF16": "bf16", "F16": "fp16", "F32": "fp32"}
	for stored, bytes := range w.BytesByDtype {
		if name, ok := names[stored]; ok && bytes > w.Bytes/2 && a.Dtype != "" && name != a.Dtype {
			return []string{fmt.Sprintf("%s: most weights are stored in %s and the config says %s", w.Source, name,
				a.Dtype)}
		}
	}
	return nil
}

// differences compares modules by name.
func (w *Weights) differences(a *Architecture, expected, stored map[string]int64) []string {
	var missing, extra, other []string
	for _, path := range slices.Sorted(maps.Keys(expected)) {
		switch n, ok := stored[path]; {
		case !ok && len(w.Problems) == 0: // else it may be in what could not be read
			missing = append(missing, path)
		case ok && n != unknown && n != expected[path]:
			other = append(other, fmt.Sprintf("%s: %d and not %d", path, n, expected[path]))
		}
	}
	for _, path := range slices.Sorted(maps.Keys(stored)) {
		tied := a.TiedHead != nil && path == a.TiedHead.Path
		if _, ok := expected[path]; !ok && !tied {
			extra = append(extra, path)
		}
	}
	var found []string
	for _, d := range []struct {
		paths []string
		text  string
	}{
		{missing, "not in the files, so that they start from random values, or the config is another model's"},
		{other, "of another size in the files than the config says: take config.json and weights from the same model"},
	} {
		if len(d.paths) > 0 {
			found = append(found, fmt.Sprintf("%s: %d modules of %s are %s (%s)", w.Source, len(d.paths), a.Class,
				d.text, few(d.paths)))
		}
	}
	if len(extra) > 0 {
		found = append(found, fmt.Sprintf("%s: %d modules in the files are not in %s, which leaves them out (%s)",
			w.Source, len(extra), a.Class, few(extra)))
	}
	return found
}

// moduleElements is the number of weights by module, the blocks' numbers filled in.
func (a *Architecture) moduleElements() map[string]int64 {
	sizes := map[string]int64{}
	for _, u := range a.Units {
		for _, t := range u.Tensors {
			for i := range u.Repeat {
				if u.Indices != nil {
					i = u.Indices[i]
				}
				sizes[strings.Replace(t.Path, "*", strconv.FormatInt(i, 10), 1)] += t.Elements()
			}
		}
	}
	return sizes
}

// unknown stands for a number of weights that shapes do not tell.
const unknown = -1

// moduleElements is the number of stored weights by module, under the names of expected where only the base model's
// prefix differs (transformers adds and removes it too); matched counts the modules that are in expected.
func (w *Weights) moduleElements(expected map[string]int64) (sizes map[string]int64, matched int) {
	base := commonStart(expected)
	sizes = map[string]int64{}
	for _, l := range w.Logical() {
		path := expertsTogether(l.Module)
		_, rest, _ := strings.Cut(path, ".")
		for _, name := range []string{path, base + "." + path, rest,
			strings.Replace(path, ".mlp.gate", ".mlp.router", 1), // Phi-3.5-MoE's router is saved as gate
			strings.Replace(path, "embed_out", "lm_head", 1)} {   // GPT-NeoX's head, before transformers 5.24
			if _, ok := expected[name]; ok {
				path = name
				break
			}
		}
		if l.Elements < 0 || sizes[path] == unknown {
			sizes[path] = unknown
			continue
		}
		sizes[path] += l.Elements
	}
	for path := range sizes {
		if _, ok := expected[path]; ok {
			matched++
		}
	}
	return sizes, matched
}

// expertsTogether gives a single expert of transformers 4 (mlp.experts.7.up_proj, block_sparse_moe.experts.7.w1) the
// name of the stack that transformers 5 makes of them.
func expertsTogether(path string) string {
	path = strings.Replace(path, ".block_sparse_moe.", ".mlp.", 1)
	const stack = ".mlp.experts"
	if at := strings.Index(path, stack+"."); at >= 0 {
		return path[:at+len(stack)]
	}
	return path
}

// commonStart is the first part of most paths.
func commonStart(paths map[string]int64) string {
	counts := map[string]int{}
	for path := range paths {
		start, _, _ := strings.Cut(path, ".")
		counts[start]++
	}
	most := ""
	for start, n := range counts {
		if n > counts[most] || n == counts[most] && start < most {
			most = start
		}
	}
	return most
}
