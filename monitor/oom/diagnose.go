package oom

import (
	"fmt"
	"slices"
	"strings"
)

// Diagnose says why a run died and what to change. It is pure: equal logs and facts give equal diagnoses. Call it for a
// run that did not end well, or for a log of which nothing else is known.
func Diagnose(log *Log, facts Facts) Diagnosis {
	q := newInquest(log, facts)
	d := Diagnosis{Schema: Schema, Rank: q.rank(), GPU: q.gpu(), Stage: q.stage, Simulated: facts.Simulated,
		OOMs: log.localMessages()}
	for _, r := range rules() {
		if r.holds(q) {
			d.Cause, d.Confidence = r.cause, r.confidence
			break
		}
	}
	if d.Unread = facts.Unread; len(d.Unread) > 0 && d.Cause == NotOOM {
		d.Confidence = low // the message may stand where nobody looked
	}
	d.Summary = q.summary(d)
	d.Evidence = q.evidence()
	d.NotCauses = q.excluded(d.Cause)
	d.Situations = q.situations(d.Cause)
	d.Framework = q.framework()
	d.Remedies = q.remedies(d.Cause)
	return d
}

func (q *inquest) rank() int {
	if q.facts.Rank >= 0 {
		return q.facts.Rank
	}
	if q.msg != nil && q.msg.Rank >= 0 {
		return q.msg.Rank
	}
	if d := q.rootDeath(); d != nil && q.caught == 0 {
		// on one node the local rank is the rank, and a log of one node names no other
		return max(d.Rank, d.LocalRank)
	}
	if e := q.log.firstException; q.msg == nil && e.Line > 0 && e.Rank >= 0 {
		return e.Rank
	}
	for _, s := range q.log.Signs {
		if s.Rank >= 0 && q.msg == nil { // beside a message of an unknown rank signs are mostly echoes of others
			return s.Rank
		}
	}
	return -1
}

func (q *inquest) gpu() int {
	if q.facts.GPU >= 0 {
		return q.facts.GPU
	}
	if s := q.log.sign(SignNCCL); q.msg == nil && s != nil {
		return s.GPU
	}
	if q.msg == nil {
		return -1
	}
	return q.msg.GPU
}

// sentences say in one sentence what each cause means.
var sentences = map[Cause]string{
	Capacity:           "the job needs more memory than the GPU has",
	FragmentationCause: "the allocator held enough memory for the request, but in pieces that it could not join",
	OtherProcess:       "something outside this process holds a large part of the GPU",
	ModelLoad:          "the GPU was full before training began, while the model was loaded or moved to it",
	OptimizerInit: "the optimizer's state, which is made at the first step, did not fit beside the weights " +
		"and gradients",
	Activation: "the activations of the forward and backward pass did not fit",
	LogitsLoss: "the logits over the whole vocabulary, and the copies that the loss makes of them, did " +
		"not fit",
	EvalGenerate:         "evaluation or generation needed more than training",
	LeakGrowth:           "memory in use grew until the GPU was full, so something is kept from step to step",
	SingleHugeAllocation: "one single tensor is too large for this GPU",
	HostOOMKill:          "a process was killed with SIGKILL, as the kernel does when host memory runs out",
	ShmBusError:          "a process died of a bus error, as happens when /dev/shm is full",
	NCCLOOM:              "NCCL found no room for its buffers on a full GPU",
	CublasAllocFailed:    "cuBLAS or cuDNN found no room for its workspace on a full GPU",
	CudaContextOOM:       "a CUDA call outside PyTorch's allocator found the GPU full",
	DriverUnifiedMemory: "the driver refused memory for a reason other than PyTorch's use of the GPU (shared " +
		"system memory, WSL, Tegra, virtual addresses)",
	AllocatorConfigError: "PyTorch refused the allocator setting, before any memory was used",
	HIPROCm:              "an AMD GPU ran out of memory",
	MPSXPU:               "an Apple or Intel GPU ran out of memory",
	JAXTF:                "JAX, TensorFlow or another program than PyTorch ran out of GPU memory",
	NotOOM:               "nothing shows that memory ran out",
	NoCause: "why it ended is not known: nothing shows that memory ran out, and nothing shows another " +
		"cause",
}

