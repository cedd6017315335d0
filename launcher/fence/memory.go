package fence

import (
	"fmt"
	"os"
	"runtime/metrics"
	"time"
)

// exitMemory is the status of a process of ours that took too much memory.
const exitMemory = 70 // EX_SOFTWARE of sysexits.h

// LimitMemory ends this process when its heap grows beyond so many bytes before stop is called. It is for a process
// that may die: see Process. (RLIMIT_AS and RLIMIT_DATA would count address space that Go and the race detector only
// reserve.)
func LimitMemory(bytes uint64) (stop func()) {
	stopped := make(chan struct{})
	go func() {
		tick := time.NewTicker(20 * time.Millisecond) // in which a heap can grow by some hundred MiB
		defer tick.Stop()
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		for {
			metrics.Read(sample)
			if sample[0].Value.Uint64() > bytes {
				fmt.Fprintf(os.Stderr, "more than %d MiB of memory were needed\n", bytes>>20)
				os.Exit(exitMemory) //nolint:forbidigo // nothing else stops a part that takes more and more
			}
			select {
			case <-stopped:
				return
			case <-tick.C:
			}
		}
	}()
	return func() { close(stopped) }
}

// OfferToKernel makes this process the first that the kernel ends when memory runs out.
func OfferToKernel() {
	// where that is not allowed, the kernel chooses for itself
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
}
