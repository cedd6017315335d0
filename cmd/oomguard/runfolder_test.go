package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"oomguard/launcher/patience"
)

// record puts a run folder in place as another user may have left it: a run.json without an end, and one rank that is
// gone.
func (b *bench) record(privateDir string) string {
	b.t.Helper()
	host, err := os.Hostname()
	if err != nil {
		b.t.Fatal(err)
	}
	dir := filepath.Join(b.dir, "runs", "20260101T000000.000Z-abcdef")
	if err := os.MkdirAll(filepath.Join(dir, "stages"), 0o755); err != nil {
		b.t.Fatal(err)
	}
	meta, err := json.Marshal(map[string]any{
		"schema": "oomguard.report/v1", "id": filepath.Base(dir), "host": host, "command": []string{"true"},
		"probed": true, "private_dir": privateDir,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	gone := `{"e":"hello","q":1,"rank":0,"pid":4190000,"mem":"rss"}` + "\n" + `{"e":"bye","q":2}` + "\n"
	for name, text := range map[string]string{"run.json": string(meta), "stages/rank-0.0.4190000.jsonl": gone} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			b.t.Fatal(err)
		}
	}
	return dir
}

// TestReadingTrustsNoRecordedFolder: whatever folder a recorded run names as its private one, the commands that read it
// neither take it away nor copy anything out of it.
func TestReadingTrustsNoRecordedFolder(t *testing.T) {
	b := newBench(t)
	victim := func(path string, mode os.FileMode) string {
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(path) })
		for _, name := range []string{"output.log", "rank-0.0.1.jsonl", "notes.jsonl", "thesis.tex"} {
			if err := os.WriteFile(filepath.Join(path, name),
				[]byte(`{"e":"hello","q":1,"rank":0,"msg":"of the victim"}`+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	shaped := fmt.Sprintf("/dev/shm/oomguard-77%d", os.Getpid())
	link := shaped + "1"
	home := victim(filepath.Join(b.dir, "home"), 0o755)
	if err := os.Symlink(home, link); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(link) })
	for name, dir := range map[string]string{
		"a home folder": home, "one of the shape, which names no run": victim(shaped, 0o700),
		"open to others":      victim(shaped+"2", 0o755),
		"a link of the shape": link, "dots": shaped + "/../" + filepath.Base(shaped), "relative": "home",
		"of the shape elsewhere": victim(filepath.Join(b.dir, "oomguard-123"), 0o700),
		"the run's root":         filepath.Join(b.dir, "runs"), "nothing": "",
	} {
		t.Run(name, func(t *testing.T) {
			run := b.record(dir)
			for _, args := range [][]string{{"report", run}, {"postmortem", run}, {"runs"}, {"report"}} {
				if r := b.run(append([]string{b.exe}, args...)...); r.status != 0 {
					t.Errorf("%s: status %d\n%s", args, r.status, r.stderr)
				}
			}
			if dir != "" && dir != "home" {
				if _, err := os.Stat(dir); err != nil {
					t.Fatalf("the folder is gone: %v", err)
				}
			}
			if data, err := os.ReadFile(filepath.Join(home, "thesis.tex")); err != nil || len(data) == 0 {
				t.Errorf("the thesis: %v", err)
			}
			if text := treeText(t, run); strings.Contains(text, "of the victim") {
				t.Error("private text was copied into the run folder")
			}
		})
	}
}

