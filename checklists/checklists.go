// Package checklists is the vocabulary of checking: a Check judges facts that were gathered before, a Policy says which
// checks are skipped or waived, an Outcome is what came of it. The same engine judges facts before a run and the
// recording after it. It does no I/O and knows nothing of GPUs.
//
// Which checks a checklist asks, how strict each one is and with which thresholds is data: a List, read from YAML (see
// Load).
package checklists

// Schema names the JSON form of an Outcome.
const Schema = "oomguard.check/v1"

// Status is how a check ended, mildest first.
type Status string

// The states of a check. A check that could not look is a Skip with a reason, never a Pass.
const (
	Pass Status = "pass"
	Skip Status = "skip"
	Warn Status = "warn"
	Fail Status = "fail"
)

// Verdict is a judgement. A warning or failure says what was found and needed (Detail) and what to do now (Remedy); a
// skip says why nothing was judged and what would change that.
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
	// Defaults are the thresholds that the check knows. Judge gets them with the checklist's values in place of some; a
	// checklist that sets any other is refused, so that a misspelt threshold is never silently without effect.
	Defaults Params
	Judge    func(facts F, with Params) Verdict
	// Decides: without this check's judgement the question of the list has no answer.
	Decides bool
}

// Params are a check's thresholds, as the checklist file gives them. Their names say the unit (fail_percent, warn_mib).
type Params map[string]float64

// Policy is what a user decides for one invocation.
type Policy struct {
	Skip  []string // these are not judged and shown as skipped
	Waive []string // these are judged and shown, but neither refuse nor warn
	// FailOn is the mildest status that refuses: Fail (also when empty) or Warn.
	FailOn Status
	// RequireAnswer asks that every check that decides comes to a judgement, as a list with require_answer does.
	RequireAnswer bool
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
	Schema  string   `json:"schema"`
	List    string   `json:"list"`
	Results []Result `json:"checks"`
	// Outcome is "pass", "warn" or "fail"; waived results do not count. It is "fail" exactly when Err is not nil.
	Outcome Status `json:"outcome"`
	// FailOn is the mildest status that refused.
	FailOn Status `json:"fail_on"`
	// Unanswered are the checks that decide and came to no judgement, where an answer is required.
	Unanswered []string `json:"unanswered,omitempty"`
}
