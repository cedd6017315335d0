package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"oomguard/checklists"
	"oomguard/launcher"
	"oomguard/monitor"
	"oomguard/monitor/oom"
	"oomguard/monitor/report"
)

// merge makes one document of those that the nodes of a run have recorded. What is the same everywhere (the command,
// the estimate) is taken from the first; what each one saw and how it ended is kept apart by node.
func merge(store *monitor.Store, parts []report.Run) report.Run {
	doc := parts[0]
	doc.ID, doc.Dir, doc.Node, doc.PrivateDir = store.ID(), store.Dir, nil, ""
	doc.Refused, doc.CgroupOOMKills = true, -1
	var names []string
	var recordings []*monitor.Recording
	for _, part := range parts {
		name := part.Node.Name
		names, recordings = append(names, name), append(recordings, part.Recording)
		doc.Refused = doc.Refused && part.Refused
		doc.Probed = doc.Probed || part.Probed
		if part.Started.Before(doc.Started) {
			doc.Started = part.Started
		}
		if part.CgroupOOMKills > 0 {
			doc.CgroupOOMKills = max(doc.CgroupOOMKills, 0) + part.CgroupOOMKills
		}
		doc.Nodes = append(doc.Nodes, nodeEnd(part))
	}
	doc.Host = hosts(doc.Nodes)
	doc.Checks = commonChecks(parts)
	doc.Missing = commonTexts(parts, func(part report.Run) []string { return part.Missing })
	doc.Recording = monitor.Merge(names, recordings)
	doc.Comparison = report.Compare(doc.Estimate, doc.Recording)
	doc.PeakStage, doc.Bottleneck = bottleneck(doc.Estimate, doc.Recording)
	first := firstToFail(doc.Nodes)
	doc.Exit = commonEnd(doc.Nodes, first)
	doc.Postmortem = commonCause(parts, doc.Nodes, first)
	for _, n := range absent(*parts[0].Node, doc.Nodes) {
		doc.Nodes = append(doc.Nodes, n)
		doc.Missing = append(doc.Missing,
			"node "+n.Name+": nothing was recorded there: oomguard was not started, or could not write to the run "+
				"folder")
	}
	return doc
}

// nodeEnd is how one node's part ended, in the time of the file system that all write to.
func nodeEnd(part report.Run) report.NodeEnd {
	offset := time.Duration(part.Node.ClockOffset * float64(time.Second))
	n := report.NodeEnd{
		Name: part.Node.Name, Rank: part.Node.Rank, Restart: part.Node.Restart, Host: cmp.Or(part.Node.Host, part.Host),
		Pod: part.Node.Pod, Dir: part.Dir,
		Seen: true, Refused: part.Refused, Exit: part.Exit,
	}
	if part.Postmortem != nil {
		n.Cause = string(part.Postmortem.Cause)
	}
	failed := func(at time.Time) {
		if !at.IsZero() && (n.FailedAt.IsZero() || at.Before(n.FailedAt)) {
			n.FailedAt = at
		}
	}
	if part.Devices != nil {
		n.GPUs = len(part.Devices.Devices)
	}
	if rec := part.Recording; rec != nil {
		n.GPUs, n.LastSeen = max(n.GPUs, len(rec.Devices)), rec.LastSeen
		for _, r := range rec.Ranks {
			n.Ranks = append(n.Ranks, r.Rank)
			if r.Exception != nil {
				failed(r.Exception.Time)
			}
		}
	}
	switch e := part.Exit; {
	case part.Refused:
		failed(part.Started)
	case e == nil:
		failed(n.LastSeen)
	case e.Clean():
		n.FailedAt = time.Time{} // whatever failed was overcome
	default:
		failed(e.Ended)
		for _, r := range e.Failed() {
			failed(r.EndedAt)
		}
		n.Stopped = slices.ContainsFunc(slices.Concat(e.Forwarded, e.Reached), func(name string) bool {
			return name != "SIGCONT" && name != "SIGTSTP"
		})
	}
	if part.Exit != nil {
		n.LastSeen = part.Exit.Ended
		for _, r := range part.Exit.Ranks {
			n.Ranks = append(n.Ranks, r.Rank)
		}
	}
	slices.Sort(n.Ranks)
	n.Ranks = slices.Compact(n.Ranks)
	for _, t := range []*time.Time{&n.LastSeen, &n.FailedAt} {
		if !t.IsZero() {
			*t = t.Add(offset)
		}
	}
	return n
}

// firstToFail marks the node that ended badly before all others, and gives its index; -1 when none did, or all that did
// were told to end from outside. A node whose end nobody recorded counts by when it was last seen, once another's end
// shows that it is over.
func firstToFail(nodes []report.NodeEnd) int {
	first := -1
	over := slices.ContainsFunc(nodes, func(n report.NodeEnd) bool { return n.Exit != nil || n.Refused })
	for i, n := range nodes {
		if n.FailedAt.IsZero() || n.Stopped || !over {
			continue
		}
		if first < 0 || n.FailedAt.Before(nodes[first].FailedAt) {
			first = i
		}
	}
	if first >= 0 {
		nodes[first].First = true
	}
	return first
}

