package document

import (
	"bytes"
	"path/filepath"
	"strings"
)

// Parse reads a document in the format that its name says, and otherwise in the one that it looks like: JSON with an
// opening brace, YAML without. The formats are those of the functions JSON, YAML, TOML and HJSON.
func Parse(data []byte, shown string) (doc *Node, problems []error, err error) {
	switch strings.ToLower(filepath.Ext(shown)) {
	case ".json":
		return JSON(data, shown)
	case ".yaml", ".yml":
		return YAML(data, shown)
	case ".toml":
		return TOML(data, shown)
	case ".hjson", ".jsonc", ".json5":
		return HJSON(data, shown)
	}
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		return HJSON(data, shown)
	}
	return YAML(data, shown)
}
