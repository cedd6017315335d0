package shell

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// call follows a simple command: assignments alone, a builtin that changes the shell, a function, or a program.
func (e *evaluator) call(c *syntax.CallExpr, s *syntax.Stmt) {
	if len(c.Args) == 0 {
		for _, a := range c.Assigns {
			e.set(a)
		}
		return
	}
	prefix := map[string]string{}
	for _, a := range c.Assigns {
		prefix[a.Name.Value] = e.text(a.Value)
	}
	words := e.words(c.Args)
	if len(words) == 0 {
		return
	}
	if body, ok := e.funcs[words[0]]; ok {
		e.nested(func() { e.function(body, words[1:]) })
		return
	}
	if b, ok := builtins()[words[0]]; ok {
		b(e, words, prefix, s)
		return
	}
	e.written(words, s)
	e.run(words, prefix, s)
}

// function follows the body of a function with parameters and local variables of its own.
func (e *evaluator) function(body *syntax.Stmt, params []string) {
	outer, locals := e.params, e.locals
	e.params, e.locals = params, map[string]*variable{}
	e.statement(body)
	for name, before := range e.locals {
		if delete(e.vars, name); before != nil {
			e.vars[name] = *before
		}
	}
	e.params, e.locals = outer, locals
	e.returned()
}

// local makes a variable the function's own.
func (e *evaluator) local(name string) {
	if _, done := e.locals[name]; done || e.locals == nil {
		return
	}
	e.locals[name] = nil
	if v, ok := e.vars[name]; ok {
		e.locals[name] = &v
	}
	e.vars[name] = variable{}
}

// written keeps a text that the script writes into a file: cat > FILE <<EOF, or tee FILE <<EOF. What a program writes,
// or a branch that may not run, is not known, whatever stands in a file of that name now.
func (e *evaluator) written(words []string, s *syntax.Stmt) {
	target, adds := "", false
	for _, r := range s.Redirs {
		if first := r.N == nil || r.N.Value == "1"; first &&
			(r.Op == syntax.RdrOut || r.Op == syntax.ClbOut || r.Op == syntax.AppOut) {
			target, adds = e.text(r.Word), r.Op == syntax.AppOut
		}
	}
	text, ok := e.input(s)
	switch {
	case words[0] == "cat" && len(words) == 1:
	case words[0] == "tee" && len(words) == 2:
		target = words[1]
	case words[0] == "sed" && len(words) > 2 && strings.HasPrefix(words[1], "-i"),
		(words[0] == "cp" || words[0] == "mv") && len(words) == 3:
		target, ok = words[len(words)-1], false
	default:
		ok = false
	}
	if _, unknown := Unknown(target); unknown || target == "" || strings.HasPrefix(target, "/dev/") {
		return
	}
	if !ok || adds || e.branch != "" {
		text = gap(gapText, target, target+" is not known: it is written while the script runs ("+e.at(s.Pos())+")")
	}
	e.script.Written[path.Clean(join(e.dir, target))] = text
}

// nested follows a body that may lead back to itself.
func (e *evaluator) nested(follow func()) {
	if e.calls >= maxCalls {
		e.output.fail("functions and substitutions lead to each other more often than is followed")
		return
	}
	e.calls++
	follow()
	e.calls--
}

// builtins change the shell itself. Any other word is a program.
func builtins() map[string]func(e *evaluator, words []string, prefix map[string]string, s *syntax.Stmt) {
	return map[string]func(*evaluator, []string, map[string]string, *syntax.Stmt){
		"cd":     func(e *evaluator, words []string, _ map[string]string, _ *syntax.Stmt) { e.changeDir(words[1:]) },
		"pushd":  func(e *evaluator, words []string, _ map[string]string, _ *syntax.Stmt) { e.changeDir(words[1:]) },
		"set":    func(e *evaluator, words []string, _ map[string]string, _ *syntax.Stmt) { e.setOptions(words[1:]) },
		"source": func(e *evaluator, words []string, _ map[string]string, _ *syntax.Stmt) { e.sourced(words[1:]) },
		".":      func(e *evaluator, words []string, _ map[string]string, _ *syntax.Stmt) { e.sourced(words[1:]) },
		"eval":   func(e *evaluator, words []string, _ map[string]string, _ *syntax.Stmt) { e.eval(words[1:]) },
		"exit":   exit,
		"return": leaves, "break": leaves, "continue": leaves,
		"read":    readNames,
		"mapfile": readLines, "readarray": readLines,
		"unset": func(e *evaluator, words []string, _ map[string]string, _ *syntax.Stmt) {
			for _, name := range words[1:] {
				e.vars[name] = variable{}
			}
		},
		"shift": func(e *evaluator, words []string, _ map[string]string, _ *syntax.Stmt) {
			count := 1
			if len(words) > 1 {
				count, _ = strconv.Atoi(words[1]) // words that are no number shift nothing, as in bash
			}
			if count > 0 && count <= len(e.params) {
				e.params = e.params[count:]
			}
		},
		"command": prefixed, "builtin": prefixed,
		"exec": func(e *evaluator, words []string, prefix map[string]string, s *syntax.Stmt) {
			if len(words) > 1 { // without a program, exec only redirects
				e.run(words[1:], prefix, s)
				e.ended = true
			}
		},
	}
}