// commonEnd is how the whole run ended: as the node that began, with the ranks of all. Nil when a node's end is not
// known and no other has failed.
func commonEnd(nodes []report.NodeEnd, first int) *launcher.Exit {
	var end launcher.Exit
	known := true
	for i, n := range nodes {
		e := n.Exit
		if e == nil {
			known = known && n.Refused
			continue
		}
		if end.Started.IsZero() || e.Started.Before(end.Started) {
			end.Started = e.Started
		}
		if e.Ended.After(end.Ended) {
			end.Ended = e.Ended
		}
		if e.Code != 0 && (end.Code == 0 || i == first) {
			end.Code, end.Signal = e.Code, e.Signal
		}
		end.Forwarded, end.Reached = union(end.Forwarded, e.Forwarded), union(end.Reached, e.Reached)
		end.Ranks, end.Survivors = append(end.Ranks, e.Ranks...), append(end.Survivors, e.Survivors...)
	}
	slices.SortStableFunc(end.Ranks, func(a, b launcher.RankExit) int {
		return cmp.Or(cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.Rank, b.Rank))
	})
	if end.Started.IsZero() || end.Code == 0 && !known {
		return nil
	}
	return &end
}

func union(a, b []string) []string {
	for _, s := range b {
		if !slices.Contains(a, s) {
			a = append(a, s)
		}
	}
	return a
}

// commonCause is the post-mortem of the run: of the first node that died of memory, or else of the first that failed.
// The others' errors are mostly echoes: connections that broke when the first one died.
func commonCause(parts []report.Run, nodes []report.NodeEnd, first int) *oom.Diagnosis {
	best := -1
	for i, p := range parts {
		if p.Postmortem == nil || p.Postmortem.Cause == oom.NotOOM || p.Postmortem.Cause == oom.NoCause {
			continue
		}
		if best < 0 || nodes[i].FailedAt.Before(nodes[best].FailedAt) {
			best = i
		}
	}
	if best < 0 {
		best = first
	}
	if best < 0 {
		best = 0
	}
	return parts[best].Postmortem
}

// absent are the nodes that were expected and have recorded nothing.
func absent(of monitor.Node, nodes []report.NodeEnd) []report.NodeEnd {
	seen := map[string]bool{}
	for _, n := range nodes {
		seen[n.Name] = true
	}
	var out []report.NodeEnd
	for rank := 0; rank < of.Parts && len(seen)+len(out) < of.Parts; rank++ {
		if n := (report.NodeEnd{Name: strconv.Itoa(rank), Rank: rank}); of.Rank >= 0 && !seen[n.Name] {
			out = append(out, n)
		}
	}
	if of.Rank < 0 || of.Name != strconv.Itoa(of.Rank) { // they have no numbers of their own
		out = nil
		if missing := of.Parts - len(seen); missing > 0 {
			out = append(out, report.NodeEnd{Name: fmt.Sprintf("(%d more)", missing), Rank: -1})
		}
	}
	return out
}

// commonTexts are the texts of all parts: once those that every part has, by node the others.
func commonTexts(parts []report.Run, of func(report.Run) []string) []string {
	count := map[string]int{}
	for _, part := range parts {
		for _, text := range of(part) {
			count[text]++
		}
	}
	var out []string
	for _, part := range parts {
		for _, text := range of(part) {
			if count[text] < len(parts) {
				text = "node " + part.Node.Name + ": " + text
			}
			if !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
	}
	return out
}

// commonChecks are the results of all nodes' checklists: once what was found on every node, by node the rest.
func commonChecks(parts []report.Run) []checklists.Result {
	alike := func(c checklists.Result) bool {
		return !slices.ContainsFunc(parts, func(part report.Run) bool {
			return !slices.ContainsFunc(part.Checks, func(o checklists.Result) bool {
				return o.ID == c.ID && o.Status == c.Status && o.Detail == c.Detail
			})
		})
	}
	var out []checklists.Result
	for i, part := range parts {
		for _, c := range part.Checks {
			switch same := alike(c); {
			case same && i > 0:
				continue
			case !same:
				c.Detail = "node " + part.Node.Name + ": " + c.Detail
			}
			out = append(out, c)
		}
	}
	return out
}

// hosts names the machines of a run.
func hosts(nodes []report.NodeEnd) string {
	text := ""
	var named []string
	for _, n := range nodes {
		if n.Host == "" || slices.Contains(named, n.Host) {
			continue
		}
		named = append(named, n.Host)
		if text != "" {
			text += ", "
		}
		text += n.Host
	}
	return text
}
