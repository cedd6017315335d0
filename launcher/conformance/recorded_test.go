//go:build linux

package conformance

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// What a launcher does without oomguard depends on its version alone, and its start costs seconds of processor time. So
// the direct half of a launcher's scenario is recorded, in testdata/direct/VERSIONS, one file a scenario. A recording
// only saves time: where there is none for the versions installed here, where the scenario is another one by now, and
// where oomguard differs from it, the launcher is run again and decides. `make test-all` runs all of them, and `make
// record` also writes what they did.

// recordVariable asks for new recordings.
const recordVariable = "OOMGUARD_TEST_RECORD"

// recording is what was observed of a launcher alone.
type recording struct {
	Scenario string // a hash of what was asked for
	Outcome  outcome
}

// recordingOf is where the recording of a scenario lies; "" for scenarios that are run directly each time: those of no
// launcher, which cost nothing, and those that observe the machine.
func recordingOf(t *testing.T, s scenario, with torch) string {
	t.Helper()
	words := strings.Join(s.argv, " ")
	isLauncher := regexp.MustCompile(`\b(torchrun|torch\.distributed\.run|accelerate|deepspeed)\b`).MatchString(words)
	if !isLauncher || strings.Contains(words, "rank:facts") {
		return ""
	}
	name := regexp.MustCompile(`[^A-Za-z0-9.-]+`).ReplaceAllString(s.name, "_")
	test, _, _ := strings.Cut(t.Name(), "/")
	return filepath.Join("testdata", "direct", versions(t, with), test, name+".json")
}

// installed are the versions of each Python, by its folder.
var installed sync.Map

// versions names the versions that a launcher's behaviour depends on: torch_2.15.0,python_3.11.7.
func versions(t *testing.T, with torch) string {
	t.Helper()
	const question = `import importlib.metadata as m, sys
names = [name for name in ("torch", "accelerate", "deepspeed") if any(m.distributions(name=name))]
print(",".join([f"{name}_{m.version(name)}" for name in names] + ["python_%d.%d.%d" % sys.version_info[:3]]))`
	ask, _ := installed.LoadOrStore(with.bin, sync.OnceValues(func() ([]byte, error) {
		return exec.Command(filepath.Join(with.bin, "python"), "-c", question).Output()
	}))
	answer, err := ask.(func() ([]byte, error))()
	if err != nil {
		t.Fatalf("the versions in %s: %v", with.bin, err)
	}
	return strings.TrimSpace(string(answer))
}

// asked is a hash of all that a scenario says of the command, and of the scripts that it may run.
func (s scenario) asked(t *testing.T) string {
	t.Helper()
	hash := sha256.New()
	fmt.Fprintf(hash, "%q %q %q %q %v %d\n", s.argv, s.shell, s.environ, s.stdin, s.typed, len(s.steps))
	scripts, err := filepath.Glob(filepath.Join("testdata", "*.*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range scripts {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		hash.Write(text)
	}
	return fmt.Sprintf("%x", hash.Sum(nil)[:8])
}

// recorded is what the command did when it was recorded, nil when it must be run.
func recorded(t *testing.T, path string, s scenario) outcome {
	t.Helper()
	if path == "" || everything() {
		return nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var old recording
	if err == nil {
		err = json.Unmarshal(text, &old)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if old.Scenario != s.asked(t) {
		return nil
	}
	return old.Outcome
}

// record writes down what the command did, when that is asked for.
func record(t *testing.T, path string, s scenario, direct outcome) {
	t.Helper()
	if path == "" || os.Getenv(recordVariable) == "" {
		return
	}
	text, err := json.MarshalIndent(recording{Scenario: s.asked(t), Outcome: direct}, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = os.WriteFile(path, append(text, '\n'), 0o644)
	}
	if err != nil {
		t.Error(err)
	}
}

// TestRecorded: a recording is taken for the very scenario that it was made of, and only where not everything is to be
// run.
func TestRecorded(t *testing.T) {
	asked := scenario{argv: torchrun("rank:say:words"), steps: []step{ready(2)}}
	path := filepath.Join(t.TempDir(), "versions", "test", "name.json")
	t.Setenv(recordVariable, "1")
	record(t, path, asked, outcome{"stdout": "words"})
	other := []scenario{asked, asked, asked, asked}
	other[0].argv, other[1].stdin, other[2].environ, other[3].steps = torchrun("rank:say:more"), "text",
		[]string{"A=1"}, nil
	for _, all := range []string{"", "1"} {
		t.Setenv("OOMGUARD_TEST_ALL", all)
		if got := recorded(t, path, asked); (got["stdout"] == "words") != (all == "") {
			t.Errorf("everything %q: %v", all, got)
		}
		for i, s := range other {
			if got := recorded(t, path, s); got != nil {
				t.Errorf("another scenario (%d): %v", i, got)
			}
		}
		if got := recorded(t, path+"x", asked); got != nil {
			t.Errorf("no recording: %v", got)
		}
	}
}
