// Package patience is how tests wait for other processes, and how they leave none behind. Tests alone import it.
package patience

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// least is waited at any rate, and what is waited where go test was given no limit.
const (
	least     = 10 * time.Second
	unlimited = time.Hour
)

// Limit is how long a test may wait for something that should happen at once: half of what is left of the time that the
// whole test binary has (go test -timeout). A machine under load fails no test then, and one that hangs fails while
// there is time for the others.
func Limit(t testing.TB) time.Duration {
	t.Helper()
	timed, ok := t.(interface{ Deadline() (time.Time, bool) })
	if !ok {
		return unlimited
	}
	deadline, ok := timed.Deadline()
	if !ok {
		return unlimited
	}
	return max(least, time.Until(deadline)/2)
}

// Over fires when the limit is reached.
func Over(t testing.TB) <-chan time.Time {
	t.Helper()
	return time.After(Limit(t))
}

// Until waits for what nobody announces, and fails the test when it never comes.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	if !Comes(t, holds) {
		t.Fatalf("never: %s", what)
	}
}

// Comes is Until for those who say themselves what is wrong.
func Comes(t testing.TB, holds func() bool) bool {
	t.Helper()
	const tick = 5 * time.Millisecond
	for limit := time.Now().Add(Limit(t)); !holds(); time.Sleep(tick) {
		if time.Now().After(limit) {
			return false
		}
	}
	return true
}

// EndAll ends at the end of the test every process that was started with a variable (NAME=value) in its environment,
// however it was started and whatever has become of its parents. The value must be the test's own, such as a folder of
// its.
func EndAll(t testing.TB, variable string) {
	t.Helper()
	t.Cleanup(func() {
		for range 10 { // those that were being started while the others were ended
			found := marked(variable)
			if len(found) == 0 {
				return
			}
			for _, pid := range found {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}

// Mark is what the environment of every process that a test starts must keep, so that .ci/gotest finds those that
// outlive the tests.
func Mark() []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool { return !strings.HasPrefix(entry, "GOTEST_RUN=") })
}

// marked are the living processes with a variable in their environment, but for this one.
func marked(variable string) []int {
	var found []int
	paths, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range paths {
		environment, err := os.ReadFile(path) // that of another user's cannot be read, and one that has ended has none
		if err != nil || !bytes.Contains(append([]byte{0}, environment...), []byte("\x00"+variable+"\x00")) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && pid != os.Getpid() {
			found = append(found, pid)
		}
	}
	return found
}
