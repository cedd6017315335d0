package job

// product multiplies positive numbers; 0 when one is missing or the result is beyond anything real, so that nothing
// overflows.
func product(factors ...int) int {
	const limit = 1 << 50
	p := 1
	for _, f := range factors {
		if f <= 0 || p > limit/f {
			return 0
		}
		p *= f
	}
	return p
}

// ranks is the number of processes as far as it is known yet; 0 when it is not.
func (r *reader) ranks() int {
	if r.job.WorldSize.Known && !r.ownRanks() {
		return r.job.WorldSize.Value
	}
	return product(r.job.NNodes.Or(0), r.job.NProc.Or(0))
}
