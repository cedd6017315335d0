package job

import (
	"fmt"

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
		"devices": {&j.NProc, &j.WorldSize, &j.Sharding}, "num_nodes": {&j.NNodes, &j.WorldSize}, "strategy": {&j.Sharding, &j.Offload, &j.DeepSpeed},
		"precision": {&j.Precision, &j.ParamDtype, &j.MasterFP32}, "accumulate_grad_batches": {&j.GradAccum},
	}
	fields := map[string]*document.Node{}
	list, _ := c.file.scope.Keywords(c.Call)
	for _, k := range list {
		value := c.present(k.Value)
		if value == nil {
			continue
		}
		if n, whole := c.file.component(value, "trainer."+k.Name, c.Place); whole {
			fields[k.Name] = n
			continue
		}
		for _, f := range hidden[k.Name] {
			f.Withhold(fmt.Sprintf("%s passes %s, which is decided when the script runs (%s)", c.file.at(k.Value.Line), k.Name, value))
		}
	}
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
	for _, k := range e.Call.Keywords {
		value := f.scope.Resolve(k.Value, e.Call.Place)
		part, whole := f.node(value, path+".init_args."+k.Name, at)
		if !whole { // that something is given says enough of policies
			part = &document.Node{Value: value.String(), Path: path + ".init_args." + k.Name, File: f.Name, Line: k.Value.Line}
		}
		arguments[k.Name] = part
	}
	fields := map[string]*document.Node{
		"class_path": {Value: f.Qualified(e.Call.Callee), Path: path + ".class_path", File: f.Name, Line: e.Line},
		"init_args":  {Value: arguments, Path: path + ".init_args", File: f.Name, Line: e.Line},
	}
	return &document.Node{Value: fields, Path: path, File: f.Name, Line: e.Line}, true
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
