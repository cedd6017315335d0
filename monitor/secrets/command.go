package secrets

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// A command reads the words of a command line as the programs that get them do, also those of a script within a word.
type command struct {
	found   func(secret string)
	program string // the last word that is a program of the table below
	login   bool   // it was told to log in
}

// shortOptions are the options of usual programs whose value is a secret and whose name does not say so. A value may be
// joined to them.
var shortOptions = sync.OnceValue(func() map[string]string {
	return map[string]string{
		"sshpass": "-p", "curl": "-u --user -U --proxy-user -b --cookie", "wget": "--http-passwd", "redis-cli": "-a",
		"docker": "-p", "podman": "-p", "nerdctl": "-p", "helm": "-p",
		"mysql": "-p", "mysqldump": "-p", "mongo": "-p", "mongosh": "-p", "ldapsearch": "-w", "http": "-a",
		"https": "-a", "az": "-p", "smbclient": "-U", "wandb": "", "openssl": "-k -pass -passin -passout",
		"huggingface-cli": "", "hf": "", "aws": "", "kaggle": "", "oc": "-p", "swanlab": "-k", "zip": "-P",
		"unzip": "-P",
	}
})

// onlyAtLogin: elsewhere their option means something else (docker run -p is a port).
func onlyAtLogin() []string {
	return []string{"docker", "podman", "nerdctl", "helm", "az", "oc", "swanlab"}
}

// onlyJoined: behind a blank the option's value is another argument.
func onlyJoined() []string { return []string{"mysql", "mysqldump"} }

// deepest is how many scripts within words are followed.
const deepest = 6

// assignment is name=value as a word: a variable, an option, an override of Hydra's kind.
var assignment = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([-+~]{0,2}[A-Za-z_@][\w.\-/@\[\]]*(?::=|\+?=))((?s).*)$`)
})

// option is a word that names what the next word is.
var option = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^-{1,2}([A-Za-z][\w.\-]*)$`) })

// words returns the words without secrets.
func (c *command) words(argv []string, depth int) []string {
	out := make([]string, len(argv))
	name := "" // of the option before
	for i, w := range argv {
		if isScript(argv, i, depth) {
			out[i] = c.text(w, depth)
		} else {
			out[i] = c.word(w, name, depth)
		}
		if out[i] == w {
			out[i] = c.byProgram(argv, i)
		}
		name = ""
		if m := option().FindStringSubmatch(w); m != nil && i+1 < len(argv) && takes(m[1], argv[i+1]) {
			name = m[1]
		}
		c.enter(w)
	}
	return out
}

// isScript tells a script that begins with an assignment (sh -c 'TOKEN=x python train.py') from a value with blanks in
// it.
func isScript(argv []string, i, depth int) bool {
	m := assignment().FindStringSubmatch(argv[i])
	if m == nil || strings.HasPrefix(m[1], "-") || !strings.ContainsAny(m[2], " \t\n;") {
		return false
	}
	if i > 0 && shellText().MatchString(argv[i-1]) {
		return true
	}
	for i--; i >= 0; i-- { // env -i A=1 B='x y' cmd
		if b := filepath.Base(argv[i]); b == "env" || b == "export" || argv[i] == "-e" || argv[i] == "--env" {
			return false
		}
		if !strings.HasPrefix(argv[i], "-") && assignment().FindStringSubmatch(argv[i]) == nil {
			break
		}
	}
	return depth == 0
}

