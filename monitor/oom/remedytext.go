package oom

import (
	"fmt"
	"strings"
)

// strangerBytes is the least that listed processes must hold to be worth naming; an idle CUDA context takes about as much.
const strangerBytes = 256 << 20

// strangers tells whether ending other processes would give something.
func (q *inquest) strangers() bool {
	return q.msg != nil && (q.others >= strangerBytes || q.otherProcess())
}

func (q *inquest) freeGPUWhy() string {
	if len(q.msg.OtherProcesses) > 0 {
		return fmt.Sprintf("other processes hold %s on this GPU: %s", size(q.others), listProcesses(q.msg.OtherProcesses))
	}
	return fmt.Sprintf("%s of %s are held outside this process's allocator; the message names no process", size(q.outside), size(q.msg.TotalBytes))
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

func (q *inquest) holesWhy() string {
	m := q.msg
	if m == nil || m.ReservedUnallocatedBytes < 0 {
		return "cached memory could not be joined to one block"
	}
	return fmt.Sprintf("%s lay reserved and unallocated, %s were asked for", size(m.ReservedUnallocatedBytes), size(m.TriedBytes))
}

// allocConfHow names the variable and the option that this torch obeys. Expandable segments exist from 2.1 on; 2.9 ignores them when given
// through the new name (pytorch issue 183387), so the old name is the one to use; a message of the old kind comes from a torch without them.
func (q *inquest) allocConfHow() string {
	variable := "PYTORCH_CUDA_ALLOC_CONF"
	if q.msg != nil && q.msg.Form == FormHIP {
		variable = "PYTORCH_HIP_ALLOC_CONF"
	}
	old := q.msg != nil && strings.Contains(" G1 G2 G2h G2c ", " "+q.msg.Generation+" ")
	if v := q.facts.TorchVersion; v != "" {
		old = strings.HasPrefix(v, "1.") || strings.HasPrefix(v, "2.0")
	}
	if old {
		return "export " + variable + "=max_split_size_mb:128 (torch 1.10 or newer; this torch has no expandable_segments, which would end it at start: they need 2.1)"
	}
	return "export " + variable + "=expandable_segments:True before the program starts (torch 2.1 or newer, Linux, not WSL or Tegra); keep to this name: " +
		"torch 2.9 ignores the option under the new name PYTORCH_ALLOC_CONF; drop max_split_size_mb, which has no use beside it"
}

func (q *inquest) killWhy() string {
	if s := q.log.sign(SignOOMKiller); s != nil {
		return fmt.Sprintf("host memory ran out, line %d: %s", s.Line, s.Text)
	}
	if q.facts.CgroupOOMKills > 0 {
		return fmt.Sprintf("the cgroup's memory limit killed %s during the run", count(q.facts.CgroupOOMKills, "process"))
	}
	return "a process was killed with SIGKILL without a word, as the kernel does; a container's limit does not show in the host's figures"
}

func (q *inquest) signLine(kind SignKind) int {
	if s := q.log.sign(kind); s != nil {
		return s.Line
	}
	return 0
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
