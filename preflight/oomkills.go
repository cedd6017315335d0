package preflight

import (
	"path"
	"path/filepath"
)

// CgroupOOMKills is how many processes of our control group the kernel has killed for want of memory so far; -1 when
// that cannot be read. The difference over a run tells a SIGKILL of the kernel from anybody else's. root is "/" for
// this machine.
func CgroupOOMKills(root string) int64 {
	data, err := readSystem(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return -1
	}
	files, group := memoryGroup(string(data))
	// a container's own group is often mounted as the root, so that the path of /proc/self/cgroup is not there
	for dir := path.Clean("/" + group); ; dir = path.Dir(dir) {
		events, err := readSystem(filepath.Join(root, files.mount, dir, files.events))
		if err == nil {
			if kills, err := numberAfter(events, "oom_kill "); err == nil {
				return kills
			}
		}
		if dir == "/" {
			return -1
		}
	}
}

// AvailableBytes is the host memory that a job can still take, the control group's limit considered; 0 unknown.
func (h Host) AvailableBytes() int64 {
	n, _ := h.availableBytes()
	return n
}

// Visible is the devices that CUDA will show to the command, in its order.
func Visible(env map[string]string, devices []Device) []Device {
	return visible(env, devices).devices
}
