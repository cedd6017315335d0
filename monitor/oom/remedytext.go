package oom

import (
	"fmt"
	"slices"
	"strings"
)

// strangerBytes is the least that listed processes must hold to be worth naming; an idle CUDA context takes about as
// much.
const strangerBytes = 256 << 20

// strangers tells whether ending other processes would give something.
func (q *inquest) strangers() bool {
	return q.msg != nil && (q.others >= strangerBytes || q.otherProcess())
}

func (q *inquest) freeGPUWhy() string {
	if r := q.facts.Run; r.strangerTotal() >= strangerBytes {
		return "other processes hold " + size(r.strangerTotal()) + " on this GPU according to NVML: " +
			describeStrangers(r.Strangers)
	}
	if len(q.msg.OtherProcesses) > 0 {
		return fmt.Sprintf("other processes hold %s on this GPU: %s", size(q.others),
			listProcesses(q.msg.OtherProcesses))
	}
	return fmt.Sprintf("%s of %s are held outside this process's allocator; the message names no process",
		size(q.outside), size(q.msg.TotalBytes))
}

// asked repeats the numbers of the message, so that a reason speaks of this run.
func (q *inquest) asked() string {
	m := q.msg
	if m == nil || m.TriedBytes < 0 {
		return ""
	}
	s := "; here " + size(m.TriedBytes) + " more was asked for"
	if m.AllocatedBytes >= 0 {
		s += " beside " + size(m.AllocatedBytes) + " allocated"
	}
	if m.TotalBytes >= 0 {
		s += " of " + size(m.TotalBytes)
	}
	return s
}

// because says how much of the predicted peak the parts are; without an estimate, that it died while they were alive.
func (q *inquest) because(parts []string) string {
	if r := q.facts.Run; r != nil && r.PartsStage != "" {
		var sum, all int64
		for name, bytes := range r.Parts {
			all += bytes
			if slices.Contains(parts, name) {
				sum += bytes
			}
		}
		names := strings.ReplaceAll(strings.Join(parts, ", "), "_", " ")
		return fmt.Sprintf("; here %s are predicted to take %s of %s in %s", names, size(sum), size(all), r.PartsStage)
	}
	alive := map[string][]string{
		"forward": {"activations", "logits", "parameters"}, "backward": {"activations", "logits", "gradients"},
		"eval":           {"activations", "logits"},
		"optimizer-init": {"gradients", "optimizer"}, "optimizer-step": {"gradients", "optimizer"},
		"model-load": {"parameters"},
	}
	for _, p := range parts {
		if slices.Contains(alive[q.stage], p) {
			return "; it died in " + q.stage + ", where these are alive"
		}
	}
	return ""
}

func (q *inquest) holesWhy() string {
	m := q.msg
	if m == nil || m.ReservedUnallocatedBytes < 0 {
		return "cached memory could not be joined to one block"
	}
	return fmt.Sprintf("%s lay reserved and unallocated, %s were asked for", size(m.ReservedUnallocatedBytes),
		size(m.TriedBytes))
}

// allocConfHelps: the setting is not on yet, and there is one to name: expandable segments where they work,
// max_split_size_mb elsewhere, which the cudaMallocAsync backend ignores too.
func (q *inquest) allocConfHelps() bool {
	return !q.expandableOn() && (q.msg == nil || q.msg.Form != FormAsync)
}

func (q *inquest) leakWhy() string {
	if k, ok := q.facts.Run.leak(); ok {
		return fmt.Sprintf("what was allocated after a step grew from %s to %s between steps %d and %d",
			size(k.firstBytes), size(k.lastBytes), k.firstStep, k.lastStep)
	}
	if _, first, last, ok := q.growth(); ok {
		return fmt.Sprintf("memory in use rose from %g to %g in the log's own unit while the work per step stayed "+
			"the same", first, last)
	}
	return fmt.Sprintf("it ran %d steps before memory ran out: something is kept, or one batch was much longer than "+
		"the others", q.log.LastStep)
}

func (q *inquest) fractionWhy() string {
	return fmt.Sprintf("a memory fraction allows this process %s of %s, and %s are free", size(q.msg.AllowedBytes),
		size(q.msg.TotalBytes), size(q.msg.FreeBytes))
}

func (q *inquest) badAllocConfWhy() string {
	return fmt.Sprintf("PyTorch does not accept the setting%s: %s: %s", quoted(q.facts.AllocConf),
		q.signPlace(SignAllocatorConfig), q.signText(SignAllocatorConfig))
}

func (q *inquest) killWhy() string {
	if s := q.log.sign(SignOOMKiller); s != nil {
		return fmt.Sprintf("host memory ran out, %s: %s", q.log.where(s.Line), s.Text)
	}
	if q.facts.CgroupOOMKills > 0 {
		return fmt.Sprintf("the cgroup's memory limit killed %s during the run",
			count(q.facts.CgroupOOMKills, "process"))
	}
	return "a process was killed with SIGKILL without a word, as the kernel does; a container's limit does not show " +
		"in the host's figures"
}

func (q *inquest) signPlace(kind SignKind) string {
	if s := q.log.sign(kind); s != nil {
		return q.log.where(s.Line)
	}
	return ""
}

func (q *inquest) signText(kind SignKind) string {
	if s := q.log.sign(kind); s != nil {
		return s.Text
	}
	return ""
}

func quoted(s string) string {
	if s == "" {
		return ""
	}
	return fmt.Sprintf(" %q", s)
}
