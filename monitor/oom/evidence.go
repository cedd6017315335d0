package oom

import (
	"fmt"
	"sort"
	"strings"
)

// evidenceSigns bounds the lines quoted; evidencePeaks the stages.
const evidenceSigns = 8

// evidence lists what the diagnosis rests on, each with its numbers and its line in the log.
func (q *inquest) evidence() []string {
	list := []string{}
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if q.facts.Simulated {
		add("the message was raised on purpose by oomguard demo --oom; its numbers describe no real GPU")
	}
	if q.msg != nil {
		q.messageEvidence(add)
	}
	if q.caught > 0 {
		add("%s caught: the run went on after", count(q.caught, "out-of-memory message")+wasWere(q.caught))
	}
	if q.stage != "" {
		where := "the traceback"
		if q.fromProbe {
			where = "the probe inside the rank"
		}
		add("stage %s, according to %s", q.stage, where)
	}
	if word, first, last, ok := q.growth(); ok {
		add("the log's own figure %q rose steadily from %g to %g", strings.Trim(word, "| :"), first, last)
	}
	if q.log.LastStep > 0 && q.msg != nil {
		add("the last step printed before it was %d", q.log.LastStep)
	}
	for i, s := range q.log.Signs {
		if i == evidenceSigns {
			add("%d more such lines", len(q.log.Signs)-i)
			break
		}
		add("%s: %s", q.log.where(s.Line), s.Text)
	}
	q.deathEvidence(add)
	if e := q.log.Exception; e.Line > 0 && q.msg == nil {
		add("%s: %s", q.log.where(e.Line), e.Text)
	}
	for _, line := range q.facts.Observations {
		add("%s", line)
	}
	for _, line := range q.runEvidence() {
		add("%s", line)
	}
	for _, stage := range sortedKeys(q.facts.PeaksByStage) {
		add("measured peak in %s: %s", stage, size(q.facts.PeaksByStage[stage]))
	}
	return list
}

func wasWere(n int) string {
	if n == 1 {
		return " was"
	}
	return " were"
}

func (q *inquest) messageEvidence(add func(string, ...any)) {
	m := q.msg
	if m.Line > 0 {
		add("%s: %s", q.log.where(m.Line), m.Text)
	} else { // it stands in no text: a probe told of it
		add("%s", m.Text)
	}
	if m.TriedBytes >= 0 && m.FreeBytes >= 0 && m.TotalBytes >= 0 {
		add("tried %s, free %s of %s", size(m.TriedBytes), size(m.FreeBytes), size(m.TotalBytes))
	}
	if m.AllocatedBytes >= 0 && m.ReservedUnallocatedBytes >= 0 {
		add("PyTorch: %s allocated, %s reserved but unallocated (%s)", size(m.AllocatedBytes),
			size(m.ReservedUnallocatedBytes), q.holesVerdict())
	}
	if m.PrivatePoolBytes > 0 {
		add("%s belong to CUDA graph pools: idle memory there cannot serve other requests", size(m.PrivatePoolBytes))
	}
	if m.AllowedBytes >= 0 && m.AllowedBytes < m.TotalBytes {
		add("a memory fraction allows this process %s", size(m.AllowedBytes))
	}
	if q.outside >= 0 {
		basis := "this process"
		if m.ProcessBytes < 0 {
			basis = "PyTorch's reserve (a CUDA context and NCCL take 0.3 to 1.5 GiB of it)"
		}
		add("outside %s: %s", basis, size(q.outside))
	}
	if len(m.OtherProcesses) > 0 {
		add("listed by the driver: %s", listProcesses(m.OtherProcesses))
	}
	if m.OwnPID > 0 {
		add("process %d of the message is this process itself, under the host's number", m.OwnPID)
	}
	if q.unexplained() {
		add("free memory was read after the failure and exceeds the request: the numbers alone do not explain it " +
			"(another process in between, a driver limit)")
	}
	if m.Traceback.Nearest != "" {
		add("nearest frame of the project: %s", m.Traceback.Nearest)
	}
}

// holesVerdict says whether the cache could have served the request.
func (q *inquest) holesVerdict() string {
	m := q.msg
	switch {
	case m.TriedBytes < 0:
		return "the request is unknown"
	case m.ReservedUnallocatedBytes >= m.TriedBytes && q.share(m.ReservedUnallocatedBytes) >= holesShare:
		return "more than the request: holes"
	case m.FreeBytes >= 0 && m.FreeBytes+m.ReservedUnallocatedBytes < m.TriedBytes:
		return "with the free memory still less than the request: no fragmentation"
	}
	return "too little to speak of fragmentation"
}

func listProcesses(list []OtherProcessUse) string {
	const most = 6
	var parts []string
	for i, o := range list {
		if i == most {
			parts = append(parts, fmt.Sprintf("%d more", len(list)-most))
			break
		}
		parts = append(parts, fmt.Sprintf("process %d %s", o.PID, size(o.Bytes)))
	}
	return strings.Join(parts, ", ")
}

func (q *inquest) deathEvidence(add func(string, ...any)) {
	if d := q.rootDeath(); d != nil {
		who := "a process"
		if r := max(d.Rank, d.LocalRank); r >= 0 {
			who = fmt.Sprintf("rank %d", r)
		}
		where := ""
		if d.Line > 0 {
			where = q.log.where(d.Line) + ": "
		}
		add("%s%s ended with code %d%s (%s)", where, who, d.ExitCode, signalName(d.ExitCode), d.Launcher)
	}
	if q.killed() == nil {
		return
	}
	switch {
	case q.facts.CgroupOOMKills > 0:
		add("the cgroup's oom_kill counter rose by %d during the run", q.facts.CgroupOOMKills)
	case q.facts.CgroupOOMKills == 0:
		add("the cgroup's oom_kill counter did not rise: look for another sender (scheduler, preemption, a person, " +
			"the kernel's global OOM killer in dmesg)")
	case q.log.sign(SignOOMKiller) != nil: // the log itself says who did it
	default:
		add("whether the kernel did it is not in the log: look at dmesg (oom-kill), memory.events of the cgroup " +
			"(oom_kill), sacct or kubectl describe")
	}
}

// signalName names the signals that matter here.
func signalName(code int) string {
	if name := map[int]string{-6: "SIGABRT", -7: "SIGBUS", -9: "SIGKILL", -11: "SIGSEGV",
		-15: "SIGTERM"}[code]; name != "" {
		return " = " + name
	}
	return ""
}

func sortedKeys(m map[string]int64) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
