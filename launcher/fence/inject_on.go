//go:build faults

package fence

import (
	"fmt"
	"math"
	"os"
	"reflect"
	"strings"
	"time"
)

// FaultVariable names the part that is to fail, and how: "reading the script=panic". The ways: panic, hang, memory
// (takes more and more), stack (endless recursion), exit (the process ends), garbage (see Garble).
const FaultVariable = "OOMGUARD_TEST_FAULT"

// PartsVariable names a file to which the name of each part is added, so that a test learns what can fail.
const PartsVariable = "OOMGUARD_TEST_PARTS"

func list(part string) {
	name := os.Getenv(PartsVariable)
	if name == "" {
		return
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err == nil {
		fmt.Fprintln(f, part)
		f.Close()
	}
}

// Limit shortens how long a part may take, so that a test need not wait.
func Limit(limit time.Duration) time.Duration { return min(limit, time.Second) }

func wanted(part string) (how string) {
	name, how, ok := strings.Cut(os.Getenv(FaultVariable), "=")
	if !ok || part != name {
		return ""
	}
	return how
}

func inject(part string) {
	list(part)
	switch wanted(part) {
	case "panic":
		panic("a fault made by a test")
	case "hang":
		time.Sleep(time.Hour)
	case "memory":
		var kept [][]byte
		for {
			block := make([]byte, 16<<20)
			for i := range block {
				block[i] = 1
			}
			kept = append(kept, block)
		}
	case "stack":
		fmt.Fprint(os.Stderr, endless(0))
	case "exit":
		os.Exit(exitOfTest)
	}
}

const exitOfTest = 9

func endless(depth int) int { return endless(depth+1) + depth }

// Garble fills the exported fields of what value points to with numbers and texts that make no sense.
func Garble(part string, value any) {
	if wanted(part) == "garbage" {
		garble(reflect.ValueOf(value), 0)
	}
}

func garble(v reflect.Value, depth int) {
	const deepest = 8
	if depth > deepest {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() && v.CanSet() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		garble(v.Elem(), depth+1)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				garble(v.Field(i), depth+1)
			}
		}
	case reflect.Slice:
		if v.CanSet() {
			v.Set(reflect.MakeSlice(v.Type(), 3, 3))
		}
		for i := range v.Len() {
			garble(v.Index(i), depth+1)
		}
	case reflect.String:
		if v.CanSet() {
			v.SetString("\x1b]0;garbage\x07\x00\xff %s\n::error::")
		}
	case reflect.Bool:
		if v.CanSet() {
			v.SetBool(true)
		}
	case reflect.Int, reflect.Int64:
		if v.CanSet() {
			v.SetInt(math.MinInt32)
		}
	case reflect.Float64:
		if v.CanSet() {
			v.SetFloat(math.NaN())
		}
	}
}
