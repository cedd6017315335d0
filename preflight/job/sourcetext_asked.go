package job

import (
	"fmt"
	"strings"

	"oomguard/preflight/job/python"
)

// What is asked of a script's calls. Each question takes a function that hears why there is no answer: what the text
// leaves open must be withheld by whoever asks, and cannot be taken for absent.

// lost hears why something that was asked for is not known.
type lost func(why string)

// withhold withholds settings whose value is lost; advice, if any, says what the user can do.
func withhold(advice string, facts ...fact) lost {
	return func(why string) {
		if advice != "" {
			why += "; " + advice
		}
		for _, f := range facts {
			f.Withhold(why)
		}
	}
}

// immaterial is for what no setting depends on.
func immaterial(string) {}

// An argument of a call that has been asked for.
type asked struct {
	call  foundCall
	name  string
	found python.Finding
}

// keyword asks for an argument by its name.
func (c foundCall) keyword(name string) asked { return c.argument(-1, name) }

// argument asks for what may also be given by position.
func (c foundCall) argument(position int, name string) asked {
	return asked{c, name, c.arguments().At(position, name)}
}

func (c foundCall) arguments() python.Arguments { return c.file.scope.Arguments(c.Call) }

// why says that a value is decided when the script runs.
func (c foundCall) why(name string, value *python.Expr) string {
	verb := "passes"
	if value.PassedOn() {
		verb = "may pass"
	}
	return fmt.Sprintf("%s %s %s, which is decided when the script runs (%s)", c.origin(), verb, name, value)
}

// value is the argument, nil when it is absent, None, or lost.
func (a asked) value(lost lost) *python.Expr {
	return present(a.found.Open(func(why *python.Expr) { lost(a.call.why(a.name, why)) }))
}

// written reports whether the argument is given, whatever its value; one that may be passed on is not written.
func (a asked) written() bool {
	written := false
	e := a.found.Open(func(why *python.Expr) { written = !why.PassedOn() })
	return written || present(e) != nil
}

// text is an argument that is a text, another literal or a dotted name, and where it comes from.
func (a asked) text(lost lost) (text, origin string, given bool) {
	e := a.value(lost)
	if e == nil {
		return "", "", false
	}
	text, ok := textOf(e)
	if !ok {
		lost(a.call.why(a.name, e))
	}
	return text, a.call.file.from(e.Line, e), ok
}

// literal is text for what must be a text.
func (a asked) literal(lost lost) (text, origin string, given bool) {
	e := a.value(lost)
	if e == nil {
		return "", "", false
	}
	text, ok := literalString(e)
	if !ok {
		lost(a.call.why(a.name, e))
	}
	return text, a.call.file.from(e.Line, e), ok
}

// number is an argument that is a whole number above zero.
func (a asked) number(lost lost) (n int, origin string, given bool) {
	e := a.value(lost)
	if e == nil {
		return 0, "", false
	}
	whole, ok := e.Value.(int64)
	if ok = ok && e.Kind == python.Literal && whole > 0 && whole < 1<<31; !ok {
		lost(a.call.why(a.name, e))
		return 0, "", false
	}
	return int(whole), a.call.file.from(e.Line, e), true
}

// truth is an argument that switches something; given is false when it is absent or lost.
func (a asked) truth(lost lost) (on, given bool) {
	e := a.value(lost)
	if e == nil {
		return false, false
	}
	on, known := python.Truth(e)
	if !known {
		lost(a.call.why(a.name, e))
	}
	return on, known
}

// flag is truth where absent means off.
func (a asked) flag(lost lost) bool {
	on, _ := a.truth(lost)
	return on
}

// offerNumber offers a whole number that a call is given, or withholds it.
func (a asked) offerNumber(set *Setting[int]) {
	if n, origin, given := a.number(withhold("", set)); given {
		set.Offer(n, origin)
	}
}

// one is the call among several that counts; lost hears why it is not known which one does. Without any, there is none
// and nothing is lost.
func one(calls []foundCall, lost lost) (foundCall, bool) {
	switch {
	case len(calls) > 1:
		lost(fmt.Sprintf("%s and %s both call %s, and which one counts is decided when the script runs",
			calls[0].origin(), calls[1].origin(), calls[0].Callee))
		return foundCall{}, false
	case len(calls) == 0:
		return foundCall{}, false
	}
	return calls[0], true
}

// reportsOnly are functions that show what they are given to a person.
func reportsOnly(qualified string) bool {
	root, _, _ := strings.Cut(qualified, ".")
	return containsWord("wandb mlflow comet_ml neptune swanlab logging logger log rich pprint loguru", root)
}
