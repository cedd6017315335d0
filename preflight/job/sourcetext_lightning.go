package job

import (
	"fmt"
	"maps"
	"slices"

	"oomguard/preflight/job/document"
	"oomguard/preflight/job/python"
)

// lightningTrainers are the calls of Lightning's Trainer, under the names of its two packages.
func (t *sourceText) lightningTrainers() []foundCall {
	return t.calls("lightning.Trainer", "lightning.pytorch.Trainer", "pytorch_lightning.Trainer")
}

// lightningInSource reads Trainer(devices=..., strategy=...) in a script: the same keys as in a file of Lightning CLI.
func (r *reader) lightningInSource(c foundCall) {
	r.sourceProblems()
	j := r.job
	hidden := map[string][]fact{
		"devices": {&j.NProc, &j.WorldSize, &j.Sharding}, "num_nodes": {&j.NNodes, &j.WorldSize},
		"strategy":  {&j.Sharding, &j.Offload, &j.DeepSpeed},
		"precision": {&j.Precision, &j.ParamDtype, &j.MasterFP32}, "accumulate_grad_batches": {&j.GradAccum},
	}
	fields := map[string]*document.Node{}
	c.arguments().Each(func(name string, value *python.Expr) {
		if present(value) == nil {
			return
		}
		if n, whole := c.file.component(value, "trainer."+name, c.Place); whole {
			fields[name] = n
			return
		}
		withhold("", hidden[name]...)(fmt.Sprintf("%s passes %s, which is decided when the script runs (%s)",
			c.file.at(value.Line), name, value))
	}, func(why *python.Expr) {
		for _, name := range slices.Sorted(maps.Keys(hidden)) {
			if fields[name] == nil {
				withhold("", hidden[name]...)(c.why(name, why))
			}
		}
	})
	trainer := &document.Node{Value: fields, Path: "trainer", File: c.file.Name, Line: c.Line}
	doc := &document.Node{Value: map[string]*document.Node{"trainer": trainer}, File: c.file.Name, Line: c.Line}
	r.args = r.collectArguments(false)
	r.lightningSettings(&configuration{r: r, doc: doc, fallback: "default of " + r.installedLightning()})
	r.modelInSource()
	r.adapterInSource()
	r.checkpointingInSource()
	r.optimizerInSource()
	r.batchInSource()
}

// component is node for values that may be objects: Class(a=1) becomes class_path and init_args, as in a file.
func (f *sourceFile) component(e *python.Expr, path string, at python.Place) (n *document.Node, ok bool) {
	if e.Kind != python.Invoke {
		return f.node(e, path, at)
	}
	arguments := map[string]*document.Node{}
	whole := true
	f.scope.Arguments(e.Call).Each(func(name string, value *python.Expr) {
		part, plain := f.node(value, path+".init_args."+name, at)
		if !plain { // that something is given says enough of policies
			part = &document.Node{Value: value.String(), Path: path + ".init_args." + name, File: f.Name,
				Line: value.Line}
		}
		arguments[name] = part
	}, func(*python.Expr) { whole = false })
	fields := map[string]*document.Node{
		"class_path": {Value: f.Qualified(e.Call.Callee), Path: path + ".class_path", File: f.Name, Line: e.Line},
		"init_args":  {Value: arguments, Path: path + ".init_args", File: f.Name, Line: e.Line},
	}
	return &document.Node{Value: fields, Path: path, File: f.Name, Line: e.Line}, whole
}

// installedLightning names the package of Lightning that is installed, under its new or its old name.
func (r *reader) installedLightning() string {
	for _, name := range []string{"lightning", "pytorch-lightning"} {
		if r.versions[name] != "" {
			return r.installed(name)
		}
	}
	return r.installed("lightning")
}
