package monitor

import (
	"bytes"
	"encoding/json"
	"regexp"
	"sort"
	"strings"
)

// Redacted stands where a secret was.
const Redacted = "[redacted]"

// Scrubber removes secrets from everything that is written down: values of environment variables and of flags whose names say
// that they hold one, and tokens that are known by their shape.
type Scrubber struct {
	replace *strings.Replacer
}

var (
	// names of variables and flags that hold a secret whatever stands before or after
	secretName = regexp.MustCompile(`(?i)secret|passw|api[_-]?key|access[_-]?key|private[_-]?key|credential`)
	// a variable may end in TOKEN, AUTH or KEY; a flag of a training script may too (--pad_token, --text_key) without being secret
	secretVariable = regexp.MustCompile(`(?i)(^|_)(token|auth|key)$`)
	secretFlag     = regexp.MustCompile(`(?i)(^|(hub|hf|auth|api|access|wandb|hugging_?face|git(hub|lab)?|bot|login|refresh)[_-])token$`)
	// Hugging Face, Weights & Biases (40 hex after the name is caught by the variable), GitHub, OpenAI, AWS, Slack tokens by shape.
	secretShape = regexp.MustCompile(`\b(hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|AKIA[0-9A-Z]{16}|xox[abprs]-[A-Za-z0-9-]{10,})`)
	// Credentials inside an address: scheme://user:secret@host.
	secretURL = regexp.MustCompile(`(://[^/\s:@]+:)[^/\s@]+@`)
)

// shortest secret that is replaced wherever it occurs: shorter values would blot out ordinary words.
const minSecret = 6

// NewScrubber learns the secrets of an environment ("NAME=value") and of a command line.
func NewScrubber(environ, argv []string) *Scrubber {
	secrets := map[string]bool{}
	add := func(name, value string, also *regexp.Regexp) {
		if len(value) < minSecret || !secretName.MatchString(name) && !also.MatchString(name) {
			return
		}
		secrets[value] = true
		// the same inside a JSON string, where quotes and backslashes are escaped
		if quoted, err := json.Marshal(value); err == nil {
			secrets[string(quoted[1:len(quoted)-1])] = true
		}
	}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		add(name, value, secretVariable)
	}
	for i, arg := range argv {
		name, value, given := strings.Cut(arg, "=")
		switch {
		case given:
			add(strings.TrimLeft(name, "-"), value, secretFlag)
		case strings.HasPrefix(arg, "-") && i+1 < len(argv) && !strings.HasPrefix(argv[i+1], "-"):
			add(strings.TrimLeft(arg, "-"), argv[i+1], secretFlag)
		}
	}
	ordered := make([]string, 0, len(secrets))
	for s := range secrets {
		ordered = append(ordered, s)
	}
	// longest first: a secret that holds another one goes as a whole
	sort.Slice(ordered, func(i, j int) bool {
		if len(ordered[i]) != len(ordered[j]) {
			return len(ordered[i]) > len(ordered[j])
		}
		return ordered[i] < ordered[j]
	})
	pairs := make([]string, 0, 2*len(ordered))
	for _, s := range ordered {
		pairs = append(pairs, s, Redacted)
	}
	return &Scrubber{replace: strings.NewReplacer(pairs...)}
}

// Text returns text without secrets. A nil Scrubber knows only their shapes.
func (s *Scrubber) Text(text string) string {
	if s != nil && s.replace != nil {
		text = s.replace.Replace(text)
	}
	text = secretShape.ReplaceAllString(text, Redacted)
	return secretURL.ReplaceAllString(text, "${1}"+Redacted+"@")
}

// Args returns the words of a command line without secrets.
func (s *Scrubber) Args(argv []string) []string {
	out := make([]string, len(argv))
	for i, a := range argv {
		out[i] = s.Text(a)
	}
	return out
}

// jsonLines cleans the texts in lines of JSON objects. Numbers stay: a secret of digits must not be cut out of a size.
func (s *Scrubber) jsonLines(lines []byte) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(lines) {
		out.Write(s.jsonLine(line))
	}
	return out.Bytes()
}

func (s *Scrubber) jsonLine(line []byte) []byte {
	text := string(line)
	if s.Text(text) == text {
		return line
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(line, &fields) != nil {
		return []byte(s.Text(text)) // damaged: nothing in it will be read as a number
	}
	for name, raw := range fields {
		var value string
		if json.Unmarshal(raw, &value) != nil {
			continue
		}
		if clean, err := json.Marshal(s.Text(value)); err == nil {
			fields[name] = clean
		}
	}
	clean, err := json.Marshal(fields)
	if err != nil {
		return []byte(s.Text(text))
	}
	return append(clean, '\n')
}
