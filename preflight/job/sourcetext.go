package job

import (
	"math"
	"path/filepath"
	"strings"

	"oomguard/preflight/job/document"
	"oomguard/preflight/job/python"
)

// A sourceText is the training script with the local modules that it imports, read as text and never executed.
type sourceText struct {
	r        *reader
	files    []*sourceFile           // the script first
	settings map[string]*python.File // files of assignments that the command line names
	// abbreviated are words of the command line with the option that each stands for (wholeOption).
	abbreviated map[string]string
}

// A sourceFile is one of its files.
type sourceFile struct {
	*python.File
	module  string // as the script imports it; "" for the script
	text    *sourceText
	raw     string // as it stands
	scope   python.Scope
	options map[string]*scriptOption // that the file defines for the command line, by argparse's dest
}

// maxSourceBytes bounds a file of source: those of training scripts have some ten kilobytes.
const maxSourceBytes = 1 << 20

// maxModules bounds how many local modules of a script are read; they are read one level deep.
const maxModules = 30

// scriptText reads the script once; nil when it is not a Python file that can be read. Nobody needs to be told: the
// script may run in a container, or stand in another folder.
func (r *reader) scriptText() *sourceText {
	if !r.scriptRead {
		r.scriptRead = true
		r.script = r.readSource()
	}
	return r.seen()
}

// seen is the script's text as far as it has been asked for; nil: not yet, or there is none.
func (r *reader) seen() *sourceText {
	t, _ := r.script.(*sourceText)
	return t
}

func (r *reader) readSource() *sourceText {
	script := r.scriptSource()
	if script == "" {
		return nil
	}
	t := &sourceText{r: r}
	main := t.add(script, "")
	if main == nil {
		return nil
	}
	folders := []string{filepath.Dir(script)}
	if strings.HasPrefix(r.job.Script.Value, "-m ") {
		folders = r.moduleFolders()
	}
	for _, i := range main.Imports {
		if len(t.files) > maxModules {
			break
		}
		for _, name := range []string{i.Module, i.Module + "." + i.Name} {
			if file := r.moduleFile(folders, filepath.Dir(script), name); file != "" && file != script && !t.has(file) {
				t.add(file, name)
			}
		}
	}
	for _, f := range t.files {
		f.readOptions()
	}
	return t
}

func (t *sourceText) has(file string) bool {
	for _, f := range t.files {
		if f.Name == file {
			return true
		}
	}
	return false
}

// add reads one file; nil when it cannot be read.
func (t *sourceText) add(file, module string) *sourceFile {
	data, err := document.Read(t.r.path(file), file)
	if err != nil || len(data) > maxSourceBytes {
		return nil
	}
	f := &sourceFile{File: python.Read(data, file), module: module, text: t, raw: string(data)}
	f.scope = python.Scope{File: f.File, Outside: f.outside, Keeps: reportsOnly}
	for _, c := range f.Calls {
		if c.Callee == "exec" && executesFile(c) {
			f.scope.Override = f.replaced
		}
	}
	t.files = append(t.files, f)
	return f
}

// executesFile reports whether exec is given the text of a Python file: exec(open("configurator.py").read()).
func executesFile(c *python.Call) bool {
	if len(c.Args) == 0 || c.Args[0].Kind != python.Invoke {
		return false
	}
	opened := innermost(c.Args[0].Call)
	if len(opened.Args) == 0 {
		return false
	}
	name, literal := literalString(opened.Args[0])
	return !literal || strings.HasSuffix(name, ".py")
}

// scriptSource is the file of the script, as it was named; "" when there is none.
func (r *reader) scriptSource() string {
	script := r.job.Script.Value
	if module, ok := strings.CutPrefix(script, "-m "); ok {
		for _, name := range []string{module, module + ".__main__"} {
			if file := r.moduleFile(r.moduleFolders(), "", name); file != "" {
				return file
			}
		}
		return ""
	}
	if !strings.HasSuffix(script, ".py") || !isFile(r.path(script)) {
		return ""
	}
	return script
}

// moduleFolders are where python -m looks besides the installed packages.
func (r *reader) moduleFolders() []string {
	return append([]string{"."}, filepath.SplitList(r.getenv("PYTHONPATH"))...)
}

// moduleFile is the local file of a module, "" when it has none. Relative names start in the folder of the script.
func (r *reader) moduleFile(folders []string, own, module string) string {
	if strings.HasPrefix(module, ".") {
		folders, module = []string{own}, strings.TrimLeft(module, ".")
	}
	if module == "" {
		return ""
	}
	parts := strings.Split(module, ".")
	for _, folder := range folders {
		base := filepath.Join(append([]string{folder}, parts...)...)
		for _, file := range []string{base + ".py", filepath.Join(base, "__init__.py")} {
			if isFile(r.path(file)) {
				return file
			}
		}
	}
	return ""
}

