//go:build linux && cgo

package gpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"oomguard/monitor/gpu/fakenvml"
)

// helperMode makes the test binary play the helper process, in one of the ways of helperModes.
const helperMode = "GPU_TEST_HELPER"

// quickExit keeps a helper that was built with -race from waiting a second before it ends.
const quickExit = "GORACE=atexit_sleep_ms=0"

// helperModes are what a helper may do, good and bad.
var helperModes = map[string]func() error{
	"serve": func() error { return Serve(context.Background(), os.Stdin, os.Stdout) },
	"no library": func() error {
		return serve(context.Background(), os.Stdin, os.Stdout,
			func() (Source, error) { return openNVML([]string{"libnvidia-ml-of-no-machine.so.1"}) })
	},
	"not NVML": func() error {
		return serve(context.Background(), os.Stdin, os.Stdout,
			func() (Source, error) { return openNVML([]string{"libc.so.6"}) })
	},
	// What glibc's loader does when a function is called that the library lacks.
	"no symbol": func() error {
		fmt.Fprintln(os.Stderr, "oomguard: symbol lookup error: oomguard: undefined symbol: nvmlDeviceGetMemoryInfo_v2")
		os.Exit(127)
		return nil
	},
	"garbage": func() error {
		fmt.Println("Welcome to the machine")
		_, err := os.Stdin.Read(make([]byte, 1))
		return err
	},
	"half a reply": func() error {
		fmt.Print(`{"id":1,"snap`)
		return errors.New("out of host memory")
	},
	"environment": func() error {
		fmt.Fprintf(os.Stderr, "LD_BIND_NOW is %q\n", os.Getenv("LD_BIND_NOW"))
		os.Exit(3)
		return nil
	},
}

func TestMain(m *testing.M) {
	play, ok := helperModes[os.Getenv(helperMode)]
	if !ok {
		os.Exit(m.Run())
	}
	if err := play(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// clock is a time that stands still until it is moved.
type clock struct{ time time.Time }

func (c *clock) now() time.Time { return c.time }

// machine is a fake library and its scenario.
type machine struct {
	tb       testing.TB
	dir      string
	scenario string
}

func newMachine(tb testing.TB, s fakenvml.Scenario, defines ...string) machine {
	tb.Helper()
	m := machine{tb, fakenvml.Build(tb, defines...), filepath.Join(tb.TempDir(), "scenario")}
	m.becomes(s)
	return m
}

func (m machine) becomes(s fakenvml.Scenario) {
	m.tb.Helper()
	if err := s.WriteFile(m.scenario); err != nil {
		m.tb.Fatal(err)
	}
}

func (m machine) environment() []string {
	return append(os.Environ(), quickExit, helperMode+"=serve", "LD_LIBRARY_PATH="+m.dir,
		fakenvml.ScenarioVariable+"="+m.scenario)
}

// open starts a helper on the machine.
func (m machine) open(o HelperOptions) *helper {
	m.tb.Helper()
	o.Env = m.environment()
	return openSelf(m.tb, o)
}

func openSelf(tb testing.TB, o HelperOptions) *helper {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	source, err := OpenHelper([]string{self}, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := source.Close(); err != nil {
			tb.Error(err)
		}
	})
	return source.(*helper)
}

func playing(mode string) HelperOptions {
	return HelperOptions{Env: append(os.Environ(), quickExit, helperMode+"="+mode, "LD_BIND_NOW=1")}
}

func wantText(t *testing.T, err error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", texts)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q lacks %q", err, text)
		}
	}
}

func TestHelperHang(t *testing.T) {
	s := twoGPUs()
	s.Faults = []fakenvml.Fault{{Function: "nvmlDeviceGetMemoryInfo_v2", Device: 1, Hang: true}}
	m := newMachine(t, s)
	h := m.open(HelperOptions{})
	c := &clock{time.Unix(1e9, 0)}
	h.now = c.now

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := h.Snapshot(ctx)
	wantText(t, err, "NVML did not answer within", "the driver may be hung")
	var timeout interface{ Timeout() bool }
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("%v is not marked as a timeout", err)
	}

	_, err = h.Snapshot(t.Context())
	wantText(t, err, "asked again in 1s", "did not answer")

	m.becomes(twoGPUs())
	c.time = c.time.Add(time.Second)
	snapshot, err := h.Snapshot(t.Context())
	if err != nil || len(snapshot.Devices) != 2 {
		t.Fatalf("after the restart: %v, %v", snapshot, err)
	}
}

func TestHelperOptionsLimitASnapshot(t *testing.T) {
	s := twoGPUs()
	s.Faults = []fakenvml.Fault{{Function: "nvmlInit_v2", Device: fakenvml.All, Hang: true}}
	h := newMachine(t, s).open(HelperOptions{FirstTimeout: 200 * time.Millisecond})
	_, err := h.Snapshot(t.Context())
	wantText(t, err, "NVML did not answer within 200ms")
}

// The helper must not outlive its parent, also while it hangs.
func TestHelperEndsWithItsInput(t *testing.T) {
	s := twoGPUs()
	s.Faults = []fakenvml.Fault{{Function: "nvmlInit_v2", Device: fakenvml.All, Hang: true}}
	h := newMachine(t, s).open(HelperOptions{})
	if _, err := h.child.in.Write([]byte("{\"id\":1}\n")); err != nil {
		t.Fatal(err)
	}
	if err := h.child.in.Close(); err != nil {
		t.Fatal(err)
	}
	<-h.child.gone
	if h.child.waitErr != nil {
		t.Errorf("the helper ended with %v", h.child.waitErr)
	}
}

