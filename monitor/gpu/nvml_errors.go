//go:build linux && cgo

package gpu

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// meaning says what an NVML return code means to a user.
type meaning struct {
	found    string
	remedy   string
	noDriver bool
	lost     bool // no program can use the device
}

// meanings explains the return codes of nvml.h (nvmlReturn_t) that were met in practice.
func meanings() map[nvml.Return]meaning {
	return map[nvml.Return]meaning{
		nvml.ERROR_UNINITIALIZED: {found: "NVML is not initialised", remedy: "run oomguard again"},
		nvml.ERROR_INVALID_ARGUMENT: {found: "NVML refused an argument",
			remedy: "the driver may not fit this build of oomguard: update one of them"},
		nvml.ERROR_NOT_SUPPORTED: {found: "this device does not support the question"},
		nvml.ERROR_NO_PERMISSION: {found: "no permission to ask the device",
			remedy: "check the permissions of /dev/nvidia* or, in a container, that the GPU was passed in " +
				"(--gpus all)"},
		nvml.ERROR_NOT_FOUND: {found: "the device was not found", remedy: "check that nvidia-smi lists it"},
		nvml.ERROR_INSUFFICIENT_POWER: {found: "the power cable of a GPU is not properly attached",
			remedy: "attach it"},
		nvml.ERROR_DRIVER_NOT_LOADED: {found: "the NVIDIA driver is not loaded",
			remedy: "load it (modprobe nvidia) or reboot; without a GPU use --gpu or --gpu-memory", noDriver: true},
		nvml.ERROR_TIMEOUT: {found: "the driver did not answer in its own time limit",
			remedy: "look for Xid or NVRM lines in dmesg"},
		nvml.ERROR_IRQ_ISSUE: {found: "the driver has an interrupt problem with a GPU",
			remedy: "look for NVRM lines in dmesg, then reboot"},
		nvml.ERROR_LIBRARY_NOT_FOUND: {found: "NVIDIA's management library could not be loaded",
			remedy: "install the driver, or pass it into the container", noDriver: true},
		nvml.ERROR_FUNCTION_NOT_FOUND: {found: "the driver's library does not have this function",
			remedy: "update the driver"},
		nvml.ERROR_CORRUPTED_INFOROM: {found: "the infoROM of the GPU is corrupted",
			remedy: "the card works but should be serviced"},
		nvml.ERROR_GPU_IS_LOST: {found: "the GPU has fallen off the bus or cannot be reached",
			remedy: "reset it or reboot, look for Xid 79 in dmesg, and have it serviced if it happens again",
			lost:   true},
		nvml.ERROR_RESET_REQUIRED: {found: "the GPU must be reset before it can be used again",
			remedy: "stop its processes and run nvidia-smi --gpu-reset, or reboot", lost: true},
		nvml.ERROR_OPERATING_SYSTEM: {found: "the operating system blocked the GPU's device file",
			remedy: "in a container check that /dev/nvidia* may be opened (device cgroup) and start it again"},
		nvml.ERROR_LIB_RM_VERSION_MISMATCH: {found: "the driver's library and the loaded kernel module have " +
			"different versions, as after an update of the driver",
			remedy: "reboot, or stop all GPU programs and reload the nvidia modules"},
		nvml.ERROR_IN_USE: {found: "the GPU is in use by another program that excludes this question",
			remedy: "try again later"},
		nvml.ERROR_MEMORY: {found: "NVML ran out of host memory", remedy: "free host memory"},
		nvml.ERROR_ARGUMENT_VERSION_MISMATCH: {found: "the driver does not know this version of the question",
			remedy: "update the driver"},
		nvml.ERROR_NOT_READY:     {found: "the GPU is not ready yet", remedy: "try again in a minute"},
		nvml.ERROR_GPU_NOT_FOUND: {found: "no GPU was found", remedy: "check lspci and the driver"},
		nvml.ERROR_UNKNOWN: {found: "the driver gave an unknown error, as when a container has lost its access to " +
			"the GPU (systemctl daemon-reload on the host takes the device cgroup away)",
			remedy: "start the container again; on a bare machine look for NVRM lines in dmesg"},
	}
}

// describe turns a return code into an error that says what was asked, what was found and what to do. It never calls
// into NVML.
func describe(question string, ret nvml.Return) error {
	m, known := meanings()[ret]
	if !known {
		m = meaning{found: "NVML gave an error that oomguard does not know",
			remedy: "see nvmlReturn_t in NVIDIA's documentation"}
	}
	text := fmt.Sprintf("%s: %s (NVML code %d)", question, m.found, int(ret))
	if m.remedy != "" {
		text += ": " + m.remedy
	}
	switch {
	case m.noDriver:
		return &noDriverError{text}
	case m.lost:
		return &lostError{text}
	}
	return errors.New(text)
}

// lostError says that a device cannot be used by any program.
type lostError struct{ text string }

func (e *lostError) Error() string { return e.text }

// loss is the reason why an error says that a device is lost, "" if it does not.
func loss(err error) string {
	if lost := (*lostError)(nil); errors.As(err, &lost) {
		return lost.text
	}
	return ""
}
