package oom

import (
	"slices"
	"strings"
)

// rule names a cause when it holds; the first rule that holds wins, so the table is in the order of the strength of the
// evidence.
type rule struct {
	name       string
	holds      func(q *inquest) bool
	cause      Cause
	confidence string
}

const (
	high   = "high"
	medium = "medium"
	low    = "low"
)

// rules is how a cause is found. The last rule always holds.
func rules() []rule {
	form := func(forms ...Form) func(*inquest) bool {
		return func(q *inquest) bool {
			for _, f := range forms {
				if q.msg != nil && q.msg.Form == f {
					return true
				}
			}
			return false
		}
	}
	sign := func(kinds ...SignKind) func(*inquest) bool {
		return func(q *inquest) bool { return q.before(q.log.sign(kinds...)) }
	}
	probe := func(stages ...string) func(*inquest) bool {
		return func(q *inquest) bool { return q.msg != nil && q.fromProbe && isOneOf(q.stage, stages) }
	}
	frames := func(stages ...string) func(*inquest) bool {
		return func(q *inquest) bool { return q.msg != nil && !q.fromProbe && isOneOf(q.stage, stages) }
	}
	all := func(tests ...func(*inquest) bool) func(*inquest) bool {
		return func(q *inquest) bool {
			for _, holds := range tests {
				if !holds(q) {
					return false
				}
			}
			return true
		}
	}
	return []rule{
		// what stops a run before any memory is used
		{"the allocator refused its setting", sign(SignAllocatorConfig), AllocatorConfigError, high},

		// the host
		{"killed while the cgroup counted an OOM kill",
			func(q *inquest) bool { return q.killed() != nil && q.facts.CgroupOOMKills > 0 }, HostOOMKill, high},
		{"a kernel, Slurm or Kubernetes says so",
			all(sign(SignOOMKiller), func(q *inquest) bool { return q.msg == nil }), HostOOMKill, high},

		// messages of other programs and other devices
		{"a JAX, TensorFlow or Theano message", form(FormXLA), JAXTF, high},
		{"a HIP message", form(FormHIP), HIPROCm, high},
		{"an MPS or XPU message", form(FormMPS, FormXPU), MPSXPU, high},
		{"NCCL could not allocate", sign(SignNCCL), NCCLOOM, high},
		{"a device assert before it, which cuBLAS and cuDNN then report as their own failure",
			all(sign(SignLibrary), func(q *inquest) bool {
				fault := q.log.sign(SignFault)
				return q.msg == nil && fault != nil && fault.Line <= q.log.sign(SignLibrary).Line
			}), NotOOM, medium},
		{"cuBLAS or cuDNN could not allocate", sign(SignLibrary), CublasAllocFailed, medium},
		{"a library that cannot start, and a fault that explains it",
			all(sign(SignLibraryStart), func(q *inquest) bool {
				return q.msg == nil && q.log.sign(SignFault) != nil
			}), NotOOM, medium},
		{"a library that cannot start", sign(SignLibraryStart), CublasAllocFailed, low},

		// numbers that no change of the job explains
		{"a size that no computer has", (*inquest).bogus, NotOOM, medium},
		{"more allocated than the card has", func(q *inquest) bool {
			return q.cuda() && q.msg.TotalBytes > 0 && q.msg.AllocatedBytes > q.msg.TotalBytes &&
				q.msg.ReservedUnallocatedBytes < q.msg.TriedBytes
		}, DriverUnifiedMemory, medium},
		{"a driver call of expandable segments failed", form(FormDriver), DriverUnifiedMemory, medium},
		{"much free, and the driver cannot tell processes apart", func(q *inquest) bool {
			return q.unexplained() && q.msg.ownPartSeen && q.msg.ProcessBytes == Unknown
		}, DriverUnifiedMemory, medium},
		{"the driver could not tell why", form(FormAssert), Capacity, low},

		// other holders of the card, holes in the own memory
		{"a request beyond the whole card",
			func(q *inquest) bool { return q.cuda() && q.msg.TotalBytes > 0 && q.msg.TriedBytes > q.msg.TotalBytes },
			SingleHugeAllocation, high},
		{"cudaMallocAsync holds memory that nobody uses", (*inquest).asyncHoles, FragmentationCause, medium},
		{"less than vLLM was told to take", form(FormServing), OtherProcess, low},
		{"no room for an inference engine's cache", form(FormCache), Capacity, medium},
		{"listed processes hold a large part",
			func(q *inquest) bool { return q.otherProcess() && q.others >= contextBytes }, OtherProcess, high},
		{"the card is held outside this process",
			all(frames("optimizer-init", "model-load", "eval", "forward", "backward", ""), (*inquest).otherProcess,
				func(q *inquest) bool {
					return q.msg.Form != FormAsync
				}), OtherProcess, medium},
		{"the card is held outside this process, seen by a probe", (*inquest).otherProcess, OtherProcess, medium},
		{"twice the request lies in holes", func(q *inquest) bool {
			return q.holes(plainHolesShare) && q.msg.ReservedUnallocatedBytes >= 2*q.msg.TriedBytes && !q.logits()
		}, FragmentationCause, high},
		{"more lies in holes than in tensors, and the request was cut off", func(q *inquest) bool {
			return q.cuda() && q.msg.TriedBytes < 0 && q.msg.AllocatedBytes >= 0 &&
				q.msg.ReservedUnallocatedBytes >= max(contextBytes, q.msg.AllocatedBytes)
		}, FragmentationCause, medium},
		{"the request would fit into the holes",
			all((*inquest).plainFrames, func(q *inquest) bool { return q.holes(holesShare) }), FragmentationCause,
			medium},

		// what the probe saw
		{"probe: what is held after a step grew to the end", func(q *inquest) bool {
			_, grew := q.facts.Run.leak()
			return q.msg != nil && q.fromProbe && grew
		}, LeakGrowth, high},
		{"probe: model load", probe("start", "model-load"), ModelLoad, high},
		{"probe: first optimizer step", probe("optimizer-init"), OptimizerInit, high},
		{"probe: evaluation", probe("eval"), EvalGenerate, high},
		{"probe: loss", all(probe("forward", "backward"), (*inquest).logits), LogitsLoss, high},
		{"probe: forward or backward", probe("forward", "backward"), Activation, high},
		{"probe: a later optimizer step or a save", probe("optimizer-step", "checkpoint-save"), Capacity, high},

		// what the log shows
		{"frames: optimizer", frames("optimizer-init"), OptimizerInit, high},
		{"frames: model load", frames("model-load"), ModelLoad, medium},
		{"memory grew to the end", func(q *inquest) bool { _, _, _, ok := q.growth(); return q.msg != nil && ok },
			LeakGrowth, medium},
		{"frames: evaluation", frames("eval"), EvalGenerate, high},
		{"frames: loss", all(frames("forward"), (*inquest).logits), LogitsLoss, high},
		{"a quarter of the card in one request",
			func(q *inquest) bool { return q.cuda() && q.share(q.msg.TriedBytes) >= hugeShare }, SingleHugeAllocation,
			medium},
		{"a CUDA call outside the allocator", form(FormAPI), CudaContextOOM, medium},
		{"frames: forward or backward", frames("forward", "backward"), Activation, medium},
		{"no numbers, no frames, thousands of steps",
			func(q *inquest) bool { return q.cuda() && !q.msg.sized() && q.log.LastStep > 0 }, LeakGrowth, low},
		{"a memory fraction was the limit", func(q *inquest) bool { return q.cuda() && q.limited() }, Capacity, high},
		{"more was free than was asked for", (*inquest).unexplained, Capacity, low},
		{"numbers that add up to a full card",
			func(q *inquest) bool { return q.cuda() && q.msg.TotalBytes > 0 && q.msg.AllocatedBytes >= 0 }, Capacity,
			high},
		{"a message without numbers", func(q *inquest) bool { return q.msg != nil }, Capacity, low},

		// no message: how processes ended
		{"the driver of shared system memory could not allocate", sign(SignDriver), DriverUnifiedMemory, medium},
		{"no right to use shared memory", func(q *inquest) bool {
			s := q.log.sign(SignFault)
			return s != nil && strings.Contains(s.Text, "shm_open failed")
		}, NotOOM, medium},
		{"bus error", func(q *inquest) bool { return q.log.sign(SignShm) != nil || q.bus() }, ShmBusError, medium},
		{"SIGKILL, and nothing else to blame", all((*inquest).unblamed, func(q *inquest) bool {
			return q.facts.CgroupOOMKills < 0 && (q.killed() != nil || q.log.sign(SignKilled) != nil)
		}), HostOOMKill, medium},
		{"SIGKILL, but the cgroup counted no OOM kill", all((*inquest).unblamed, func(q *inquest) bool {
			return q.killed() != nil || q.log.sign(SignKilled) != nil
		}), HostOOMKill, low},
		{"memory grew through a log that tells of no end", (*inquest).grewOnly, LeakGrowth, low},
		{"no sign of a shortage, and something else that ended it",
			func(q *inquest) bool { _, proof := q.instead(); return proof }, NotOOM, medium},
		{"no sign of anything", func(*inquest) bool { return true }, NoCause, low},
	}
}

// plainFrames: no traceback, or one that fits fragmentation: the number test alone calls too much fragmentation.
func (q *inquest) plainFrames() bool {
	return q.stage == "" || q.stage == "forward" && !q.logits() || q.stage == "backward" || q.stage == "optimizer-step"
}

// unblamed: nothing stands in the log that would explain a SIGKILL otherwise: an exception, a fault or a request to
// stop before it. What comes after it is an echo, and so is a collective's timeout, for which the others wait when one
// rank is gone.
func (q *inquest) unblamed() bool {
	death := q.killed()
	earlier := func(line int) bool { return line > 0 && (death == nil || !q.log.after(line, death.Line)) }
	if earlier(q.log.firstException.Line) {
		return false
	}
	for _, s := range q.log.Signs {
		echo := death != nil && strings.Contains(s.Text, timeoutText)
		if slices.Contains([]SignKind{SignFault, SignStopped, SignHostAllocation}, s.Kind) && !echo && earlier(s.Line) {
			return false
		}
	}
	return true
}

// timeoutText is how NCCL's watchdog reports that other ranks did not come.
const timeoutText = "Watchdog caught collective operation timeout"

func isOneOf(s string, list []string) bool {
	return slices.Contains(list, s)
}
