package shell

import (
	"slices"
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
		e.nested(func() {
			params := e.params
			e.params = words[1:]
			e.statement(body)
			e.params = params
		})
		return
	}
	if b, ok := builtins()[words[0]]; ok {
		b(e, words, prefix, s)
		return
	}
	e.record(words, prefix, s.Pos())
}

// nested follows a body that may lead back to itself.
func (e *evaluator) nested(follow func()) {
	if e.calls >= maxCalls {
		return
	}
	e.calls++
	follow()
	e.calls--
}

// builtins change the shell itself. Any other word is a program.
func builtins() map[string]func(e *evaluator, words []string, prefix map[string]string, s *syntax.Stmt) {
	return map[string]func(*evaluator, []string, map[string]string, *syntax.Stmt){
		"cd":      func(e *evaluator, words []string, _ map[string]string, _ *syntax.Stmt) { e.changeDir(words[1:]) },
		"pushd":   func(e *evaluator, words []string, _ map[string]string, _ *syntax.Stmt) { e.changeDir(words[1:]) },
		"set":     func(e *evaluator, words []string, _ map[string]string, _ *syntax.Stmt) { e.setOptions(words[1:]) },
		"source":  func(e *evaluator, words []string, _ map[string]string, _ *syntax.Stmt) { e.sourced(words[1:]) },
		".":       func(e *evaluator, words []string, _ map[string]string, _ *syntax.Stmt) { e.sourced(words[1:]) },
		"eval":    func(e *evaluator, words []string, _ map[string]string, _ *syntax.Stmt) { e.eval(words[1:]) },
		"exit":    func(e *evaluator, _ []string, _ map[string]string, _ *syntax.Stmt) { e.ended = true },
		"return":  func(*evaluator, []string, map[string]string, *syntax.Stmt) {},
		"read":    readNames,
		"mapfile": readNames, "readarray": readNames, "getopts": readNames,
		"unset": func(e *evaluator, words []string, _ map[string]string, _ *syntax.Stmt) {
			for _, name := range words[1:] {
				e.vars[name] = variable{}
			}
		},
		"shift": func(e *evaluator, _ []string, _ map[string]string, _ *syntax.Stmt) {
			if len(e.params) > 0 {
				e.params = e.params[1:]
			}
		},
		"command": prefixed, "builtin": prefixed,
		"exec": func(e *evaluator, words []string, prefix map[string]string, s *syntax.Stmt) {
			if len(words) > 1 { // without a program, exec only redirects
				e.record(words[1:], prefix, s.Pos())
				e.ended = true
			}
		},
	}
}

// prefixed is a builtin that only changes how the program behind it is looked up.
func prefixed(e *evaluator, words []string, prefix map[string]string, s *syntax.Stmt) {
	if len(words) > 1 && !strings.HasPrefix(words[1], "-") {
		e.record(words[1:], prefix, s.Pos())
	}
}

// readNames makes the variables unknown that a builtin fills from its input.
func readNames(e *evaluator, words []string, _ map[string]string, s *syntax.Stmt) {
	for _, name := range words[1:] {
		if syntax.ValidName(name) {
			e.assign(name, []string{gap(gapText, "$"+name, "$"+name+" is not known: it is read while the script runs ("+e.at(s.Pos())+")")}, false)
		}
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

// setOptions follows set -a and set -- words.
func (e *evaluator) setOptions(args []string) {
	for i, a := range args {
		switch a {
		case "--":
			e.params = args[i+1:]
			return
		case "-a", "allexport":
			e.all = true
		case "+a":
			e.all = false
		}
	}
}

// sourced follows a script that this one sources, one level deep. One that cannot be read changes nothing that is known: its
// variables stay unset, which makes them unknown where they are used.
func (e *evaluator) sourced(args []string) {
	if len(args) == 0 || e.in.Open == nil || e.file != e.in.Name {
		return
	}
	if _, unknown := Unknown(args[0]); unknown {
		return
	}
	data, err := e.in.Open(join(e.dir, args[0]))
	if err != nil {
		return
	}
	e.follow(data, args[0])
}

// eval follows the text that eval runs.
func (e *evaluator) eval(args []string) {
	text, gaps := nameGaps([]byte(strings.Join(args, " ")), e.steps)
	for name, value := range gaps {
		e.vars[name] = variable{items: []string{value}, set: true}
	}
	e.follow(text, e.file)
}

// follow follows more text in this shell. Text that is no shell script is passed over: the script itself would fail there.
func (e *evaluator) follow(data []byte, name string) {
	file, err := parse(data, name)
	if err != nil {
		return
	}
	outer := e.file
	e.file = name
	e.nested(func() { e.statements(file.Stmts) })
	e.file = outer
}
