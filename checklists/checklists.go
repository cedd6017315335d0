// Package checklists is the vocabulary of checking: a Check judges facts that were gathered before, a Policy says which checks
// are skipped or waived, an Outcome is what came of it. The same engine judges facts before a run and the recording after it.
// It does no I/O and knows nothing of GPUs.
package checklists

// Status is how a check ended, mildest first.
type Status string

// The states of a check. A check that could not look is a Skip with a reason, never a Pass.
const (
	Pass Status = "pass"
	Skip Status = "skip"
	Warn Status = "warn"
	Fail Status = "fail"
)

// Verdict is a judgement. A warning or failure says what was found and needed (Detail) and what to do now (Remedy).
type Verdict struct {
	Status Status `json:"status"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy,omitempty"`
}

// Check judges facts of type F. Judge is pure: no clock, no environment, no file, no device.
type Check[F any] struct {
	ID    string   // stable, kebab-case: used in flags, YAML, JSON and README anchors
	Title string   // a sentence that is true when the check passes
	After []string // when one of these failed or was skipped, this one is skipped with that reason
	Judge func(facts F, with Params) Verdict
}

// Params are a check's thresholds, as the checklist file gives them.
type Params map[string]float64

// Get returns the named threshold, or fallback when the checklist does not set it.
func (p Params) Get(name string, fallback float64) float64 {
	if v, ok := p[name]; ok {
		return v
	}
	return fallback
}

// Result is one line of an outcome.
type Result struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	Verdict
	Waived bool `json:"waived"`
}

// Outcome is what a checklist came to.
type Outcome struct {
	List    string   `json:"list"`
	Results []Result `json:"checks"`
	// Outcome is "pass", "warn" or "fail"; waived failures do not count.
	Outcome Status `json:"outcome"`
}
