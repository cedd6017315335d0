package job

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"oomguard/preflight/job/python"
)

// Which configuration a script gives to its trainer, with what was it made, and what is done to it afterwards.

// configurationInSource merges what the script passes to TrainingArguments and its kin below the command line.
func (r *reader) configurationInSource() {
	r.patchedInSource()
	r.parsedInSource()
	calls, why := r.seen().configurations()
	if why != "" {
		r.withholdOthers(why)
		return
	}
	classes := r.seen().parsedClasses()
	for _, c := range calls {
		c.arguments().Each(
			func(name string, value *python.Expr) { r.argumentInSource(c.file, name, value, c.Place) },
			func(why *python.Expr) { r.passedOn(c, why) })
		for _, class := range c.file.lineage(c.file.scope.Callee(c.Call)) {
			classes = append(classes, ownClass{c.file, class})
		}
	}
	for _, own := range classes {
		if extendsTrainer(own.file, own.class) {
			r.classInSource(own)
		}
	}
	for _, f := range r.seen().files {
		r.changedInSource(f, f.configured(calls))
	}
}

// configurations are the calls that make the configuration: the one that the trainer is given; why says that it is not
// known which.
func (t *sourceText) configurations() (calls []foundCall, why string) {
	calls = t.trainerCalls("Config", "Arguments")
	var given []foundCall
	open := ""
	for _, c := range t.trainerCalls("Trainer") {
		made := c.argument(1, "args").value(func(why string) { open = why })
		if made == nil {
			given = nil
			continue
		}
		made = c.file.scope.Returned(made)
		own := foundCall{made.Call, c.file, true}
		if made.Kind != python.Invoke || !own.makesConfiguration() {
			given, open = nil, c.why("args", made)
			continue
		}
		same := func(other foundCall) bool { return other.Line == made.Call.Line && other.file == c.file }
		if !slices.ContainsFunc(given, same) {
			given = append(given, own)
		}
	}
	if len(given) == 1 && open == "" {
		return given, ""
	}
	if len(calls) > 1 {
		return nil, fmt.Sprintf("%s and %s both make a configuration", calls[0].origin(), calls[1].origin())
	}
	if len(calls) == 0 && open != "" && !t.parsesFields() {
		return nil, open
	}
	return calls, ""
}

func (c foundCall) makesConfiguration() bool {
	_, known := trainerClasses()[c.className()]
	return known && !strings.HasSuffix(c.className(), "Trainer")
}

// An ownClass is a class of the script's.
type ownClass struct {
	file  *sourceFile
	class *python.Class
}

// parsedClasses are the script's classes that its parser makes options of.
func (t *sourceText) parsedClasses() []ownClass {
	var classes []ownClass
	for _, c := range t.calls(dataclassParsers()...) {
		for _, name := range namesIn(c.Args) {
			for _, f := range t.files {
				for _, class := range f.lineage(name) {
					classes = append(classes, ownClass{f, class})
				}
			}
		}
	}
	return classes
}

// classInSource reads a class that extends TrainingArguments: its defaults, and what it does when an object is made.
func (r *reader) classInSource(own ownClass) {
	f, class := own.file, own.class
	if slices.ContainsFunc(f.Functions, func(fn *python.Function) bool {
		return fn.Scope == class.Name && (fn.Name == "__init__" || fn.Name == "__new__")
	}) {
		r.withholdOthers(f.at(class.Line) + " has a constructor of its own, which decides when the script runs")
	}
	late := f.scope.Attributes("self", python.Place{Scope: class.Name + ".__post_init__", Line: math.MaxInt})
	late.Each(func(name string, value *python.Expr) { r.setInSource(f, name, value) },
		func(why *python.Expr) {
			r.withholdAll(f.at(why.Line) + " sets attributes that are decided when the script runs")
		})
	if !slices.ContainsFunc(class.Decorators, isDataclass) { // its fields are no parameters of the constructor
		return
	}
	for _, field := range class.Fields {
		if field.Value != nil {
			r.argumentInSource(f, field.Target, python.FieldDefault(f.File, field.Value), field.Place)
		}
	}
}

func isDataclass(decorator *python.Expr) bool {
	name := decorator.Text
	if decorator.Kind == python.Invoke {
		name = decorator.Call.Callee
	}
	return python.EndsIn(name, "dataclass")
}