func TestHelperCrash(t *testing.T) {
	s := twoGPUs()
	s.Faults = []fakenvml.Fault{{Function: "nvmlDeviceGetName", Device: 0, Crash: true}}
	m := newMachine(t, s)
	h := m.open(HelperOptions{})
	c := &clock{time.Unix(1e9, 0)}
	h.now = c.now
	for _, pause := range []time.Duration{time.Second, 4 * time.Second, 16 * time.Second, 64 * time.Second} {
		_, err := h.Snapshot(t.Context())
		wantText(t, err, "the NVML helper died", "crash in nvmlDeviceGetName; SIGABRT")
		if got := h.retryAt.Sub(c.time); got != pause {
			t.Errorf("the pause is %v, want %v", got, pause)
		}
		c.time = h.retryAt
	}
	_, err := h.Snapshot(t.Context())
	wantText(t, err, "not asked any more after 4 failures", "SIGABRT")
}

func TestHelperForgetsOldFailures(t *testing.T) {
	h := newMachine(t, twoGPUs()).open(HelperOptions{})
	c := &clock{h.child.started}
	h.now, h.failures = c.now, 3
	for _, want := range []struct {
		age      time.Duration
		failures int
	}{{healthyAfter - 1, 3}, {healthyAfter, 0}} {
		c.time = h.child.started.Add(want.age)
		if _, err := h.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		if h.failures != want.failures {
			t.Errorf("after %v %d failures are remembered, want %d", want.age, h.failures, want.failures)
		}
	}
}

func TestHelperCancelledLivesOn(t *testing.T) {
	m := newMachine(t, twoGPUs())
	h := m.open(HelperOptions{})
	pid := h.child.cmd.Process.Pid
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// the request is out; its reply comes late, or just in time
	if _, err := h.ask(ctx, request{}); !errors.Is(err, context.Canceled) && err != nil {
		t.Fatal(err)
	}
	if _, err := h.Snapshot(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled snapshot gives %v", err)
	}
	snapshot, err := h.Snapshot(t.Context())
	if err != nil || len(snapshot.Devices) != 2 || h.child.cmd.Process.Pid != pid {
		t.Errorf("after a cancelled one: %v, %v, helper %d, was %d", snapshot, err, h.child.cmd.Process.Pid, pid)
	}
}

func TestHelperBadEnds(t *testing.T) {
	for mode, want := range map[string][]string{
		"no symbol":    {"died (exit status 127)", "undefined symbol: nvmlDeviceGetMemoryInfo_v2", "update the driver"},
		"garbage":      {"sent something else than a reply", "same version of oomguard"},
		"half a reply": {"died (exit status 1): out of host memory"},
		"environment":  {"died (exit status 3)", `LD_BIND_NOW is ""`},
	} {
		t.Run(mode, func(t *testing.T) {
			_, err := openSelf(t, playing(mode)).Snapshot(t.Context())
			wantText(t, err, want...)
		})
	}
}

func TestHelperWithoutDriver(t *testing.T) {
	for mode, want := range map[string][]string{
		"no library": {"load NVIDIA's management library", "libnvidia-ml-of-no-machine.so.1", "install the driver",
			"--gpu"},
		"not NVML": {"libc.so.6 has no nvmlInit"},
	} {
		t.Run(mode, func(t *testing.T) {
			h := openSelf(t, playing(mode))
			for range 2 { // the helper survives it
				_, err := h.Snapshot(t.Context())
				wantText(t, err, want...)
				if !errors.Is(err, ErrNoDriver) {
					t.Errorf("%v is not ErrNoDriver", err)
				}
			}
			if h.failures != 0 {
				t.Errorf("a machine without a driver counts as %d failures of the helper", h.failures)
			}
		})
	}
}

func TestOpenHelperErrors(t *testing.T) {
	_, err := OpenHelper(nil, HelperOptions{})
	wantText(t, err, "no program is given")
	_, err = OpenHelper([]string{filepath.Join(t.TempDir(), "missing")}, HelperOptions{})
	wantText(t, err, "start the NVML helper", "no such file")
}

func TestHelperClosed(t *testing.T) {
	h := newMachine(t, twoGPUs()).open(HelperOptions{})
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := h.Snapshot(t.Context())
	wantText(t, err, "closed")
}

func TestTailKeepsTheEnd(t *testing.T) {
	for _, tt := range []struct{ written, want string }{
		{"", ""},
		{"\n \n", ""},
		{"only", ": only"},
		{"a\nb\nc\nd\n\n", ": b; c; d"},
		{"a\nb\nSIGSEGV: segmentation violation\nPC=0\nrax 0\nrbx 0\n", ": b; SIGSEGV: segmentation violation; PC=0"},
		{"panic: oh\n", ": panic: oh"},
		{strings.Repeat("x\n", 100000) + "\xff end\n", ": x; x; ? end"},
		{strings.Repeat("y", 100000), ": " + strings.Repeat("y", lineBytes)},
	} {
		keep := &tail{}
		for part := range strings.SplitAfterSeq(tt.written, "\n") {
			if _, err := keep.Write([]byte(part)); err != nil {
				t.Fatal(err)
			}
		}
		if got := keep.lastWords(); got != tt.want || len(keep.last) > 2*tailBytes {
			t.Errorf("the end of %.20q... is %q, want %q; %d bytes kept", tt.written, got, tt.want, len(keep.last))
		}
	}
}
