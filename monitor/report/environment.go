package report

import (
	"fmt"
	"strings"

	"oomguard/checklists"
	"oomguard/preflight/estimate"
)

// EnvChange is one variable in which the command's environment differs from oomguard's own.
type EnvChange struct {
	Name   string `json:"name"`
	Change string `json:"change"` // one of the words below
	Value  string `json:"value"`  // as the command gets it
	Reason string `json:"reason"`
}

// What happens to a variable.
const (
	EnvAdded   = "added"
	EnvChanged = "changed"
	EnvRemoved = "removed"
	EnvKept    = "kept" // it was to be changed and is not, for the reason
)

// Told tells whether a report for people mentions the change: what the probe needs is of no interest to them.
func (c EnvChange) Told() bool {
	return c.Name != "PYTHONPATH" && !strings.HasPrefix(c.Name, "OOMGUARD_")
}

// Sentence says what was done to the variable, and why.
func (c EnvChange) Sentence() string {
	if c.Change == EnvKept || c.Change == EnvRemoved {
		return fmt.Sprintf("environment: %s %s: %s", c.Name, c.Change, c.Reason)
	}
	return fmt.Sprintf("environment: %s=%s %s: %s", c.Name, c.Value, c.Change, c.Reason)
}

// DryRunSchema names the document of run --dry-run.
const DryRunSchema = "oomguard.dry-run/v1"

// DryRun is what run would do.
type DryRun struct {
	Schema             string             `json:"schema"`
	Command            []string           `json:"command"` // without secrets
	WorkDir            string             `json:"working_directory"`
	EnvironmentChanges []EnvChange        `json:"environment_changes"`
	Estimate           *estimate.Estimate `json:"estimate"`
	EstimateError      string             `json:"estimate_error,omitempty"`
	checklists.Outcome
	WouldStart bool `json:"would_start"`
}

// Page shows the command, its environment, and the announcement of the run with the decision.
func (d DryRun) Page(u Units) Page {
	page := Page{Heading("What would run"), Paragraph{Text: "command: " + ShellWords(d.Command)},
		Paragraph{Text: "in: " + d.WorkDir}}
	if len(d.EnvironmentChanges) == 0 {
		page = append(page, Paragraph{Text: "environment: as it is"})
	} else {
		t := Table{Columns: []Column{{"variable", false}, {"", false}, {"value", false}, {"why", false}}}
		for _, c := range d.EnvironmentChanges {
			t.Rows = append(t.Rows, cells(c.Name, c.Change, c.Value, c.Reason))
		}
		page = append(page, Heading("Changes to the environment"), t)
	}
	page = append(page, Announcement{Estimate: d.Estimate, EstimateError: d.EstimateError,
		Outcome: d.Outcome}.Page(u)...)
	if d.WouldStart {
		return append(page, Paragraph{Text: "dry run: nothing was started; it would be", Tone: Good})
	}
	return append(page, Paragraph{Text: "dry run: nothing was started, and it would be refused", Tone: Bad})
}
