package job

import (
	"oomguard/preflight/job/document"
	"oomguard/preflight/job/python"
)

// lightningTrainers are the calls of Lightning's Trainer, under the names of its two packages.
func (t *sourceText) lightningTrainers() []foundCall {
	return t.calls("lightning.Trainer", "lightning.pytorch.Trainer", "pytorch_lightning.Trainer")
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
