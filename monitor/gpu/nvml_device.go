//go:build linux && cgo

package gpu

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// computeModes names nvmlComputeMode_t.
func computeModes() map[nvml.ComputeMode]string {
	return map[nvml.ComputeMode]string{
		nvml.COMPUTEMODE_DEFAULT:           "default",
		nvml.COMPUTEMODE_EXCLUSIVE_THREAD:  "exclusive-thread",
		nvml.COMPUTEMODE_PROHIBITED:        "prohibited",
		nvml.COMPUTEMODE_EXCLUSIVE_PROCESS: "exclusive-process",
	}
}

// open identifies the GPU with NVML's index: one unit, or one for each of its MIG devices.
func (s *nvmlSource) open(index int) []*unit {
	u := &unit{device: Device{Index: index}}
	var handle nvml.Device
	ret := s.call(func() (ret nvml.Return) { handle, ret = s.lib.DeviceGetHandleByIndex(index); return ret },
		"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex")
	if ret != nvml.SUCCESS {
		u.device = u.device.closed(describe("open the GPU", ret))
		return []*unit{u}
	}
	u.handle = handle
	s.identify(u)
	mig := s.inMIGMode(u)
	if u.device.Lost != "" { // it is opened again when it is asked again
		u.handle = nil
		u.device = u.device.closed(&lostError{u.device.Lost})
		return []*unit{u}
	}
	if !mig {
		return []*unit{u}
	}
	parts := s.migDevices(u)
	if len(parts) == 0 {
		u.device.Note = join(u.device.Note,
			"MIG mode is on but the GPU has no MIG devices, so CUDA cannot use it: create some (nvidia-smi mig "+
				"-cgi), or turn MIG off")
		return []*unit{u}
	}
	return parts
}

// closed is the device when an error keeps everything else from being asked.
func (d Device) closed(err error) Device {
	d.Lost, d.Unknown = loss(err), Unknown{err.Error(), err.Error(), err.Error()}
	if d.Note != err.Error() {
		d.Note = join(d.Note, err.Error())
	}
	d.ComputeMode = ""
	return d
}

// identify reads what does not change about a device. What a device does not support stays empty; other failures are
// noted.
func (s *nvmlSource) identify(u *unit) {
	d, h := &u.device, u.handle
	questions := []struct {
		text    string
		ask     func() nvml.Return
		symbols []string
		why     *string // where the reason is kept if there is no answer
	}{
		{"read its UUID", func() (ret nvml.Return) { d.UUID, ret = h.GetUUID(); return ret },
			[]string{"nvmlDeviceGetUUID"}, nil},
		{"read its name", func() (ret nvml.Return) { d.Name, ret = h.GetName(); return ret },
			[]string{"nvmlDeviceGetName"}, nil},
		{"read its PCI address", func() nvml.Return {
			pci, ret := h.GetPciInfo()
			d.PCIBusID = cString(pci.BusId[:])
			return ret
		}, []string{"nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2"}, nil},
		{"read its compute capability", func() nvml.Return {
			major, minor, ret := h.GetCudaComputeCapability()
			if ret == nvml.SUCCESS {
				d.ComputeCapability = fmt.Sprintf("%d.%d", major, minor)
			}
			return ret
		}, []string{"nvmlDeviceGetCudaComputeCapability"}, nil},
		{"read its compute mode", func() nvml.Return {
			mode, ret := h.GetComputeMode()
			if ret == nvml.SUCCESS {
				d.ComputeMode = computeModes()[mode]
				if d.ComputeMode == "" {
					d.Unknown.ComputeMode = fmt.Sprintf("its compute mode is %d, which oomguard does not know", mode)
				}
			}
			return ret
		}, []string{"nvmlDeviceGetComputeMode"}, &d.Unknown.ComputeMode},
	}
	for _, q := range questions {
		ret := s.call(q.ask, q.symbols...)
		if ret == nvml.SUCCESS {
			continue
		}
		err := describe(q.text, ret)
		d.Lost = cmp.Or(d.Lost, loss(err))
		if q.why != nil {
			*q.why = err.Error()
		}
		if ret != nvml.ERROR_NOT_SUPPORTED {
			d.Note = join(d.Note, err.Error())
		}
	}
	d.Unified = sharesHostMemory(d.Name)
}

func (s *nvmlSource) inMIGMode(u *unit) bool {
	var mode int
	ret := s.call(func() (ret nvml.Return) { mode, _, ret = u.handle.GetMigMode(); return ret }, "nvmlDeviceGetMigMode")
	if lost := loss(describe("read its MIG mode", ret)); lost != "" {
		u.device.Lost = lost
	}
	return ret == nvml.SUCCESS && mode == nvml.DEVICE_MIG_ENABLE
}

