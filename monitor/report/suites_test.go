package report

import (
	"encoding/xml"
	"errors"
	"strings"
	"testing"

	"oomguard/checklists"
	"oomguard/monitor/oom"
)

func someChecks() Checks {
	return Checks{checklists.Outcome{List: "pretraining", Outcome: checklists.Fail, Results: []checklists.Result{
		{ID: "headroom", Title: "Enough stays free",
			Verdict: checklists.Verdict{Status: checklists.Fail, Detail: "75 of 79 GiB, 5 % free: too little",
				Remedy: "see oomguard plan,\nor a larger GPU"}},
		{ID: "shm", Verdict: checklists.Verdict{Status: checklists.Skip, Detail: "not here"}},
		{ID: "gpu-count", Waived: true,
			Verdict: checklists.Verdict{Status: checklists.Fail, Detail: "1 GPU, 2 processes", Remedy: "start one"}},
		{ID: "nvml", Verdict: checklists.Verdict{Status: checklists.Warn, Detail: "<old> \"driver\" & co",
			Remedy: "update"}},
		{ID: "alloc-conf", Verdict: checklists.Verdict{Status: checklists.Pass, Detail: "none set"}},
	}}}
}

// TestJUnit: the counts are those of the list; a waived failure and a warning do not fail the job; a parser reads it.
func TestJUnit(t *testing.T) {
	got := write(t, "junit", someChecks(), Style{})
	golden(t, "checks.junit.xml", got)
	var back struct {
		Suites []struct {
			Tests    int `xml:"tests,attr"`
			Failures int `xml:"failures,attr"`
			Skipped  int `xml:"skipped,attr"`
			Cases    []struct {
				Name    string `xml:"name,attr"`
				Failure *struct {
					Message string `xml:"message,attr"`
				} `xml:"failure"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal([]byte(got), &back); err != nil {
		t.Fatal(err)
	}
	s := back.Suites[0]
	if s.Tests != 5 || s.Failures != 1 || s.Skipped != 1 || s.Cases[0].Failure == nil ||
		s.Cases[0].Failure.Message != "75 of 79 GiB, 5 % free: too little" || s.Cases[2].Failure != nil {
		t.Errorf("%+v", s)
	}
}

// TestGitHub: one line a check, with everything escaped that the runner would read as syntax.
func TestGitHub(t *testing.T) {
	want := `::error title=oomguard pretraining%3A headroom::75 of 79 GiB, 5 %25 free: too little%0A-> see oomguard plan,%0Aor a larger GPU
::notice title=oomguard pretraining%3A shm::not here
::warning title=oomguard pretraining%3A gpu-count::1 GPU, 2 processes%0A-> start one
::warning title=oomguard pretraining%3A nvml::<old> "driver" & co%0A-> update
pass alloc-conf: none set
`
	if got := write(t, "github", someChecks(), Style{}); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// TestVerdictsOfOtherDocuments: a run, a post-mortem and an estimate have verdicts too; a list of GPUs has none, and
// says so.
func TestVerdictsOfOtherDocuments(t *testing.T) {
	if got := write(t, "github", aDeath(), Style{}); !strings.Contains(got,
		"::error title=oomguard run%3A memory-sufficed::the GPU is too small") ||
		!strings.Contains(got, "ended with status 1") {
		t.Errorf("%s", got)
	}
	fine := Postmortem{oom.Diagnosis{Cause: oom.NotOOM, Summary: "nothing shows that memory ran out"}}
	if got := write(t, "junit", fine, Style{}); !strings.Contains(got, `failures="0"`) {
		t.Errorf("%s", got)
	}
	if got := write(t, "github", Estimate{anEstimate()}, Style{}); !strings.HasPrefix(got,
		"::error title=oomguard estimate%3A fits::needs 74.00 GiB") {
		t.Errorf("%s", got)
	}
	if err := Write(&strings.Builder{}, "junit", Runs{}, Style{}); !errors.Is(err, ErrFormat) {
		t.Errorf("a list of runs in junit: %v", err)
	}
}
