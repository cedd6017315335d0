package main

import (
	"debug/elf"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestBuiltBinaryStartsWithoutADriver: the binary that make build makes binds NVML's functions when they are first
// called. Bound at start (-z now, the default of hardened toolchains), it would die before main on every machine
// without a driver.
func TestBuiltBinaryStartsWithoutADriver(t *testing.T) {
	binary := builtBinary(t)
	file, err := elf.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if undefined, err := file.ImportedSymbols(); err != nil || !hasNVML(undefined) {
		t.Errorf("the binary imports no NVML functions (%v): the test looks at the wrong thing", err)
	}
	flags, err := file.DynValue(elf.DT_FLAGS)
	if err != nil {
		t.Fatal(err)
	}
	flags1, err := file.DynValue(elf.DT_FLAGS_1)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range flags {
		if elf.DynFlag(f)&elf.DF_BIND_NOW != 0 {
			t.Error("DT_FLAGS has BIND_NOW")
		}
	}
	for _, f := range flags1 {
		if elf.DynFlag1(f)&elf.DF_1_NOW != 0 {
			t.Error("DT_FLAGS_1 has NOW")
		}
	}
	start := exec.Command(binary, "estimate", "--params", "7B")
	start.Env = []string{"PATH=" + os.Getenv("PATH")}
	if out, err := start.CombinedOutput(); err != nil || !strings.Contains(string(out), "7.00 B parameters") {
		t.Errorf("without a driver: %v\n%s", err, out)
	}
}

func hasNVML(symbols []elf.ImportedSymbol) bool {
	for _, s := range symbols {
		if strings.HasPrefix(s.Name, "nvmlDevice") {
			return true
		}
	}
	return false
}
