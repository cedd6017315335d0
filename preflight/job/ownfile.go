package job

import (
	"errors"
	"fmt"
	"oomguard/preflight/job/document"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ownFile holds job settings under the names of the flags; it is read from the working directory.
const ownFile = "oomguard.yaml"

// An ownLine is one setting of oomguard.yaml.
type ownLine struct {
	key  Key
	name string // as written
	text string
	at   string // file and line
}

// readOwnFile reads oomguard.yaml when there is one. Each wrong line is a problem of its own; the good lines still
// count. Versions apply at once, because the meaning of the command depends on them.
func (r *reader) readOwnFile() {
	path := r.path(ownFile)
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		return
	}
	root, err := parseOwnFile(path)
	if err != nil {
		r.unread(err)
		return
	}
	if root == nil {
		return
	}
	var versions []ownLine
	keys := Keys()
	seen := map[string]int{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		name := root.Content[i]
		line, err := parseOwnLine(keys, name, root.Content[i+1])
		switch before := seen[line.key.Name]; {
		case err != nil:
			r.unread(err)
		case before > 0:
			r.unread(fmt.Errorf("%s: %s was given before in line %d; keep one of them", line.at, name.Value, before))
		case line.key.Name == "versions":
			versions = append(versions, line)
		default:
			r.ownLines = append(r.ownLines, line)
		}
		seen[line.key.Name] = name.Line
	}
	r.applyOwnFile(versions)
}

func (r *reader) applyOwnFile(lines []ownLine) {
	for _, l := range lines {
		if err := l.key.give(r, l.at+": "+l.name, l.text, l.at); err != nil {
			r.unread(err)
		}
	}
}

// parseOwnFile returns the file's mapping; nil for an empty file.
func parseOwnFile(path string) (*yaml.Node, error) {
	data, err := document.Read(path, ownFile)
	if err != nil {
		return nil, err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		// The library's text starts with "yaml: line N:".
		return nil, fmt.Errorf("%s: broken YAML: %w; correct it there", ownFile, err)
	}
	if len(doc.Content) == 0 {
		return nil, nil
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d: need lines of the form key: value, such as micro-batch: 2", ownFile, root.Line)
	}
	return root, nil
}

func parseOwnLine(keys []Key, name, value *yaml.Node) (ownLine, error) {
	at := fmt.Sprintf("%s:%d", ownFile, name.Line)
	flag := strings.ReplaceAll(name.Value, "_", "-")
	i := slices.IndexFunc(keys, func(k Key) bool { return k.Flag == flag })
	if i < 0 {
		return ownLine{}, fmt.Errorf("%s: %q is not a job setting; known: %s", at, name.Value, knownKeys(keys))
	}
	text, err := yamlText(value)
	if err != nil {
		return ownLine{}, fmt.Errorf("%s: %s: %w", at, name.Value, err)
	}
	return ownLine{key: keys[i], name: name.Value, text: text, at: at}, nil
}

// yamlText is a value as its flag would spell it: a word, a list as words with commas, a mapping as name=word.
func yamlText(value *yaml.Node) (string, error) {
	if value.Kind == yaml.ScalarNode {
		return value.Value, nil
	}
	var words []string
	step := 1
	if value.Kind == yaml.MappingNode {
		step = 2
	}
	for i, item := range value.Content {
		if item.Kind != yaml.ScalarNode {
			return "", fmt.Errorf("need one word or a list of words")
		}
		if i%step == 0 {
			words = append(words, item.Value)
		} else {
			words[len(words)-1] += "=" + item.Value
		}
	}
	if value.Kind == yaml.AliasNode {
		return "", fmt.Errorf("need one word or a list of words, not an alias")
	}
	return strings.Join(words, ","), nil
}
