package preflight

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"oomguard/checklists"
)

func nvmlAvailable() check {
	return check{
		ID:    "nvml-available",
		Title: "The GPUs of this machine can be seen through NVML",
		Judge: judgeNVMLAvailable,
	}
}

func judgeNVMLAvailable(f Facts, _ checklists.Params) checklists.Verdict {
	expected := f.DriverFault || len(f.Host.DriverFiles) > 0
	why := "the driver lists no GPU"
	if f.DevicesErr != nil {
		why = f.DevicesErr.Error()
	}
	switch {
	case f.elsewhere():
		return skipped("judged against "+f.Declared+", not against this machine",
			"nothing to do here; this is judged where the job starts")
	case len(f.Devices) > 0:
		return f.judgeLost()
	case expected:
		return failed(fmt.Sprintf("%s, and a GPU is expected here (%s)", why, f.signs()),
			"see whether nvidia-smi works; in a container, start it with GPU access (--gpus all); after a driver "+
				"update, reboot")
	case f.onCPU():
		return skipped("no NVIDIA driver here, and the job runs on the CPU", "nothing to do for a job without GPUs")
	case len(f.Host.OtherAccelerators) > 0:
		return skipped(fmt.Sprintf("the accelerator here (%s) is not seen through NVML: %s",
			strings.Join(f.Host.OtherAccelerators, ", "), why),
			"free memory cannot be checked on it; look at its own tool (rocm-smi, tegrastats)")
	case f.Mode == ModeRun:
		return warned("no GPU is visible and there is no sign of a driver: "+why,
			"start the job on a machine with a GPU, or leave it if it is meant to run on the CPU")
	}
	return skipped("no NVIDIA driver on this machine: "+why, "give --gpu, or run this where the job will run")
}

// judgeLost looks for devices that answer that they cannot be used. The driver then refuses CUDA too.
func (f Facts) judgeLost() checklists.Verdict {
	var lost, spare, silent []string
	used := f.used()
	for _, d := range f.Devices {
		mine := slices.ContainsFunc(used, func(u Device) bool { return u.Index == d.Index && u.UUID == d.UUID })
		switch {
		case d.Lost != "" && mine && !f.onCPU():
			lost = append(lost, label(d)+": "+d.Lost)
		case d.Lost != "":
			spare = append(spare, label(d)+": "+d.Lost)
		case d.Name == "" && d.UUID == "":
			silent = append(silent, label(d)+withNote(cmp.Or(d.Note, d.Unknown.Memory)))
		}
	}
	const choose = "reset or replace the GPU, or leave it out (CUDA_VISIBLE_DEVICES)"
	switch {
	case len(lost) > 0 && f.usesCertainly():
		return failed(strings.Join(lost, "; ")+". A rank on it would die at its first CUDA call", choose)
	case len(lost)+len(spare) > 0:
		return warned(strings.Join(append(lost, spare...), "; ")+
			". Whether the job uses it is not certain, and a lost GPU may keep CUDA from the others", choose)
	case len(silent) > 0:
		return warned("could not be read: "+strings.Join(silent, "; "), "see whether nvidia-smi shows it")
	}
	return passed(fmt.Sprintf("%d visible: %s", len(f.Devices), deviceNames(f.Devices)))
}

// signs says why a GPU is expected.
func (f Facts) signs() string {
	if len(f.Host.DriverFiles) > 0 {
		return strings.Join(f.Host.DriverFiles, ", ")
	}
	return "a driver answered"
}

// deviceNames counts equal GPUs: "8 x NVIDIA H100 80GB HBM3".
func deviceNames(devices []Device) string {
	count := map[string]int{}
	var order []string
	for _, d := range devices {
		if count[d.Name] == 0 {
			order = append(order, d.Name)
		}
		count[d.Name]++
	}
	for i, name := range order {
		order[i] = fmt.Sprintf("%d x %s", count[name], name)
	}
	return strings.Join(order, ", ")
}
