package main

import (
	"bytes"
	"compress/gzip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"oomguard/monitor/oom"
	"oomguard/monitor/oom/logfile"
	"oomguard/monitor/report"
)

// writeSnapshot makes a small memory snapshot as PyTorch writes them.
func writeSnapshot(t *testing.T, name string) {
	t.Helper()
	out, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(testPython(t),
		filepath.Join("..", "..", "monitor", "oom", "snapshot", "testdata", "make_snapshot.py"), "4", "today")
	cmd.Stdout = out
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
}

// TestSnapshotBesideALog: what a snapshot shows is evidence; without a message in any log its failed allocation stands
// in for one.
func TestSnapshotBesideALog(t *testing.T) {
	dir := t.TempDir()
	log, pickle := filepath.Join(dir, "run.log"), filepath.Join(dir, "memory_snapshot.pickle")
	writeSnapshot(t, pickle)
	if err := os.WriteFile(log, []byte("step 1\nKilled by hand\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, names := range [][]string{{log, pickle}, {dir}} {
		doc, err := postmortemOf(environment{}, names)
		if err != nil {
			t.Fatal(err)
		}
		d, ok := doc.(report.Postmortem)
		if !ok || d.Cause == oom.NotOOM || len(d.OOMs) != 1 || d.OOMs[0].TriedBytes <= 0 {
			t.Fatalf("%v: %T, %+v", names, doc, d.Diagnosis)
		}
		if !slices.ContainsFunc(d.Evidence,
			func(e string) bool { return strings.Contains(e, "memory_snapshot.pickle, GPU 0: ") }) {
			t.Errorf("%q", d.Evidence)
		}
	}
	doc, err := postmortemOf(environment{}, []string{pickle})
	if _, ok := doc.(report.Snapshot); !ok || err != nil {
		t.Errorf("a snapshot alone: %T, %v", doc, err)
	}
}

// TestPackedSnapshot: a snapshot that gzip packed is one all the same, under any name, and a broken one says that it
// is.
func TestPackedSnapshot(t *testing.T) {
	dir := t.TempDir()
	pickle := filepath.Join(dir, "memory_snapshot.pickle")
	writeSnapshot(t, pickle)
	data, err := os.ReadFile(pickle)
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	if _, err := zip.Write(data); err != nil || zip.Close() != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"memory_snapshot.pickle.gz", "snapshot", "s.PKL.gz"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, packed.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
		doc, err := postmortemOf(environment{}, []string{path})
		if s, ok := doc.(report.Snapshot); !ok || err != nil || len(s.Devices) == 0 {
			t.Errorf("%s: %T, %v", name, doc, err)
		}
	}
	path := filepath.Join(dir, "cut.pickle.gz")
	if err := os.WriteFile(path, packed.Bytes()[:packed.Len()/2], 0o666); err != nil {
		t.Fatal(err)
	}
	if doc, err := postmortemOf(environment{}, []string{path}); err == nil {
		t.Errorf("a half snapshot: %T", doc)
	}
}

// TestProgress: each per cent is shown once, and the line goes at the end; nothing is shown where nobody looks or
// little is read.
func TestProgress(t *testing.T) {
	var shown strings.Builder
	p := &progress{to: &shown, total: 4 << 30, percent: -1}
	for range 8 {
		p.add(1 << 29)
		p.add(1)
	}
	p.end()
	if got := strings.Count(shown.String(), "\r"); got != 9 ||
		!strings.Contains(shown.String(), "read 50 % of 4.00 GiB") || !strings.HasSuffix(shown.String(), "\r\x1b[K") {
		t.Errorf("%d: %q", got, shown.String())
	}
	quiet := newProgress(environment{}, []logfile.File{{Bytes: 1 << 40}})
	quiet.add(1)
	quiet.end()
}
