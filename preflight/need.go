package preflight

import (
	"fmt"
	"strings"

	"oomguard/checklists"
)

// needed is what a GPU needs, in words: a figure, or how much at least.
func (f Facts) needed() string {
	if f.Estimate.Open() {
		return "at least " + f.bytes(f.Estimate.Least())
	}
	return f.bytes(f.Estimate.PerGPU.DeviceBytes)
}

// undecided is the skip of a check that wants need percent of the device free, when what is known of the job leaves
// both answers open, or when nothing is known of the device.
func (f Facts) undecided(need float64) (checklists.Verdict, bool) {
	e := f.Estimate
	total := e.GPU.TotalBytes
	if total <= 0 {
		return skipped(f.needed()+" needed, and the memory of the GPU is unknown"+
			withNote(strings.Join(f.silentDevices(), "; ")), giveGPU), true
	}
	most, known := e.Most()
	if percentFree(total, e.Least()) < need || known && percentFree(total, most) >= need {
		return checklists.Verdict{}, false
	}
	detail := f.needed()
	if known {
		detail = fmt.Sprintf("between %s and %s", f.bytes(e.Least()), f.bytes(most))
	}
	return skipped(fmt.Sprintf("%s needed of %s (%s); %s", detail, f.bytes(total), e.GPU.Name, e.Lacks()),
		"give "+e.Give()), true
}

// open is the skip of a check that compares the need with something, when the job leaves both answers open.
func (f Facts) open() checklists.Verdict {
	return skipped(f.needed()+" needed; "+f.Estimate.Lacks(), "give "+f.Estimate.Give())
}

// decisive is the need that a verdict which is not undecided rests on, in bytes and in words: the least where that is
// too much already, else the most.
func (f Facts) decisive(need float64) (bytes int64, words string) {
	e := f.Estimate
	most, _ := e.Most()
	switch {
	case percentFree(e.GPU.TotalBytes, e.Least()) < need:
		return e.Least(), f.needed()
	case e.Open():
		return most, "at most " + f.bytes(most)
	}
	return most, f.bytes(most)
}

// left says what is left of total, or how much is lacking.
func (f Facts) left(total, used int64) string {
	if used > total {
		return f.bytes(used-total) + " more than there is"
	}
	return fmt.Sprintf("%s (%.1f %%) free", f.bytes(total-used), percentFree(total, used))
}

func percentFree(total, used int64) float64 { return 100 * float64(total-used) / float64(total) }
