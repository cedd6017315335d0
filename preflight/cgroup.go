package preflight

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// cgroupFiles is where one version of control groups keeps what we need.
type cgroupFiles struct {
	mount               string // of the memory controller
	limit, usage, cache string // cache: the line of memory.stat with the page cache that the kernel can drop
	events              string // the file with a line "oom_kill N"
}

func cgroupV1() cgroupFiles {
	return cgroupFiles{"sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
		"memory.oom_control"}
}

func cgroupV2() cgroupFiles {
	return cgroupFiles{"sys/fs/cgroup", "memory.max", "memory.current", "inactive_file", "memory.events"}
}

// unlimited is v1's way to say that there is no limit: the largest page count, a little below 2^63 (PAGE_COUNTER_MAX in
// Linux' include/linux/page_counter.h). No machine comes near half of it.
const unlimited = int64(1) << 62

// readCgroup finds the limit that leaves the least, from our own control group up to the root of the mount. A container
// usually sees its own group as the root, while /proc/self/cgroup may name a path that is not mounted: those levels are
// passed over.
func (h *Host) readCgroup(root string) error {
	file := filepath.Join(root, "proc/self/cgroup")
	data, err := readSystem(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a kernel without control groups sets no limit
	}
	if err != nil {
		return err
	}
	files, group := memoryGroup(string(data))
	var errs []error
	for dir := path.Clean("/" + group); ; dir = path.Dir(dir) {
		limit, usage, err := files.read(filepath.Join(root, files.mount, dir))
		if err != nil {
			errs = append(errs, err)
		}
		if limit > 0 && (h.CgroupLimitBytes == 0 || limit-usage < h.CgroupLimitBytes-h.CgroupUsageBytes) {
			h.CgroupLimitBytes, h.CgroupUsageBytes = limit, usage
		}
		if dir == "/" {
			return errors.Join(errs...)
		}
	}
}

// memoryGroup reads lines of "id:controllers:path". A v1 memory controller wins: on a hybrid system it is the one that
// counts.
func memoryGroup(text string) (cgroupFiles, string) {
	group := "/"
	for line := range strings.SplitSeq(text, "\n") {
		parts := strings.SplitN(line, ":", 3)
		if len(parts) != 3 {
			continue
		}
		if slices.Contains(strings.Split(parts[1], ","), "memory") {
			return cgroupV1(), parts[2]
		}
		if parts[0] == "0" && parts[1] == "" {
			group = parts[2]
		}
	}
	return cgroupV2(), group
}

// read gives one group's limit (0: none) and working set.
func (c cgroupFiles) read(dir string) (limit, usage int64, err error) {
	limit, err = readCount(filepath.Join(dir, c.limit))
	if err != nil || limit == 0 {
		return 0, 0, err
	}
	usage, err = readCount(filepath.Join(dir, c.usage))
	if err != nil {
		return limit, 0, err
	}
	stat, err := readSystem(filepath.Join(dir, "memory.stat"))
	if err != nil {
		return limit, usage, nil // without it all usage counts, which errs on the safe side
	}
	cache, err := numberAfter(stat, c.cache+" ")
	if err != nil {
		return limit, usage, nil
	}
	return limit, max(usage-cache, 0), nil
}

// readCount reads a file of one number; 0 when it is absent, "max", or v1's unlimited.
func readCount(file string) (int64, error) {
	data, err := readSystem(file)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	text := strings.TrimSpace(string(data))
	if text == "max" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %q is not a byte count", file, text)
	}
	if n >= uint64(unlimited) {
		return 0, nil
	}
	return int64(n), nil
}
