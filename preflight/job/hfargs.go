package job

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"oomguard/preflight/job/document"
	"oomguard/preflight/job/shell"
)

// parseArguments reads the script's words by the grammar of HfArgumentParser: two spellings of every option,
// --option=value, bare booleans, --no_option, lists, the last one wins. With abbreviations it also accepts unique
// prefixes, as argparse does. Words that belong to no known option are the script's own business.
func parseArguments(words []string, g *grammar) map[string]argument {
	args := map[string]argument{}
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		if !strings.HasPrefix(word, "--") || word == "--" {
			continue
		}
		option, value, attached := strings.Cut(word, "=")
		name, negated := g.resolve(option)
		if name == "" {
			continue
		}
		a := argument{text: value, origin: g.origin(option)}
		if abbreviated := strings.ReplaceAll(strings.TrimPrefix(option, "--"), "-", "_"); !negated &&
			abbreviated != name {
			a.origin += " (for --" + name + ")"
		}
		switch {
		case negated:
			a.text = "false"
		case attached:
			a.list = []string{value}
		default:
			words = g.value(&a, name, words)
		}
		args[name] = a
	}
	return args
}

// A grammar is an argument parser: its options, and what it says of where one came from.
type grammar struct {
	options       map[string]argumentKind
	abbreviations bool
	origin        func(option string) string
}

// grammarOf is the parser of the script, for words from the command line or from a file of words.
func (r *reader) grammarOf(abbreviations bool, from string) *grammar {
	return &grammar{options: r.argumentKinds(), abbreviations: abbreviations,
		origin: func(option string) string { return from + " " + option }}
}

// resolve finds the field that an option names; "" when it is unknown or ambiguous.
func (g *grammar) resolve(option string) (name string, negated bool) {
	given := strings.TrimPrefix(option, "--")
	plain := strings.ReplaceAll(given, "-", "_")
	if _, ok := g.options[plain]; ok {
		return plain, false
	}
	if positive, ok := strings.CutPrefix(plain, "no_"); ok {
		if kind, known := g.options[positive]; known && kind == boolArgument {
			return positive, true
		}
	}
	// A prefix must be spelt with one kind of dash throughout: --per-device_train matches neither spelling.
	if !g.abbreviations || strings.Contains(given, "-") && strings.Contains(given, "_") {
		return "", false
	}
	matches := 0
	for field := range strings.FieldsSeq(otherTrainingFields) {
		if strings.HasPrefix(field, plain) {
			matches++
		}
	}
	for field := range g.options {
		if strings.HasPrefix(field, plain) {
			matches++
			name = field
		}
	}
	if matches != 1 {
		return "", false
	}
	return name, false
}

// value takes an option's words from the front of words and returns what is left.
func (g *grammar) value(a *argument, name string, words []string) []string {
	for len(words) > 0 && !isOption(words[0]) && words[0] != "--" {
		if kind := g.options[name]; kind == boolArgument {
			_, open := shell.Unknown(words[0])
			if _, ok := document.ParseBool(words[0]); !ok && !open {
				break // a positional word of the script
			}
		}
		a.list = append(a.list, words[0])
		words = words[1:]
		if g.options[name] != listArgument {
			break
		}
	}
	if len(a.list) == 0 {
		a.bare = true
		return words
	}
	a.text = a.list[0]
	return words
}

// checkBareArguments finds options that argparse refuses without a value: --bf16 is right in transformers and an error
// in TRL since 0.19, where only --bf16 true is.
func (r *reader) checkBareArguments() {
	if !r.family.huggingFace() {
		return
	}
	kinds := r.argumentKinds()
	for _, name := range slices.Sorted(maps.Keys(r.args)) {
		a := r.args[name]
		if !a.bare || kinds[name] == boolArgument || name == "fsdp" && len(r.fsdpWords()) > 0 {
			continue
		}
		why := "error: argument --" + name + ": expected one argument"
		r.fail(why, a.origin)
		r.problem(fmt.Errorf("%s: %s; write --%s VALUE", a.origin, why, name))
	}
}

// fileArguments reads a document of arguments: `run_clm.py args.json`, or TRL's --config args.yaml. Fields that are
// null are as good as absent; those that are not among the options are the script's own.
func fileArguments(doc *document.Node, options map[string]argumentKind) (map[string]argument, error) {
	args := map[string]argument{}
	if doc.Value == nil {
		return args, nil // an empty YAML file
	}
	fields, ok := doc.Value.(map[string]*document.Node)
	if !ok {
		return nil, doc.Wrong("an object of arguments")
	}
	for name, field := range fields {
		if _, known := options[name]; !known || field.Value == nil {
			continue
		}
		a, err := nodeArgument(field)
		if err != nil {
			return nil, err
		}
		args[name] = a
	}
	return args, nil
}

// nodeArgument is a value of a document as an argument.
func nodeArgument(field *document.Node) (argument, error) {
	a := argument{node: field, origin: field.Origin()}
	if items, ok := field.Value.([]*document.Node); ok {
		for _, item := range items {
			text, err := item.Text()
			if err != nil {
				return a, err
			}
			a.list = append(a.list, text)
		}
		a.text = strings.Join(a.list, " ")
	} else if text, err := field.Text(); err == nil {
		a.text, a.list = text, []string{text}
	}
	return a, nil
}

// collectArguments gathers the script's arguments from where its parser takes them.
func (r *reader) collectArguments(abbreviations bool) map[string]argument {
	words := r.job.ScriptArgs
	if len(words) == 1 && r.family.readsJSON && isArgumentFile(words[0]) {
		args, err := r.argumentsIn(words[0])
		if err != nil {
			r.unusable(fmt.Errorf("arguments of %s: %w", r.job.Script.Value, err))
		}
		return args
	}
	args := parseArguments(words, r.grammarOf(abbreviations, "command line"))
	if r.family.readsJSON && !r.family.strict && len(words) > 1 && isArgumentFile(words[0]) &&
		strings.HasPrefix(words[1], "-") {
		return r.argumentsBelow(args, words[0]) // alignment-handbook's parser, and many copies of it
	}
	if !abbreviations {
		return args
	}
	// HfArgumentParser reads <script>.args before the command line, without a word.
	file := strings.TrimSuffix(r.job.Script.Value, ".py") + ".args"
	if _, err := os.Stat(r.path(file)); err != nil {
		return args
	}
	data, err := r.readFile(file)
	if err != nil {
		r.unusable(err)
		return args
	}
	for name, a := range parseArguments(strings.Fields(string(data)), r.grammarOf(true, file)) {
		if _, given := args[name]; !given {
			args[name] = a
		}
	}
	return args
}

// argumentsBelow puts a file's arguments below those of the command line.
func (r *reader) argumentsBelow(args map[string]argument, file string) map[string]argument {
	below, err := r.argumentsIn(file)
	if err != nil {
		r.unusable(fmt.Errorf("arguments of %s: %w", r.job.Script.Value, err))
	}
	for name, a := range below {
		if _, given := args[name]; !given {
			args[name] = a
		}
	}
	return args
}

// argumentsIn reads a file of arguments.
func (r *reader) argumentsIn(file string) (map[string]argument, error) {
	doc, problems, err := r.loadFile(file)
	r.unread(problems...)
	if err != nil {
		return nil, err
	}
	return fileArguments(doc, r.argumentKinds())
}

// Helpers that read one argument, record what is wrong with it, and say whether it was given.
