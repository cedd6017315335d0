package gpu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// request and reply are the lines between a helper process and its parent. A reply carries the number of its request,
// so that one that was given up waiting for is recognised when it comes late.
type request struct {
	ID uint64 `json:"id"`
	// NoProcesses leaves the lists of processes out, which hang and crash more often than the rest.
	NoProcesses bool `json:"no_processes,omitempty"`
}

type reply struct {
	ID       uint64    `json:"id"`
	Snapshot *Snapshot `json:"snapshot,omitempty"`
	Error    string    `json:"error,omitempty"`
	NoDriver bool      `json:"no_driver,omitempty"`
}

// Serve is the helper process: for each line of JSON that comes in it asks NVML and sends one line out. It returns when
// in ends, which it does when the parent is gone, also while NVML hangs; the caller must then end the process, as the
// hanging call cannot be ended. NVML is started at the first request, and again at later ones for as long as that
// fails.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	return serve(ctx, in, out, OpenNVML)
}

func serve(ctx context.Context, in io.Reader, out io.Writer, open func() (Source, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	requests := make(chan request)
	ended := make(chan error, 2) // room for both, as only the first is waited for
	go func() { ended <- receive(ctx, in, requests) }()
	go func() { ended <- answer(ctx, requests, out, open) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return fmt.Errorf("serve device snapshots: %w", ctx.Err())
	}
}

// receive passes the requests on until in ends.
func receive(ctx context.Context, in io.Reader, requests chan<- request) error {
	decoder := json.NewDecoder(in)
	for {
		var r request
		if err := decoder.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read a request for a device snapshot: %w", err)
		}
		select {
		case requests <- r:
		case <-ctx.Done():
			return nil
		}
	}
}

// answer replies to the requests until ctx ends.
func answer(ctx context.Context, requests <-chan request, out io.Writer, open func() (Source, error)) error {
	var source Source
	encoder := json.NewEncoder(out)
	for {
		select {
		case <-ctx.Done():
			if source != nil {
				return source.Close()
			}
			return nil
		case r := <-requests:
			var err error
			if source == nil {
				source, err = open()
			}
			if err := encoder.Encode(snapshotReply(ctx, r, source, err)); err != nil {
				return fmt.Errorf("send a device snapshot: %w", err)
			}
		}
	}
}

// partedSource is a Source that can leave the processes out.
type partedSource interface {
	snapshot(ctx context.Context, processes bool) (Snapshot, error)
}

func snapshotReply(ctx context.Context, r request, source Source, err error) reply {
	var snapshot Snapshot
	parted, ok := source.(partedSource)
	switch {
	case err != nil:
	case ok && r.NoProcesses:
		snapshot, err = parted.snapshot(ctx, false)
	default:
		snapshot, err = source.Snapshot(ctx)
	}
	if err != nil {
		return reply{ID: r.ID, Error: err.Error(), NoDriver: errors.Is(err, ErrNoDriver)}
	}
	return reply{ID: r.ID, Snapshot: &snapshot}
}
