package job

import (
	"slices"
	"strings"

	"oomguard/preflight/job/python"
)

// Where a name of a script comes from decides what it is, not how it is spelt.

// deepestOrigin bounds how many names and functions a value is followed back through.
const deepestOrigin = 6

// stems reports whether an expression is made of something: directly, by a name that is given it anywhere in the file,
// by a parameter that is handed it, or by a function of the script's that returns it.
func (f *sourceFile) stems(e *python.Expr, scope string, is func(*sourceFile, *python.Expr) bool, depth int) bool {
	if e == nil || depth > deepestOrigin {
		return false
	}
	if is(f, e) {
		return true
	}
	any := func(list []*python.Expr) bool {
		return slices.ContainsFunc(list, func(item *python.Expr) bool { return f.stems(item, scope, is, depth+1) })
	}
	switch e.Kind {
	case python.Name:
		return f.nameStems(e.Text, scope, is, depth+1)
	case python.Invoke:
		if f.returnStems(e.Call, is, depth+1) {
			return true
		}
		return e.Call.Receiver != nil && f.stems(e.Call.Receiver, scope, is, depth+1) || any(e.Call.Args)
	case python.Unknown, python.Literal, python.List, python.Dict, python.Operation, python.Index:
	}
	return any(e.Items)
}

// nameStems follows a name to what it is given, and a parameter to what its function is given.
func (f *sourceFile) nameStems(name, scope string, is func(*sourceFile, *python.Expr) bool, depth int) bool {
	for _, a := range f.Assignments {
		seen := a.Scope == "" || a.Scope == scope || strings.HasPrefix(scope, a.Scope+".") ||
			strings.HasPrefix(name, "self.")
		if a.Target == name && a.Key == nil && seen && f.stems(a.Value, a.Scope, is, depth) {
			return true
		}
	}
	for _, fn := range f.Functions {
		own := strings.TrimPrefix(fn.Scope+"."+fn.Name, ".")
		if own != scope && !strings.HasPrefix(scope, own+".") {
			continue
		}
		for i, k := range fn.Parameters {
			if k.Name == name && f.text.parameterStems(f, fn, i, is, depth) {
				return true
			}
		}
	}
	return false
}

// parameterStems follows a parameter to the calls of its function, and to those that are given the function with its
// arguments.
func (t *sourceText) parameterStems(
	owner *sourceFile, fn *python.Function, i int, is func(*sourceFile, *python.Expr) bool, depth int,
) bool {
	called := fn.Name
	if class := owner.Class(fn.Scope); class != nil && fn.Name == "__init__" {
		called, i = class.Name, i-1
	}
	for _, f := range t.files {
		for _, c := range f.Calls {
			_, last, _ := cutLast(c.Callee)
			switch {
			case last == called:
				if f.stems(c.Written(i, fn.Parameters[max(0, i)].Name), c.Scope, is, depth) {
					return true
				}
			case slices.Contains(namesIn(c.Args), called): // spawn(main, args=(a, b))
				if slices.ContainsFunc(c.Given(), func(e *python.Expr) bool { return f.stems(e, c.Scope, is, depth) }) {
					return true
				}
			}
		}
	}
	return false
}

// returnStems follows a call into a function of the script's.
func (f *sourceFile) returnStems(c *python.Call, is func(*sourceFile, *python.Expr) bool, depth int) bool {
	_, name, _ := cutLast(c.Callee)
	for _, each := range f.text.files {
		fn := each.Function(name)
		if fn == nil {
			continue
		}
		for _, value := range fn.Returns {
			if each.stems(value, fn.Name, is, depth) {
				return true
			}
		}
	}
	return false
}

// isArgv recognises the words of the command line.
func isArgv(f *sourceFile, e *python.Expr) bool {
	return e.Kind == python.Name && f.Qualified(e.Text) == "sys.argv"
}

// isWorldSize recognises the number of processes.
func isWorldSize(f *sourceFile, e *python.Expr) bool {
	return e.Kind == python.Literal && e.Value == "WORLD_SIZE" ||
		e.Kind == python.Invoke && python.EndsIn(e.Call.Callee, "get_world_size") ||
		e.Kind == python.Name && python.EndsIn(e.Text, "num_processes")
}
