package checklists

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// builtin holds the checklists that come with the program, one YAML file each.
//
//go:embed *.yaml
var builtin embed.FS

// List is a checklist: which checks are asked, in which order, how strict and with which thresholds.
type List struct {
	Name, Title string
	Entries     []Entry
	// Extends names the list or file that this one started from; "" for one that stands alone. Entries are complete
	// already.
	Extends string
	// RequireAnswer: a check that decides and could not judge is worth an exit status of its own.
	RequireAnswer bool
}

// Entry is one check of a list.
type Entry struct {
	ID string
	// Severity is the worst that the check may come to: Fail, or Warn to have its failures shown as warnings.
	Severity Status
	With     Params
	// Origin is the "file:line" that listed the check, for messages; "" for a list made in code.
	Origin string
}

// at names an entry's place in messages.
func (l List) at(e Entry) string {
	if e.Origin != "" {
		return e.Origin
	}
	return "list " + l.Name
}

// maxFileBytes is far more than any checklist needs; a larger file was named by mistake.
const maxFileBytes = 1 << 20

// Builtin is the names of the checklists that come with the program.
func Builtin() []string {
	files, err := fs.Glob(builtin, "*.yaml")
	if err != nil { // only for a malformed pattern
		return nil
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(f, ".yaml")
	}
	return files
}

// Load reads a built-in checklist by its name, or a team's own from a file (YAML). A file may extend a built-in list or
// another file (relative to itself; readFile reads it, at most limit bytes): it then inherits every entry, changes the
// severity and the thresholds of those it lists again, appends the ones that are new, and leaves out those under drop.
// Errors name file, line and remedy.
func Load(nameOrFile string, readFile func(path string, limit int64) ([]byte, error)) (List, error) {
	return loader{readFile: readFile}.load(nameOrFile)
}

type loader struct {
	readFile func(path string, limit int64) ([]byte, error)
	chain    []string // lists being loaded, outermost first
}

func (l loader) load(nameOrFile string) (List, error) {
	if slices.Contains(l.chain, nameOrFile) {
		return List{}, fmt.Errorf("checklist %s extends itself (%s)", nameOrFile,
			strings.Join(append(l.chain, nameOrFile), " -> "))
	}
	l.chain = append(l.chain, nameOrFile)
	data, file, err := l.read(nameOrFile)
	if err != nil {
		return List{}, err
	}
	doc, err := parse(file, data)
	if err != nil {
		return List{}, err
	}
	list := List{Name: doc.name, Title: doc.title, Extends: doc.extends}
	if list.Name == "" {
		list.Name = strings.TrimSuffix(path.Base(filepath.ToSlash(nameOrFile)), path.Ext(nameOrFile))
	}
	if doc.extends != "" {
		base, err := l.load(l.resolve(doc.extends, nameOrFile))
		if err != nil {
			return List{}, fmt.Errorf("%s extends %s: %w", file, doc.extends, err)
		}
		list.Entries, list.RequireAnswer = base.Entries, base.RequireAnswer
		if list.Title == "" {
			list.Title = base.Title
		}
	}
	if doc.requireAnswer != nil {
		list.RequireAnswer = *doc.requireAnswer
	}
	return doc.applyTo(list)
}

// read gives a list's text and the file name for messages.
func (l loader) read(nameOrFile string) ([]byte, string, error) {
	if slices.Contains(Builtin(), nameOrFile) {
		data, err := builtin.ReadFile(nameOrFile + ".yaml")
		return data, nameOrFile + ".yaml", err
	}
	data, err := l.readFile(nameOrFile, maxFileBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, "", fmt.Errorf("no checklist %q: it is not a file, and the built-in ones are: %s: %w",
			nameOrFile, strings.Join(Builtin(), ", "), err)
	case err != nil:
		return nil, "", fmt.Errorf("read checklist %s (it must be a readable YAML file): %w", nameOrFile, err)
	}
	return data, nameOrFile, nil
}

// resolve is where an extends of the given file points.
func (l loader) resolve(extends, from string) string {
	if slices.Contains(Builtin(), extends) || filepath.IsAbs(extends) {
		return extends
	}
	return filepath.Join(filepath.Dir(from), extends)
}
