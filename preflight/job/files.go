package job

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"oomguard/preflight/job/document"
	"oomguard/preflight/job/shell"
	"oomguard/preflight/model"
)

// readFile reads a file that the command names: one that a script on the way there writes itself, or else the one that
// is there.
func (r *reader) readFile(name string) ([]byte, error) {
	text, written := r.written[filepath.Clean(r.path(name))]
	if !written && strings.Contains(name, "://") {
		return nil, fmt.Errorf("%s: is an address, and nothing is fetched here; download the file, and name it", name)
	}
	if !written {
		return document.Read(r.path(name), name)
	}
	text = r.settleText(text)
	if why, unknown := shell.Unknown(text); unknown {
		return nil, document.Ours(fmt.Errorf("%s: is written by the script itself, and a part of it is not known: %s",
			name, why))
	}
	return []byte(text), nil
}

// hasFile reports whether readFile has a file to read.
func (r *reader) hasFile(name string) bool {
	_, written := r.written[filepath.Clean(r.path(name))]
	return written || isFile(r.path(name))
}

// loadFile is readFile for a document.
func (r *reader) loadFile(name string) (*document.Node, []error, error) {
	data, err := r.readFile(name)
	if err != nil {
		return nil, nil, err
	}
	return document.Parse(data, name)
}

// knownModel is the architecture of a public model, from the built-in table.
func (r *reader) knownModel(m model.HubModel) *model.Architecture {
	if m.Revision != "" && m.Revision != "main" {
		return nil
	}
	known, err := model.Known(m.Name)
	if err != nil {
		r.unread(err)
	}
	return known
}

// cacheFolder is the cache_dir that the script hands to from_pretrained, or "".
func (r *reader) cacheFolder() string {
	if dir := r.cacheDir.Or(""); dir != "" {
		return r.path(dir)
	}
	return ""
}

// cacheVariable reads one of the variables that say where Hugging Face's cache is: relative folders start in the
// working directory, and transformers 5 does not read its old name.
func (r *reader) cacheVariable(name string) string {
	value := r.getenv(name)
	if five, known := r.atLeast("transformers", 5); name == "TRANSFORMERS_CACHE" && known && five {
		return ""
	}
	if value == "" || strings.HasPrefix(value, "~") {
		return value
	}
	return r.path(value)
}

func exists(folder, file string) bool {
	_, err := os.Stat(filepath.Join(folder, file))
	return err == nil
}

// looksLikePath tells a path from a hub name, which has at most one slash in its middle and no dots in front.
func looksLikePath(name string) bool {
	return filepath.IsAbs(name) || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "~") ||
		strings.HasSuffix(name, "/") || strings.HasSuffix(name, ".json") || strings.Count(name, "/") > 1
}
