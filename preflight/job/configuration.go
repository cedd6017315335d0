package job

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strings"

	"oomguard/preflight/job/document"
	"oomguard/preflight/job/shell"
)

// A configuration is a framework's own document with the overrides of the command line laid over it. Its methods read
// one value each, by the first of several spellings that is present: known with the line that it stands in, or as the
// framework's default, unknown with a recorded problem when it is of the wrong kind.
type configuration struct {
	r        *reader
	doc      *document.Node
	fallback string // origin of defaults: "default of torchtune 0.6.1"
	opens    bool   // a value that is not known may decide more than its own setting
}

// find is the first spelling that is present and not null.
func (c *configuration) find(paths ...string) *document.Node {
	for _, path := range paths {
		if n := c.doc.At(path); n != nil && n.Value != nil {
			return n
		}
	}
	return nil
}

// number reads a whole number.
func (c *configuration) number(fallback int, paths ...string) Setting[int] {
	return read(c, fallback, paths, func(n *document.Node) (int, error) {
		value, err := n.Integer()
		if err == nil && (value > math.MaxInt32 || value < math.MinInt32) {
			err = n.Wrong("a whole number of a possible size")
		}
		return int(value), err
	})
}

// size reads a whole number from 1.
func (c *configuration) size(fallback int, paths ...string) Setting[int] {
	s := c.number(fallback, paths...)
	if n := c.find(paths...); n != nil && s.Known && s.Value < 1 {
		c.r.unread(n.Wrong("a whole number from 1"))
		s = Setting[int]{Origin: n.Origin() + " is not a number from 1"}
	}
	return s
}

// flag reads true or false.
func (c *configuration) flag(fallback bool, paths ...string) Setting[bool] {
	return read(c, fallback, paths, (*document.Node).Boolean)
}

// word reads a text.
func (c *configuration) word(fallback string, paths ...string) Setting[string] {
	return read(c, fallback, paths, (*document.Node).Text)
}

// fraction reads a number.
func (c *configuration) fraction(fallback float64, paths ...string) Setting[float64] {
	return read(c, fallback, paths, (*document.Node).Float)
}

// words reads a list of texts, or one text as a list.
func (c *configuration) words(paths ...string) Setting[[]string] {
	return read(c, nil, paths, func(n *document.Node) ([]string, error) {
		items, ok := n.Value.([]*document.Node)
		if !ok {
			items = []*document.Node{n}
		}
		list := make([]string, 0, len(items))
		for _, item := range items {
			text, err := item.Text()
			if err != nil {
				return nil, err
			}
			list = append(list, text)
		}
		return list, nil
	})
}

func read[T any](c *configuration, fallback T, paths []string, value func(*document.Node) (T, error)) Setting[T] {
	n := c.find(paths...)
	if n == nil {
		if why := c.r.openWords(); why != "" {
			return Setting[T]{Origin: "not seen, but " + why}
		}
		return Setting[T]{Value: fallback, Known: true, Origin: c.fallback}
	}
	v, err := value(n)
	if text, isText := n.Value.(string); isText && c.opens && c.r.open == "" {
		c.r.open, _ = shell.Unknown(text)
	}
	if err != nil {
		c.r.unread(err)
		return Setting[T]{Origin: fmt.Sprintf("%s could not be read in %s", n.Path, n.Origin())}
	}
	return Setting[T]{Value: v, Known: true, Origin: n.Origin()}
}

// load reads a configuration file; nil when that fails, which is then recorded.
func (r *reader) loadDocument(file string) *document.Node {
	doc, problems, err := r.loadFile(file)
	for _, problem := range problems {
		r.unread(problem)
	}
	if err != nil {
		r.unusable(err)
		return nil
	}
	return doc
}

// lookupEnv is getenv for those who tell an empty variable from none.
func (r *reader) lookupEnv(name string) (string, bool) {
	value := r.getenv(name)
	return value, value != ""
}

// lost marks what a configuration decides as unknown, when it was named but could not be read.
func (r *reader) lost(why string) {
	j := r.job
	for _, f := range []fact{&j.Model, &j.ModelParams, &j.ParamDtype, &j.BaseDtype, &j.Precision, &j.Autocast,
		&j.MasterFP32, &j.Optimizer, &j.MicroBatch, &j.GradAccum, &j.SeqLen, &j.Packing,
		&j.Checkpointing, &j.ActivationOffload, &j.Method, &j.LoRA, &j.Quant, &j.Sharding, &j.FSDPVersion, &j.FSDPWrap,
		&j.Offload, &j.TP, &j.PP, &j.CP, &j.EP, &j.Attention, &j.FusedLoss, &j.LayerKernels, &j.RefModel,
		&j.SecondModels} {
		f.Unknown(why)
	}
	r.adapter.lost = why
	r.blocked = why
}

// offerParts offers a name of several words (family and flavour), as the JSON object that Setting writes; empty words
// are left out.
func offerParts(s *Setting[string], parts map[string]string, origin string) {
	maps.DeleteFunc(parts, func(_, part string) bool { return part == "" })
	text, err := json.Marshal(parts)
	if err == nil && len(parts) > 0 {
		s.Offer(string(text), origin)
	}
}

// described tells a model that is described by parts or sizes from one that has a name or a folder.
func described(model Setting[string]) bool { return strings.HasPrefix(model.Value, "{") }

// need is a whole number from 1 for which nanotron has no default.
func (c *configuration) need(set *Setting[int], path string) {
	if c.find(path) == nil {
		c.r.fail(path+" is missing, and nanotron has no default for it", c.doc.Origin())
		set.Withhold(path + " is missing")
		return
	}
	set.take(c.size(0, path))
}

// originOf is the place of the first spelling that is present.
func (c *configuration) originOf(paths ...string) string {
	if n := c.find(paths...); n != nil {
		return n.Origin()
	}
	return c.fallback
}