// passedOn: a call that is given the parsed command line takes the script's own options by their names. What else it is
// given may hold any argument.
func (r *reader) passedOn(c foundCall, why *python.Expr) {
	if !c.passesOptions(why) {
		r.withholdOthers(c.why("arguments", why))
		return
	}
	kinds := r.argumentKinds()
	for name := range c.file.options {
		if _, known := kinds[name]; known {
			if _, given := r.args[name]; !given {
				r.takeOption(name)
			}
		}
	}
}

// passesOptions reports whether vars(args), args.__dict__ or asdict(args) is passed on, with args from a parser.
func (c foundCall) passesOptions(why *python.Expr) bool {
	if len(why.Items) != 1 {
		return false
	}
	e := why.Items[0]
	if e.Kind == python.Invoke && python.EndsIn(c.file.Qualified(e.Call.Callee), "vars", "asdict") &&
		len(e.Call.Args) == 1 {
		e = e.Call.Args[0]
	}
	if e.Kind == python.Name {
		e = c.resolve(&python.Expr{Kind: python.Name, Text: strings.TrimSuffix(e.Text, ".__dict__"), Line: e.Line})
	}
	if e.Kind == python.Unknown && len(e.Items) == 1 { // a, b = parser.parse_known_args()
		e = e.Items[0]
	}
	if e.Kind != python.Invoke {
		return false
	}
	_, method, _ := cutLast(e.Call.Callee)
	return strings.HasPrefix(method, "parse_") && method != "parse_dict"
}

// changedInSource reads what a file sets on the objects that hold the configuration: name.field = value, setattr(name,
// ...), also in functions that are given them.
func (r *reader) changedInSource(f *sourceFile, holders []holder) {
	for _, h := range holders {
		f.scope.Attributes(h.name, python.Place{Scope: h.scope, Line: math.MaxInt}).Each(
			func(name string, value *python.Expr) { r.setInSource(f, name, value) },
			func(why *python.Expr) {
				r.withholdAll(f.at(why.Line) + " sets arguments that are decided when the script runs")
			})
	}
	for _, c := range f.Calls {
		base, method, _ := cutLast(c.Callee)
		if slices.ContainsFunc(holders, func(h holder) bool { return h.name == base }) {
			for name := range strings.FieldsSeq(setters()[method]) {
				r.withholdSet(name, f.at(c.Line)+" sets "+name+" by "+method+", which is not read")
			}
		}
	}
	for _, a := range f.Assignments {
		base, name, dotted := cutLast(a.Target)
		if !dotted || a.Key != nil || !containsWord(distinctFields, name) ||
			slices.Contains(holders, holder{base, a.Scope}) {
			continue
		}
		if f.mayHoldConfiguration(base, a.Place) {
			r.withholdSet(name, f.at(a.Line)+" sets "+name+" where it is not followed")
		}
	}
}

// setters are methods of TrainingArguments that change its fields (transformers/training_args.py).
func setters() map[string]string {
	return map[string]string{
		"set_training":   "per_device_train_batch_size gradient_accumulation_steps gradient_checkpointing",
		"set_dataloader": "per_device_train_batch_size", "set_optimizer": "optim",
	}
}

// distinctFields are those that nothing but a configuration of Trainer has.
const distinctFields = `per_device_train_batch_size gradient_accumulation_steps bf16 fp16 optim use_liger_kernel
	activation_offloading`

// mayHoldConfiguration reports whether a name may stand for the configuration: it is no self, and not seen to be made
// as something else.
func (f *sourceFile) mayHoldConfiguration(base string, at python.Place) bool {
	root, rest, dotted := strings.Cut(base, ".")
	made := f.scope.Resolve(&python.Expr{Kind: python.Name, Text: root, Line: at.Line}, at)
	if made.Kind == python.Unknown && len(made.Items) == 1 {
		made = made.Items[0]
	}
	switch {
	case root == "self" || root == "cls":
		return false
	case dotted:
		isCall := rest == "args" && made.Kind == python.Invoke
		return isCall && strings.HasSuffix(foundCall{made.Call, f, true}.className(), "Trainer")
	}
	return made.Kind == python.Unknown || made.Kind == python.Name && made.Text == root && f.Class(root) == nil
}

// A holder is a variable of a scope.
type holder struct{ name, scope string }

