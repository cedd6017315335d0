package probe

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"oomguard/launcher/files"
)

//go:embed pylib/*.py pylib/_oomguard_probe/*.py
var pylib embed.FS

const libraryFolder = "pylib"

// Install writes the Python part of the probe to dir/pylib, readable by the user alone.
func Install(dir string) error {
	folder, err := files.OpenFolder(dir)
	if err == nil {
		defer folder.Close()
		err = install(folder, libraryFolder)
	}
	if err != nil {
		return fmt.Errorf("install the probe: %w", err)
	}
	return nil
}

// install writes one folder of the library into the folder to.
func install(to *files.Folder, path string) error {
	entries, err := pylib.ReadDir(path)
	if err != nil {
		return err
	}
	sub, err := to.Make(filepath.Base(path))
	if err != nil {
		return err
	}
	defer sub.Close()
	for _, e := range entries {
		name := path + "/" + e.Name()
		if e.IsDir() {
			err = install(sub, name)
		} else if text, readErr := pylib.ReadFile(name); readErr != nil {
			err = readErr
		} else {
			err = sub.Write(e.Name(), text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Env returns base, the environment of the command to start, with what makes every Python below it load the probe of
// dir: its folder in front of PYTHONPATH, and OOMGUARD_PROBE_DIR. OOMGUARD_PROBE=0 (no probe) and OOMGUARD_MAXBYTES in
// base keep their meaning. A single process, as of plain python, which has neither RANK nor LOCAL_RANK, reports only if
// base says OOMGUARD_SINGLE=1.
func Env(base []string, dir string) []string {
	path := []string{filepath.Join(dir, libraryFolder)}
	env := make([]string, 0, len(base)+2)
	for _, entry := range base {
		name, value, _ := strings.Cut(entry, "=")
		switch name {
		case "PYTHONPATH":
			if value != "" { // an empty entry would mean the working directory
				path = append(path, value)
			}
		case "OOMGUARD_PROBE_DIR", "OOMGUARD_OWNER": // of an oomguard around us
		default:
			env = append(env, entry)
		}
	}
	return append(env, "PYTHONPATH="+strings.Join(path, string(os.PathListSeparator)), "OOMGUARD_PROBE_DIR="+dir)
}