// shellText is the option behind which a shell takes its script.
var shellText = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^-[a-z]*c$`) })

// takes tells whether the next word is the option's value: one that begins with a dash is, unless it is an option.
func takes(name, next string) bool {
	if judgeName(name) == none || !strings.HasPrefix(next, "-") {
		return true
	}
	if !strings.HasPrefix(next, "--") {
		return len(next) > 2 && judgeName(name) == strong
	}
	m := option().FindStringSubmatch(next)
	return assignment().FindStringSubmatch(next) == nil && (m == nil || random(m[1]))
}

// word cleans one word; name is the option that it is the value of, or "".
func (c *command) word(w, name string, depth int) string {
	if name != "" && judge(name, w) {
		return c.secret(w)
	}
	if inner, ok := substitution(w); ok {
		return "$(" + c.text(inner, depth+1) + ")"
	}
	if m := assignment().FindStringSubmatch(w); m != nil {
		if inner, ok := substitution(m[2]); ok {
			return m[1] + "$(" + c.text(inner, depth+1) + ")"
		}
		if judge(strings.TrimRight(m[1], ":+="), m[2]) {
			return m[1] + c.secret(m[2])
		}
		return m[1] + c.text(m[2], depth)
	}
	return c.text(w, depth)
}

// substitution is the command within $(...).
func substitution(w string) (string, bool) {
	inner, ok := strings.CutPrefix(w, "$(")
	if !ok || !strings.HasSuffix(inner, ")") {
		return "", false
	}
	return inner[:len(inner)-1], true
}

// document cleans JSON, where a key may say what it is only by what it lies in: {"wandb": {"key": "x"}}.
func (c *command) document(w string) string {
	var root any
	if trimmed := strings.TrimSpace(w); trimmed == "" || trimmed[0] != '{' || json.Unmarshal([]byte(w), &root) != nil {
		return w
	}
	var walk func(name string, value any)
	walk = func(name string, value any) {
		switch v := value.(type) {
		case map[string]any:
			for key, inner := range v {
				walk(name+"."+key, inner)
			}
		case []any:
			for _, inner := range v {
				walk(name, inner)
			}
		case string:
			if quoted, err := json.Marshal(v); err == nil && judge(name, v) {
				c.found(v)
				w = strings.ReplaceAll(w, string(quoted), `"`+Redacted+`"`)
			}
		}
	}
	walk("", root)
	return w
}

func (c *command) secret(value string) string {
	c.found(value)
	return Redacted
}

// text cleans a word that is no secret as a whole: a script, a document, an address, or one whose look tells.
func (c *command) text(w string, depth int) string {
	if strings.ContainsAny(w, " \t\n;") && depth < deepest && !strings.Contains(w, "-----BEGIN") {
		w = c.script(w, depth)
	}
	w = byList(byName(byShape(c.document(w), c.found), c.found), c.found)
	if !strings.ContainsAny(w, " \t\n") && !path(w) && !strings.Contains(w, "://") && surelyRandom(w) {
		return c.secret(w)
	}
	return w
}

// enter takes note of a program and of what it is told to do.
func (c *command) enter(w string) {
	base := filepath.Base(w)
	if _, known := shortOptions()[base]; known {
		c.program, c.login = base, false
	} else if w == "login" {
		c.login = true
	}
}

// byProgram cleans a word that the program before it takes for a secret.
func (c *command) byProgram(argv []string, i int) string {
	w, before := argv[i], ""
	if i > 0 {
		before = argv[i-1]
	}
	switch {
	case c.program == "":
		return w
	case c.program == "wandb" && c.login && hex().MatchString(w) && len(w) >= 32,
		c.program == "aws" && i > 1 && argv[i-2] == "set" && judge(before, w):
		return c.secret(w)
	case !c.login && slices.Contains(onlyAtLogin(), c.program):
		return w
	}
	for o := range strings.FieldsSeq(shortOptions()[c.program]) {
		switch {
		case w == o:
			return w
		case before == o && !slices.Contains(onlyJoined(), c.program):
			if c.program == "sshpass" { // what follows is another command
				c.program = ""
			}
			return c.account(w)
		case !strings.HasPrefix(o, "--") && len(o) == 2 && strings.HasPrefix(w, o) && !strings.HasPrefix(w, "--"):
			return o + c.account(w[len(o):])
		}
	}
	return w
}

// account keeps the user of user:secret.
func (c *command) account(w string) string {
	if empty(w) {
		return w
	}
	for _, sign := range []string{":", "%"} {
		if user, secret, ok := strings.Cut(w, sign); ok && !empty(secret) {
			return user + sign + c.secret(secret)
		}
	}
	return c.secret(w)
}

// spoken tells a command that says its words, as to a program that reads a secret from its input (echo x | docker login
// --password-stdin).
func spoken(argv []string) bool {
	return slices.Contains([]string{"echo", "printf", "/bin/echo"}, argv[0])
}

// listens tells whether the next command reads a secret from its input.
func listens(next []token) bool {
	for _, t := range next {
		if reader().MatchString(t.text) {
			return true
		}
		if t.ends {
			return false
		}
	}
	return false
}

var reader = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)^(?:--?(?:password|passphrase|token|key|secret|api-key)-(?:stdin|fd)|--with-token|chpasswd|sshpass|-S)$`)
})

// said is a word that was said as a secret.
func (c *command) said(w string) string {
	if empty(w) || strings.HasPrefix(w, "-") || strings.HasPrefix(w, "%") {
		return w
	}
	return c.secret(w)
}

// script cleans a text of shell: its words are read as those of commands, and all else stays as it is.
func (c *command) script(text string, depth int) string {
	tokens := lex(text)
	var out strings.Builder
	done := 0
	for len(tokens) > 0 {
		n := slices.IndexFunc(tokens, func(t token) bool { return t.ends })
		if n < 0 {
			n = len(tokens) - 1
		}
		inner := command{found: c.found}
		raw := make([]string, n+1)
		for i, t := range tokens[:n+1] {
			raw[i] = t.text
		}
		clean := inner.words(raw, depth+1)
		if spoken(raw) && listens(tokens[n+1:]) {
			for i := 1; i < len(raw); i++ {
				clean[i] = inner.said(raw[i])
			}
		}
		for i, clean := range clean {
			t := tokens[i]
			out.WriteString(text[done:t.start])
			out.WriteString(t.written(text[t.start:t.end], clean))
			done = t.end
		}
		tokens = tokens[n+1:]
	}
	out.WriteString(text[done:])
	return out.String()
}
