//go:build linux && cgo

package gpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// libraryPaths are the places of NVIDIA's management library: where the loader looks, and then where the driver is put
// without telling the loader (WSL; the GPU operator of Kubernetes; Google's Kubernetes nodes, seen from a pod and from
// the node).
func libraryPaths() []string {
	return []string{
		"libnvidia-ml.so.1",
		"/usr/lib/wsl/lib/libnvidia-ml.so.1",
		"/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
		"/run/nvidia/driver/usr/lib/aarch64-linux-gnu/libnvidia-ml.so.1",
		"/run/nvidia/driver/usr/lib64/libnvidia-ml.so.1",
		"/usr/local/nvidia/lib64/libnvidia-ml.so.1",
		"/home/kubernetes/bin/nvidia/lib64/libnvidia-ml.so.1",
	}
}

// nvmlSource asks NVML in this process. A function that the driver's library lacks would end the process, so every call
// goes through call, which looks its symbol up first.
type nvmlSource struct {
	lib          nvml.Interface
	symbols      map[string]bool // answers of LookupSymbol
	units        []*unit
	driver, cuda string
	hostPIDs     bool // the PIDs that NVML gives mean something in this PID namespace
	now          func() time.Time
}

// unit is a GPU, or a MIG device of one, between snapshots.
type unit struct {
	device Device      // its identity; Note says what of it could not be read
	handle nvml.Device // nil while the GPU could not be opened; tried again at every snapshot
	listed processList
}

// OpenNVML loads NVIDIA's management library into this process. Serve uses it; everybody else goes through OpenHelper,
// because a hung driver hangs and a crashing one ends the process that asks. The error says what is missing and what to
// do; errors.Is finds ErrNoDriver in it when there is no library or no driver.
func OpenNVML() (Source, error) { return openNVML(libraryPaths()) }

func openNVML(paths []string) (Source, error) {
	path, err := findLibrary(paths)
	if err != nil {
		return nil, err
	}
	s := &nvmlSource{lib: nvml.New(nvml.WithLibraryPath(path)), symbols: map[string]bool{},
		hostPIDs: inHostPIDNamespace(), now: time.Now}
	if ret := s.lib.Init(); ret != nvml.SUCCESS {
		return nil, describe("start NVML ("+path+")", ret)
	}
	var count int
	ret := s.call(func() (ret nvml.Return) { count, ret = s.lib.DeviceGetCount(); return ret }, "nvmlDeviceGetCount_v2",
		"nvmlDeviceGetCount")
	if ret != nvml.SUCCESS {
		return nil, errors.Join(describe("count the GPUs", ret), s.Close())
	}
	for i := range count {
		s.units = append(s.units, s.open(i)...)
	}
	s.versions()
	return s, nil
}

// findLibrary gives the first path that can be loaded and is NVML. The library stays loaded: go-nvml's own handle comes
// on top.
func findLibrary(paths []string) (string, error) {
	var first error
	for _, path := range paths {
		if strings.Contains(path, "/") {
			if _, err := os.Stat(path); err != nil {
				continue
			}
		}
		library := dl.New(path, dl.RTLD_LAZY|dl.RTLD_GLOBAL)
		err := library.Open()
		if err == nil && library.Lookup("nvmlInit_v2") != nil && library.Lookup("nvmlInit") != nil {
			err = fmt.Errorf("%s has no nvmlInit: it is not NVIDIA's management library", path)
		}
		if err == nil {
			return path, nil
		}
		if first == nil {
			first = err
		}
	}
	return "", &noDriverError{fmt.Sprintf("load NVIDIA's management library: %v: install the driver or, in a "+
		"container, pass the GPUs in (--gpus all, with the utility capability); without a GPU use "+
		"--gpu or --gpu-memory", first)}
}

// call runs f unless the library lacks all of the symbols that f may reach.
func (s *nvmlSource) call(f func() nvml.Return, symbols ...string) nvml.Return {
	if !s.has(symbols...) {
		return nvml.ERROR_FUNCTION_NOT_FOUND
	}
	return f()
}

func (s *nvmlSource) has(symbols ...string) bool {
	for _, symbol := range symbols {
		found, asked := s.symbols[symbol]
		if !asked {
			found = s.lib.Extensions().LookupSymbol(symbol) == nil
			s.symbols[symbol] = found
		}
		if found {
			return true
		}
	}
	return false
}

// versions reads what is nice to know; a driver that does not tell leaves it empty.
func (s *nvmlSource) versions() {
	_ = s.call(func() (ret nvml.Return) { s.driver, ret = s.lib.SystemGetDriverVersion(); return ret },
		"nvmlSystemGetDriverVersion")
	_ = s.call(func() nvml.Return {
		version, ret := s.lib.SystemGetCudaDriverVersion_v2()
		if ret == nvml.SUCCESS && version > 0 {
			s.cuda = fmt.Sprintf("%d.%d", version/1000, version%1000/10) // cuda.h: 1000 major + 10 minor
		}
		return ret
	}, "nvmlSystemGetCudaDriverVersion_v2")
}

// Snapshot reads all devices. A device that cannot be read is in it, with a Note; the others are not kept from being
// read.
func (s *nvmlSource) Snapshot(ctx context.Context) (Snapshot, error) { return s.snapshot(ctx, true) }

func (s *nvmlSource) snapshot(ctx context.Context, processes bool) (Snapshot, error) {
	s.reopen()
	snapshot := Snapshot{Time: s.now(), Driver: s.driver, CUDA: s.cuda, Devices: make([]Device, 0, len(s.units))}
	for _, u := range s.units {
		if err := ctx.Err(); err != nil {
			return Snapshot{}, fmt.Errorf("read GPU %d: %w", u.device.Index, err)
		}
		snapshot.Devices = append(snapshot.Devices, s.read(u, processes))
	}
	return snapshot, nil
}

// reopen tries the GPUs again that could not be opened.
func (s *nvmlSource) reopen() {
	var units []*unit
	for _, u := range s.units {
		if u.handle == nil {
			units = append(units, s.open(u.device.Index)...)
		} else {
			units = append(units, u)
		}
	}
	s.units = units
}

func (s *nvmlSource) Close() error {
	ret := s.call(s.lib.Shutdown, "nvmlShutdown")
	if ret != nvml.SUCCESS && ret != nvml.ERROR_UNINITIALIZED {
		return describe("stop NVML", ret)
	}
	return nil
}
