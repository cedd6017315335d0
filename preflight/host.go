package preflight

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hashicorp/go-multierror"
	"golang.org/x/sys/unix"

	"oomguard/launcher/files"
)

// Host is this machine apart from its GPUs. Zero means unknown.
type Host struct {
	MemTotalBytes     int64 `json:"mem_total_bytes"`
	MemAvailableBytes int64 `json:"mem_available_bytes"` // what the kernel can give out without swapping
	// CgroupLimitBytes is the memory limit of the tightest control group above us (container, Slurm job, systemd
	// slice); 0: none. CgroupUsageBytes is what counts against it and cannot be reclaimed at once: usage less inactive
	// file cache, which is how the kubelet computes a working set.
	CgroupLimitBytes int64  `json:"cgroup_limit_bytes"`
	CgroupUsageBytes int64  `json:"cgroup_usage_bytes"`
	ShmTotalBytes    int64  `json:"shm_total_bytes"`
	ShmFreeBytes     int64  `json:"shm_free_bytes"`
	OSRelease        string `json:"os_release"`
	WSL              bool   `json:"wsl"`
	// PIDNamespace: we see other process ids than the driver, which reports the host's.
	PIDNamespace bool `json:"pid_namespace"`
	// DriverFiles are signs that a GPU is expected here: device nodes and /proc entries of the NVIDIA driver.
	// OtherAccelerators are device nodes of GPUs that NVML may not show: AMD's compute driver (kfd), WSL (dxg), Jetson
	// (nvhost-gpu).
	DriverFiles       []string `json:"driver_files"`
	OtherAccelerators []string `json:"other_accelerators"`
}

// availableBytes is the host memory that the job can still take, and what sets the bound; 0 unknown.
func (h Host) availableBytes() (int64, string) {
	if h.CgroupLimitBytes > 0 {
		if free := max(h.CgroupLimitBytes-h.CgroupUsageBytes, 1); h.MemAvailableBytes == 0 ||
			free < h.MemAvailableBytes {
			return free, "left of the control group's limit"
		}
	}
	return h.MemAvailableBytes, "of host memory available"
}

// initialPIDNamespace is the inode of the host's own PID namespace (PROC_PID_INIT_INO in Linux'
// include/linux/proc_ns.h).
const initialPIDNamespace = "pid:[4026531836]"

// GatherHost reads /proc, /sys and /dev below root ("/" for this machine). What could be read is always returned; the
// error, a *multierror.Error, lists what could not.
func GatherHost(root string) (Host, error) {
	var h Host
	var errs *multierror.Error
	note := func(err error) {
		if err != nil {
			errs = multierror.Append(errs, err)
		}
	}
	note(h.readMeminfo(filepath.Join(root, "proc/meminfo")))
	note(h.readCgroup(root))

	var err error
	h.ShmTotalBytes, h.ShmFreeBytes, err = diskSpace(filepath.Join(root, "dev/shm"))
	note(err)
	release, err := readSystem(filepath.Join(root, "proc/sys/kernel/osrelease"))
	note(err)
	h.OSRelease = strings.TrimSpace(string(release))
	h.WSL = strings.Contains(strings.ToLower(h.OSRelease), "microsoft")
	namespace, err := os.Readlink(filepath.Join(root, "proc/self/ns/pid"))
	note(err)
	h.PIDNamespace = err == nil && namespace != initialPIDNamespace

	h.DriverFiles = present(root, "dev/nvidia[0-9]*", "dev/nvidiactl", "proc/driver/nvidia/version")
	h.OtherAccelerators = present(root, "dev/kfd", "dev/dxg", "dev/nvhost-gpu")
	if errs != nil {
		errs.ErrorFormat = oneLine
	}
	return h, errs.ErrorOrNil()
}

// present lists the files below root that fit the patterns, as they are named from root.
func present(root string, patterns ...string) []string {
	var out []string
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil { // only for a root that is a malformed pattern
			continue
		}
		for _, f := range found {
			out = append(out, "/"+strings.TrimPrefix(strings.TrimPrefix(f, root), "/"))
		}
	}
	return out
}

// readSystem reads a file of the kernel's, which says its size to be 0.
func readSystem(file string) ([]byte, error) { return files.Read(file, 1<<20) }

func (h *Host) readMeminfo(file string) error {
	data, err := readSystem(file)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		to   *int64
	}{{"MemTotal:", &h.MemTotalBytes}, {"MemAvailable:", &h.MemAvailableBytes}} {
		kib, err := numberAfter(data, f.name)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if kib > math.MaxInt64>>10 {
			return fmt.Errorf("%s: %s %d kB is out of range", file, f.name, kib)
		}
		*f.to = kib << 10
	}
	return nil
}

// numberAfter is the number that follows a name at the beginning of a line.
func numberAfter(data []byte, name string) (int64, error) {
	text := fieldAfter(data, name)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s %q is not a count", name, text)
	}
	return n, nil
}

func fieldAfter(data []byte, name string) string {
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), name); ok {
			if fields := strings.Fields(rest); len(fields) > 0 {
				return fields[0]
			}
		}
	}
	return ""
}

// diskSpace is the size of the file system that holds path and what is free of it for us.
func diskSpace(path string) (total, free int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, 0, fmt.Errorf("statfs %s: %w", path, err)
	}
	block := int64(st.Bsize) //nolint:unconvert // its type differs between architectures
	return int64(st.Blocks) * block, int64(st.Bavail) * block, nil
}

// OwnedBy says whether the process belongs to the user. Process ids are those of our own PID namespace; false when it
// is not there.
func OwnedBy(root string, pid, uid int) bool {
	status, err := readSystem(filepath.Join(root, "proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return false
	}
	owner, err := numberAfter(status, "Uid:")
	return err == nil && owner == int64(uid)
}

func oneLine(errs []error) string {
	texts := make([]string, len(errs))
	for i, err := range errs {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}
