package preflight

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tree writes files below a new folder: text by path, "-> target" for a symbolic link.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, link := strings.CutPrefix(text, "-> "); link {
			err = os.Symlink(target, file)
		} else {
			err = os.WriteFile(file, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// machine is a recorded host without memory limit: Linux 6.8, 16 GB.
func machine(more map[string]string) map[string]string {
	files := map[string]string{
		"proc/meminfo": "MemTotal:       16393180 kB\nMemFree:         9117252 kB\nMemAvailable:   " +
			"14201564 kB\nBuffers:          210264 kB\n",
		"proc/self/cgroup":          "0::/user.slice/user-1000.slice/session-3.scope\n",
		"proc/self/ns/pid":          "-> " + initialPIDNamespace,
		"proc/sys/kernel/osrelease": "6.8.0-45-generic\n",
		"dev/shm/.keep":             "",
	}
	maps.Copy(files, more)
	return files
}

func TestGatherHost(t *testing.T) {
	root := tree(t, machine(map[string]string{
		"dev/nvidia0": "", "dev/nvidia11": "", "dev/nvidiactl": "", "dev/nvidia-uvm": "",
		"proc/driver/nvidia/version": "NVRM version: 550\n",
	}))
	h, err := GatherHost(root)
	if err != nil {
		t.Fatal(err)
	}
	if h.MemTotalBytes != 16393180<<10 || h.MemAvailableBytes != 14201564<<10 {
		t.Errorf("memory %d, available %d", h.MemTotalBytes, h.MemAvailableBytes)
	}
	if h.OSRelease != "6.8.0-45-generic" || h.WSL || h.PIDNamespace {
		t.Errorf("%+v", h)
	}
	if h.ShmTotalBytes <= 0 || h.ShmFreeBytes < 0 || h.ShmFreeBytes > h.ShmTotalBytes {
		t.Errorf("shm %d of %d", h.ShmFreeBytes, h.ShmTotalBytes)
	}
	want := "/dev/nvidia0 /dev/nvidia11 /dev/nvidiactl /proc/driver/nvidia/version"
	if got := strings.Join(h.DriverFiles, " "); got != want {
		t.Errorf("driver files %s", got)
	}
}

func TestGatherHostKinds(t *testing.T) {
	root := tree(t, machine(map[string]string{
		"proc/sys/kernel/osrelease": "5.15.153.1-microsoft-standard-WSL2\n",
		"proc/self/ns/pid":          "-> pid:[4026532281]",
		"dev/dxg":                   "",
	}))
	h, err := GatherHost(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(h.OtherAccelerators) != 1 || h.OtherAccelerators[0] != "/dev/dxg" || !h.WSL || !h.PIDNamespace {
		t.Errorf("%+v", h)
	}
}

// TestGatherHostErrors: what cannot be read is said with its file, and everything else is still there.
func TestGatherHostErrors(t *testing.T) {
	h, err := GatherHost(t.TempDir())
	if err == nil || h.MemTotalBytes != 0 || h.PIDNamespace {
		t.Errorf("an empty root: %+v, %v", h, err)
	}
	tests := map[string]struct{ file, text string }{
		"no number":     {"proc/meminfo", "MemTotal: many kB\nMemAvailable: 1 kB\n"},
		"missing line":  {"proc/meminfo", "MemTotal: 5 kB\n"},
		"out of range":  {"proc/meminfo", "MemTotal: 9223372036854775807 kB\nMemAvailable: 1 kB\n"},
		"negative":      {"proc/meminfo", "MemTotal: -4 kB\nMemAvailable: 1 kB\n"},
		"binary":        {"proc/meminfo", "\x00\xff\xfe"},
		"garbage limit": {"sys/fs/cgroup/memory.max", "lots\n"},
		"garbage usage": {"sys/fs/cgroup/memory.max", "-5\n"},
	}
	for name, tt := range tests {
		h, err := GatherHost(tree(t, machine(map[string]string{tt.file: tt.text})))
		if err == nil || !strings.Contains(err.Error(), tt.file) {
			t.Errorf("%s: error %v does not name %s", name, err, tt.file)
		}
		if h.OSRelease == "" {
			t.Errorf("%s: the rest was not read", name)
		}
	}
}

func TestCgroup(t *testing.T) {
	const container = "0::/\n"
	v1 := "12:pids:/docker/ab\n5:memory:/docker/ab\n1:name=systemd:/docker/ab\n0::/docker/ab\n"
	tests := []struct {
		name         string
		files        map[string]string
		limit, usage int64
	}{
		{"none", map[string]string{}, 0, 0},
		{"kernel without control groups", map[string]string{"proc/self/cgroup": ""}, 0, 0},
		{"v2 container", map[string]string{"proc/self/cgroup": container,
			"sys/fs/cgroup/memory.max": "8589934592\n", "sys/fs/cgroup/memory.current": "3221225472\n",
			"sys/fs/cgroup/memory.stat": "anon 1\ninactive_file 1073741824\nactive_file 5\n"}, 8 * gib, 2 * gib},
		{"v2 max", map[string]string{"proc/self/cgroup": container, "sys/fs/cgroup/memory.max": "max\n",
			"sys/fs/cgroup/memory.current": "3221225472\n"}, 0, 0},
		{"v2 without memory.stat", map[string]string{"proc/self/cgroup": container,
			"sys/fs/cgroup/memory.max": "8589934592", "sys/fs/cgroup/memory.current": "3221225472"}, 8 * gib, 3 * gib},
		{"v2 tightest level above", map[string]string{
			"sys/fs/cgroup/user.slice/memory.max":                     "4294967296\n",
			"sys/fs/cgroup/user.slice/memory.current":                 "3221225472\n",
			"sys/fs/cgroup/user.slice/user-1000.slice/memory.max":     "2147483648\n",
			"sys/fs/cgroup/user.slice/user-1000.slice/memory.current": "0\n"}, 4 * gib, 3 * gib},
		{"v2 path that is not mounted", map[string]string{"proc/self/cgroup": "0::/../../elsewhere\n",
			"sys/fs/cgroup/memory.max": "8589934592\n", "sys/fs/cgroup/memory.current": "0\n"}, 8 * gib, 0},
		{"v1 container, path not mounted", map[string]string{"proc/self/cgroup": v1,
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "8589934592\n",
			"sys/fs/cgroup/memory/memory.usage_in_bytes": "2147483648\n",
			"sys/fs/cgroup/memory/memory.stat":           "inactive_file 9\ntotal_inactive_file 1073741824\n"}, 8 * gib,
			gib},
		{"v1 own level", map[string]string{"proc/self/cgroup": v1,
			"sys/fs/cgroup/memory/memory.limit_in_bytes":           "9223372036854771712\n",
			"sys/fs/cgroup/memory/docker/ab/memory.limit_in_bytes": "1073741824\n",
			"sys/fs/cgroup/memory/docker/ab/memory.usage_in_bytes": "1048576\n"}, gib, 1 << 20},
		{"v1 unlimited", map[string]string{"proc/self/cgroup": v1,
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 0, 0},
		{"v1 older unlimited", map[string]string{"proc/self/cgroup": v1,
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "18446744073709551615\n"}, 0, 0},
		{"cache larger than usage", map[string]string{"proc/self/cgroup": container,
			"sys/fs/cgroup/memory.max":     "8589934592\n",
			"sys/fs/cgroup/memory.current": "5\n", "sys/fs/cgroup/memory.stat": "inactive_file 10\n"}, 8 * gib, 0},
		{"garbage in memory.stat counts all usage",
			map[string]string{"proc/self/cgroup": container, "sys/fs/cgroup/memory.max": "8589934592\n",
				"sys/fs/cgroup/memory.current": "5\n", "sys/fs/cgroup/memory.stat": "\xff\xfe\n"}, 8 * gib, 5},
		{"garbage in the list of groups", map[string]string{"proc/self/cgroup": "\xff\n::\nmemory\n"}, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, err := GatherHost(tree(t, machine(tt.files)))
			if err != nil {
				t.Fatal(err)
			}
			if h.CgroupLimitBytes != tt.limit || h.CgroupUsageBytes != tt.usage {
				t.Errorf("limit %d, usage %d; want %d, %d", h.CgroupLimitBytes, h.CgroupUsageBytes, tt.limit, tt.usage)
			}
		})
	}
}

func TestAvailableBytes(t *testing.T) {
	tests := []struct {
		name string
		host Host
		want int64
	}{
		{"unknown", Host{}, 0},
		{"no limit", Host{MemAvailableBytes: 5}, 5},
		{"limit is tighter", Host{MemAvailableBytes: 50, CgroupLimitBytes: 40, CgroupUsageBytes: 10}, 30},
		{"host is tighter", Host{MemAvailableBytes: 20, CgroupLimitBytes: 40, CgroupUsageBytes: 10}, 20},
		{"limit alone", Host{CgroupLimitBytes: 40, CgroupUsageBytes: 10}, 30},
		{"over the limit is not unknown", Host{MemAvailableBytes: 50, CgroupLimitBytes: 40, CgroupUsageBytes: 41}, 1},
	}
	for _, tt := range tests {
		if got, _ := tt.host.availableBytes(); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestOwnedBy(t *testing.T) {
	root := tree(t, map[string]string{"proc/42/status": "Name:\tpython3\nPid:\t42\nUid:\t1000\t1000\t1000\t1000\n",
		"proc/43/status": "\xff"})
	for _, tt := range []struct {
		pid, uid int
		want     bool
	}{{42, 1000, true}, {42, 0, false}, {43, 0, false}, {44, 0, false}} {
		if got := OwnedBy(root, tt.pid, tt.uid); got != tt.want {
			t.Errorf("OwnedBy(%d, %d) = %v", tt.pid, tt.uid, got)
		}
	}
}

func FuzzHost(f *testing.F) {
	f.Add("MemTotal: 5 kB\nMemAvailable: 4 kB\n", "0::/a/b\n", "max", "7\n")
	f.Add("\xff", "5:memory:/x\n", "9223372036854771712", "18446744073709551615")
	f.Add("", "0::/../..\n", "-1", "")
	root := tree(f, map[string]string{
		"proc/meminfo": "", "proc/self/cgroup": "", "sys/fs/cgroup/memory.max": "", "sys/fs/cgroup/memory.current": "",
	})
	f.Fuzz(func(t *testing.T, meminfo, groups, limit, usage string) {
		for name, text := range map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": groups, "sys/fs/cgroup/memory.max": limit,
			"sys/fs/cgroup/memory.current": usage,
		} {
			if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		h, _ := GatherHost(root)
		if h.MemTotalBytes < 0 || h.MemAvailableBytes < 0 || h.CgroupLimitBytes < 0 || h.CgroupUsageBytes < 0 {
			t.Errorf("negative: %+v", h)
		}
		if n, _ := h.availableBytes(); n < 0 {
			t.Errorf("available %d", n)
		}
	})
}
