//go:build !linux

package launcher

import (
	"errors"
	"os"
	"time"
)

// Relay is the command's streams as they are: only Linux can copy them without standing in the way.
type Relay struct{ Stdout, Stderr *os.File }

// StartRelay hands the streams back.
func StartRelay(_ []string, _ string, stdout, stderr *os.File) (*Relay, error) {
	return &Relay{Stdout: stdout, Stderr: stderr}, errors.New("the command's output is copied on Linux only")
}

// RelayName is what a relay is called where there are relays.
const RelayName = "output-relay"

// GuardName is that of a guard, which only Linux has.
const GuardName = "command-guard"

// IsPipe is false: no stream is copied.
func IsPipe(*os.File) bool { return false }

// SameStream tells whether both are the same file.
func SameStream(a, b *os.File) bool { return a == b }

// PID is 0: there is no relay.
func (r *Relay) PID() int { return 0 }

// Started does nothing.
func (r *Relay) Started() {}

// Finish does nothing.
func (r *Relay) Finish(time.Duration) os.Signal { return nil }

// ServeRelay is never started here.
func ServeRelay(int, string) int { return 1 }

// Release does nothing here.
func Release(*os.File) {}

// ServeGuard is never started here.
func ServeGuard(time.Duration) int { return 1 }
