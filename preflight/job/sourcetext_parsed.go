package job

import (
	"fmt"
	"strings"

	"oomguard/preflight/job/python"
)

// What the script gives to the parser of its dataclasses.

// parsedInSource reads what the script gives to the parser of its dataclasses in place of the command line.
func (r *reader) parsedInSource() {
	if !r.seen().parsesFields() {
		return
	}
	for _, f := range r.seen().files {
		for _, c := range f.Calls {
			if holds, known := f.scope.Holds(c.Place); !holds && known {
				continue
			} else if _, method, _ := cutLast(c.Callee); strings.HasPrefix(method, "parse_") {
				r.parsedBy(foundCall{c, f, known}, strings.TrimPrefix(method, "."))
			}
		}
	}
}

func (r *reader) parsedBy(c foundCall, method string) {
	name := map[string]string{"parse_dict": "args", "parse_json_file": "json_file", "parse_yaml_file": "yaml_file",
		"parse_args_into_dataclasses": "args", "parse_args_and_config": "args"}[method]
	if name == "" {
		return
	}
	raw := c.Written(0, name)
	if raw == nil || c.file.stems(raw, c.Scope, isArgv, 0) {
		return
	}
	given := c.argument(0, name).value(immaterial) // below: other than a dict or a file is not known
	switch {
	case given == nil && strings.HasPrefix(method, "parse_args_") && raw.Kind == python.Literal: // None
	case !c.sure:
		r.withholdAll(c.origin() + " takes its arguments from elsewhere if a condition holds that is decided when " +
			"the script runs")
	case method == "parse_dict":
		r.args = map[string]argument{}
		c.file.scope.Mapping(raw, c.Place).Each(
			func(name string, value *python.Expr) { r.argumentInSource(c.file, name, value, c.Place) },
			func(why *python.Expr) { r.withholdOthers(c.why("arguments", why)) })
	case given != nil && given.Kind == python.Literal && strings.HasSuffix(method, "_file"):
		r.argumentsOf(c, fmt.Sprint(given.Value))
	default:
		r.withholdAll(c.origin() + " gives its parser arguments that are decided when the script runs")
	}
}

// argumentsOf reads the file of arguments that a script names.
func (r *reader) argumentsOf(c foundCall, file string) {
	args, err := r.argumentsIn(file)
	if err != nil {
		r.withholdAll(c.origin() + " takes its arguments from " + file + ", which cannot be read")
		return
	}
	r.args = args
}
