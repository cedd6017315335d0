// Package shell reads shell scripts as text and finds the commands in them: assignments, arrays, defaults and
// arithmetic are followed, nothing is run. What only running could tell - the output of a command, the branch that an
// if takes - is marked as unknown inside the words, with the reason (Unknown).
package shell

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

const (
	// maxBytes bounds a script; launch scripts have a few kilobytes. It also bounds the depth to which the parser can
	// be led.
	maxBytes = 64 << 10
	// maxSteps bounds what is followed: statements, expanded words, and the text and variables that they copy (spend).
	maxSteps = 200_000
	// maxText bounds one value; a script that doubles a variable again and again reaches any size.
	maxText = 64 << 10
	// maxCalls bounds functions, eval and sourced files that call each other.
	maxCalls = 8
)

// An Input is what a script may depend on besides its own text.
type Input struct {
	Name   string   // as the user named the script; it is shown in origins and reasons
	Script string   // $0; "" is Name
	Args   []string // $1, $2, ...; they may hold unknown parts of their own
	Dir    string   // the working directory in which the script starts; cd changes it
	// Getenv reads the environment; set is false for a variable that does not exist.
	Getenv func(name string) (value string, set bool)
	// Here: the script runs in this environment, so that a variable which is set nowhere is empty when a default is
	// asked for.
	Here bool
	// CPUs is how many this machine has; 0: not known. GPUs is how many a list of CUDA_VISIBLE_DEVICES leaves of those
	// that are there, or all of them when none is set.
	CPUs int
	GPUs func(list string, set bool) (count int, known bool)
	// Open reads a script that this one sources, or a file that it reads; nil: there are none.
	Open func(path string) ([]byte, error)
	// Home is another person's home folder, "" when there is none; nil: they are not known.
	Home func(user string) string
	// Begin is called with the #SBATCH lines before the first command, for what they change in the environment; nil:
	// nobody asks.
	Begin func([]Directive)
}

// A Script is what was found in a script.
type Script struct {
	Commands []Command // in the order of the text
	// Written are the files that the script writes from a text of its own (cat > FILE <<EOF), by their paths.
	Written map[string]string
	Exit    string // where an exit ends the script before its last line: "run.sh:9"; "" when none does
}

// A Command is one simple command with its words expanded.
type Command struct {
	Words []string
	// Env are the variables that the script has changed and that the command inherits, those written in front of it
	// included.
	Env  map[string]string
	Dir  string // in which it starts; relative to the reader's own unless it is absolute
	File string
	Line int
	// Branch says why the command may not run: "in the if of run.sh:7"; "" when it does.
	Branch string
	// Unset are the reasons of what whoever reads the command took for empty in its words.
	Unset []string
}

// Origin is where the command stands.
func (c *Command) Origin() string { return fmt.Sprintf("%s:%d", c.File, c.Line) }

// A Directive is one #SBATCH line.
type Directive struct {
	Words []string // after #SBATCH
	Line  int
}

// Read follows a script (or the string of bash -c) and returns its commands. The error is for text that is not a shell
// script.
func Read(data []byte, in Input) (*Script, error) {
	if in.Getenv == nil {
		in.Getenv = func(string) (string, bool) { return "", false }
	}
	if in.Script == "" {
		in.Script = in.Name
	}
	data, gaps := nameGaps(data, 0)
	getenv := in.Getenv
	in.Getenv = func(name string) (string, bool) {
		if value, ok := gaps[name]; ok {
			return value, true
		}
		return getenv(name)
	}
	file, err := parse(data, in.Name)
	if err != nil {
		return nil, err
	}
	if in.Begin != nil {
		in.Begin(directives(data))
	}
	e := &evaluator{
		in: in, script: &Script{Written: map[string]string{}}, vars: map[string]variable{},
		funcs: map[string]*syntax.Stmt{},
		file:  in.Name, dir: in.Dir, params: in.Args,
	}
	e.statements(file.Stmts)
	if e.steps > maxSteps {
		return nil, fmt.Errorf("%s: is too large to be followed; give the command itself", in.Name)
	}
	return e.script, nil
}

// nameGaps puts variables in place of what is not known in a text that another script has put together: bash -c "cmd
// $UNKNOWN". The series keeps the names of one text apart from those of another.
func nameGaps(data []byte, series int) (named []byte, gaps map[string]string) {
	text, gaps := string(data), map[string]string{}
	var out strings.Builder
	for {
		before, kind, source, why, after, found := nextGap(text)
		out.WriteString(before)
		if !found {
			return []byte(out.String()), gaps
		}
		name := fmt.Sprintf("OOMGUARD_UNKNOWN_%d_%d", series, len(gaps))
		gaps[name] = gap(kind, source, why)
		out.WriteString("${" + name + "}")
		text = after
	}
}