// configured are the variables that hold a configuration: what the calls make, what functions with such calls return,
// and what a parser of its class returns.
func (f *sourceFile) configured(calls []foundCall) []holder {
	var holders []holder
	for _, a := range f.Assignments {
		if a.Key == nil && a.Value != nil && f.makesConfiguration(a, calls) {
			holders = append(holders, holder{a.Target, a.Scope})
		}
	}
	slices.SortFunc(holders, func(a, b holder) int { return strings.Compare(a.scope+"\n"+a.name, b.scope+"\n"+b.name) })
	return slices.Compact(holders)
}

func (f *sourceFile) makesConfiguration(a *python.Assignment, calls []foundCall) bool {
	value := a.Value
	if position, isPart := value.Value.(int64); isPart && value.Kind == python.Unknown && len(value.Items) == 1 {
		return value.Items[0].Kind == python.Invoke && f.text.parsedAt(value.Items[0].Call, int(position))
	}
	if value.Kind == python.Index && value.Items[0].Kind == python.Invoke { // parser.parse_args_into_dataclasses()[0]
		position, _ := value.Items[1].Value.(int64)
		return f.text.parsedAt(value.Items[0].Call, int(position))
	}
	if value.Kind != python.Invoke {
		return false
	}
	callee := value.Call.Callee
	return slices.ContainsFunc(calls, func(c foundCall) bool {
		first := c.Call
		return first == value.Call || c.file == f && first.Line == value.Call.Line ||
			first.Scope != "" && first.Scope == callee
	})
}

// parsedAt reports whether a parser's call returns the configuration at a position.
func (t *sourceText) parsedAt(c *python.Call, position int) bool {
	if _, method, _ := cutLast(c.Callee); !strings.HasPrefix(method, "parse_") {
		return false
	}
	for _, parser := range t.calls(dataclassParsers()...) {
		names := namesIn(parser.Args)
		if position >= len(names) {
			continue
		}
		if _, known := trainerClasses()[names[position]]; known ||
			extendsTrainer(parser.file, parser.file.Class(names[position])) {
			return true
		}
	}
	return false
}

// setInSource replaces an argument by what the script sets after everything else.
func (r *reader) setInSource(f *sourceFile, name string, value *python.Expr) {
	if value.Kind == python.Unknown {
		r.withholdSet(name, fmt.Sprintf("%s: %s %s", f.at(value.Line), name, value))
		return
	}
	delete(r.args, name)
	r.argumentInSource(f, name, value, python.Place{Line: math.MaxInt})
}

// withholdSet is withholdArgument for what overrides the command line too.
func (r *reader) withholdSet(name, why string) {
	delete(r.args, name)
	r.withholdArgument(name, why)
}

// withholdOthers withholds every argument that is not given by then.
func (r *reader) withholdOthers(why string) {
	if dtype, origin := r.autocast(); dtype != "" { // what contradicts it would not start
		r.job.Precision.Offer(dtype, origin)
	}
	for name := range withheldBy(r.job) {
		if _, given := r.args[name]; !given {
			r.withholdArgument(name, why)
		}
	}
}

func (r *reader) withholdAll(why string) {
	for name := range withheldBy(r.job) {
		r.withholdSet(name, why)
	}
}

// patchedInSource: a script that puts something else in the place of a class, or of its constructor, decides all its
// arguments.
func (r *reader) patchedInSource() {
	for _, f := range r.seen().files {
		for _, a := range f.Assignments {
			base, name, dotted := cutLast(f.Qualified(a.Target))
			if _, owner, _ := cutLast(base); strings.HasPrefix(name, "__") {
				name = owner
			}
			if _, known := trainerClasses()[name]; known && dotted && !strings.HasSuffix(name, "Trainer") {
				r.withholdAll(f.at(a.Line) + " replaces " + name + " when the script runs")
			}
		}
		for _, c := range f.CallsOf("setattr", "patch.object", "mock.patch") {
			for _, name := range append(namesIn(c.Args), lastParts(c.Args)...) {
				if _, known := trainerClasses()[name]; known && !strings.HasSuffix(name, "Trainer") {
					r.withholdAll(f.at(c.Line) + " replaces " + name + " when the script runs")
				}
			}
		}
	}
}

// lastParts are the last parts of the names that texts spell.
func lastParts(list []*python.Expr) []string {
	var names []string
	for _, e := range list {
		if text, ok := literalString(e); ok {
			_, last, _ := cutLast(text)
			names = append(names, last)
		}
	}
	return names
}
