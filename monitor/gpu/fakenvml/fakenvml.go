// Package fakenvml builds a working libnvidia-ml.so.1 that answers from a file, so that tests reach the real NVML
// adapter on a machine without a GPU. Only tests import it.
package fakenvml

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// ScenarioVariable names the environment variable from which the fake library takes the path of its scenario file.
const ScenarioVariable = "FAKE_NVML_SCENARIO"

// All as Fault.Device means every GPU, and calls that concern none.
const All = -1

//go:embed fakenvml.c
var source string

// Scenario is the machine that the fake library shows.
type Scenario struct {
	Driver  string // driver version, "580.95.05"
	CUDA    int    // as NVML gives it: 12080 is 12.8
	Devices []Device
	Faults  []Fault
}

// Device is one fake GPU, or one MIG device of a GPU. What is free is the total less what is reserved and used.
type Device struct {
	Name, UUID, PCIBusID                 string
	TotalBytes, ReservedBytes, UsedBytes int64
	Major, Minor                         int // compute capability
	ComputeMode                          int // NVML's number: 0 default, 2 prohibited, 3 exclusive process
	Processes                            []Process
	MIG                                  []Device
}

// Process is one holder of memory in NVML's list for Kind: compute (also when empty), graphics or mps.
type Process struct {
	PID       int
	UsedBytes int64
	Unknown   bool // listed with NVML_VALUE_NOT_AVAILABLE instead of UsedBytes
	Kind      string
}

// Fault makes one NVML function, by its exported name, hang, crash, or else return Code on one GPU or on All.
type Fault struct {
	Function    string
	Device      int
	Code        int
	Hang, Crash bool
}

// Build compiles the fake library and returns the folder that holds it, for LD_LIBRARY_PATH. Each define is given to
// the compiler as -D: NO_<function> for the functions that can be left out, WIDE_PROCESS_INFO. It ends the test when
// there is no C compiler.
func Build(tb testing.TB, defines ...string) (dir string) {
	tb.Helper()
	dir = tb.TempDir()
	args := []string{"-shared", "-fPIC", "-O1", "-Wl,-soname,libnvidia-ml.so.1", "-o",
		filepath.Join(dir, "libnvidia-ml.so.1"), "-x", "c"}
	for _, define := range defines {
		args = append(args, "-D"+define)
	}
	compiler := exec.Command("cc", append(args, "-")...)
	compiler.Stdin = strings.NewReader(source)
	if out, err := compiler.CombinedOutput(); err != nil {
		tb.Fatalf("build the fake NVML library (needs a C compiler called cc): %v\n%s", err, out)
	}
	return dir
}

// WriteFile puts the scenario at path in one step: a program that uses the library sees the old or the new machine,
// never half.
func (s Scenario) WriteFile(path string) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), ".scenario-*")
	if err != nil {
		return fmt.Errorf("write scenario: %w", err)
	}
	_, err = temporary.WriteString(s.text())
	if closing := temporary.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write scenario: %w", err)
	}
	return nil
}

func (s Scenario) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "driver %s\ncuda %d\n", s.Driver, s.CUDA)
	for _, device := range s.Devices {
		device.write(&b, "gpu")
		for _, part := range device.MIG {
			part.write(&b, "mig")
		}
	}
	for _, fault := range s.Faults {
		action := "rc"
		if fault.Hang {
			action = "hang"
		}
		if fault.Crash {
			action = "crash"
		}
		fmt.Fprintf(&b, "fault %s %d %s %d\n", fault.Function, fault.Device, action, fault.Code)
	}
	return b.String()
}

func (d Device) write(b *strings.Builder, kind string) {
	fmt.Fprintf(b, "%s\nuuid %s\nname %s\nbus %s\nmemory %d %d %d\ncompute %d %d %d\n", kind, d.UUID, d.Name,
		d.PCIBusID,
		d.TotalBytes, d.ReservedBytes, d.UsedBytes, d.Major, d.Minor, d.ComputeMode)
	for _, process := range d.Processes {
		list, used := process.Kind, uint64(process.UsedBytes)
		if list == "" {
			list = "compute"
		}
		if process.Unknown {
			used = ^uint64(0)
		}
		fmt.Fprintf(b, "process %s %d %d\n", list, process.PID, used)
	}
}