// outside resolves what the file itself does not know: an option of the command line, or a constant of a local module.
func (f *sourceFile) outside(dotted string, at python.Place) *python.Expr {
	if base, name, ok := cutLast(dotted); ok && isArgumentsName(base) {
		for _, file := range append([]*sourceFile{f}, f.text.files...) {
			if o := file.options[name]; o != nil {
				return o.value(file)
			}
		}
		// A parser that is not read, in another package: what the command line gives under the name is what it stores.
		if o := (&scriptOption{names: []string{"--" + name}}); o.isGiven(f.text.r) {
			return o.value(f)
		}
	}
	if o := f.options[at.Scope+"("+dotted+")"]; o != nil { // a parameter that fire or click fills
		return o.value(f)
	}
	qualified := f.Qualified(dotted)
	for _, m := range f.text.files {
		name, inside := strings.CutPrefix(qualified, m.module+".")
		if m.module == "" || m == f || !inside {
			continue
		}
		end := python.Place{Line: math.MaxInt}
		value := m.scope.Resolve(&python.Expr{Kind: python.Name, Text: name}, end)
		if value.Kind == python.Literal {
			copied := *value
			copied.Text = m.Name
			return &copied
		}
		if value.Kind == python.List || value.Kind == python.Dict {
			return value
		}
	}
	return nil
}

// replaced is the value of a global that a script executes other text over, as nanoGPT's configurator.py does: words
// that end in .py are files of assignments, --name=value replaces one; later words win.
func (f *sourceFile) replaced(name string) *python.Expr {
	var found *python.Expr
	for _, word := range f.text.r.job.ScriptArgs {
		option, text, attached := strings.Cut(word, "=")
		switch {
		case attached && option == "--"+name:
			value, _ := (&scriptOption{}).convert(text)
			found = &python.Expr{Kind: python.Literal, Value: value, Text: "command line " + option}
		case !attached && strings.HasSuffix(word, ".py"):
			if value := f.text.assignedIn(word, name); value != nil {
				found = value
			}
		}
	}
	return found
}

// assignedIn is the value that a file of assignments gives a name; nil when it gives none.
func (t *sourceText) assignedIn(file, name string) *python.Expr {
	if t.settings == nil {
		t.settings = map[string]*python.File{}
	}
	read, known := t.settings[file]
	if !known {
		if data, err := document.Read(t.r.path(file), file); err == nil {
			read = python.Read(data, file)
		} else {
			t.r.unread(err)
		}
		t.settings[file] = read
	}
	if read == nil {
		return nil
	}
	for _, a := range read.Assignments {
		if a.Target != name || a.Scope != "" || a.Key != nil {
			continue
		}
		value := *python.Scope{File: read}.Resolve(&python.Expr{Kind: python.Name, Text: name},
			python.Place{Line: math.MaxInt})
		value.Text = (&document.Node{File: file, Line: a.Line}).Origin()
		return &value
	}
	return nil
}

// isArgumentsName reports whether a variable holds the parsed command line: what scripts call it.
func isArgumentsName(name string) bool {
	_, last, dotted := cutLast(name)
	if !dotted {
		last = name
	}
	last = strings.ToLower(last)
	switch last {
	case "a", "p", "opt", "opts", "options", "flags", "cfg", "conf", "config", "hparams", "hps", "params":
		return true
	}
	return strings.HasSuffix(last, "args") || strings.HasSuffix(last, "arguments") || strings.HasSuffix(last, "config")
}

// A foundCall is a call in one of the files. sure is false when a condition that is not decided guards it.
type foundCall struct {
	*python.Call
	file *sourceFile
	sure bool
}

// calls finds calls by the last parts of their qualified names; those behind a condition that does not hold are left
// out.
func (t *sourceText) calls(names ...string) []foundCall {
	var found []foundCall
	for _, f := range t.files {
		for _, c := range f.Calls {
			if !python.EndsIn(f.scope.Callee(c), names...) {
				continue
			}
			holds, known := f.scope.Holds(c.Place)
			if holds || !known {
				found = append(found, foundCall{c, f, known})
			}
		}
	}
	return found
}

// origin names the file and line of a call.
func (c foundCall) origin() string { return c.file.at(c.Line) }

// resolve follows one of the call's arguments; nil when it is absent.
func (c foundCall) resolve(e *python.Expr) *python.Expr {
	if e == nil {
		return nil
	}
	return c.file.scope.Resolve(e, c.Place)
}

// present turns None into nothing.
func present(e *python.Expr) *python.Expr {
	if e != nil && e.Kind == python.Literal && e.Value == nil {
		return nil
	}
	return e
}

func (f *sourceFile) at(line int) string { return (&document.Node{File: f.Name, Line: line}).Origin() }

// from is the origin of a value: the line, and what it says the value comes from.
func (f *sourceFile) from(line int, value *python.Expr) string {
	origin := f.at(line)
	if value.Kind == python.Literal && value.Text != "" {
		origin += ": " + value.Text
	}
	return origin
}

// textOf is a literal as an argument would be written, and a dotted name (torch.bfloat16) as it stands; ok is false for
// anything else.
func textOf(e *python.Expr) (text string, ok bool) {
	if e == nil {
		return "", false
	}
	switch e.Kind {
	case python.Name:
		return e.Text, true
	case python.Literal:
		return literalText(e.Value)
	case python.Unknown, python.List, python.Dict, python.Invoke, python.Operation, python.Index:
	}
	return "", false
}

// mentions reports whether the script's own text has a word in the names that it defines or calls.
func (t *sourceText) mentions(words ...string) bool {
	for _, f := range t.files {
		for _, c := range f.Calls {
			if containsAny(c.Callee, words) {
				return true
			}
		}
		for _, fn := range f.Functions {
			if containsAny(fn.Name, words) {
				return true
			}
		}
	}
	return false
}

func containsAny(text string, words []string) bool {
	text = strings.ToLower(text)
	for _, word := range words {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}
