// Package logfile finds and opens what people have of a crashed run's output: files, folders of them, compressed or in
// UTF-16.
package logfile

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// File is one log to read.
type File struct {
	Name  string
	Rank  int   // of the process that wrote it, as the path tells; -1 unknown
	Bytes int64 // on disk; -1 unknown, as for a pipe
}

// List returns the logs behind names: files as they are, and those of a folder and its sub-folders that are named like
// logs, in the order of their paths. It fails for a name that is not there and for a folder without logs.
func List(names []string) ([]File, error) {
	var files []File
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			files = append(files, newFile(name, info))
			continue
		}
		found, err := inFolder(name)
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	return files, nil
}

func newFile(name string, info fs.FileInfo) File {
	f := File{Name: name, Rank: rankIn(name), Bytes: -1}
	if info.Mode().IsRegular() {
		f.Bytes = info.Size()
	}
	return f
}

// logName is how logs are named by torchrun (stderr.log, stdout.log, error.json), Slurm (slurm-1.out, .err), PBS and
// SGE (.o123, .e123), kubectl users (.log, .txt with log, out or err in it), logrotate (.log.1) and compressors.
var logName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)(?:\.(?:log|out|err|stdout|stderr|[oe]\d+)|(?:log|out|err)[^./\\]*\.(?:txt|jsonl?)|^(?:stdout|stderr|nohup))(?:[.-]\d+)*(?:\.(?:gz|bz2|zst|xz))?$`)
})

// snapshotName is how people name memory snapshots of PyTorch.
var snapshotName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)(?:snapshot|memory).*\.(?:pickle|pkl)$`)
})

func inFolder(folder string) ([]File, error) {
	var files []File
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != folder && strings.HasPrefix(entry.Name(), ".") {
			return filepath.SkipDir
		}
		name := entry.Name()
		if entry.IsDir() || !logName().MatchString(name) && !snapshotName().MatchString(name) {
			return nil
		}
		info, err := os.Stat(path) // follows links, as kubelet's folders need
		if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
			return nil // a link to nowhere, a pipe, an empty file: nothing to read
		}
		files = append(files, newFile(path, info))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the folder %s: %w", folder, err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s holds no logs: looked for .log, .out, .err, stdout, stderr, error.json and the "+
			"like, not empty; name the files themselves", folder)
	}
	slices.SortFunc(files, func(a, b File) int { return naturalOrder(orderName(a.Name), orderName(b.Name)) })
	return files, nil
}

// rankPatterns: torchrun writes attempt_0/3/stderr.log (the local rank); others put the rank into the name.
var rankPatterns = sync.OnceValue(func() []*regexp.Regexp {
	return []*regexp.Regexp{
		regexp.MustCompile(`attempt_\d+[/\\](\d{1,6})[/\\]`),
		regexp.MustCompile(`(?i)rank[_.-]?(\d{1,6})(?:\D|$)`),
		regexp.MustCompile(`(?i)worker[_.-](\d{1,6})(?:\D|$)`),
	}
})

func rankIn(path string) int {
	for _, pattern := range rankPatterns() {
		if m := pattern.FindAllStringSubmatch(path, -1); m != nil {
			n, err := strconv.Atoi(m[len(m)-1][1])
			if err == nil {
				return n
			}
		}
	}
	return -1
}

// orderName puts an error file behind the logs beside it, which hold the same message with its place.
func orderName(path string) string {
	if filepath.Base(path) == "error.json" {
		return path[:len(path)-len("error.json")] + "~error.json"
	}
	return path
}

// naturalOrder compares paths with their numbers as numbers: rank 10 comes after rank 9.
func naturalOrder(a, b string) int {
	for a != "" && b != "" {
		na, nb := leadingDigits(a), leadingDigits(b)
		if na > 0 && nb > 0 {
			x, y := strings.TrimLeft(a[:na], "0"), strings.TrimLeft(b[:nb], "0")
			if len(x) != len(y) {
				return len(x) - len(y)
			}
			if c := strings.Compare(x, y); c != 0 {
				return c
			}
			a, b = a[na:], b[nb:]
			continue
		}
		if a[0] != b[0] {
			return int(a[0]) - int(b[0])
		}
		a, b = a[1:], b[1:]
	}
	return len(a) - len(b)
}

func leadingDigits(s string) int {
	return len(s) - len(strings.TrimLeft(s, "0123456789"))
}
