// Package fence keeps a fault of ours inside the part of the work in which it happens: a panic, a hang, a process of
// ours that dies become a Fault that says which part failed, and everything else goes on. It is the only place that
// recovers from a panic.
package fence

import (
	"fmt"
	"runtime/debug"
	"time"
)

// A Fault is a failure of oomguard itself, never of the user's input.
type Fault struct {
	Part  string `json:"part"`  // what was being done: "reading the script"
	What  string `json:"what"`  // "panic: index out of range", "no answer after 20s"
	Stack string `json:"stack"` // where; "" when that is not known
}

// Error is one line for the user.
func (f *Fault) Error() string {
	return fmt.Sprintf("oomguard failed while %s, by a fault of its own: %s", f.Part, f.What)
}

// Do runs a part of the work here and returns the panic that ended it, or nil.
func Do(part string, do func()) (fault *Fault) {
	defer func() {
		if cause := recover(); cause != nil {
			fault = &Fault{Part: part, What: fmt.Sprint("panic: ", cause), Stack: string(debug.Stack())}
		}
	}()
	inject(part)
	do()
	return nil
}

// Within is Do with a time limit. A part that is late is left to itself, so it must hand over all it makes as its
// result.
func Within[T any](part string, limit time.Duration, do func() T) (T, *Fault) {
	type end struct {
		result T
		fault  *Fault
	}
	limit = Limit(limit)
	ended := make(chan end, 1)
	go func() {
		var e end
		e.fault = Do(part, func() { e.result = do() })
		ended <- e
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case e := <-ended:
		return e.result, e.fault
	case <-timer.C:
		var none T
		return none, late(part, limit)
	}
}

func late(part string, limit time.Duration) *Fault {
	return &Fault{Part: part, What: fmt.Sprintf("no answer after %s", limit)}
}
