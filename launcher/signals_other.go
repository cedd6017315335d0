//go:build unix && !linux

package launcher

import "golang.org/x/sys/unix"

// ofThisSystem are the signals to hand on that other systems do not have.
func ofThisSystem() []unix.Signal { return nil }
