package report

import (
	"fmt"
	"strings"
	"time"

	"oomguard/checklists"
	"oomguard/launcher"
	"oomguard/monitor"
	"oomguard/monitor/gpu"
	"oomguard/monitor/oom"
	"oomguard/preflight/estimate"
	"oomguard/preflight/job"
)

// RunSchema names the document of a whole run.
const RunSchema = "oomguard.report/v1"

// Run is everything about one run: what was understood and predicted, how the checklist went, how it ended, what was
// measured, and if it died of memory, why.
type Run struct {
	Schema  string    `json:"schema"`
	ID      string    `json:"id"`
	Dir     string    `json:"dir"` // the run folder
	Version string    `json:"oomguard_version"`
	Command []string  `json:"command"` // without secrets
	WorkDir string    `json:"working_directory"`
	Host    string    `json:"host"`
	Started time.Time `json:"started"`
	JobKey  string    `json:"job_key"` // runs with the same key are the same job
	// RemedyKey is the same for runs that save memory by the same means.
	RemedyKey string `json:"remedy_key"`
	Refused   bool   `json:"refused"` // the checklist refused it: nothing was started
	// PrivateDir holds what the ranks report and print while the run lives; it is gone when oomguard has seen the end.
	PrivateDir string `json:"private_dir,omitempty"`
	// Probed: the ranks were given the probe, so that one that is silent is worth a word.
	Probed bool `json:"probed"`
	// Node is the part that this document describes of a run of several; Nodes are its parts where it describes the
	// whole.
	Node  *monitor.Node `json:"node,omitempty"`
	Nodes []NodeEnd     `json:"nodes,omitempty"`
	// Simulated: the out-of-memory error of this run was raised on purpose without a GPU.
	Simulated bool `json:"simulated,omitempty"`

	// EstimateInput is what Estimate was made from, as long as the run is in memory.
	EstimateInput *estimate.Input     `json:"-"`
	Job           *job.Job            `json:"job"`
	Estimate      *estimate.Estimate  `json:"estimate"`
	EstimateError string              `json:"estimate_error,omitempty"`
	Devices       *gpu.Snapshot       `json:"devices"` // before the start; null: none were seen
	DevicesError  string              `json:"devices_error,omitempty"`
	List          string              `json:"list"`
	Checks        []checklists.Result `json:"checks"`
	Outcome       checklists.Status   `json:"outcome"`
	Environment   map[string]string   `json:"environment"` // by allow-list
	Versions      map[string]string   `json:"versions"`
	// EnvironmentChanges are the variables that the command was given beside what oomguard itself had.
	EnvironmentChanges []EnvChange    `json:"environment_changes"`
	Exit               *launcher.Exit `json:"exit"` // null: not known how it ended
	// State is what is known of a run whose end is not.
	State State `json:"state,omitempty"`
	// OOMExitCode was handed on instead of the command's own status, as asked for with --oom-exit-code; 0: the own one
	// was.
	OOMExitCode int `json:"oom_exit_code,omitempty"`
	// CgroupOOMKills is how many processes the kernel killed for memory in our cgroup during the run; -1 unknown.
	CgroupOOMKills int64              `json:"cgroup_oom_kills"`
	Recording      *monitor.Recording `json:"recording"`
	Comparison     []Comparison       `json:"comparison"`
	// the largest predicted part of the stage that was measured highest
	Bottleneck string         `json:"bottleneck"`
	PeakStage  string         `json:"peak_stage"` // measured
	Postmortem *oom.Diagnosis `json:"postmortem"` // null: it did not die of an error that was seen
	Missing    []string       `json:"missing"`    // what this report does not know, and why
}

// Page tells the run from its end backwards: how it ended, why, what was measured, what had been expected.
func (d Run) Page(u Units) Page {
	page := Page{Heading("oomguard report: " + d.ID)}
	page = append(page, d.ending()...)
	if d.Postmortem != nil {
		page = append(page, postmortem(*d.Postmortem, u)...)
	}
	page = append(page, d.objections()...)
	page = append(page, d.measured(u)...)
	page = append(page, d.timelines(u)...)
	if d.Recording != nil && len(d.Recording.Devices) > 0 {
		page = append(page, Heading("GPUs as NVML saw them"), deviceTable(d.Recording.Devices, u))
	}
	if d.Estimate != nil {
		page = append(page, Heading("Predicted peak"), verdict(d.Estimate, u), componentTable(d.Estimate, u))
	} else if d.EstimateError != "" {
		page = append(page, Heading("Predicted peak"), Paragraph{Text: "unknown: " + d.EstimateError, Tone: Caution})
	}
	if len(d.Missing) > 0 {
		items := make(List, len(d.Missing))
		for i, m := range d.Missing {
			items[i] = Paragraph{Text: m, Tone: Caution}
		}
		page = append(page, Heading("What is missing"), items)
	}
	return append(page, Paragraph{Text: "run folder: " + d.Dir, Tone: Faint})
}

