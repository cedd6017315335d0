package probe

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

//go:embed pylib/sitecustomize.py pylib/_oomguard_probe/*.py
var pylib embed.FS

const (
	libraryFolder = "pylib"
	dirPrefix     = "oomguard-"
	// sharedMemory is a tmpfs on Linux: appending a line there costs about 1 µs and no disk.
	sharedMemory = "/dev/shm"
	// minFreeBytes is the room below which shared memory is left to the training: data loaders pass batches through it.
	// A rank's file may grow to this size (OOMGUARD_MAXBYTES), though thinning keeps it far below.
	minFreeBytes int64 = 64 << 20
)

// Dir makes a private folder (mode 0700) for the files of one run: on /dev/shm when that is writable and has more than 64 MiB free,
// else in os.TempDir. The caller removes it.
func Dir() (string, error) {
	if freeBytes(sharedMemory) > minFreeBytes {
		if dir, err := os.MkdirTemp(sharedMemory, dirPrefix); err == nil {
			return dir, nil
		}
	}
	dir, err := os.MkdirTemp("", dirPrefix)
	if err != nil {
		return "", fmt.Errorf("make a folder for the probe (set TMPDIR to a writable folder): %w", err)
	}
	return dir, nil
}

// freeBytes is the room on the file system of path, 0 when it cannot be asked.
func freeBytes(path string) int64 {
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		return 0
	}
	return int64(stat.Bavail) * int64(stat.Bsize) //nolint:unconvert // Bsize has other types on other systems
}

// Install writes the Python part of the probe to dir/pylib, readable by the user alone.
func Install(dir string) error {
	err := fs.WalkDir(pylib, libraryFolder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(dir, filepath.FromSlash(path))
		if entry.IsDir() {
			if err := os.Mkdir(target, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
			return nil
		}
		text, err := pylib.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, text, 0o600)
	})
	if err != nil {
		return fmt.Errorf("install the probe: %w", err)
	}
	return nil
}

// Env returns base, the environment of the command to start, with what makes every Python below it load the probe of dir: its
// folder in front of PYTHONPATH, and OOMGUARD_PROBE_DIR. OOMGUARD_PROBE=0 (no probe) and OOMGUARD_MAXBYTES in base keep their
// meaning. A single process, as of plain python, which has neither RANK nor LOCAL_RANK, reports only if base says OOMGUARD_SINGLE=1.
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
