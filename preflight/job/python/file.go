// Package python reads Python source as text: imports, literal assignments, calls with their arguments, functions and
// classes. It never executes anything, and what it cannot follow (a loop's result, an f-string, another module) is an
// unknown that says why.
package python

import (
	"fmt"
	"slices"
	"strings"
)

// A File is what was read of one module, in source order. Code that Python itself would refuse is left out and named in
// Problems.
type File struct {
	Name        string // as the user knows it
	Imports     []Import
	Assignments []*Assignment
	Calls       []*Call // every call, nested ones too, inner before outer
	Functions   []*Function
	Classes     []*Class
	Loops       []*Loop // for loops
	Problems    []error

	imports map[string]string // local name -> qualified name
	byName  map[string][]*Assignment
	fields  map[string][]*Assignment // by the name of an object: what is set on it
	aliases map[string][]*Assignment // by a name that is given another one
	methods map[string][]*Call       // by the name of an object
	passed  map[string][]*Call       // by a name that is an argument
	params  map[string]*Function     // scope, newline, name of a parameter

	rewritten int // the line that may give any global another value; 0: none does
}

// An Import makes one name known: `from peft import LoraConfig as L` is {Module: "peft", Name: "LoraConfig", As: "L"}.
type Import struct {
	Module string // with leading dots when relative
	Name   string // "" for `import module`, "*" for all
	As     string // the name in this file
	Line   int
	// Sure: at module level, neither in a branch nor in a try, so that the module cannot run without it.
	Sure bool
}

// A Place says where a statement stands.
type Place struct {
	Line       int
	Scope      string      // "" at module level, "main" in def main, "Trainer.fit" in a method
	Conditions []Condition // that must hold for it to run; `if __name__ == "__main__"` is none
	Loop       bool        // it may run any number of times, none included

	blocks []int // the loops and try bodies around, outermost first: it may not run, or not to its end
}

// A Condition guards statements. Test is nil where it is not an expression (an except clause, a case, the else of a
// loop).
type Condition struct {
	Test    *Expr
	Negated bool // an else branch

	clause int // tells clauses without a test apart
}

// An Assignment binds a name (or a dotted one) to a value; Key is set for `name[key] = value`.
type Assignment struct {
	Place
	Target string
	Key    *Expr
	Value  *Expr // nil: a field without a value, or an item that is deleted

	global   bool // a function sets a variable of the module
	declared bool // no assignment: the name is declared global or nonlocal
}

// A Loop is a for loop.
type Loop struct {
	Place
	Over *Expr // what it goes through
	Last int   // the line of its last statement
}

// Holds reports whether a statement stands in the loop.
func (l *Loop) Holds(at Place) bool {
	return at.Scope == l.Scope && at.Line >= l.Line && at.Line <= l.Last
}

// A Call is one call expression.
type Call struct {
	Place
	Callee   string // dotted as written; ".to" when what stands before the dot is not a name
	Receiver *Expr  // what stands before the last dot of Callee, when that is not a plain dotted name
	Args     []*Expr
	named    []Keyword // and **value with an empty name
	Starred  bool      // *args among the arguments: there may be more

	fixed int   // how many arguments stand before the first *args
	over  *Call // whose arguments count where this call gives none (dataclasses.replace)
}

// A Keyword is one name=value argument, or **value with an empty name; a parameter of a def with its default.
type Keyword struct {
	Name  string
	Value *Expr
}

// keyword is the value of a keyword argument as it is written; nil when it is not written out.
func (c *Call) keyword(name string) *Expr {
	for _, k := range c.named {
		if k.Name == name {
			return k.Value
		}
	}
	return nil
}

// arg is keyword for what may also be given by position.
func (c *Call) arg(position int, name string) *Expr {
	if e := c.keyword(name); e != nil || position < 0 || position >= len(c.Args) {
		return e
	}
	return c.Args[position]
}

// A Function is a def or an async def.
type Function struct {
	Place
	Name       string
	Parameters []Keyword // Value is the default, nil when there is none
	Decorators []*Expr
	Returns    []*Expr

	ends []Place // of Returns
}

// A Class is a class statement; Fields are the assignments and annotated fields of its own body.
type Class struct {
	Place
	Name       string
	Bases      []string
	Decorators []*Expr
	Fields     []*Assignment // Value is nil for a field without default
}

