package patience

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"path/filepath"
)

type timed struct {
	testing.TB
	left time.Duration
}

func (t timed) Deadline() (time.Time, bool) { return time.Now().Add(t.left), t.left > 0 }

func TestLimit(t *testing.T) {
	for left, want := range map[time.Duration]time.Duration{0: unlimited, 30 * time.Minute: 15 * time.Minute,
		time.Second: least} {
		if got := Limit(timed{t, left}).Round(time.Second); got != want {
			t.Errorf("with %s left: %s, want %s", left, got, want)
		}
	}
}

// TestEndAll: what a test has started is ended with it, also in a session of its own and below a parent that is gone.
func TestEndAll(t *testing.T) {
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		return // only Linux tells the environments of others
	}
	var pid int
	dir := t.TempDir()
	t.Run("inner", func(t *testing.T) {
		EndAll(t, "PATIENCE="+dir)
		cmd := exec.Command("sh", "-c",
			`sleep 1000 & echo $! >"$PATIENCE/pid.tmp"; mv "$PATIENCE/pid.tmp" "$PATIENCE/pid"`)
		cmd.Env = append(os.Environ(), "PATIENCE="+dir)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		Until(t, "the process", func() bool { pid = firstOf(marked("PATIENCE=" + dir)); return pid > 0 })
	})
	if left := marked("PATIENCE=" + dir); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

func firstOf(pids []int) int {
	if len(pids) == 0 {
		return 0
	}
	return pids[0]
}

// TestNobodyElseWaits: no test of the module waits for a time of its own choosing; here alone it is said how long.
func TestNobodyElseWaits(t *testing.T) {
	own := regexp.MustCompile(`time\.After\((time|[0-9])|Deadline\(time\.Now\(\)\.Add\((time|[0-9])|(deadline|limit) :?= time\.Now\(\)\.Add\(|const patience`)
	err := filepath.WalkDir("../..", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") || strings.Contains(path, "patience") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range own.FindAllString(string(text), -1) {
			t.Errorf("%s: %s: use patience.Limit", path, found)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
