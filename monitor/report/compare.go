package report

import (
	"oomguard/monitor"
	"oomguard/preflight/estimate"
	"slices"
)

// Comparison is one stage of one rank: what was predicted beside what was measured, in allocated bytes (for a rank
// without a GPU: resident host memory above what the process held when torch had been imported).
type Comparison struct {
	Rank           int    `json:"rank"`
	Stage          string `json:"stage"`
	PredictedBytes *int64 `json:"predicted_allocated_bytes"` // null: the estimate has no such stage
	MeasuredBytes  *int64 `json:"measured_allocated_bytes"`  // null: the stage was not seen
	// ErrorPercent is (predicted - measured) / measured.
	ErrorPercent *float64 `json:"error_percent"`
	Memory       string   `json:"memory"` // "cuda" or "rss"
	// AtLeast: not all was counted, so that the prediction is a lower bound and has no error.
	AtLeast bool `json:"predicted_at_least,omitempty"`
}

// Compare puts the stages of the estimate beside those of every rank of the last attempt.
func Compare(e *estimate.Estimate, rec *monitor.Recording) []Comparison {
	if rec == nil {
		return []Comparison{}
	}
	predicted := map[string]int64{}
	var order []string
	partial := e != nil && e.Partial
	if e != nil {
		for _, s := range e.Stages {
			predicted[string(s.Stage)] = s.AllocatedBytes
			order = append(order, string(s.Stage))
		}
	}
	out := []Comparison{}
	for _, r := range lastAttempt(rec.Ranks) {
		out = append(out, compareRank(r, order, predicted, partial)...)
	}
	return out
}

func compareRank(r monitor.Rank, order []string, predicted map[string]int64, partial bool) []Comparison {
	measured := map[string]int64{}
	stages := order
	for _, s := range r.Stages {
		measured[s.Stage] = s.AllocatedBytes
		if _, ok := predicted[s.Stage]; !ok {
			stages = append(slices.Clip(stages), s.Stage)
		}
	}
	var out []Comparison
	for _, stage := range stages {
		if stage == string(estimate.Start) {
			continue
		}
		c := Comparison{Rank: r.Rank, Stage: stage, Memory: r.Memory}
		if p, ok := predicted[stage]; ok {
			c.PredictedBytes, c.AtLeast = &p, partial
		}
		if m, ok := measured[stage]; ok {
			c.MeasuredBytes = &m
		}
		if c.PredictedBytes != nil && c.MeasuredBytes != nil && *c.MeasuredBytes > 0 && !partial {
			percent := 100 * float64(*c.PredictedBytes-*c.MeasuredBytes) / float64(*c.MeasuredBytes)
			c.ErrorPercent = &percent
		}
		out = append(out, c)
	}
	return out
}

// lastAttempt gives the ranks of the last attempt: torchrun restarts all of them after a failure.
func lastAttempt(ranks []monitor.Rank) []monitor.Rank {
	last := 0
	for _, r := range ranks {
		last = max(last, r.Attempt)
	}
	var out []monitor.Rank
	for _, r := range ranks {
		if r.Attempt == last {
			out = append(out, r)
		}
	}
	return out
}
