package probe

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// pair is what a command did without and with the probe.
type pair struct{ without, with result }

func testSite(t *testing.T) string {
	t.Helper()
	site, err := filepath.Abs(filepath.Join("testdata", "site"))
	if err != nil {
		t.Fatal(err)
	}
	return site
}

// differing are the lines of a that b does not have at their place, and the other way round.
func differing(a, b string) []string {
	one, other := strings.Split(a, "\n"), strings.Split(b, "\n")
	var out []string
	for i := range max(len(one), len(other)) {
		switch {
		case i >= len(one):
			out = append(out, "with:    "+other[i])
		case i >= len(other):
			out = append(out, "without: "+one[i])
		case one[i] != other[i]:
			out = append(out, "without: "+one[i], "with:    "+other[i])
		}
	}
	return out
}

func wantSame(t *testing.T, both pair) {
	t.Helper()
	if both.with.code != both.without.code {
		t.Errorf("exit status %d with the probe, %d without: %s", both.with.code, both.without.code, both.with.stderr)
	}
	for _, lines := range [][]string{differing(both.without.stdout, both.with.stdout),
		differing(both.without.stderr, both.with.stderr)} {
		if len(lines) != 0 {
			t.Errorf("%d lines differ:\n%s", len(lines), strings.Join(lines[:min(len(lines), 40)], "\n"))
		}
	}
}

// TestStart: every Python, old ones too, starts as it would without the probe; so does the user's own sitecustomize,
// whatever it does.
func TestStart(t *testing.T) {
	t.Parallel()
	dir := newRun(t)
	site, broken := testSite(t), filepath.Join(filepath.Dir(testSite(t)), "broken")
	users := []struct{ path, how string }{{"", ""}, {site, ""}, {broken, "raise"}, {broken, "import"}, {broken, "gone"}}
	for _, interpreter := range append(pythons(t), testPython(t)) {
		for _, user := range users {
			for _, environment := range [][]string{plainEnv(), rankEnv()} {
				base := append(environment, "PYTHONDONTWRITEBYTECODE=1", "PYTHONHASHSEED=0",
					"USERS_SITECUSTOMIZE="+user.how)
				if user.path != "" {
					base = append(base, "PYTHONPATH="+user.path)
				}
				command := []string{interpreter, filepath.Join("testdata", "start.py")}
				both := pair{without: python(t, base, command...), with: python(t, Env(base, dir), command...)}
				if both.with != both.without {
					t.Errorf("%s with sitecustomize %q %s, rank %v:", interpreter, user.path, user.how,
						slices.Contains(environment, "RANK=0"))
					wantSame(t, both)
				}
			}
		}
	}
}

// pythons are the other interpreters of this machine.
func pythons(t *testing.T) []string {
	t.Helper()
	var found []string
	for version := range strings.FieldsSeq("2.7 3.6 3.7 3.8 3.9 3.10 3.12 3.13 3.14") {
		path, err := exec.LookPath("python" + version)
		if err == nil && exec.CommandContext(t.Context(), path, "-c", "pass").Run() == nil {
			found = append(found, path)
		}
	}
	if more := os.Getenv("OOMGUARD_TEST_PYTHONS"); more != "" {
		found = append(found, filepath.SplitList(more)...)
	}
	return found
}
