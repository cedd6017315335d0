package job

import (
	"slices"
	"strings"

	"oomguard/preflight/job/python"
)

// trainingLoaders are the calls of DataLoader whose rows are trained on: those that a loop with a backward pass goes
// through. Where no such loop is seen, all but those that some other loop goes through, and those of a part of a data
// set that is named as no training part.
func (t *sourceText) trainingLoaders() []foundCall {
	// one without a batch size decides nothing
	loaders := slices.DeleteFunc(t.calls("DataLoader"), func(c foundCall) bool {
		hidden := false
		return c.argument(1, "batch_size").value(func(string) { hidden = true }) == nil && !hidden
	})
	var training, open []foundCall
	for _, c := range loaders {
		switch trains, looped := t.trainsOn(c); {
		case trains:
			training = append(training, c)
		case !looped && !c.heldOut():
			open = append(open, c)
		}
	}
	if len(training) > 0 {
		return training
	}
	return open
}

// trainsOn says whether a loop with a backward pass goes through what a call makes, and whether any loop does.
func (t *sourceText) trainsOn(c foundCall) (trains, looped bool) {
	names := c.boundTo()
	for _, f := range t.files {
		for _, loop := range f.Loops {
			if !refersTo(loop.Over, c.Call, names) && !f.receives(loop, c.Call, names) {
				continue
			}
			looped = true
			trains = trains || slices.ContainsFunc(f.Calls, func(other *python.Call) bool {
				return loop.Holds(other.Place) &&
					(python.EndsIn(other.Callee, "backward", "manual_backward") ||
						strings.HasSuffix(other.Callee, ".backward"))
			})
		}
	}
	return trains, looped
}

// boundTo are the names that a call's value is given.
func (c foundCall) boundTo() []string {
	var names []string
	for _, a := range c.file.Assignments {
		if a.Value != nil && a.Key == nil && a.Line == c.Line && refersTo(a.Value, c.Call, nil) {
			names = append(names, a.Target)
		}
	}
	return names
}

// receives reports whether a loop goes through a parameter of its function that is handed one of the names, as in
// train(model, loader).
func (f *sourceFile) receives(loop *python.Loop, made *python.Call, names []string) bool {
	for _, fn := range f.Functions {
		if loop.Scope != fn.Name {
			continue
		}
		for i, parameter := range fn.Parameters {
			if !refersTo(loop.Over, nil, []string{parameter.Name}) {
				continue
			}
			for _, call := range f.Calls {
				if call.Callee == fn.Name && refersTo(call.Written(i, parameter.Name), made, names) {
					return true
				}
			}
		}
	}
	return false
}

// refersTo reports whether an expression has a call or one of some names in it: loader, enumerate(loader),
// tqdm(loader).
func refersTo(e *python.Expr, made *python.Call, names []string) bool {
	if e == nil {
		return false
	}
	if e.Kind == python.Name && slices.Contains(names, e.Text) || e.Call != nil && e.Call == made {
		return true
	}
	parts := e.Items
	if e.Call != nil {
		parts = slices.Concat(parts, e.Call.Given())
	}
	return slices.ContainsFunc(parts, func(part *python.Expr) bool { return refersTo(part, made, names) })
}

// heldOut reports whether a loader's rows are those of a split that is not for training: data["validation"],
// load(split="test[:10%]").
func (c foundCall) heldOut() bool {
	data := c.Written(0, "dataset")
	for _, e := range []*python.Expr{data, c.resolve(data)} {
		var split *python.Expr
		switch {
		case e == nil:
		case e.Kind == python.Index:
			split = e.Items[len(e.Items)-1]
		case e.Kind == python.Invoke:
			split = e.Call.Written(-1, "split")
		}
		if split == nil {
			continue
		}
		name, _ := literalString(c.resolve(split))
		word, _, _ := strings.Cut(strings.TrimRight(name, "]"), "[")
		word, _, _ = strings.Cut(word, "_")
		if containsWord("val valid validation test eval evaluation dev", word) {
			return true
		}
	}
	return false
}
