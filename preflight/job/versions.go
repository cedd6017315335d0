package job

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"oomguard/launcher/files"
)

// versionPackages are the distributions whose version changes a default or a size.
func versionPackages() []string {
	return strings.Fields(`torch transformers accelerate trl peft deepspeed bitsandbytes liger-kernel flash-attn torchao
		axolotl llamafactory torchtune torchtitan litgpt lightning pytorch-lightning megatron-core nanotron verl
		openrlhf unsloth`)
}

// ParseVersions reads torch=2.6.0,transformers=4.51.3, the value of --versions.
func ParseVersions(text string) (map[string]string, error) {
	versions := map[string]string{}
	for _, pair := range splitList(text) {
		name, version, ok := strings.Cut(pair, "=")
		version = strings.TrimPrefix(version, "=") // torch==2.6.0, as pip spells it
		if !ok || name == "" || len(numbers(version)) == 0 {
			return nil, fmt.Errorf("%q is not of the form package=version, such as torch=2.6.0", pair)
		}
		versions[normalName(name)] = version
	}
	return versions, nil
}

// normalName is a distribution's name as PEP 503 compares it.
func normalName(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(strings.ToLower(name), "_", "-"), ".", "-")
}

// atLeast compares a package's version with a release; known is false when the version is not known.
func (r *reader) atLeast(name string, release ...int) (yes, known bool) {
	have := numbers(r.versions[name])
	if len(have) == 0 {
		return false, false
	}
	return slices.Compare(have, release) >= 0, true
}

// readVersions finds the interpreter that will run and lists its packages; forced versions stay.
func (r *reader) readVersions() {
	own, _ := ParseVersions(r.src.Flags["versions"]) // what is wrong with it has been said
	for name, version := range r.src.Versions {
		if own[normalName(name)] == "" {
			r.versions[normalName(name)] = version
		}
	}
	r.job.Interpreter = r.interpreter()
	for name, version := range r.packages(r.job.Interpreter) {
		if r.versions[name] == "" {
			r.versions[name] = version
		}
	}
	r.job.Versions = r.versions
}

// interpreter is the Python of the command behind all wrappers: its first word, or the one that the first line of its
// console script names, or the active environment's.
func (r *reader) interpreter() string {
	if r.hidden != "" {
		return "" // in a container, or in an environment that cannot be found
	}
	if r.program != "" {
		program := r.lookUp(r.program)
		switch {
		case program == "":
			return ""
		case isPython(program):
			return program
		}
		if python := r.shebang(program); python != "" {
			return python
		}
	}
	for _, variable := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		if prefix := r.getenv(variable); prefix != "" {
			if python := filepath.Join(prefix, "bin", "python"); isFile(python) {
				return python
			}
		}
	}
	return ""
}

// lookUp resolves a word through PATH as exec does; "" when there is no such program.
func (r *reader) lookUp(word string) string {
	if strings.Contains(word, "/") {
		if path := r.path(word); isFile(path) {
			return path
		}
		return ""
	}
	for _, folder := range filepath.SplitList(r.getenv("PATH")) {
		path := filepath.Join(r.path(folder), word)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// shebang is the Python that a console script starts: "#!/venv/bin/python", "#!/usr/bin/env python3", or pip's form for
// long paths, a shell script whose second line is ”'exec' "/long/path/python" "$0" "$@".
func (r *reader) shebang(script string) string {
	lines := bufio.NewScanner(strings.NewReader(firstBytes(script)))
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), "#!") {
		return ""
	}
	words := strings.Fields(lines.Text()[2:])
	if len(words) > 0 && filepath.Base(words[0]) == "sh" && lines.Scan() &&
		strings.HasPrefix(lines.Text(), "'''exec'") {
		words = strings.Fields(strings.ReplaceAll(lines.Text()[len("'''exec'"):], `"`, " "))
	}
	for len(words) > 0 && (filepath.Base(words[0]) == "env" || strings.HasPrefix(words[0], "-")) {
		words = words[1:]
	}
	if len(words) == 0 || !isPython(words[0]) {
		return ""
	}
	return r.lookUp(words[0])
}

// packages lists the versions installed for an interpreter, from the names of its metadata folders:
// NAME-VERSION.dist-info (PEP 376, editable installs too), NAME-VERSION.egg-info of older tools and of Debian; torch
// without either says its version itself.
func (r *reader) packages(python string) map[string]string {
	found := map[string]string{}
	for _, folder := range r.importFolders(python) {
		entries, err := files.List(folder)
		if err != nil {
			continue
		}
		for _, entry := range entries {
			name, version := distribution(folder, entry.Name())
			name = normalName(name)
			if version != "" && found[name] == "" && slices.Contains(versionPackages(), name) {
				found[name] = version
			}
		}
		if version := torchVersion(folder); found["torch"] == "" && version != "" {
			found["torch"] = version
		}
	}
	return found
}