// objections are the checks that did not pass. The whole list was shown before the start and is in the JSON.
func (d Run) objections() []Block {
	var kept []checklists.Result
	for _, r := range d.Checks {
		if r.Status == checklists.Warn || r.Status == checklists.Fail {
			kept = append(kept, r)
		}
	}
	if len(kept) == 0 {
		return nil
	}
	out := []Block{Heading("Checks that did not pass"), checkTable(kept)}
	if d.Refused {
		out = append(out, checkSummary(checklists.Outcome{Results: d.Checks, Outcome: d.Outcome})...)
	}
	return out
}

// measured puts measurement and prediction side by side.
func (d Run) measured(u Units) []Block {
	if d.Refused {
		return nil
	}
	out := []Block{Heading("Measured and predicted, by stage and rank")}
	if d.Recording == nil || len(d.Recording.Ranks) == 0 {
		return append(out, Paragraph{Text: "nothing was measured inside the ranks (see what is missing)",
			Tone: Caution})
	}
	switch d.Recording.Memory {
	case "rss":
		out = append(out, Paragraph{Text: "no GPU: measured is the rank's resident host memory above what it held " +
			"when torch had been imported " +
			"(rss), predicted is what its tensors take", Tone: Caution})
	case "cuda":
		out = append(out, Paragraph{Text: "peak memory allocated by PyTorch on the rank's GPU"})
	}
	out = append(out, comparisonTable(d.Comparison, u))
	if d.PeakStage != "" {
		text := "highest stage measured: " + d.PeakStage
		if d.Bottleneck != "" {
			text += "; its largest part, as predicted: " + d.Bottleneck
		}
		out = append(out, Paragraph{Text: text, Tone: Strong})
	}
	return out
}

func comparisonTable(rows []Comparison, u Units) Table {
	var largest int64
	memory := "allocated"
	for _, c := range rows {
		largest = max(largest, orZero(c.PredictedBytes), orZero(c.MeasuredBytes))
		if c.Memory == "rss" {
			memory = "host memory (rss)"
		}
	}
	unit := u.For(largest)
	t := Table{Columns: []Column{
		{"rank", true}, {"stage", false}, {"predicted " + unit.Name, true}, {"measured " + unit.Name, true},
		{"prediction off by", true}, {"what", false},
	}}
	for _, c := range rows {
		if c.Stage == "other" || c.MeasuredBytes == nil &&
			(c.Stage == string(estimate.Eval) || c.Stage == string(estimate.CheckpointSave)) {
			continue // no stage, and an evaluation or a save that did not happen: only in the JSON
		}
		row := cells(fmt.Sprint(c.Rank), c.Stage, optional(c.PredictedBytes, unit), optional(c.MeasuredBytes, unit), "",
			memory)
		if c.AtLeast {
			row[2].Text = "at least " + row[2].Text
		}
		if c.ErrorPercent != nil {
			row[4].Text = fmt.Sprintf("%+.1f %%", *c.ErrorPercent)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func orZero(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

func optional(n *int64, unit Unit) string {
	if n == nil {
		return "-"
	}
	return unit.Format(*n)
}

func deviceTable(devices []monitor.DeviceRecord, u Units) Table {
	var largest int64
	for _, d := range devices {
		largest = max(largest, d.TotalBytes)
	}
	unit := u.For(largest)
	t := Table{Columns: []Column{
		{"GPU", true}, {"name", false}, {"total " + unit.Name, true}, {"used before", true}, {"peak used", true},
		{"least free", true}, {"our processes", true}, {"others", false},
	}}
	for _, d := range devices {
		own := "unknown"
		if d.OwnPeakBytes > 0 {
			own = unit.Format(d.OwnPeakBytes)
		}
		var others []string
		for _, p := range d.Others {
			size := "unknown"
			if p.Known {
				size = u.Size(p.UsedBytes)
			}
			others = append(others, fmt.Sprintf("pid %d %s: %s", p.PID, p.Name, size))
		}
		t.Rows = append(t.Rows, cells(d.Label(), d.Name, unit.Format(d.TotalBytes), unit.Format(d.StartBytes),
			unit.Format(d.PeakUsedBytes), unit.Format(d.MinFreeBytes), own, strings.Join(others, "; ")))
	}
	return t
}
