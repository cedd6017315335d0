package shell

import (
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// readNames follows read with a text of the script; without one, the variables become unknown.
func readNames(e *evaluator, words []string, prefix map[string]string, s *syntax.Stmt) {
	names, array, delimiter := readOptions(words[1:])
	text, known := e.input(s)
	if !known && e.stdin != nil {
		text, known = all(e.stdin)
	}
	if names == nil || !known {
		e.unread(words[1:], s)
		return
	}
	if delimiter != "" {
		text, _, _ = strings.Cut(text, delimiter)
	}
	separators := " \t\n"
	if ifs, given := prefix["IFS"]; given {
		separators = ifs
	} else if v := e.lookUp("IFS"); v.set {
		separators = e.scalar("IFS")
	}
	if array {
		e.assign(names[0], separated(text, separators, -1), true)
		return
	}
	fields := separated(text, separators, len(names))
	for i, name := range names {
		value := ""
		if i < len(fields) {
			value = fields[i]
		}
		e.assign(name, []string{value}, false)
	}
}

// readOptions splits the words of read; no names: they are not followed.
func readOptions(args []string) (names []string, array bool, delimiter string) {
	delimiter = "\n"
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		option := args[0]
		args = args[1:]
		switch last := option[len(option)-1]; {
		case last == 'a':
			array = true
		case strings.IndexByte("dpntNu", last) >= 0 && len(args) > 0:
			if last == 'd' {
				delimiter = args[0]
			}
			args = args[1:]
		}
	}
	if slices.ContainsFunc(args, func(name string) bool { return !syntax.ValidName(name) }) || len(args) == 0 {
		return nil, false, ""
	}
	return args, array, delimiter
}

// separated splits a text at any of the separators, into at most n fields; blanks around a field are none of it.
func separated(text, separators string, n int) []string {
	blank := strings.Trim(separators, " \t\n") == ""
	var fields []string
	for text = strings.Trim(text, " \t\n"); text != ""; {
		at := strings.IndexAny(text, separators)
		if at < 0 || len(fields) == n-1 {
			return append(fields, text)
		}
		fields = append(fields, strings.Trim(text[:at], " \t\n"))
		if text = text[at+1:]; blank {
			text = strings.TrimLeft(text, separators)
		}
	}
	return fields
}

// readLines follows mapfile with a text of the script.
func readLines(e *evaluator, words []string, _ map[string]string, s *syntax.Stmt) {
	name := words[len(words)-1]
	text, known := e.input(s)
	if _, unknown := Unknown(text); !known || unknown || !syntax.ValidName(name) || slices.Contains(words, "-d") {
		e.unread(words[1:], s)
		return
	}
	e.assign(name, strings.Split(strings.TrimSuffix(text, "\n"), "\n"), true)
}

// unread makes the variables unknown that a builtin fills from what nobody can see.
func (e *evaluator) unread(names []string, s *syntax.Stmt) {
	for _, name := range names {
		if syntax.ValidName(name) {
			why := gap(gapText, "$"+name, "$"+name+" is not known: it is read while the script runs ("+e.at(s.Pos())+
				")")
			e.assign(name, []string{withKind(why, asWords)}, true)
		}
	}
}

// getopts takes the next option off the parameters and reports whether there was one.
func (e *evaluator) getopts(words []string) verdict {
	if len(words) != 3 || slices.ContainsFunc(e.params, Several) || !syntax.ValidName(words[2]) {
		e.assign("OPTARG", []string{gap(gapText, "$OPTARG", "$OPTARG is not known: the script's arguments are not")},
			false)
		return maybe
	}
	at, err := strconv.Atoi(e.scalar("OPTIND"))
	if err != nil || at < 1 {
		at = 1
	}
	if at <= len(e.params) && e.params[at-1] == "--" {
		e.assign("OPTIND", []string{strconv.Itoa(at + 1)}, false)
		return no
	}
	if at > len(e.params) || len(e.params[at-1]) < 2+e.option || e.params[at-1][0] != '-' {
		e.assign("OPTIND", []string{strconv.Itoa(at)}, false)
		return no
	}
	word := e.params[at-1][1+e.option:]
	letter, rest := word[:1], word[1:]
	spec := strings.Index(strings.TrimPrefix(words[1], ":"), letter)
	takes := spec >= 0 && strings.HasPrefix(strings.TrimPrefix(words[1], ":")[spec+1:], ":")
	if spec < 0 {
		letter = "?"
	}
	switch {
	case takes && rest == "" && at < len(e.params):
		at++
		e.assign("OPTARG", []string{e.params[at-1]}, false)
	case takes:
		e.assign("OPTARG", []string{rest}, false)
		rest = ""
	}
	if e.option++; rest == "" {
		at, e.option = at+1, 0
	}
	e.assign(words[2], []string{letter}, false)
	e.assign("OPTIND", []string{strconv.Itoa(at)}, false)
	return yes
}

// input is the text that a script gives to a command with <<EOF or <<<.
func (e *evaluator) input(s *syntax.Stmt) (string, bool) {
	for _, r := range s.Redirs {
		switch {
		case r.Op == syntax.WordHdoc:
			return e.text(r.Word) + "\n", true
		case r.Op == syntax.RdrIn:
			return e.processed(r.Word)
		case r.Op != syntax.Hdoc && r.Op != syntax.DashHdoc:
			continue
		case r.Hdoc == nil:
			return "", true
		case r.Word.Lit() == "": // a quoted end: nothing in the text is expanded
			return limited(r.Hdoc.Lit()), true
		}
		f := &fields{}
		e.part(&syntax.DblQuoted{Parts: r.Hdoc.Parts}, f, true, false)
		return limited(f.current.String()), true
	}
	return "", false
}

// processed is what < <(commands) reads, or < FILE.
func (e *evaluator) processed(w *syntax.Word) (string, bool) {
	if len(w.Parts) == 1 {
		if p, ok := w.Parts[0].(*syntax.ProcSubst); ok && p.Op == syntax.CmdIn {
			return all(e.capture(p.Stmts))
		}
	}
	return e.textOf(e.text(w))
}
