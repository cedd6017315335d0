package job

import (
	"oomguard/preflight/job/shell"
	"path/filepath"
	"strings"
)

func containsWord(list, word string) bool {
	for w := range strings.FieldsSeq(list) {
		if w == word {
			return true
		}
	}
	return false
}

// isPython recognises python, python3, python3.11 and pypy3 with any path in front.
func isPython(word string) bool {
	base := strings.TrimRight(filepath.Base(word), "0123456789.")
	return base == "python" || base == "pypy"
}

// plainOrigin marks the processes of a command that no launcher starts; a framework that starts processes itself
// replaces them.
const plainOrigin = "plain python starts one process"

func plainName(option string) string {
	return strings.ReplaceAll(strings.TrimLeft(option, "-"), "-", "_")
}

// enabled reads a switch among the variables as LLaMA-Factory does (extras/misc.py, is_env_enabled).
func (r *reader) enabled(variable string) bool {
	text := r.getenv(variable)
	if why, unknown := shell.Unknown(text); unknown && r.open == "" { // it may decide anything
		r.open = why
	}
	switch strings.ToLower(text) {
	case "true", "y", "1":
		return true
	}
	return false
}

// cutLast splits a dotted name at its last dot.
func cutLast(dotted string) (base, name string, ok bool) {
	i := strings.LastIndexByte(dotted, '.')
	if i < 0 {
		return "", dotted, false
	}
	return dotted[:i], dotted[i+1:], true
}