// treeText is the text of all files below a folder.
func treeText(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		all.Write(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// TestOddThingsAmongTheRuns: pipes, links to endless devices, huge and damaged files in the folder of the runs neither
// hold up a run nor fill the memory.
func TestOddThingsAmongTheRuns(t *testing.T) {
	b := newBench(t)
	root := filepath.Join(b.dir, "runs")
	at := func(n int, name string) string {
		dir := filepath.Join(root, fmt.Sprintf("20260101T00000%d.000Z-abcdef", n))
		if err := os.MkdirAll(filepath.Join(dir, "stages"), 0o755); err != nil {
			t.Fatal(err)
		}
		if name != "run.json" {
			if err := os.WriteFile(filepath.Join(dir, "run.json"), []byte("{}"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return filepath.Join(dir, name)
	}
	n := 0
	for _, name := range []string{"summary.json", "run.json", "samples.jsonl", "stages/rank-0.0.1.jsonl",
		"output.log"} {
		n++
		check(t, unix.Mkfifo(at(n, name), 0o644))
	}
	huge := at(6, "summary.json")
	check(t, os.WriteFile(huge, nil, 0o644))
	check(t, os.Truncate(huge, 2<<30))
	check(t, os.Symlink("/dev/zero", at(7, "summary.json")))
	check(t, unix.Mkfifo(filepath.Join(root, "pipe"), 0o644))
	check(t, os.Symlink("loop", filepath.Join(root, "loop")))
	check(t, os.Symlink("/", filepath.Join(root, "20260101T000009.000Z-abcdef")))
	const limit = "120" // seconds until a hang is ended
	if r := b.run("timeout", limit, b.exe, "run", "--no-probe", "--", "sh", "-c", "exit 7"); r.status != 7 {
		t.Errorf("run: status %d\n%s", r.status, r.stderr)
	}
	for i := 1; i <= 7; i++ {
		for _, command := range []string{"report", "postmortem"} {
			dir, err := filepath.Glob(filepath.Join(root, fmt.Sprintf("20260101T00000%d*", i)))
			check(t, err)
			if r := b.run("timeout", limit, b.exe, command, dir[0]); r.status != 0 && r.status != 2 {
				t.Errorf("%s %d: status %d\n%s", command, i, r.status, r.stderr)
			}
		}
	}
	if r := b.run("timeout", limit, b.exe, "runs"); r.status != 0 {
		t.Errorf("runs: status %d\n%s", r.status, r.stderr)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestOddInputs: what a person names and is no file is one clear error, at once.
func TestOddInputs(t *testing.T) {
	b := newBench(t)
	check(t, unix.Mkfifo(filepath.Join(b.dir, "pipe"), 0o644))
	check(t, os.WriteFile(filepath.Join(b.dir, "huge"), nil, 0o644))
	check(t, os.Truncate(filepath.Join(b.dir, "huge"), 3<<30))
	for _, flag := range []string{"--checklist", "--devices"} {
		for name, want := range map[string]string{"pipe": "named pipe", "huge": "more than", "/dev/zero": "a device",
			".": "a directory", "none": "none"} {
			r := b.run("timeout", "120", b.exe, "check", flag, name, "--", "torchrun", "train.py")
			if r.status != 2 || !strings.Contains(r.stderr, want) || !strings.Contains(r.stderr, name) {
				t.Errorf("%s %s: status %d, want 2 and %q\n%s", flag, name, r.status, want, r.stderr)
			}
		}
	}
	check(t, unix.Mkfifo(filepath.Join(b.dir, "oomguard.yaml"), 0o644))
	if r := b.run("timeout", "120", b.exe, "explain", "--", "torchrun", "train.py"); r.status == 124 ||
		!strings.Contains(r.stdout+r.stderr, "named pipe") {
		t.Errorf("oomguard.yaml: status %d\n%s", r.status, r.stdout+r.stderr)
	}
	if r := b.run("bash", "-c", "timeout 120 "+b.exe+
		" postmortem <(echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.')"); r.status != 0 || !strings.Contains(r.stdout, "2.00 GiB") {
		t.Errorf("a log through a pipe: status %d\n%s%s", r.status, r.stdout, r.stderr)
	}
	if r := b.run("timeout", "120", b.exe, "runs", "-o", "pipe"); r.status != 2 ||
		!strings.Contains(r.stderr, "nobody reads") {
		t.Errorf("-o: status %d\n%s", r.status, r.stderr)
	}
}

// TestSecondUserOfANode: where the runs' own folder cannot be written, each user has one of its own among the temporary
// files, and one that another user has prepared there is not used.
func TestSecondUserOfANode(t *testing.T) {
	b := newBench(t)
	tmp := filepath.Join(b.dir, "tmp")
	check(t, os.Mkdir(tmp, 0o700))
	check(t, os.WriteFile(filepath.Join(b.dir, "runs"), nil, 0o600)) // nothing can be recorded below a file
	b.env = append(b.env, "TMPDIR="+tmp)
	elsewhere := filepath.Join(b.dir, "elsewhere")
	check(t, os.Mkdir(elsewhere, 0o777))
	for _, name := range []string{"oomguard-runs", fmt.Sprintf("oomguard-runs-%d", os.Geteuid())} {
		check(t, os.Symlink(elsewhere, filepath.Join(tmp, name)))
	}
	r := b.run(b.exe, "run", "--", "sh", "-c", "exit 7")
	if r.status != 7 {
		t.Errorf("status %d\n%s", r.status, r.stderr)
	}
	if found, _ := os.ReadDir(elsewhere); len(found) > 0 {
		t.Error("something was written where another user's link leads")
	}
	check(t, os.Remove(filepath.Join(tmp, fmt.Sprintf("oomguard-runs-%d", os.Geteuid()))))
	if r := b.run(b.exe, "run", "--", "sh", "-c", "exit 7"); r.status != 7 {
		t.Errorf("status %d\n%s", r.status, r.stderr)
	}
	checkModes(t, filepath.Join(tmp, fmt.Sprintf("oomguard-runs-%d", os.Geteuid())))
}

// checkModes: what was recorded is its owner's alone.
func checkModes(t *testing.T, dir string) {
	t.Helper()
	seen := 0
	check(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		seen++
		info, err := e.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	}))
	if seen < 4 {
		t.Errorf("%s holds no run", dir)
	}
}

// TestReportOfALiveRun: whoever reads a run that goes on, also between two of its processes, takes nothing from it and
// says that it goes on.
func TestReportOfALiveRun(t *testing.T) {
	b := newBench(t)
	script := b.write("rank.py", "import os, sys, torch, time\ntorch.zeros(10)\nopen(sys.argv[1], 'w').close()\n")
	cmd := b.command(b.exe, "run", "--", "sh", "-c",
		"RANK=0 LOCAL_RANK=0 python "+script+
			" first; while ! [ -e go ]; do sleep 0.05; done; RANK=0 LOCAL_RANK=0 python "+script+" second")
	check(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	patience.Until(t, "the first process to end", func() bool {
		_, err := os.Stat(filepath.Join(b.dir, "first"))
		return err == nil
	})
	var private string
	patience.Until(t, "its end to be recorded", func() bool {
		paths, _ := filepath.Glob(filepath.Join(b.dir, "runs", "*", "stages", "*.jsonl"))
		if len(paths) != 1 {
			return false
		}
		data, err := os.ReadFile(paths[0])
		private = b.document(filepath.Join(filepath.Dir(filepath.Dir(paths[0])), "run.json")).PrivateDir
		return err == nil && strings.Contains(string(data), `"bye"`)
	})
	for _, args := range [][]string{{"report"}, {"report", "--format", "json"},
		{"postmortem", mustGlob(t, filepath.Join(b.dir, "runs", "2*"))}} {
		r := b.run(append([]string{b.exe}, args...)...)
		if r.status != 0 || !strings.Contains(r.stdout, "the run goes on") ||
			strings.Contains(r.stdout, "was stopped") {
			t.Errorf("%s: status %d\n%s", args, r.status, r.stdout+r.stderr)
		}
	}
	if r := b.run(b.exe, "runs"); !strings.Contains(r.stdout, "running") {
		t.Errorf("runs:\n%s", r.stdout)
	}
	if r := b.run(b.exe, "run", "--dir", "others", "--", "true"); r.status != 0 { // which looks for left-overs
		t.Errorf("another run: status %d\n%s", r.status, r.stderr)
	}
	if _, err := os.Stat(private); err != nil {
		t.Fatalf("the private folder of the live run: %v", err)
	}
	b.write("go", "")
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	doc := b.theRun()
	if doc.Exit == nil || len(doc.Recording.Ranks) != 2 ||
		strings.Contains(strings.Join(doc.Missing, "\n"), "incomplete") {
		t.Errorf("exit %+v, %d ranks, missing %q", doc.Exit, len(doc.Recording.Ranks), doc.Missing)
	}
	if _, err := os.Stat(private); err == nil {
		t.Error("the private folder is left behind")
	}
	checkModes(t, filepath.Join(b.dir, "runs"))
}

func mustGlob(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v, %v", pattern, found, err)
	}
	return found[0]
}

// TestLeftOverOfAKilledRun: what oomguard left when it was killed together with a command that had no rank is brought
// into its run and cleared away by the next run of the user.
func TestLeftOverOfAKilledRun(t *testing.T) {
	b := newBench(t)
	reader, writer, err := os.Pipe()
	check(t, err)
	defer reader.Close()
	cmd := b.command(b.exe, "run", "--", "sh", "-c", "echo last words; echo $$ > pid; exec sleep 1000")
	cmd.Stdout = writer
	check(t, cmd.Start())
	writer.Close()
	var pid int
	patience.Until(t, "the command to run", func() bool {
		data, _ := os.ReadFile(filepath.Join(b.dir, "pid"))
		_, err := fmt.Sscan(string(data), &pid)
		return err == nil
	})
	run := mustGlob(t, filepath.Join(b.dir, "runs", "*", "run.json"))
	private := b.document(run).PrivateDir
	words := make([]byte, 11)
	if _, err := reader.Read(words); err != nil || string(words) != "last words\n" {
		t.Fatalf("%q, %v", words, err)
	}
	check(t, cmd.Process.Kill())
	_ = cmd.Wait()
	// the command and the relay still live
	if r := b.run(b.exe, "run", "--dir", "others", "--", "true"); r.status != 0 {
		t.Errorf("another run: status %d\n%s", r.status, r.stderr)
	}
	if _, err := os.Stat(private); err != nil {
		t.Fatalf("the private folder of a command that lives: %v", err)
	}
	if r := b.run(b.exe, "report"); !strings.Contains(r.stdout, "processes of the command go on") {
		t.Errorf("report:\n%s", r.stdout)
	}
	check(t, syscall.Kill(pid, syscall.SIGKILL))
	patience.Until(t, "the left-over to be cleared away", func() bool {
		if r := b.run(b.exe, "run", "--dir", "others", "--", "true"); r.status != 0 {
			t.Fatalf("another run: status %d\n%s", r.status, r.stderr)
		}
		_, err := os.Stat(private)
		return err != nil
	})
	if text := treeText(t, filepath.Dir(run)); !strings.Contains(text, "last words\n") {
		t.Error("what the command printed last is lost")
	}
}

// TestSecretsStayOut: whatever a secret is called and wherever in the command it stands, neither the run folder nor
// what we print has it.
func TestSecretsStayOut(t *testing.T) {
	b := newBench(t)
	secrets := map[string]string{}
	env := func(names ...string) {
		for i, name := range names {
			secrets[name] = fmt.Sprintf("vAr%dq-%s9x", i, strings.ToLower(name)[:3])
			b.env = append(b.env, name+"="+secrets[name])
		}
	}
	env("DB_PASS", "SMTP_PASS", "MYSQL_PWD", "SSHPASS", "GITHUB_PAT", "HF_TOKEN_WRITE", "TOKENS", "COOKIE",
		"DOCKER_AUTH_CONFIG", "AZURE_CONNECTION_STRING", "SLACK_WEBHOOK_URL", "SENTRY_DSN")
	b.env = append(b.env, "REDIS_URL=redis://:inUrl77pw@host/0")
	secrets["REDIS_URL"] = "inUrl77pw"
	script := `HF_TOKEN=inSh1aaa sh -c 'env | sort; echo "$0" "$@"; echo tail >&2; exit 3' --api_key=inSh2bbb --password="inSh3 c d" --hub_token -inSh4ddd --wandb_key inSh5eee ` +
		`--logger.wandb.key=inSh6fff 'https://h/p?token=inSh7ggg' "https://u:inSh8@hh@h/x" -H 'Authorization: Bearer inSh9iii' --pad_token '<pad>' --max_tokens 4096`
	for i := 1; i <= 9; i++ {
		secrets[fmt.Sprint("word ", i)] = fmt.Sprintf("inSh%d", i)
	}
	r := b.run("bash", "-c", `"$@" > out 2> err`, "-", b.exe, "run", "--no-probe", "--", "bash", "-c", script)
	if r.status != 3 {
		t.Fatalf("status %d\n%s", r.status, b.read("err"))
	}
	if !strings.Contains(b.read("out"), "inSh1aaa") {
		t.Error("the command itself did not get its secrets")
	}
	written := treeText(t, filepath.Join(b.dir, "runs"))
	ours, _, _ := strings.Cut(b.read("err"), "tail\n")
	for _, command := range []string{"report", "runs", "explain"} {
		args := []string{b.exe, command}
		if command == "explain" {
			args = append(args, "--", "bash", "-c", script)
		}
		r := b.run(args...)
		ours += r.stdout + r.stderr
	}
	for name, secret := range secrets {
		if strings.Contains(written, secret) {
			t.Errorf("%s is in the run folder", name)
		}
		if strings.Contains(ours, secret) {
			t.Errorf("%s is in what oomguard printed", name)
		}
	}
	for _, word := range []string{"--hub_token", "--pad_token", "--max_tokens 4096"} {
		if !strings.Contains(written, word) {
			t.Errorf("%q is gone", word)
		}
	}
}
