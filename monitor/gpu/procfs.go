//go:build linux && cgo

package gpu

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"oomguard/launcher/files"
)

// hostPIDNamespace is the first PID namespace of a machine: PROC_PID_INIT_INO in include/linux/proc_ns.h, 0xEFFFFFFC.
const hostPIDNamespace = "pid:[4026531836]"

// inHostPIDNamespace tells whether PIDs here are those of the host, which are the ones that the driver knows.
func inHostPIDNamespace() bool {
	link, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && link == hostPIDNamespace
}

// processName is the short name of a process, or nothing when it has ended meanwhile.
func processName(pid int) string {
	name, err := files.Read("/proc/"+strconv.Itoa(pid)+"/comm", 1<<10)
	if err != nil {
		return ""
	}
	return strings.ToValidUTF8(strings.TrimSpace(string(name)), "?")
}

// hostMemory gives MemTotal and MemAvailable of this machine in bytes.
func hostMemory() (totalBytes, availableBytes int64, err error) {
	data, err := files.Read("/proc/meminfo", 1<<20)
	if err != nil {
		return 0, 0, fmt.Errorf("read host memory: %w", err)
	}
	return parseMeminfo(data)
}

func parseMeminfo(data []byte) (totalBytes, availableBytes int64, err error) {
	for line := range bytes.Lines(data) {
		fields := strings.Fields(string(line))
		if len(fields) < 2 {
			continue
		}
		kib, err := strconv.ParseInt(fields[1], 10, 54) // 54 bits of KiB: the bytes fit 64
		if err != nil {
			continue
		}
		switch fields[0] {
		case "MemTotal:":
			totalBytes = kib << 10
		case "MemAvailable:":
			availableBytes = kib << 10
		}
	}
	if totalBytes <= 0 || availableBytes <= 0 || availableBytes > totalBytes {
		return 0, 0, errors.New("read host memory: /proc/meminfo has no usable MemTotal and MemAvailable")
	}
	return totalBytes, availableBytes, nil
}
