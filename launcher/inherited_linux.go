//go:build linux && cgo

package launcher

/*
#include <errno.h>
#include <fcntl.h>
#include <signal.h>

static unsigned long long ignored_at_start;
static int closed_at_start;

// A constructor runs before Go's runtime, which catches nearly every signal and opens /dev/null where a standard stream is closed.
__attribute__((constructor)) static void note(void)
{
	for (int s = 1; s <= 64; s++) {
		struct sigaction action;
		if (sigaction(s, 0, &action) == 0 && action.sa_handler == SIG_IGN)
			ignored_at_start |= 1ULL << (s - 1);
	}
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
			closed_at_start |= 1 << fd;
}

static unsigned long long ignored_then(void) { return ignored_at_start; }
static int closed_then(void) { return closed_at_start; }
*/
import "C"

import (
	"os/signal"

	"golang.org/x/sys/unix"
)

// Inherit makes this process ignore again the signals that it was started with as ignored, so that a command that it starts inherits
// them as it would without us: by nohup, for a background job of a script, by systemd for SIGPIPE. Go itself keeps only some of
// them. It is called once, at the very start of the program.
func Inherit() {
	for s := unix.Signal(1); s <= 64; s++ {
		if uint64(C.ignored_then())&(1<<(s-1)) != 0 && s != unix.SIGCHLD { // without SIGCHLD no process could be waited for
			signal.Ignore(s)
		}
	}
}

// inheritedClosed tells whether a standard stream was closed when this process was started.
func inheritedClosed(fd int) bool { return fd < 3 && int(C.closed_then())&(1<<fd) != 0 }