// migDevices lists the MIG devices of a GPU. They keep its index, address and compute capability and have names and
// UUIDs of their own.
func (s *nvmlSource) migDevices(parent *unit) []*unit {
	var most int
	ret := s.call(func() (ret nvml.Return) { most, ret = parent.handle.GetMaxMigDeviceCount(); return ret },
		"nvmlDeviceGetMaxMigDeviceCount")
	if ret != nvml.SUCCESS || !s.has("nvmlDeviceGetMigDeviceHandleByIndex") {
		return nil
	}
	var parts []*unit
	for i := range most {
		handle, ret := parent.handle.GetMigDeviceHandleByIndex(i)
		if ret != nvml.SUCCESS { // a slot without a device: NOT_FOUND
			continue
		}
		part := &unit{handle: handle, device: Device{Index: parent.device.Index, MIG: true}}
		s.identify(part)
		part.device.PCIBusID = parent.device.PCIBusID
		part.device.ComputeCapability = parent.device.ComputeCapability
		part.device.ComputeMode = parent.device.ComputeMode
		parts = append(parts, part)
	}
	return parts
}

// read gives the device as it is now, with the processes on it if they are asked for.
func (s *nvmlSource) read(u *unit, processes bool) Device {
	d := u.device
	if u.handle == nil {
		return d
	}
	if err := s.readMemory(u.handle, &d); err != nil {
		d.MemoryKnown = false
		d.TotalBytes, d.FreeBytes, d.UsedBytes, d.ReservedBytes = 0, 0, 0, 0
		d.Unknown.Memory, d.Lost = err.Error(), loss(err)
		d.Unknown.Processes = "not asked, as its memory could not be read: " + err.Error()
		d.Note = join(d.Note, err.Error())
		return d // a device that does not tell its memory is not asked for the holders of it
	}
	if processes {
		s.readProcesses(u, &d)
	} else {
		d.Unknown.Processes = "not asked"
	}
	return d
}

// readMemory asks for version 2 of the figures, which tells the driver's reserve from what is used, then for version 1,
// which counts the reserve as used. Devices that share the host's memory have neither.
func (s *nvmlSource) readMemory(h nvml.Device, d *Device) error {
	var total, free, used, reserved uint64
	ret := s.call(func() nvml.Return {
		m, ret := h.GetMemoryInfo_v2()
		total, free, used, reserved = m.Total, m.Free, m.Used, m.Reserved
		return ret
	}, "nvmlDeviceGetMemoryInfo_v2")
	if ret == nvml.ERROR_FUNCTION_NOT_FOUND || ret == nvml.ERROR_ARGUMENT_VERSION_MISMATCH ||
		ret == nvml.ERROR_NOT_SUPPORTED {
		ret = s.call(func() nvml.Return {
			m, ret := h.GetMemoryInfo()
			total, free, used, reserved = m.Total, m.Free, m.Used, 0
			return ret
		}, "nvmlDeviceGetMemoryInfo")
		if ret == nvml.SUCCESS && total > 0 {
			d.Note = join(d.Note, "the driver's reserve is not known and counts as used: this driver does not tell "+
				"them apart")
		}
	}
	switch {
	case d.Unified && (ret == nvml.ERROR_NOT_SUPPORTED || ret == nvml.SUCCESS && total == 0):
		return d.readHostMemory()
	case ret != nvml.SUCCESS:
		return describe("read its memory", ret)
	case total == 0 || total > math.MaxInt64 || max(free, used, reserved) > total:
		return fmt.Errorf("read its memory: NVML gave figures that cannot be (total %d, free %d, used %d, reserved "+
			"%d bytes): compare nvidia-smi", total, free, used, reserved)
	}
	d.TotalBytes, d.FreeBytes, d.UsedBytes, d.ReservedBytes = int64(total), int64(free), int64(used), int64(reserved)
	d.MemoryKnown = true
	return nil
}

// readHostMemory fills in the host's figures for a device that has no memory of its own.
func (d *Device) readHostMemory() error {
	total, available, err := hostMemory()
	if err != nil {
		return errors.Join(errors.New("the device shares the host's memory, and that could not be read"), err)
	}
	d.TotalBytes, d.FreeBytes, d.UsedBytes, d.MemoryKnown = total, available, total-available, true
	d.Note = join(d.Note, "the device shares the host's memory: total and free are MemTotal and MemAvailable")
	return nil
}

// sharesHostMemory tells whether the catalogue knows the name as a device without memory of its own. (A lost card must
// not be taken for one, so a missing figure alone is not enough.)
func sharesHostMemory(name string) bool {
	spec, found := Match(name, 0)
	return found && spec.Unified
}

// cString is the text in a C array up to its first zero.
func cString[T ~int8 | ~uint8](array []T) string {
	text := make([]byte, 0, len(array))
	for _, c := range array {
		text = append(text, byte(c))
	}
	if end := bytes.IndexByte(text, 0); end >= 0 {
		text = text[:end]
	}
	return string(text)
}