// distribution is the name and version that an entry of an import folder stands for; version is "" for all other
// entries.
func distribution(folder, entry string) (name, version string) {
	if link, ok := strings.CutSuffix(entry, ".egg-link"); ok { // setup.py develop: the first line is the source folder
		return link, developedVersion(filepath.Join(folder, entry), link)
	}
	stem, ok := strings.CutSuffix(entry, ".dist-info")
	if !ok {
		stem, ok = strings.CutSuffix(entry, ".egg-info")
	}
	if !ok {
		return "", ""
	}
	parts := strings.Split(stem, "-") // eggs add the Python version: torch-2.1.0-py3.11
	if len(parts) < 2 {
		return "", ""
	}
	return parts[0], parts[1]
}

// developedVersion reads the metadata beside the sources of a package that is used in place.
func developedVersion(link, name string) string {
	target, _, _ := strings.Cut(firstBytes(link), "\n")
	if target = strings.TrimSpace(target); target == "" {
		return ""
	}
	info := filepath.Join(target, strings.ReplaceAll(name, "-", "_")+".egg-info", "PKG-INFO")
	for line := range strings.Lines(firstBytes(info)) {
		if version, ok := strings.CutPrefix(line, "Version:"); ok {
			return strings.TrimSpace(version)
		}
	}
	return ""
}

// torchVersion is __version__ in torch/version.py.
func torchVersion(folder string) string {
	for line := range strings.Lines(firstBytes(filepath.Join(folder, "torch", "version.py"))) {
		if value, ok := strings.CutPrefix(line, "__version__ = "); ok {
			return strings.Trim(strings.TrimSpace(value), `'"`)
		}
	}
	return ""
}

// headBytes is more than a metadata file's head, a shebang line or a pyvenv.cfg has.
const headBytes = 4096

// firstBytes is the beginning of a small regular file; "" when it cannot be read.
func firstBytes(path string) string {
	head, err := files.Head(path, headBytes)
	if err != nil {
		return ""
	}
	return string(head)
}

// importFolders are the folders that the interpreter imports from, strongest first: PYTHONPATH, the person's own
// (outside of virtual environments), the installation's.
func (r *reader) importFolders(python string) []string {
	if python == "" {
		return nil
	}
	var folders []string
	for _, folder := range filepath.SplitList(r.getenv("PYTHONPATH")) {
		if folder != "" {
			folders = append(folders, r.path(folder))
		}
	}
	prefix := filepath.Dir(filepath.Dir(python))
	if home := r.getenv("HOME"); home != "" && r.getenv("PYTHONNOUSERSITE") == "" &&
		!isFile(filepath.Join(prefix, "pyvenv.cfg")) {
		if version := pythonVersion(python); version != "" {
			folders = append(folders, filepath.Join(home, ".local", "lib", "python"+version, "site-packages"))
		}
	}
	return append(folders, sitePackages(python)...)
}

// pythonVersion is "3.11" of python3.11, the file behind most links; "" when its name does not say.
func pythonVersion(python string) string {
	file, err := filepath.EvalSymlinks(python)
	if err != nil {
		file = python
	}
	if version := strings.TrimPrefix(filepath.Base(file), "python"); strings.Contains(version, ".") {
		return version
	}
	return ""
}

// sitePackages are the folders that an interpreter imports from, strongest first: its virtual environment's, and the
// base installation's when the environment is none of its own or includes the system's.
func sitePackages(python string) []string {
	if python == "" {
		return nil
	}
	prefix := filepath.Dir(filepath.Dir(python))
	file, err := filepath.EvalSymlinks(python)
	if err != nil {
		file = python
	}
	version := pythonVersion(python)
	folders := libraries(prefix, version)
	venv, err := files.Head(filepath.Join(prefix, "pyvenv.cfg"), headBytes)
	isolated := err == nil && !strings.Contains(strings.ToLower(string(venv)), "include-system-site-packages = true")
	if isolated {
		return folders
	}
	base := filepath.Dir(filepath.Dir(file))
	if base == "/usr" { // Debian keeps pip's packages under /usr/local
		folders = append(folders, libraries("/usr/local", version)...)
	}
	return append(folders, libraries(base, version)...)
}

// libraries globs one prefix. A version narrows it to that Python; without one, all are listed.
func libraries(prefix, version string) []string {
	pythons := []string{"python3.*"}
	if version != "" {
		pythons = []string{"python" + version, "python3"} // python3: Debian's own packages
	}
	var folders []string
	for _, lib := range []string{"lib", "lib64"} {
		for _, name := range pythons {
			for _, kind := range []string{"site-packages", "dist-packages"} {
				matches, _ := filepath.Glob(filepath.Join(prefix, lib, name, kind)) // the pattern is well formed
				folders = append(folders, matches...)
			}
		}
	}
	return folders
}
