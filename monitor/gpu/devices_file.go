package gpu

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"oomguard/launcher/files"
)

// maxFileBytes bounds a devices file: a machine of 16 GPUs with 100 processes each is below 200 KiB.
const maxFileBytes = 8 << 20

const fileRemedy = `expected is {"devices": [{"index": 0, "name": "NVIDIA H100 80GB HBM3", "total_bytes": ..., "free_bytes": ...}]}`

// ReadFile reads a snapshot from a JSON file in the form of Snapshot; other fields are ignored. In a hand-written file
// memory_known may be left out when total_bytes is there, and one of free_bytes and used_bytes is enough: the three and
// the reserve add up. The error names the file, the place in it and what is expected there.
func ReadFile(path string) (Snapshot, error) {
	data, err := files.Read(path, maxFileBytes)
	if err != nil {
		return Snapshot{}, fmt.Errorf("read devices: %w: %s", err, fileRemedy)
	}
	snapshot, err := parseSnapshot(data)
	if err != nil {
		return Snapshot{}, fmt.Errorf("read devices: %s: %w", path, err)
	}
	return snapshot, nil
}

// writtenDevice is a Device in which a figure left out can be told from a zero.
type writtenDevice struct {
	Device
	FreeBytes   *int64 `json:"free_bytes"`
	UsedBytes   *int64 `json:"used_bytes"`
	MemoryKnown *bool  `json:"memory_known"`
}

func parseSnapshot(data []byte) (Snapshot, error) {
	var file struct {
		Snapshot
		Devices *[]writtenDevice `json:"devices"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return Snapshot{}, fmt.Errorf("%s%w: %s", place(data, err), err, fileRemedy)
	}
	if file.Devices == nil {
		return Snapshot{}, errors.New("there is no list \"devices\": " + fileRemedy)
	}
	snapshot := file.Snapshot
	for i, written := range *file.Devices {
		device, err := written.device()
		if err != nil {
			return Snapshot{}, fmt.Errorf("device number %d of the list (%q): %w", i, written.Name, err)
		}
		snapshot.Devices = append(snapshot.Devices, device)
	}
	return snapshot, nil
}

// place is where in the file the decoder stopped, as "line 3, column 7: ".
func place(data []byte, err error) string {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	var offset int64
	switch {
	case errors.As(err, &syntax):
		offset = syntax.Offset
	case errors.As(err, &kind):
		offset = kind.Offset
	default:
		return ""
	}
	before := data[:min(max(offset, 0), int64(len(data)))]
	line := 1 + bytes.Count(before, []byte("\n"))
	return fmt.Sprintf("line %d, column %d: ", line, len(before)-(bytes.LastIndexByte(before, '\n')+1))
}

// device completes what was written and refuses figures that cannot be.
func (w writtenDevice) device() (Device, error) {
	d := w.Device
	known := d.TotalBytes > 0
	if w.MemoryKnown != nil {
		known = *w.MemoryKnown
	}
	if !known {
		return d, nil
	}
	d.MemoryKnown = true
	switch room := d.TotalBytes - d.ReservedBytes; {
	case w.FreeBytes != nil && w.UsedBytes != nil:
		d.FreeBytes, d.UsedBytes = *w.FreeBytes, *w.UsedBytes
	case w.FreeBytes != nil:
		d.FreeBytes, d.UsedBytes = *w.FreeBytes, room-*w.FreeBytes
	case w.UsedBytes != nil:
		d.FreeBytes, d.UsedBytes = room-*w.UsedBytes, *w.UsedBytes
	default:
		return Device{}, errors.New("neither free_bytes nor used_bytes is given: write one of them, or " +
			"\"memory_known\": false")
	}
	if min(d.TotalBytes, d.FreeBytes, d.UsedBytes, d.ReservedBytes) < 0 || d.TotalBytes == 0 ||
		max(d.FreeBytes, d.UsedBytes, d.ReservedBytes) > d.TotalBytes {
		return Device{}, fmt.Errorf("total_bytes %d, free_bytes %d, used_bytes %d, reserved_bytes %d cannot be: "+
			"each must lie between 0 and a positive total",
			d.TotalBytes, d.FreeBytes, d.UsedBytes, d.ReservedBytes)
	}
	return d, nil
}
