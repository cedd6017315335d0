package preflight

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"oomguard/launcher/fence"
	"oomguard/preflight/allocconf"
	"oomguard/preflight/model"
)

// Sources is where Gather looks.
type Sources struct {
	Root      string   // "/" for this machine
	Dir       string   // working directory of the command
	Environ   []string // complete environment of the command, NAME=value
	RunFolder string   // where the run will be recorded; "" nowhere
	LookPath  func(name string) (string, error)
}

// Gather adds to what the caller knows (job, estimate, devices, history) what this machine says. It never fails: what
// could not be found or read is a fact, and a check judges it. It writes nothing.
func Gather(f Facts, from Sources) Facts {
	f.look("the host", func() { f.Host, f.HostErr = GatherHost(from.Root) }, "host-memory", "shm", "alloc-conf")
	f.look("the environment", func() { f.Env = AllowedEnv(from.Environ) },
		"alloc-conf", "cuda-visible-devices", "gpu-count", "gpu-memory-free", "other-processes", "compute-mode")
	torch := ""
	if f.Job != nil {
		torch = f.Job.Versions["torch"]
		f.look("the command", func() { f.Command = findCommand(f.Job.Argv, from) }, "command-found")
		f.look("the script", func() { f.Script = findScript(f.Job.Script.Or(""), from.Dir) }, "script-found")
		f.look("the weights", func() { f.Weights = readWeights(f.Job.Architecture) }, "weights-complete")
	}
	f.look("the allocator settings", func() {
		f.Alloc, f.AllocProblems = allocconf.Resolve(func(name string) (string, bool) {
			value, ok := f.Env[name]
			return value, ok
		}, torch, f.Host.WSL)
	}, "alloc-conf")
	if from.RunFolder != "" {
		f.look("the run folder", func() { f.RunFolder = inspectFolder(from.RunFolder) }, "run-folder-writable")
	}
	return f
}

// look gathers one thing behind a fence. After a fault of ours it is unknown, and the checks that judge it are skipped.
func (f *Facts) look(at string, gather func(), checks ...string) {
	fault := fence.Do("looking at "+at, gather)
	if fault == nil {
		return
	}
	f.Faults = append(f.Faults, fault)
	if f.unseen == nil {
		f.unseen = map[string]*fence.Fault{}
	}
	for _, id := range checks {
		f.unseen[id] = fault
	}
}

func findCommand(argv []string, from Sources) Lookup {
	if len(argv) == 0 {
		return Lookup{}
	}
	l := Lookup{Name: argv[0]}
	l.Path, l.Err = from.LookPath(argv[0])
	return l
}

// findScript looks for the training script. A module ("-m name") is Python's to find, and a bare word that is no file
// is a recipe or a program of its launcher (tune run full_finetune_distributed).
func findScript(script, dir string) Lookup {
	if script == "" || strings.HasPrefix(script, "-m ") {
		return Lookup{}
	}
	l := Lookup{Name: script, Path: script}
	if !filepath.IsAbs(script) {
		l.Path = filepath.Join(dir, script)
	}
	info, err := os.Stat(l.Path)
	if err == nil && info.IsDir() && !isPackage(l.Path) {
		err = fmt.Errorf("%s is a directory without __main__.py", l.Path)
	}
	if bareWord := filepath.Base(script) == script && filepath.Ext(script) != ".py"; err != nil && bareWord {
		return Lookup{}
	}
	l.Err = err
	return l
}

// readWeights reads the headers of the safetensors files beside the model's config.json.
func readWeights(arch *model.Architecture) Weights {
	if arch == nil || filepath.Base(arch.Source) != "config.json" {
		return Weights{}
	}
	read, err := model.ReadWeights(filepath.Dir(arch.Source))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Weights{Err: fmt.Errorf("%s has no safetensors files", filepath.Dir(arch.Source))}
	case err != nil:
		return Weights{Err: err}
	}
	return Weights{Read: read, Mismatch: read.Compare(arch)}
}

// isPackage: Python runs a directory when it has a __main__.py.
func isPackage(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "__main__.py"))
	return err == nil
}

// inspectFolder asks whether a folder can be made and written, by the nearest folder above it that exists; it creates
// nothing.
func inspectFolder(folder string) Folder {
	f := Folder{Path: folder}
	existing := folder
	for {
		info, err := os.Stat(existing)
		if err == nil && !info.IsDir() {
			f.Err = fmt.Errorf("%s is not a directory", existing)
			return f
		}
		if err == nil {
			break
		}
		parent := filepath.Dir(existing)
		if !errors.Is(err, fs.ErrNotExist) || parent == existing {
			f.Err = err
			return f
		}
		existing = parent
	}
	if err := unix.Access(existing, unix.W_OK|unix.X_OK); err != nil {
		f.Err = fmt.Errorf("write to %s: %w", existing, err)
		return f
	}
	if _, free, err := diskSpace(existing); err == nil {
		f.FreeBytes = free
		if free == 0 {
			f.Err = fmt.Errorf("no space left on the file system of %s", existing)
		}
	}
	return f
}
