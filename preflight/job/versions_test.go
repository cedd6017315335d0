package job

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// install makes a prefix with an interpreter, console scripts and packages, as pip and venv lay them out.
func install(t *testing.T, prefix, interpreter string, packages ...string) {
	t.Helper()
	folder := filepath.Join(prefix, "lib", "python3.11", "site-packages")
	for _, p := range packages {
		if err := os.MkdirAll(filepath.Join(folder, p), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(prefix, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	program(t, filepath.Join(prefix, "bin", interpreter), "")
}

func program(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

func TestVersions(t *testing.T) {
	root := t.TempDir()
	base, venv, conda := filepath.Join(root, "base"), filepath.Join(root, "venv"), filepath.Join(root, "conda")
	install(t, base, "python3.11", "torch-2.1.0.dist-info", "transformers-4.40.0.dist-info")
	install(t, conda, "python", "torch-2.4.0.dist-info")
	install(t, venv, "unused", "torch-2.6.0+cu124.dist-info", "liger_kernel-0.5.2.dist-info", "numpy-2.0.0.dist-info",
		"broken.dist-info", "torch")
	if err := os.Symlink(filepath.Join(base, "bin", "python3.11"), filepath.Join(venv, "bin", "python")); err != nil {
		t.Fatal(err)
	}
	python := filepath.Join(venv, "bin", "python")
	bin := filepath.Join(root, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	program(t, filepath.Join(bin, "torchrun"), "#!"+python+"\nimport re\n")
	program(t, filepath.Join(bin, "deepspeed"), "#!/bin/sh\n'''exec' \""+python+"\" \"$0\" \"$@\"\n' '''\n")
	program(t, filepath.Join(bin, "accelerate"), "#!/usr/bin/env python\n")
	write(t, venv, "pyvenv.cfg", "home = /nowhere\ninclude-system-site-packages = false\n")

	venvOnly := map[string]string{"torch": "2.6.0+cu124", "liger-kernel": "0.5.2"}
	tests := []struct {
		name, argv  string
		env         map[string]string
		interpreter string
		want        map[string]string
	}{
		{"interpreter", python + " a.py", nil, python, venvOnly},
		{"base of a venv", filepath.Join(base, "bin", "python3.11") + " a.py", nil,
			filepath.Join(base, "bin", "python3.11"), map[string]string{"torch": "2.1.0", "transformers": "4.40.0"}},
		{"console script", "torchrun a.py", map[string]string{"PATH": bin}, python, venvOnly},
		{"console script with a long path", "deepspeed a.py", map[string]string{"PATH": "/nowhere:" + bin}, python,
			venvOnly},
		{"env", "accelerate launch a.py", map[string]string{"PATH": bin + ":" + filepath.Join(conda, "bin")},
			filepath.Join(conda, "bin", "python"), map[string]string{"torch": "2.4.0"}},
		{"no command", "", map[string]string{"VIRTUAL_ENV": venv}, python, venvOnly},
		{"conda", "", map[string]string{"CONDA_PREFIX": conda}, filepath.Join(conda, "bin", "python"),
			map[string]string{"torch": "2.4.0"}},
		{"not installed", "torchrun a.py", map[string]string{"PATH": root}, "", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j := Read(Sources{Argv: words(tt.argv), Dir: root,
				Getenv: func(name string) string { return tt.env[name] }})
			if j.Interpreter != tt.interpreter || !maps.Equal(j.Versions, tt.want) {
				t.Errorf("got %q %v, want %q %v", j.Interpreter, j.Versions, tt.interpreter, tt.want)
			}
		})
	}
	t.Run("system packages of a venv", func(t *testing.T) {
		write(t, venv, "pyvenv.cfg", "include-system-site-packages = true\n")
		j := Read(Sources{Argv: []string{python, "a.py"}})
		if j.Versions["torch"] != "2.6.0+cu124" || j.Versions["transformers"] != "4.40.0" {
			t.Errorf("%v", j.Versions)
		}
	})
	t.Run("behind wrappers", func(t *testing.T) {
		j := Read(Sources{Argv: []string{"env", "PATH=" + bin, "nohup", "torchrun", "a.py"}, Dir: root})
		if j.Interpreter != python || j.Versions["torch"] != "2.6.0+cu124" {
			t.Errorf("%q %v", j.Interpreter, j.Versions)
		}
	})
	t.Run("PYTHONPATH, eggs, and sources used in place", func(t *testing.T) {
		// The layouts of setuptools' develop command, of eggs, and of a torch built in place (torch/version.py has no
		// other metadata).
		home, source, path := filepath.Join(root, "home"), filepath.Join(root, "trl-source"),
			filepath.Join(root, "path")
		for _, folder := range []string{"peft-0.11.0-py3.11.egg-info", "deepspeed-0.16.5.egg-info", "torch"} {
			if err := os.MkdirAll(filepath.Join(path, folder), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		user := filepath.Join(home, ".local", "lib", "python3.11", "site-packages", "verl-0.7.0.dist-info")
		if err := errors.Join(os.MkdirAll(filepath.Join(source, "trl.egg-info"), 0o700),
			os.MkdirAll(user, 0o700)); err != nil {
			t.Fatal(err)
		}
		write(t, path, "trl.egg-link", source+"\n.")
		write(t, path, "trl-not-there.egg-link", "/nowhere\n.")
		write(t, filepath.Join(source, "trl.egg-info"), "PKG-INFO",
			"Metadata-Version: 2.1\nName: trl\nVersion: 0.20.0.dev0\n")
		write(t, filepath.Join(path, "torch"), "version.py",
			"from typing import Optional\n__version__ = '2.9.0a0+git123'\n")
		env := map[string]string{"PYTHONPATH": ":path", "HOME": home}
		j := Read(Sources{Argv: []string{filepath.Join(base, "bin", "python3.11"), "a.py"}, Dir: root,
			Getenv: func(name string) string { return env[name] }})
		want := map[string]string{"torch": "2.9.0a0+git123", "transformers": "4.40.0", "peft": "0.11.0",
			"deepspeed": "0.16.5", "trl": "0.20.0.dev0", "verl": "0.7.0"}
		if !maps.Equal(j.Versions, want) {
			t.Errorf("%v, want %v", j.Versions, want)
		}
	})
	t.Run("forced", func(t *testing.T) {
		j := Read(Sources{Argv: []string{python, "a.py"}, Versions: map[string]string{"Liger_Kernel": "1"},
			Flags: map[string]string{"versions": "torch==2.9.0"}})
		if j.Versions["torch"] != "2.9.0" || j.Versions["liger-kernel"] != "1" {
			t.Errorf("%v", j.Versions)
		}
	})
}

// The interpreter of the tests has the version that it reports itself.
func TestVersionsOfRealPython(t *testing.T) {
	python := testPython(t)
	absolute, err := filepath.Abs(python)
	if err != nil {
		t.Fatal(err)
	}
	j := Read(Sources{Argv: []string{filepath.Join(filepath.Dir(absolute), "torchrun"), "a.py"}})
	matches, err := filepath.Glob(filepath.Join(filepath.Dir(absolute), "..", "lib", "python3.*", "site-packages",
		"torch", "version.py"))
	if err != nil || len(matches) == 0 {
		t.Fatalf("no torch/version.py beside %s: run make test, which sets up a Python with torch", absolute)
	}
	text, err := os.ReadFile(matches[0])
	if err != nil {
		t.Fatal(err)
	}
	version, _, _ := strings.Cut(j.Versions["torch"], "+")
	if version == "" || !strings.Contains(string(text), "'"+version) {
		t.Errorf("torch %q (interpreter %s), version.py says %s", j.Versions["torch"], j.Interpreter, text)
	}
}

func TestAtLeast(t *testing.T) {
	tests := []struct {
		version    string
		release    []int
		yes, known bool
	}{
		{"2.10.0", []int{2, 8}, true, true}, {"2.8.0+cu126", []int{2, 8}, true, true},
		{"2.9.0a0+git1", []int{2, 9}, true, true},
		{"2.7.1", []int{2, 8}, false, true}, {"5.0.0rc1", []int{5}, true, true}, {"4.57", []int{5}, false, true},
		{"", []int{1}, false, false}, {"dev", []int{1}, false, false},
	}
	for _, tt := range tests {
		r := &reader{versions: map[string]string{"torch": tt.version}}
		if yes, known := r.atLeast("torch", tt.release...); yes != tt.yes || known != tt.known {
			t.Errorf("%q >= %v: %t %t", tt.version, tt.release, yes, known)
		}
	}
}
