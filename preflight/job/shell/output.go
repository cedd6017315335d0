package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// An output is what the commands of a substitution, or of one side of a pipe, write.
type output struct {
	text strings.Builder
	why  string // why the text is not known; "" when it is
	// lines is the number of lines where that is known of an unknown text; -1 otherwise.
	lines int
}

// notRun is why nobody knows what a program writes.
const notRun = "it is the output of a command, and nothing is run"

func (o *output) fail(why string) {
	if o != nil && o.why == "" {
		o.why, o.lines = why, -1
	}
}

// substitution is what the commands of $( ) write, where that follows from the script: see programs.
func (e *evaluator) substitution(x *syntax.CmdSubst) string {
	out := e.capture(x.Stmts)
	if out.why != "" {
		return e.unknown(x, out.why)
	}
	return limited(strings.TrimRight(out.text.String(), "\n"))
}

// capture follows statements in a shell of their own, for what they write.
func (e *evaluator) capture(list []*syntax.Stmt) *output {
	outer, followed := e.output, false
	out := &output{lines: -1}
	e.nested(func() {
		e.apart(func() {
			e.output, followed = out, true
			e.statements(list)
			if e.steps > maxSteps {
				out.fail("it is too long to be followed")
			}
		})
	})
	e.output = outer
	if !followed {
		out.fail(notRun)
	}
	return out
}

// pipe follows a | b for what b writes.
func (e *evaluator) pipe(c *syntax.BinaryCmd) {
	from := e.capture([]*syntax.Stmt{c.X})
	before := e.stdin
	e.apart(func() {
		e.stdin = from
		e.statement(c.Y)
	})
	e.stdin = before
}

// run follows a program: it is one of the script's commands, or it only writes a text for a substitution.
func (e *evaluator) run(words []string, prefix map[string]string, s *syntax.Stmt) {
	if e.output == nil {
		e.record(words, prefix, s.Pos())
		return
	}
	if e.spend(1) || elsewhere(s) {
		return
	}
	write, ok := programs()[words[0]]
	if !ok {
		e.output.fail(notRun)
		return
	}
	for _, word := range words {
		if why, unknown := Unknown(word); unknown && !passesOn(words[0]) {
			e.output.fail(why)
			return
		}
	}
	in := e.standardInput(s)
	if why, unknown := Unknown(in.text.String()); unknown && !passesOn(words[0]) {
		in.fail(why)
	}
	text, ok := write(e, words[1:], in)
	switch {
	case ok:
		e.spend(len(text) / 64)
		e.output.text.WriteString(limited(text))
	case in.why != "":
		e.output.fail(in.why)
	default:
		e.output.fail(notRun)
	}
}

// passesOn names the programs that hand their words or their input on as they are, what is not known of them included.
func passesOn(program string) bool { return program == "echo" || program == "cat" || program == "tee" }

// fileOnly follows a statement of redirections alone: $(< FILE).
func (e *evaluator) fileOnly(s *syntax.Stmt) {
	if e.output == nil {
		return
	}
	if text, ok := all(e.standardInput(s)); ok && len(s.Redirs) > 0 {
		e.output.text.WriteString(limited(text))
		return
	}
	e.output.fail(notRun)
}

// elsewhere reports that a command's output does not go where that of its script goes: > FILE, >&2.
func elsewhere(s *syntax.Stmt) bool {
	for _, r := range s.Redirs {
		first := r.N == nil || r.N.Value == "1"
		both := r.Op == syntax.RdrAll || r.Op == syntax.AppAll
		file := r.Op == syntax.RdrOut || r.Op == syntax.AppOut || r.Op == syntax.ClbOut
		if both || first && (file || r.Op == syntax.DplOut && r.Word.Lit() == "2") {
			return true
		}
	}
	return false
}

// standardInput is what a command reads: a text of the script, a file, or the left side of a pipe.
func (e *evaluator) standardInput(s *syntax.Stmt) *output {
	in := &output{lines: -1}
	if text, ok := e.input(s); ok {
		in.text.WriteString(text)
		return in
	}
	for _, r := range s.Redirs {
		if r.Op != syntax.RdrIn {
			continue
		}
		if text, ok := e.textOf(e.text(r.Word)); ok {
			in.text.WriteString(text)
		} else {
			in.fail(notRun)
		}
		return in
	}
	if e.stdin != nil {
		return e.stdin
	}
	in.fail(notRun) // it reads from where the script is started
	return in
}

// textOf reads a small text file.
func (e *evaluator) textOf(name string) (string, bool) {
	if _, unknown := Unknown(name); unknown || name == "" || e.in.Open == nil {
		return "", false
	}
	if text, ok := e.script.Written[join(e.dir, name)]; ok {
		return text, true
	}
	data, err := e.in.Open(join(e.dir, name))
	if err != nil || len(data) > maxText || strings.IndexByte(string(data), 0) >= 0 {
		return "", false
	}
	return string(data), true
}
