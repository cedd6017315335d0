package job

// startsProcesses offers how many processes a framework starts in place of the one that python is.
func (r *reader) startsProcesses(nproc, nnodes Setting[int]) {
	r.starts = true
	for set, own := range map[*Setting[int]]Setting[int]{&r.job.NProc: nproc, &r.job.NNodes: nnodes} {
		if set.Origin == plainOrigin {
			set.replace(Setting[int]{})
		}
		set.take(own)
	}
}
