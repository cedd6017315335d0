package job

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"oomguard/preflight/job/document"
	"oomguard/preflight/job/shell"
)

// An option is one option of a command.
type option struct {
	names []string // all spellings, in the order in which argparse lists them
	dest  string   // argparse's name; PET_<DEST> is its environment variable
	kind  optionKind
	env   bool // may come from PET_<DEST>
}

type optionKind int

const (
	textOption optionKind = iota
	flagOption            // takes no value
	intOption
	floatOption
)

// A commandLine is a command line as its parser sees it.
type commandLine struct {
	values map[string]sourced // by dest, the last one given; flags hold "1"
	rest   []string           // from the first word that is neither an option nor its value
	// passed are options that this parser does not know; newer versions of the program may.
	passed []string
	// open says why options may have been given that nobody can see: a word that only the shell could expand stands
	// among them.
	open string
	// perhapsScript: that word may be the script as well as options.
	perhapsScript bool
}

type sourced struct{ text, origin string }

func (c *commandLine) flag(dest string) bool { return c.values[dest].text == "1" }

// lost says why the value of an option is not known, when it is not: its text, or whether it was given at all.
func (c *commandLine) lost(dest string) (why string, lost bool) {
	if given, ok := c.values[dest]; ok {
		return shell.Unknown(given.text)
	}
	return c.open, c.open != ""
}

// argparser follows the rules of Python's argparse for options before the first positional argument.
type argparser struct {
	prog    string
	options []option
	// wholeNames switches abbreviations off (argparse's allow_abbrev=False).
	wholeNames bool
	command    *commandLine
}

// parse splits a program's own options from the words after them: prefixes, all spellings, --x=v, -r3, a leading "--".
// The error holds argparse's own words.
func (p *argparser) parse(args []string) (*commandLine, error) {
	p.command = &commandLine{values: map[string]sourced{}}
	var err error
	p.command.rest, err = p.consume(args)
	return p.command, err
}

// consume takes options from the front and returns the words from the script on.
func (p *argparser) consume(args []string) ([]string, error) {
	for len(args) > 0 {
		word := args[0]
		if word == "--" {
			return args[1:], nil
		}
		if shell.Whole(word) && !onlyScript(args) {
			p.command.open, _ = shell.Unknown(word)
			p.command.perhapsScript = p.command.perhapsScript || shell.Output(word) || !shell.Several(word)
			args = p.skip(args)
			continue
		}
		match, value, attached, err := p.match(word)
		if err != nil {
			return nil, err
		}
		switch {
		case match != nil:
			args, err = p.take(match, word, value, attached, args[1:])
		case isOption(word):
			args = p.pass(args)
		default:
			if why, _ := shell.Unknown(word); shell.Whole(word) { // the script, or an option
				p.command.open = why
			}
			return args, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// match finds the option that a word names: exactly, as --option=value, as an unambiguous prefix, or as -r3.
func (p *argparser) match(word string) (found *option, value string, attached bool, err error) {
	if len(word) < 2 || word[0] != '-' {
		return nil, "", false, nil
	}
	if o := p.named(word); o != nil {
		return o, "", false, nil
	}
	name, value, attached := strings.Cut(word, "=")
	if o := p.named(name); attached && o != nil {
		return o, value, true, nil
	}
	if !strings.HasPrefix(word, "--") {
		return p.named(word[:2]), word[2:], true, nil
	}
	if p.wholeNames {
		return nil, "", false, nil
	}
	var names []string
	for i := range p.options {
		for _, candidate := range p.options[i].names {
			if strings.HasPrefix(candidate, name) {
				names = append(names, candidate)
				found = &p.options[i]
			}
		}
	}
	if len(names) > 1 {
		return nil, "", false, fmt.Errorf("%s: error: ambiguous option: %s could match %s", p.prog, word,
			strings.Join(names, ", "))
	}
	return found, value, attached, nil
}

func (p *argparser) named(name string) *option {
	for i := range p.options {
		if slices.Contains(p.options[i].names, name) {
			return &p.options[i]
		}
	}
	return nil
}

// take stores an option's value and returns the words after it.
func (p *argparser) take(o *option, word, value string, attached bool, rest []string) ([]string, error) {
	shown := strings.Join(o.names, "/")
	name, _, _ := strings.Cut(word, "=")
	if o.kind == flagOption {
		p.command.values[o.dest] = sourced{"1", "command line " + name}
		if !attached {
			return rest, nil
		}
		// -mr3 is -m -r3: the rest of a short flag's word names more short options.
		if next := p.named("-" + first(value)); next != nil && !strings.HasPrefix(word, "--") {
			return p.take(next, "-"+value, value[1:], len(value) > 1, rest)
		}
		return nil, fmt.Errorf("%s: error: argument %s: ignored explicit argument '%s'", p.prog, shown, value)
	}
	if !attached {
		if len(rest) == 0 || rest[0] == "--" || isOption(rest[0]) {
			return nil, fmt.Errorf("%s: error: argument %s: expected one argument", p.prog, shown)
		}
		value, rest = rest[0], rest[1:]
	} else if !strings.HasPrefix(word, "--") {
		name = word[:2]
	}
	if err := o.check(value); err != nil {
		return nil, fmt.Errorf("%s: error: argument %s: %w", p.prog, shown, err)
	}
	p.command.values[o.dest] = sourced{value, "command line " + name}
	return rest, nil
}

func first(s string) string {
	if s == "" {
		return ""
	}
	return s[:1]
}

func (o *option) check(value string) error {
	if _, unknown := shell.Unknown(value); unknown {
		return nil
	}
	if _, err := pythonInt(value); o.kind == intOption && err != nil {
		return fmt.Errorf("invalid int value: '%s'", value)
	}
	if _, err := strconv.ParseFloat(value, 64); o.kind == floatOption && err != nil {
		return fmt.Errorf("invalid float value: '%s'", value)
	}
	return nil
}

// pass skips an option that is not in the table: torch gains some every year. The word after it is taken for its value
// unless it looks like the script, so that neither kind of new option hides the script.
func (p *argparser) pass(args []string) []string {
	p.command.passed = append(p.command.passed, args[0])
	return p.skip(args)
}

// onlyScript reports whether a word that is not known can only be the script: no other stands behind it.
func onlyScript(args []string) bool {
	return !slices.ContainsFunc(args[1:],
		func(word string) bool { return strings.HasSuffix(word, ".py") || word == "-m" || word == "--module" })
}

// skip leaves out an option that is not known, with the word behind it unless that looks like the script.
func (p *argparser) skip(args []string) []string {
	word, rest := args[0], args[1:]
	if strings.Contains(word, "=") || len(rest) < 2 || isOption(rest[0]) || strings.HasSuffix(rest[0], ".py") {
		return rest
	}
	return rest[1:]
}

// isOption reports whether argparse takes a word for an option: a dash in front, and neither a negative number nor a
// phrase.
func isOption(word string) bool {
	if len(word) < 2 || word[0] != '-' || strings.Contains(word, " ") {
		return false
	}
	_, err := strconv.ParseFloat(word, 64)
	return err != nil
}

// pythonInt is int() of Python for the spellings that people use, with its own error text.
func pythonInt(text string) (int, error) {
	n, err := strconv.Atoi(strings.ReplaceAll(strings.TrimSpace(text), "_", ""))
	if err != nil {
		return 0, fmt.Errorf("ValueError: invalid literal for int() with base 10: '%s'", text)
	}
	return n, nil
}

// node makes a document's value of a variable.
func (v sourced) node(path string, value any) *document.Node {
	return &document.Node{Value: value, Path: path, Source: v.origin}
}