func parse(data []byte, name string) (*syntax.File, error) {
	if len(data) > maxBytes {
		return nil, fmt.Errorf("%s: has %d bytes, more than the %d KiB that a launch script may have; give the "+
			"command itself", name, len(data), maxBytes>>10)
	}
	if before, _, found := bytes.Cut(data, []byte{0}); found {
		return nil, fmt.Errorf("%s:%d: holds a NUL byte: not a shell script", name, bytes.Count(before, []byte("\n"))+1)
	}
	var file *syntax.File
	var err error
	for range maxBrackets {
		file, err = syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(bytes.NewReader(data), name)
		var wrong syntax.ParseError
		if !errors.As(err, &wrong) || !strings.HasPrefix(wrong.Text, bracketWord) {
			break
		}
		at := int(wrong.Pos.Offset())
		if at >= len(data) || data[at] != '[' {
			break
		}
		data = slices.Insert(slices.Clone(data), at, '\\')
	}
	if err != nil {
		// the parser's text starts with name:line:column
		return nil, fmt.Errorf("%w; correct the script, or give the command itself", err)
	}
	return file, nil
}

// A word of an array that begins with a bracket is taken by the parser for an index without its value: --moe-layer-freq
// [0]*3+[1]*58. bash takes it for a word, and so it is quoted.
const (
	bracketWord = `"[x]" must be followed by =`
	maxBrackets = 50
)

// directives are the #SBATCH lines before the first command, where Slurm looks for them.
func directives(data []byte) []Directive {
	var found []Directive
	line := 0
	for text := range strings.Lines(string(data)) {
		line++
		text = strings.TrimSpace(text)
		if text != "" && text[0] != '#' {
			break
		}
		rest, ok := strings.CutPrefix(text, "#SBATCH")
		if !ok || rest != "" && rest[0] != ' ' && rest[0] != '\t' {
			continue
		}
		rest, _, _ = strings.Cut(rest, " #")
		if words := strings.Fields(strings.NewReplacer(`"`, "", `'`, "").Replace(rest)); len(words) > 0 {
			found = append(found, Directive{Words: words, Line: line})
		}
	}
	return found
}

// A variable is a shell variable; a scalar has one item.
type variable struct {
	items    []string
	keys     []string // of an associative array, one for each item
	array    bool
	keyed    bool // it is an associative array
	set      bool
	exported bool
}

// evaluator follows one script. It holds what the shell would hold.
type evaluator struct {
	in     Input
	script *Script
	vars   map[string]variable
	funcs  map[string]*syntax.Stmt
	params []string
	file   string // whose text is followed now: the script, or one that it sources
	dir    string
	branch string // why what is followed may not run
	all    bool   // set -a: every variable is exported
	ended  bool   // exit, exec
	leave  string // break, continue or return, until what it leaves is left
	doubt  bool   // one of these stands where nobody knows whether it runs
	// testing: words of a test are expanded, in which a variable that is set nowhere is empty. blind: a script that
	// might set variables could not be read.
	testing, blind bool
	strict         bool // set -u
	// locals are the variables of the function that is followed, as they were outside of it; nil outside functions.
	locals map[string]*variable
	output *output // what a substitution writes; nil: commands are recorded
	stdin  *output // the left side of a pipe
	option int     // where getopts stands within a word of several options
	calls  int
	steps  int
}

// spend counts work and reports whether nothing more is to be followed: the script has ended, or has had its share.
func (e *evaluator) spend(steps int) bool {
	e.steps += steps
	return e.ended || e.leave != "" || e.steps > maxSteps
}

func (e *evaluator) at(pos syntax.Pos) string { return fmt.Sprintf("%s:%d", e.file, pos.Line()) }

// lookUp finds a variable as the shell would; unset is the zero variable.
func (e *evaluator) lookUp(name string) variable {
	if v, ok := e.vars[name]; ok {
		return v
	}
	return e.inherited(name)
}

// inherited is a variable of the environment.
func (e *evaluator) inherited(name string) variable {
	if value, set := e.in.Getenv(name); set {
		return variable{items: []string{value}, set: true, exported: true}
	}
	return variable{}
}

// assign stores a variable; it keeps its export, and one that came from the environment stays exported.
func (e *evaluator) assign(name string, items []string, array bool) {
	exported := e.all || e.lookUp(name).exported
	e.vars[name] = variable{items: items, array: array, set: true, exported: exported}
}

// record keeps a command.
func (e *evaluator) record(words []string, prefix map[string]string, pos syntax.Pos) {
	if e.spend(1 + len(e.vars)/8) {
		return
	}
	env := map[string]string{}
	for name, v := range e.vars {
		if v.exported && v.set && !v.array {
			env[name] = v.items[0]
		}
	}
	maps.Copy(env, prefix)
	e.script.Commands = append(e.script.Commands, Command{
		Words: slices.Clone(words), Env: env, Dir: e.dir, File: e.file, Line: int(pos.Line()), Branch: e.branch,
	})
}
