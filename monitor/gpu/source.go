package gpu

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// ErrNoDriver is what errors.Is finds in the error of a machine where NVML cannot be asked at all: the library is not
// there, the driver is not loaded, or this program was built without NVML.
var ErrNoDriver = errors.New("no NVIDIA driver")

// noDriverError says what is missing in its own words.
type noDriverError struct{ text string }

func (e *noDriverError) Error() string { return e.text }
func (e *noDriverError) Unwrap() error { return ErrNoDriver }

// Absent is the source of a machine without GPUs that can be seen: every Snapshot fails with ErrNoDriver and the
// reason.
type Absent struct{ Reason error }

// Snapshot always fails.
func (a Absent) Snapshot(context.Context) (Snapshot, error) {
	if a.Reason == nil {
		return Snapshot{}, ErrNoDriver
	}
	return Snapshot{}, fmt.Errorf("%w: %w", ErrNoDriver, a.Reason)
}

// Close does nothing.
func (a Absent) Close() error { return nil }

// Replay gives the recorded snapshots one after the other, each with its recorded time, and the last one again from
// then on.
func Replay(snapshots ...Snapshot) Source { return &replay{left: slices.Clone(snapshots)} }

type replay struct{ left []Snapshot }

func (r *replay) Snapshot(ctx context.Context) (Snapshot, error) {
	if err := ctx.Err(); err != nil {
		return Snapshot{}, fmt.Errorf("replay a snapshot: %w", err)
	}
	if len(r.left) == 0 {
		return Snapshot{}, errors.New("replay a snapshot: none was recorded")
	}
	now := r.left[0]
	if len(r.left) > 1 {
		r.left = r.left[1:]
	}
	// The caller may change what it gets; the recording must not change with it.
	now.Devices = slices.Clone(now.Devices)
	for i := range now.Devices {
		now.Devices[i].Processes = slices.Clone(now.Devices[i].Processes)
	}
	return now, nil
}

func (r *replay) Close() error { return nil }
