package fence

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test binary stand for a process of ours: behave has what it does.
func TestMain(m *testing.M) {
	if how := os.Getenv("FENCE_TEST"); how != "" {
		behave(how)
		return
	}
	os.Exit(m.Run())
}

func behave(how string) {
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var n int
		if in.Decode(&n) != nil {
			return
		}
		switch how {
		case "twice":
			_ = out.Encode(2 * n)
		case "panics":
			panic("so it goes")
		case "garbage":
			fmt.Println("no JSON")
		case "another kind":
			fmt.Println(`{"a": "text"}`)
		case "hangs":
			time.Sleep(time.Hour)
		case "memory":
			defer LimitMemory(64 << 20)()
			var kept [][]byte
			for {
				if kept = append(kept, make([]byte, 1<<20)); len(kept) == 0 {
					return
				}
			}
		case "stack":
			fmt.Println(deep(n))
		}
	}
}

//nolint:staticcheck // without end, as it is meant
func deep(n int) int { return deep(n+1) + n }

func process(t *testing.T, how string) *Process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := Start([]string{self}, append(os.Environ(), "FENCE_TEST="+how))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// long is more than any answer takes, on the slowest machine.
const long = time.Hour

func TestDo(t *testing.T) {
	if fault := Do("a part", func() {}); fault != nil {
		t.Errorf("nothing failed: %v", fault)
	}
	var none []int
	fault := Do("a part", func() { none[3]++ })
	if fault == nil || fault.Part != "a part" || !strings.Contains(fault.What, "index out of range") ||
		!strings.Contains(fault.Stack, "TestDo") {
		t.Errorf("got %+v", fault)
	}
}

func TestWithin(t *testing.T) {
	if n, fault := Within("a part", long, func() int { return 3 }); n != 3 || fault != nil {
		t.Errorf("got %d, %v", n, fault)
	}
	if n, fault := Within("a part", long, func() int { panic("no") }); n != 0 || fault == nil {
		t.Errorf("a panic: got %d, %v", n, fault)
	}
	never := make(chan int)
	if n, fault := Within("a part", time.Millisecond, func() int { return <-never }); n != 0 || fault == nil {
		t.Errorf("a hang: got %d, %v", n, fault)
	}
}

func TestProcessAnswers(t *testing.T) {
	p := process(t, "twice")
	for n := range 3 {
		var twice int
		if fault := p.Ask("doubling", long, n, &twice); fault != nil || twice != 2*n {
			t.Fatalf("twice %d: %d, %v", n, twice, fault)
		}
	}
}

// TestProcessFails: whatever becomes of the process, the one that asks gets a fault that says what.
func TestProcessFails(t *testing.T) {
	for how, words := range map[string]string{
		"panics": "panic: so it goes", "garbage": "invalid character", "another kind": "cannot unmarshal",
		"memory": "more than 64 MiB", "stack": "stack exceeds", "hangs": "no answer after",
	} {
		t.Run(how, func(t *testing.T) {
			limit := long
			if how == "hangs" {
				limit = 50 * time.Millisecond // what is tested
			}
			p := process(t, how)
			var n int
			fault := p.Ask("doubling", limit, 1, &n)
			if fault == nil || fault.Part != "doubling" || !strings.Contains(fault.What, words) {
				t.Errorf("got %+v", fault)
			}
			if again := p.Ask("doubling", limit, 1, &n); again == nil {
				t.Error("a process that has failed answered again")
			}
		})
	}
}
