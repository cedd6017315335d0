package files

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// ErrLocked says that another process holds a lock.
var ErrLocked = errors.New("another process holds it")

// Share says of an open file that we use it, until it is closed or we are gone, however that comes.
func Share(f *os.File) error { return flock(f, unix.LOCK_SH) }

// Hold says that we alone use a file; ErrLocked when another process does.
func Hold(f *os.File) error { return flock(f, unix.LOCK_EX) }

func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrLocked
		default:
			return err
		}
	}
}