// exit ends the script, or the part of it that is followed on trial.
func exit(e *evaluator, _ []string, _ map[string]string, s *syntax.Stmt) {
	if e.ended = true; e.branch == "" && e.script.Exit == "" {
		e.script.Exit = e.at(s.Pos())
	}
}

// leaves follows break, continue and return.
func leaves(e *evaluator, words []string, _ map[string]string, _ *syntax.Stmt) { e.leave = words[0] }

// returned ends a function or a sourced script: what it leaves with return is left.
func (e *evaluator) returned() {
	if e.leave == "return" {
		e.leave = ""
	}
}

// prefixed is a builtin that only changes how the program behind it is looked up.
func prefixed(e *evaluator, words []string, prefix map[string]string, s *syntax.Stmt) {
	if len(words) > 1 && !strings.HasPrefix(words[1], "-") {
		e.run(words[1:], prefix, s)
	}
}

func (e *evaluator) changeDir(args []string) {
	args = slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "-P" || a == "-L" || a == "--" })
	switch {
	case len(args) == 0:
		e.dir = e.scalar("HOME")
	case args[0] != "-":
		e.dir = join(e.dir, args[0])
	}
}

// setOptions follows set -a, set -u and set -- words.
func (e *evaluator) setOptions(args []string) {
	for i, a := range args {
		switch {
		case a == "--":
			e.params = args[i+1:]
			return
		case a == "allexport", a == "nounset": // behind -o
			on := i > 0 && strings.HasPrefix(args[i-1], "-")
			if a == "nounset" {
				e.strict = on
			} else {
				e.all = on
			}
		case strings.HasPrefix(a, "-"), strings.HasPrefix(a, "+"):
			if strings.Contains(a, "a") {
				e.all = a[0] == '-'
			}
			if strings.Contains(a, "u") {
				e.strict = a[0] == '-'
			}
		}
	}
}

// settlesIn names scripts that prepare a shell or a Python environment, and no arguments of a training.
func settlesIn(name string) bool {
	return slices.Contains([]string{"activate", ".bashrc", "bashrc", ".bash_profile", ".profile", "profile", ".zshrc",
		"conda.sh", "mamba.sh", "modules.sh"}, path.Base(name))
}

// sourced follows a script that this one sources, one level deep. One that cannot be read changes nothing that is
// known: its variables stay unset, which makes them unknown where they are used.
func (e *evaluator) sourced(args []string) {
	if len(args) > 0 && settlesIn(args[0]) {
		return
	}
	if len(args) == 0 || e.in.Open == nil || e.file != e.in.Name {
		e.blind = true
		return
	}
	if _, unknown := Unknown(args[0]); unknown {
		e.blind = true
		return
	}
	data, err := e.in.Open(join(e.dir, args[0]))
	if err != nil {
		e.blind = true
		return
	}
	e.follow(data, args[0])
}

// eval follows the text that eval runs.
func (e *evaluator) eval(args []string) {
	text, gaps := nameGaps([]byte(strings.Join(args, " ")), e.steps)
	e.blind = e.blind || len(gaps) > 0
	for name, value := range gaps {
		e.vars[name] = variable{items: []string{value}, set: true}
	}
	e.follow(text, e.file)
}

// follow follows more text in this shell. Text that is no shell script is passed over: the script itself would fail
// there.
func (e *evaluator) follow(data []byte, name string) {
	file, err := parse(data, name)
	if err != nil {
		return
	}
	outer := e.file
	e.file = name
	e.nested(func() { e.statements(file.Stmts) })
	e.returned()
	e.file = outer
}
