package launcher

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// handle is a pidfd: it stands for one process, even when its pid is used again. It watches without touching the
// process: no ptrace, no signal.
type handle struct{ file *os.File }

// openHandle fails where the process has gone, the kernel is older than 5.3, or a container's seccomp profile forbids
// it.
func openHandle(pid int) (*handle, error) {
	fd, err := unix.PidfdOpen(pid, 0) // close-on-exec is always set
	if err != nil {
		return nil, err
	}
	// so that os.File waits in the runtime's poller, not in a thread each
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd) // nothing was written to it
		return nil, err
	}
	return &handle{os.NewFile(uintptr(fd), "pidfd")}, nil
}

func (h *handle) close() { h.file.Close() }

// wait returns true when the process has ended, false when the handle was closed before.
func (h *handle) wait() bool {
	conn, err := h.file.SyscallConn()
	if err != nil {
		return false
	}
	return conn.Read(hasEnded) == nil
}

// running tells whether the process has not ended yet.
func (h *handle) running() bool {
	conn, err := h.file.SyscallConn()
	if err != nil {
		return false
	}
	ended := true
	err = conn.Control(func(fd uintptr) { ended = hasEnded(fd) })
	return err == nil && !ended
}

// hasEnded polls a pidfd: it is readable once the process and all its threads have ended.
func hasEnded(fd uintptr) bool {
	polled := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(polled, 0)
		if err != unix.EINTR {
			return err != nil || n > 0
		}
	}
}

// exitInfo is struct pidfd_info of include/uapi/linux/pidfd.h in its first version (64 bytes).
type exitInfo struct {
	mask     uint64
	cgroup   uint64
	pids     [3]uint32 // pid, tgid, ppid
	ids      [8]uint32 // real, effective, saved, file system: user and group of each
	exitCode int32
}

const (
	pidfdInfoExit = 1 << 3 // PIDFD_INFO_EXIT, Linux 6.15
	// PIDFD_GET_INFO = _IOWR(0xFF, 11, struct pidfd_info)
	pidfdGetInfo = 3<<30 | unsafe.Sizeof(exitInfo{})<<16 | 0xFF<<8 | 11
)

// exitStatus asks the kernel how a process ended that has been reaped already; only Linux 6.15 and later know.
func (h *handle) exitStatus() (status unix.WaitStatus, known bool) {
	conn, err := h.file.SyscallConn()
	if err != nil {
		return 0, false
	}
	info := exitInfo{mask: pidfdInfoExit}
	err = conn.Control(func(fd uintptr) {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, pidfdGetInfo, uintptr(unsafe.Pointer(&info)))
		known = errno == 0 && info.mask&pidfdInfoExit != 0
	})
	return unix.WaitStatus(info.exitCode), err == nil && known
}
