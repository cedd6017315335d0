//go:build !linux || !cgo

package gpu

import "runtime"

// OpenNVML always fails here with ErrNoDriver: NVML is reached through cgo, on Linux.
func OpenNVML() (Source, error) {
	if runtime.GOOS != "linux" {
		return nil, &noDriverError{"GPUs cannot be seen on " + runtime.GOOS +
			": NVIDIA's management library is used on Linux only; describe them with --gpu or --gpu-memory"}
	}
	return nil, &noDriverError{"this oomguard was built without cgo and cannot load NVIDIA's management library: " +
		"use a build with CGO_ENABLED=1, or describe the GPUs with --gpu or --gpu-memory"}
}
