package preflight

import "oomguard/checklists"

// Checks is every check there is before a run, one file each; a checklist says which are asked. A check comes after
// those that it names in After. To add one: a file check_<id>.go, a line here and one in checklists/pretraining.yaml.
func Checks() []checklists.Check[Facts] {
	return seen([]check{
		totalEstimated(),
		partsMeasured(),
		bottleneckKnown(),
		remedyChosen(),
		headroomKept(),
		remedyTriedSmall(),

		jobConsistent(),
		commandFound(),
		scriptFound(),
		interpreterFound(),
		weightsComplete(),

		nvmlAvailable(),
		cudaVisibleDevices(),
		gpuCount(),
		gpuMemoryFree(),
		headroom(),
		otherProcesses(),
		computeMode(),
		allocConf(),

		hostMemory(),
		sharedMemory(),
		runFolderWritable(),
	})
}

// seen makes each check a skip where what it judges could not be gathered by a fault of ours.
func seen(checks []check) []check {
	for i, c := range checks {
		checks[i].Judge = func(f Facts, with checklists.Params) checklists.Verdict {
			if fault := f.unseen[c.ID]; fault != nil {
				return skipped(fault.Error(), "report it; the other checks do not depend on it")
			}
			return c.Judge(f, with)
		}
	}
	return checks
}
