//go:build !linux || !cgo

package launcher

import "os"

// keepIgnored does nothing here: what was ignored when the program was started is known only to code that runs before
// Go's runtime, which takes cgo. SIGHUP and SIGINT are kept by Go itself, the terminal's stop signals too.
func keepIgnored() {}

// inheritedClosed is not known here, for the same reason; a closed stream is /dev/null to the command.
func inheritedClosed(int) bool { return false }

// ignoring is the command as it is.
func ignoring(file string, argv []string) (string, []string) { return file, argv }

// catchInC catches nothing.
func catchInC(chan<- os.Signal) (stop func()) { return func() {} }