func (q *inquest) summary(d Diagnosis) string {
	var b strings.Builder
	if d.Simulated {
		b.WriteString("simulated: ")
	}
	if d.Cause == LeakGrowth && q.msg == nil {
		b.WriteString("memory in use grew through the whole log, so something is kept from step to step; how the " +
			"run ended is not in it")
		return b.String()
	}
	if d.Cause == CublasAllocFailed && q.log.sign(SignLibrary) == nil {
		b.WriteString("a GPU library could not be started, as happens on a full GPU; a bad index before it and " +
			"libraries that do not fit the driver give the same words")
		return b.String()
	}
	b.WriteString(sentences[d.Cause])
	if d.Cause == NotOOM || d.Cause == NoCause {
		instead, _ := q.instead()
		b.WriteString(instead)
		return b.String()
	}
	if q.msg != nil && q.msg.TriedBytes >= 0 {
		fmt.Fprintf(&b, "; %s more was asked for", size(q.msg.TriedBytes))
		if q.msg.TotalBytes >= 0 {
			fmt.Fprintf(&b, " on a GPU of %s", size(q.msg.TotalBytes))
		}
		if q.msg.FreeBytes >= 0 {
			fmt.Fprintf(&b, " with %s free", size(q.msg.FreeBytes))
		}
	}
	if d.Stage != "" {
		fmt.Fprintf(&b, " (stage %s)", d.Stage)
	}
	return b.String()
}

// instead says what ended a run that did not run out of memory, as far as it shows; proof: it is a cause of its own. A
// status of 1 alone is none, since a shortage that nobody could read gives it too.
func (q *inquest) instead() (text string, proof bool) {
	switch {
	case q.facts.ExitCode == 0 && q.caught > 0:
		return fmt.Sprintf("; the run caught %s and ended well (recovered)", count(q.caught, "out-of-memory message")),
			true
	case q.facts.ExitCode == 0:
		return "; the command ended with status 0", true
	case q.bogus():
		return "; the size that was asked for is garbage, which points to a defect or to a broken collective before it",
			true
	}
	if s := q.log.sign(SignFault, SignHostAllocation); s != nil {
		return fmt.Sprintf("; %s: %s", q.log.where(s.Line), s.Text), true
	}
	if e := q.log.Exception; e.Line > 0 {
		return fmt.Sprintf("; the run died of another exception, %s: %s", q.log.where(e.Line), e.Text), true
	}
	if s := q.log.sign(SignStopped, SignAgentKill); s != nil {
		return fmt.Sprintf("; the run was stopped, %s: %s", q.log.where(s.Line), s.Text), true
	}
	if d := q.rootDeath(); d != nil {
		return fmt.Sprintf("; a process ended with code %d", d.ExitCode), slices.Contains(tellingCodes(), d.ExitCode)
	}
	switch {
	case slices.ContainsFunc(q.deaths, func(e Exit) bool { return slices.Contains([]int{-15, 143}, e.ExitCode) }):
		return "; it was told to end (SIGTERM)", true
	case q.caught > 0:
		return fmt.Sprintf("; the run caught %s and went on", count(q.caught, "out-of-memory message")), false
	case q.log.Bytes == 0:
		return "; the log is empty", false
	}
	return "", false
}

// accessViolation is Windows' segmentation fault (0xC0000005).
const accessViolation = -1073741819

// tellingCodes are ends that no shortage of memory gives, as Python and shells tell them: the signals INT, QUIT, ILL,
// FPE, SEGV, PIPE and TERM, and a command that cannot be executed or is not there.
func tellingCodes() []int {
	codes := []int{126, 127, accessViolation}
	for _, signal := range []int{2, 3, 4, 8, 11, 13, 15} {
		codes = append(codes, -signal, 128+signal)
	}
	return codes
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
