package oom

import (
	"fmt"
	"strings"
)

// excluded says what is known not to be the cause, each with the figures or the line that exclude it. What cannot be
// told is not listed.
func (q *inquest) excluded(cause Cause) []string {
	list := []string{}
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if m := q.msg; m != nil && q.cuda() {
		if cause != FragmentationCause && m.TriedBytes > 0 && m.FreeBytes >= 0 && m.ReservedUnallocatedBytes >= 0 &&
			m.FreeBytes+m.ReservedUnallocatedBytes < m.TriedBytes {
			add("fragmentation: free memory and all holes together (%s) are less than the request (%s)",
				size(m.FreeBytes+m.ReservedUnallocatedBytes), size(m.TriedBytes))
		}
		if cause != OtherProcess && q.outside >= 0 && q.outside < contextBytes && q.others < contextBytes {
			add("other processes: %s is in use outside this process, no more than contexts take",
				size(max(q.outside, q.others)))
		}
		if m.OwnPID > 0 {
			add("process %d of the message's list: it is this process, under the host's number", m.OwnPID)
		}
	}
	if q.facts.CgroupOOMKills == 0 && cause != HostOOMKill {
		add("the host's memory: the cgroup counted no OOM kill")
	}
	if cause == NotOOM || cause == NoCause {
		return list
	}
	if n := q.echoes(); n > 0 {
		add("%s by SIGTERM or by the launcher's SIGKILL: the launcher stops the others when one has failed",
			count(n, "end"))
	}
	if s := q.lateTimeout(); s != nil {
		add("NCCL's timeout (%s): the others waited for the rank that had failed", q.log.where(s.Line))
	}
	return list
}

func (q *inquest) echoes() int {
	n := 0
	for _, e := range q.deaths {
		if e.ExitCode != 0 && q.echoed(e) {
			n++
		}
	}
	return n
}

// lateTimeout returns the first timeout of a collective behind the message.
func (q *inquest) lateTimeout() *Sign {
	for i := range q.log.Signs {
		s := &q.log.Signs[i]
		if s.Kind == SignFault && strings.Contains(s.Text, timeoutText) && q.msg != nil && !q.before(s) {
			return s
		}
	}
	return nil
}