// Kind tells what an expression is.
type Kind int

// The kinds of expressions.
const (
	// not followed; Text says why. Of x, y = f(): Items are f(), Value is which part; of x //= y: y and the operator
	Unknown   Kind = iota
	Literal        // Value is nil (None), bool, int64, float64 or string
	List           // list, tuple or set: Items
	Dict           // Keys and Items; a nil key is **other
	Name           // Text is the dotted name
	Invoke         // Call
	Operation      // Text is the operator, Items the operands; "if" has test, yes, no
	Index          // Items are what is indexed and the index
)

// An Expr is one expression.
type Expr struct {
	Kind  Kind
	Line  int
	Value any
	Text  string
	Items []*Expr
	Keys  []*Expr
	Call  *Call
}

// String describes the expression for messages, in one short line.
func (e *Expr) String() string {
	switch {
	case e == nil:
		return "nothing"
	case e.Kind == Unknown:
		return e.Text
	case e.Kind == Literal && e.Value == nil:
		return "None"
	case e.Kind == Literal:
		return fmt.Sprintf("%#v", e.Value)
	case e.Kind == List:
		return fmt.Sprintf("a list of %d", len(e.Items))
	case e.Kind == Dict:
		return fmt.Sprintf("a dict of %d", len(e.Items))
	case e.Kind == Name:
		return e.Text
	case e.Kind == Invoke:
		return e.Call.Callee + "(...)"
	case e.Kind == Operation && e.Text == "if":
		return "a choice between two values"
	case e.Kind == Operation:
		return "an expression with " + e.Text
	default:
		return "an indexed value"
	}
}

// ImportsModule reports whether the file imports a module or something from it: "trl" also finds trl.trainer.
func (f *File) ImportsModule(module string) bool {
	for _, i := range f.Imports {
		if i.Module == module || strings.HasPrefix(i.Module, module+".") {
			return true
		}
	}
	return false
}

// RequiresModule is ImportsModule for an import without which the file cannot run.
func (f *File) RequiresModule(module string) bool {
	return slices.ContainsFunc(f.Imports, func(i Import) bool {
		return i.Sure && (i.Module == module || strings.HasPrefix(i.Module, module+"."))
	})
}

// Qualified expands the first part of a dotted name by the file's imports: with `import torch.nn as nn`, nn.Linear is
// torch.nn.Linear.
func (f *File) Qualified(dotted string) string {
	first, rest, more := strings.Cut(dotted, ".")
	full, known := f.imports[first]
	switch {
	case !known:
		return dotted
	case more:
		return full + "." + rest
	default:
		return full
	}
}

// CallsOf lists the calls whose qualified name is, or ends in, one of the dotted names: "TrainingArguments" finds
// transformers.TrainingArguments, "FastModel.from_pretrained" what it says.
func (f *File) CallsOf(names ...string) []*Call {
	var found []*Call
	for _, c := range f.Calls {
		if EndsIn(f.Qualified(c.Callee), names...) {
			found = append(found, c)
		}
	}
	return found
}

// EndsIn reports whether the last parts of a dotted name are one of names.
func EndsIn(dotted string, names ...string) bool {
	for _, name := range names {
		if dotted == name || strings.HasSuffix(dotted, "."+name) {
			return true
		}
	}
	return false
}

// Function finds a function of the module's own level by name; nil when there is none. The last definition counts, as
// in Python.
func (f *File) Function(name string) *Function {
	for _, fn := range slices.Backward(f.Functions) {
		if fn.Name == name && fn.Scope == "" {
			return fn
		}
	}
	return nil
}

// Class finds a class by name; nil when there is none.
func (f *File) Class(name string) *Class {
	for _, class := range slices.Backward(f.Classes) {
		if class.Name == name {
			return class
		}
	}
	return nil
}

// Written is an argument as it stands in the call, for what is asked of the text and not of its value; nil when it is
// not written out.
func (c *Call) Written(position int, name string) *Expr { return c.arg(position, name) }

// Given lists all arguments as they stand in the call.
func (c *Call) Given() []*Expr {
	all := slices.Clone(c.Args)
	for _, k := range c.named {
		all = append(all, k.Value)
	}
	return all
}
