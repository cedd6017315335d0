package preflight

import "oomguard/checklists"

// Checks is every check there is before a run, one file each; a checklist says which are asked. A check comes after those that it
// names in After. To add one: a file check_<id>.go, a line here and one in checklists/pretraining.yaml.
func Checks() []checklists.Check[Facts] {
	return []check{
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
	}
}
