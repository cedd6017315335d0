package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"oomguard/launcher"
)

// State is what is known of a run whose end was not recorded.
type State string

// The states of a run without an end.
const (
	StateUnknown   State = ""          // nothing tells whether it goes on
	StateLive      State = "live"      // oomguard watches it
	StateUnwatched State = "unwatched" // oomguard was killed, the command goes on
	StateCutOff    State = "cut-off"   // oomguard is gone
)

// Sentence says it in words.
func (s State) Sentence() string {
	switch s {
	case StateLive:
		return "the run goes on, and oomguard watches it: this is what was recorded until now"
	case StateUnwatched:
		return "oomguard itself was stopped before the command ended, and processes of the command go on"
	case StateCutOff:
		return "how it ended is not known: oomguard itself was stopped, or could not write, before it had recorded " +
			"the end"
	case StateUnknown:
	}
	return "how it ended is not known: no end was recorded, and whether it goes on cannot be told from here"
}

// ending says how the command ended.
func (d Run) ending() []Block {
	out := []Block{Paragraph{Text: "command: " + ShellWords(d.Command)}}
	if len(d.Nodes) > 0 {
		out = append(out, d.nodes()...)
	}
	for _, c := range d.EnvironmentChanges {
		if c.Told() {
			out = append(out, Paragraph{Text: c.Sentence()})
		}
	}
	switch {
	case d.Refused:
		return append(out, Paragraph{Text: "refused by the checklist: nothing was started", Tone: Bad})
	case d.Exit == nil:
		text := d.State.Sentence()
		if d.State != StateLive && d.Recording != nil && !d.Recording.LastSeen.IsZero() {
			text += "; it was watched until " + d.Recording.LastSeen.UTC().Format(time.RFC3339)
		}
		return append(out, Paragraph{Text: text, Tone: Caution})
	}
	e := d.Exit
	out = append(out, exitLine(*e))
	if d.OOMExitCode != 0 {
		out = append(out, Paragraph{Text: fmt.Sprintf("status %d was handed on instead, since memory ran out "+
			"(--oom-exit-code)", d.OOMExitCode)})
	}
	if len(e.Forwarded) > 0 {
		out = append(out, Paragraph{Text: "signals handed on: " + strings.Join(e.Forwarded, ", ")})
	}
	if len(e.Reached) > 0 {
		out = append(out, Paragraph{Text: "signals that the scheduler sent to the command itself too: " +
			strings.Join(e.Reached, ", ")})
	}
	if e.LastResort {
		out = append(out, Paragraph{Text: "it did not end in time, and all of it was killed (--kill-after)",
			Tone: Caution})
	}
	out = append(out, attempts(*e)...)
	for _, s := range e.Survivors {
		out = append(out, Paragraph{Text: fmt.Sprintf("left over: %s (pid %d): %s", s.Name, s.PID, s.Action),
			Tone: Caution})
	}
	return out
}

// exitLine is the command's own end. A status of 0 does not hide that ranks died.
func exitLine(e launcher.Exit) Block {
	took := e.Ended.Sub(e.Started).Round(100 * time.Millisecond)
	switch {
	case e.Signal != 0:
		return Paragraph{Text: fmt.Sprintf("died of signal %d (%s) after %s; status %d", int(e.Signal), e.Signal, took,
			e.Code), Tone: Bad}
	case e.Code != 0:
		return Paragraph{Text: fmt.Sprintf("ended with status %d after %s", e.Code, took), Tone: Bad}
	case !e.Clean():
		var died []string
		left := e.Abandoned()
		for _, s := range left {
			died = append(died, fmt.Sprintf("rank %d was left behind (%s)", s.Rank, s.Action))
		}
		for _, r := range e.Failed() {
			if !slices.ContainsFunc(left, func(s launcher.Survivor) bool { return s.PID == r.PID }) {
				died = append(died, fmt.Sprintf("rank %d %s", r.Rank, how(r)))
			}
		}
		return Paragraph{Text: fmt.Sprintf("returned status 0 after %s, but %s", took, strings.Join(died, ", ")),
			Tone: Bad}
	}
	return Paragraph{Text: fmt.Sprintf("ended well (status 0) after %s", took), Tone: Good}
}

// attempts lists how each rank ended, attempt by attempt, unless all went well at once.
func attempts(e launcher.Exit) []Block {
	all := e.Attempts()
	if len(all) == 0 || e.Clean() && len(all) == 1 {
		return nil
	}
	var out []Block
	for i, ranks := range all {
		if len(all) > 1 {
			outcome := "started anew"
			if i == len(all)-1 {
				outcome = "the last one"
			}
			out = append(out, Paragraph{Text: fmt.Sprintf("attempt %d (%s):", ranks[0].Attempt, outcome)})
		}
		var items List
		for _, r := range ranks {
			items = append(items, Paragraph{Text: fmt.Sprintf("rank %d (attempt %d, pid %d): %s", r.Rank, r.Attempt,
				r.PID, how(r))})
			if r.Error != nil {
				items = append(items, Paragraph{Text: fmt.Sprintf("rank %d wrote: %s", r.Rank,
					firstLine(r.Error.Message))})
			}
		}
		out = append(out, items)
	}
	return out
}

// how a rank ended.
func how(r launcher.RankExit) string {
	text := "how it ended is not known"
	switch {
	case r.Known && r.Code < 0:
		text = fmt.Sprintf("killed by signal %d", -r.Code)
		if name := unix.SignalName(unix.Signal(-r.Code)); name != "" {
			text += " (" + name + ")"
		}
	case r.Known:
		text = fmt.Sprintf("exit status %d", r.Code)
	}
	if r.Told {
		text += ", as the launcher says"
	}
	return text
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
