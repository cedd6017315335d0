package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"oomguard/launcher"
	"oomguard/monitor/oom"
)

// NodeEnd is one node of a run that several nodes recorded, or one task where srun starts several a node.
type NodeEnd struct {
	Name    string `json:"name"`
	Rank    int    `json:"rank"`    // of the node; -1 unknown
	Restart int    `json:"restart"` // 1, or more when the node came back while the others went on
	Host    string `json:"host"`
	Pod     string `json:"pod,omitempty"`
	Dir     string `json:"dir"`
	// Seen: it has recorded something. A node that was expected and never came is listed all the same.
	Seen  bool  `json:"seen"`
	Ranks []int `json:"ranks"` // that were seen there
	GPUs  int   `json:"gpus"`
	// Refused by its own checklist; Exit as it was there, null when its end was not recorded.
	Refused bool           `json:"refused"`
	Exit    *launcher.Exit `json:"exit"`
	// LastSeen, FailedAt: on the clock of the run folder's file system, which all nodes share. FailedAt is the first
	// bad end of a rank or of the command there; zero: none.
	LastSeen time.Time `json:"last_seen"`
	FailedAt time.Time `json:"failed_at"`
	// Stopped: somebody told it to end (a scheduler, another node's launcher), so that its end is no failure of its
	// own.
	Stopped bool   `json:"stopped"`
	Cause   string `json:"cause,omitempty"` // of its post-mortem
	First   bool   `json:"first"`           // the first of the run to end badly
}

// how says how the node ended.
func (n NodeEnd) how() (string, Tone) {
	switch {
	case !n.Seen:
		return "missing: nothing was recorded there", Bad
	case n.Refused:
		return "refused by its checklist: nothing was started there", Bad
	case n.Exit == nil && n.LastSeen.IsZero():
		return "no end recorded", Caution
	case n.Exit == nil:
		return "no end recorded; last seen " + clock(n.LastSeen), Caution
	case n.Exit.Clean():
		return "ended well", Good
	}
	text := fmt.Sprintf("status %d", n.Exit.Code)
	if n.Exit.Signal != 0 {
		text = fmt.Sprintf("died of signal %d (%s)", int(n.Exit.Signal), n.Exit.Signal)
	}
	if n.Stopped {
		text += ", told to end by " + strings.Join(slices.Concat(n.Exit.Forwarded, n.Exit.Reached), ", ")
	}
	if n.Cause != "" && n.Cause != string(oom.NotOOM) && n.Cause != string(oom.NoCause) {
		text += "; " + n.Cause
	}
	return text, Bad
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }

// nodes tells how each node ended and which one began.
func (d Run) nodes() []Block {
	t := Table{Columns: []Column{{"node", false}, {"host", false}, {"ranks", false}, {"GPUs", true},
		{"first failure (UTC)", false}, {"end", false}}}
	for _, n := range d.Nodes {
		name, host, failed := n.Name, n.Host, ""
		if n.Restart > 1 {
			name += fmt.Sprintf(" (start %d)", n.Restart)
		}
		if n.Pod != "" && n.Pod != n.Host {
			host = n.Pod + " " + host
		}
		if !n.FailedAt.IsZero() {
			failed = clock(n.FailedAt)
		}
		how, tone := n.how()
		row := cells(name, host, numbers(n.Ranks), strconv.Itoa(n.GPUs), failed, how)
		row[5].Tone = tone
		t.Rows = append(t.Rows, row)
	}
	out := []Block{t}
	for _, n := range d.Nodes {
		if n.First {
			how, _ := n.how()
			out = append(out, Paragraph{Text: fmt.Sprintf("node %s was the first to end badly: %s", n.Name, how),
				Tone: Strong})
		}
	}
	return out
}

// numbers writes 0-3, 5.
func numbers(sorted []int) string {
	var parts []string
	for i := 0; i < len(sorted); {
		j := i
		for j+1 < len(sorted) && sorted[j+1] == sorted[j]+1 {
			j++
		}
		text := strconv.Itoa(sorted[i])
		if j > i {
			text += "-" + strconv.Itoa(sorted[j])
		}
		parts = append(parts, text)
		i = j + 1
	}
	return strings.Join(parts, ", ")
}
