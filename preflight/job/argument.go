package job

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"oomguard/preflight/job/document"
	"oomguard/preflight/job/shell"
)

// An argument is one option of the training script, as HfArgumentParser would store it.
type argument struct {
	text   string         // "" when bare
	list   []string       // words of a list option
	bare   bool           // given without a value
	node   *document.Node // the value in a JSON file of arguments; nil on the command line
	origin string         // "command line --bf16", "args.json:7"
}

// dictionary reads an argument that is a dictionary: inline in a file of arguments, JSON on the command line, or a
// file's name; nil when it was not given or cannot be read, which is then recorded.
func (r *reader) dictionary(name string) *document.Node {
	a, given := r.args[name]
	if !given || a.bare {
		return nil
	}
	if a.node != nil {
		if _, inline := a.node.Value.(map[string]*document.Node); inline {
			return a.node
		}
	}
	doc, problems, err := r.jsonFile(a.text)
	r.unread(problems...)
	if err != nil {
		r.unusable(fmt.Errorf("%s: %w", a.origin, err))
		return nil
	}
	return doc
}

func (r *reader) boolean(name string) (value, given bool) {
	a, given := r.args[name]
	if !given || a.bare {
		return given, given
	}
	value, ok := document.ParseBool(a.text)
	if !ok {
		r.wrongArgument(a, "true or false")
	}
	return value, ok
}

func (r *reader) on(name string) bool {
	value, _ := r.boolean(name)
	return value
}

// asked is on with the framework's own default where nobody said anything. Files are compared with it; settings wait
// for the defaults' turn, after weaker sources.
func (r *reader) asked(name string) bool {
	if value, given := r.boolean(name); given {
		return value
	}
	value, _ := document.ParseBool(r.fallbacks[name].text)
	return value
}

// number is a whole number that was given, or the framework's default; 0 when neither is.
func (r *reader) number(name string) int {
	a, given := r.args[name]
	if !given {
		a = r.fallbacks[name]
	}
	n, err := pythonInt(a.text)
	if err != nil {
		return 0
	}
	return n
}

func (r *reader) integer(name string, set *Setting[int]) {
	a, given := r.args[name]
	if !given {
		return
	}
	if why, unknown := shell.Unknown(a.text); unknown {
		set.Withhold(why)
		return
	}
	n, err := pythonInt(a.text)
	if err != nil || n < 1 {
		r.wrongArgument(a, "a whole number from 1")
		return
	}
	set.Offer(n, a.origin)
}

// wrongArgument is an error only where HfArgumentParser would refuse it too; another script may mean something else by
// the name.
func (r *reader) wrongArgument(a argument, need string) {
	if !r.family.huggingFace() {
		return
	}
	if a.node != nil {
		r.unread(a.node.Wrong(need)) // a parser of files may be less strict than that of words
		return
	}
	r.problem(fmt.Errorf("%s is %q, need %s", a.origin, a.text, need))
}

// jsonFile reads a JSON file, or the document itself when the word is one ("{...}"), as HfArgumentParser does for
// dictionaries.
func (r *reader) jsonFile(word string) (*document.Node, []error, error) {
	if strings.HasPrefix(word, "{") {
		return document.JSON([]byte(word), "JSON on the command line")
	}
	data, err := r.readFile(word)
	if err != nil {
		return nil, nil, err
	}
	return document.JSON(data, word)
}

// mentions reports whether the script's command line, or the file in its place, names one of some fields.
func (r *reader) mentions(fields ...string) bool {
	words := r.job.ScriptArgs
	if len(words) > 0 && isArgumentFile(words[0]) {
		doc, _, err := r.loadFile(words[0])
		if err != nil {
			return false
		}
		return doc.First(fields...) != nil
	}
	return slices.ContainsFunc(words, func(word string) bool {
		option, _, _ := strings.Cut(strings.TrimPrefix(word, "--"), "=")
		return strings.HasPrefix(word, "--") && slices.Contains(fields, strings.ReplaceAll(option, "-", "_"))
	})
}

// isArgumentFile: the example scripts take one JSON file in place of all arguments, and many scripts that followed them
// also YAML.
func isArgumentFile(word string) bool {
	return !strings.HasPrefix(word, "-") &&
		slices.Contains([]string{".json", ".yaml", ".yml"}, strings.ToLower(filepath.Ext(word)))
}
