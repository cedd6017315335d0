package job

import (
	"maps"
	"slices"
	"strings"

	"oomguard/preflight/job/python"
)

// A scriptOption is one option that a script defines for its command line.
type scriptOption struct {
	names    []string // spellings, with their dashes
	line     int
	fallback *python.Expr // nil: none, which argparse makes None
	place    python.Place
	kind     optionValue
	required bool
	hidden   string // why its default is not known: its definition takes arguments that are not
}

// optionValue says how a word becomes a value.
type optionValue int

const (
	byLook  optionValue = iota // a number if it looks like one
	asInt                      // type=int
	asFloat                    // type=float
	asText                     // type=str
	asTruth                    // type=bool: any word that is not empty is true
	asFlag                     // store_true
	asUnset                    // store_false
)

// readOptions finds the options of argparse, click, absl, fire, typer and of dataclasses that a parser is made of.
func (f *sourceFile) readOptions() {
	f.options = map[string]*scriptOption{}
	for _, c := range f.Calls {
		name := f.Qualified(c.Callee)
		switch {
		case python.EndsIn(name, "add_argument"):
			f.addArgument(c, "action")
		case python.EndsIn(name, "click.option"):
			f.addArgument(c, "is_flag")
		case strings.Contains(name, "DEFINE_") && len(c.Args) > 1:
			if dest, ok := literalString(c.Args[0]); ok {
				f.options[dest] = &scriptOption{names: []string{"--" + dest}, line: c.Line, fallback: c.Args[1],
					place: c.Place}
			}
		case python.EndsIn(name, "fire.Fire", "typer.run") && len(c.Args) > 0:
			f.addParameters(f.Function(c.Args[0].Text))
		}
	}
	for _, fn := range f.Functions {
		for _, d := range fn.Decorators {
			if d.Kind == python.Invoke && python.EndsIn(d.Call.Callee, "command") {
				f.addParameters(f.Function(fn.Name))
			}
		}
	}
	if len(f.CallsOf(dataclassParsers()...)) > 0 {
		for _, class := range f.Classes {
			f.addFields(class)
		}
	}
}

// dataclassParsers turn dataclasses into options.
func dataclassParsers() []string {
	return []string{"HfArgumentParser", "TrlParser", "H4ArgumentParser", "tyro.cli", "simple_parsing.parse",
		"ArgumentParserPlus"}
}

func literalString(e *python.Expr) (string, bool) {
	if e == nil || e.Kind != python.Literal {
		return "", false
	}
	text, ok := e.Value.(string)
	return text, ok
}

// addArgument reads add_argument("--x", "-x", default=..., type=..., action=...), and click.option, which spells its
// flags otherwise.
func (f *sourceFile) addArgument(c *python.Call, flagKeyword string) {
	made := foundCall{c, f, true}
	o := &scriptOption{line: c.Line, place: c.Place}
	hide := func(why string) { o.hidden = why }
	o.fallback = made.arguments().Get("default").Open(func(why *python.Expr) { hide(made.why("default", why)) })
	dest, _, _ := made.keyword("dest").literal(hide)
	for _, e := range c.Args {
		name, ok := literalString(e)
		if !ok || !strings.HasPrefix(name, "-") {
			continue // a positional argument
		}
		name, _, _ = strings.Cut(name, "/") // click's --x/--no-x
		o.names = append(o.names, name)
		if dest == "" && strings.HasPrefix(name, "--") {
			dest = plainName(name)
		}
	}
	if t := made.keyword("type").value(immaterial); t != nil && t.Kind == python.Name { // else the word's look decides
		o.kind = map[string]optionValue{"int": asInt, "float": asFloat, "str": asText, "bool": asTruth}[t.Text]
	}
	switch flag := made.keyword(flagKeyword).value(hide); {
	case flag == nil:
	case flag.Value == "store_true", flag.Value == true:
		o.kind = asFlag
	case flag.Value == "store_false":
		o.kind = asUnset
	}
	o.required = made.keyword("required").flag(hide)
	if len(o.names) > 0 && dest != "" && f.options[dest] == nil {
		f.options[dest] = o
	}
}

// addParameters makes a function's parameters options: what fire, click and typer call it with.
func (f *sourceFile) addParameters(fn *python.Function) {
	if fn == nil {
		return
	}
	for _, k := range fn.Parameters {
		o := f.options[k.Name] // click has declared it
		if o == nil {
			o = &scriptOption{names: []string{"--" + k.Name}, line: fn.Line, fallback: k.Value, place: fn.Place,
				required: k.Value == nil}
		}
		f.options[fn.Name+"("+k.Name+")"] = o
	}
}

// addFields makes the fields of a dataclass options.
func (f *sourceFile) addFields(class *python.Class) {
	for _, field := range class.Fields {
		if f.options[field.Target] == nil {
			o := &scriptOption{names: []string{"--" + field.Target}, line: field.Line,
				fallback: python.FieldDefault(f.File, field.Value), place: field.Place}
			o.required = o.fallback == nil
			f.options[field.Target] = o
		}
	}
}

// wholeOption is the option that a word of the command line abbreviates, as argparse takes it: the only one that begins
// so. A word that is an option itself, or abbreviates none, stays.
func (t *sourceText) wholeOption(word string) string {
	if t.abbreviated == nil {
		t.abbreviated = map[string]string{}
	}
	if known, ok := t.abbreviated[word]; ok {
		return known
	}
	t.abbreviated[word] = word
	if len(word) < 4 || !strings.HasPrefix(word, "--") ||
		len(t.calls(append(dataclassParsers(), "ArgumentParser")...)) == 0 {
		return word
	}
	matches := map[string]bool{}
	for _, f := range t.files {
		for _, o := range f.options {
			for _, name := range o.names {
				if plainName(name) == plainName(word) {
					return word
				}
				if strings.HasPrefix(plainName(name), plainName(word)) {
					matches["--"+plainName(name)] = true
				}
			}
		}
	}
	if t.parsesFields() {
		known := map[string]argumentKind{}
		trainingFields().addTo(known)
		for name := range strings.FieldsSeq(otherTrainingFields + " " +
			strings.Join(slices.Sorted(maps.Keys(known)), " ")) {
			if name == plainName(word) && !slices.Contains(sequenceArguments(), name) {
				return word
			}
		}
	}
	if len(matches) == 1 {
		for name := range matches {
			t.abbreviated[word] = name
		}
	}
	return t.abbreviated[word]
}

func (o *scriptOption) matches(option string) bool {
	for _, name := range o.names {
		if strings.HasPrefix(option, "-") && plainName(option) == plainName(name) &&
			(strings.HasPrefix(option, "--") == strings.HasPrefix(name, "--")) {
			return true
		}
	}
	return false
}

// changes reports whether the script gives an option another value after its command line was parsed: args.batch_size =
// ...
func (t *sourceText) changes(name string) bool {
	for _, f := range t.files {
		for _, a := range f.Assignments {
			if base, field, dotted := cutLast(a.Target); dotted && field == name && isArgumentsName(base) {
				return true
			}
		}
	}
	return false
}
