package launcher

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"oomguard/launcher/files"
)

// defaultPath is searched when the child has no PATH, as execvp(3) of the GNU C library does (confstr _CS_PATH).
const defaultPath = "/bin:/usr/bin"

// Lookup finds the file that a command name stands for, as a shell does: a name with a slash is that file, any other is
// searched for in path, the value of the child's PATH. Relative names and folders are meant from dir, the child's
// working directory ("" for ours), and so is a relative result. The error is ErrNotFound or ErrNotExecutable and says
// where was looked.
func Lookup(argv0, path, dir string) (string, error) {
	if argv0 == "" {
		return "", fmt.Errorf("%w: its name is empty", ErrNotFound)
	}
	if strings.Contains(argv0, "/") {
		return argv0, executable(argv0, dir)
	}
	if path == "" {
		path = defaultPath
	}
	var refused error
	for _, folder := range filepath.SplitList(path) {
		if folder == "" {
			folder = "." // POSIX: an empty entry is the working directory
		}
		file := folder + "/" + argv0
		err := executable(file, dir)
		if err == nil {
			return file, nil
		}
		if refused == nil && !errors.Is(err, ErrNotFound) {
			refused = err
		}
	}
	if refused != nil {
		return "", fmt.Errorf("%w (no other %q in PATH)", refused, argv0)
	}
	return "", fmt.Errorf("%w: no %q in any folder of PATH (%s); check the spelling, or activate the environment "+
		"that has it",
		ErrNotFound, argv0, path)
}

// executable tells whether the file can be executed by us.
func executable(file, dir string) error {
	full := inside(dir, file)
	info, err := os.Stat(full)
	switch {
	case missing(err):
		return fmt.Errorf("%w: there is no file %s", ErrNotFound, full)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrNotExecutable, err)
	case info.IsDir():
		return fmt.Errorf("%w: %s is a directory", ErrNotExecutable, full)
	case unix.Faccessat(unix.AT_FDCWD, full, unix.X_OK, unix.AT_EACCESS) != nil:
		return fmt.Errorf("%w: %s has no execute permission for this user (mode %v); chmod +x it, or name its "+
			"interpreter before it",
			ErrNotExecutable, full, info.Mode())
	}
	return nil
}

// inside returns where a name given to a process that runs in dir leads.
func inside(dir, name string) string {
	if dir == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(dir, name)
}

// interpreter returns what the first line of a script names, "" for anything but a script. Linux reads at most 256
// bytes of it (BINPRM_BUF_SIZE, include/uapi/linux/binfmts.h).
func interpreter(file string) string {
	head, err := files.Head(file, 256) // a longer line than the kernel reads is cut, as the kernel does
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(head), "\n")
	name, found := strings.CutPrefix(line, "#!")
	words := strings.Fields(name)
	if !found || len(words) == 0 {
		return ""
	}
	return words[0]
}

// missing tells whether err says that there is no such file. A path that goes through a file (ENOTDIR) leads nowhere
// either.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR)
}

// variable returns the value of the first name= in env, as getenv(3) does.
func variable(env []string, name string) string {
	for _, entry := range env {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}
