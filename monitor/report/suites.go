package report

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"

	"oomguard/checklists"
	"oomguard/monitor/oom"
)

// Suite is a list of verdicts, as CI systems take them.
type Suite struct {
	Name  string
	Cases []Case
}

// Case is one verdict.
type Case struct {
	ID, Title string
	Status    checklists.Status
	Waived    bool
	// Detail says what was found, Remedy what to do.
	Detail, Remedy string
}

// Judged is a document with verdicts: what the formats junit and github show.
type Judged interface {
	Document
	Suite() Suite
}

// ErrFormat says that a document has no form in a format.
var ErrFormat = errors.New("not in this format")

// Supports tells whether a document can be written in a format; the error says what can.
func Supports(name string, d Document) error {
	if supported(name, d) {
		return nil
	}
	return fmt.Errorf("%w: %s shows verdicts, and here are none; use one of %s", ErrFormat, name,
		strings.Join(FormatsOf(d), ", "))
}

func supported(name string, d Document) bool {
	for {
		c, ok := d.(Cleaned)
		if !ok {
			break
		}
		d = c.document
	}
	_, judged := d.(Judged)
	return judged || name != "junit" && name != "github"
}

// Suite has one case a check.
func (d Checks) Suite() Suite { return checkSuite(d.List, d.Results) }

// Suite of a dry run is that of its checks.
func (d DryRun) Suite() Suite { return checkSuite(d.List, d.Results) }

func checkSuite(name string, results []checklists.Result) Suite {
	s := Suite{Name: "oomguard " + name}
	for _, r := range results {
		s.Cases = append(s.Cases, Case{ID: r.ID, Title: r.Title, Status: r.Status, Waived: r.Waived, Detail: r.Detail,
			Remedy: r.Remedy})
	}
	return s
}

// Suite of an estimate has one case: it fits.
func (d Estimate) Suite() Suite {
	c := Case{ID: "fits", Title: "The job fits the GPU", Status: checklists.Skip,
		Detail: verdict(d.Estimate, Units{}).Text}
	switch {
	case d.Fits != nil && *d.Fits:
		c.Status = checklists.Pass
	case d.Fits != nil:
		c.Status, c.Remedy = checklists.Fail, "oomguard plan with the same arguments names what makes it fit"
	}
	return Suite{Name: "oomguard estimate", Cases: []Case{c}}
}

// Suite of a post-mortem has one case: no memory ran out.
func (d Postmortem) Suite() Suite {
	return Suite{Name: "oomguard postmortem", Cases: []Case{deathCase(&d.Diagnosis)}}
}

// Suite of a run has its checks and its end.
func (d Run) Suite() Suite {
	s := checkSuite(d.List, d.Checks)
	s.Name = "oomguard run"
	c := Case{ID: "run-ended-well", Title: "The command ends well", Status: checklists.Skip,
		Detail: "how it ended is not known"}
	switch {
	case d.Refused:
		c.Detail = "refused by the checklist: nothing was started"
	case d.Exit != nil && d.Exit.Code == 0:
		c.Status, c.Detail = checklists.Pass, "it ended with status 0"
	case d.Exit != nil:
		c.Status, c.Detail, c.Remedy = checklists.Fail, fmt.Sprintf("it ended with status %d", d.Exit.Code),
			"see the command's own output"
	}
	s.Cases = append(s.Cases, c)
	if d.Postmortem != nil {
		s.Cases = append(s.Cases, deathCase(d.Postmortem))
	}
	return s
}

// deathCase asks about memory alone: what died of something else passes.
func deathCase(d *oom.Diagnosis) Case {
	c := Case{ID: "memory-sufficed", Title: "Memory does not run out", Status: checklists.Fail,
		Detail: fmt.Sprintf("%s (%s, confidence %s)", d.Summary, d.Cause, d.Confidence)}
	switch d.Cause {
	case oom.NotOOM:
		c.Status = checklists.Pass
		return c
	case oom.NoCause:
		c.Status = checklists.Skip
		return c
	default:
	}
	var todo []string
	for _, r := range d.Remedies {
		todo = append(todo, r.ID+": "+strings.ReplaceAll(r.How, "\n", "; "))
	}
	c.Remedy = strings.Join(todo, "\n")
	return c
}

// JUnit's elements; the schema is the one that Jenkins, GitLab and GitHub's test reporters read.
type (
	junitSuites struct {
		XMLName xml.Name `xml:"testsuites"`
		Suites  []junitSuite
	}
	junitSuite struct {
		XMLName  xml.Name `xml:"testsuite"`
		Name     string   `xml:"name,attr"`
		Tests    int      `xml:"tests,attr"`
		Failures int      `xml:"failures,attr"`
		Skipped  int      `xml:"skipped,attr"`
		Cases    []junitCase
	}
	junitCase struct {
		XMLName xml.Name      `xml:"testcase"`
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Failure *junitProblem `xml:"failure,omitempty"`
		Skipped *junitProblem `xml:"skipped,omitempty"`
		Output  string        `xml:"system-out,omitempty"`
	}
	junitProblem struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// writeJUnit writes one suite. A warning passes, with its text as output: JUnit knows no warnings.
func writeJUnit(w io.Writer, s shownSuite) error {
	suite := junitSuite{Name: s.Name, Tests: len(s.Cases)}
	for _, c := range s.Cases {
		j := junitCase{Class: s.Name, Name: c.ID}
		switch {
		case c.Status == checklists.Fail && !c.Waived:
			suite.Failures++
			j.Failure = &junitProblem{Message: c.Detail, Text: c.body()}
		case c.Status == checklists.Skip:
			suite.Skipped++
			j.Skipped = &junitProblem{Message: c.Detail}
		default:
			j.Output = c.word() + ": " + c.body()
		}
		suite.Cases = append(suite.Cases, j)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(junitSuites{Suites: []junitSuite{suite}}); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func (c Case) word() string {
	word, _ := statusWord(checklists.Result{Waived: c.Waived, Verdict: checklists.Verdict{Status: c.Status}})
	return word
}

func (c Case) body() string {
	var lines []string
	for _, l := range []string{c.Title, c.Detail, c.Remedy} {
		if l != "" {
			lines = append(lines, l)
		}
	}
	return strings.Join(lines, "\n")
}

// writeGitHub writes workflow commands: failures become error annotations, warnings and waived failures warnings, skips
// notices. What passed is one plain line each, so that the log of the job reads like the list.
func writeGitHub(w io.Writer, s shownSuite) error {
	for _, c := range s.Cases {
		level := map[string]string{"FAIL": "error", "warn": "warning", "waived": "warning", "skip": "notice"}[c.word()]
		line := fmt.Sprintf("%s %s: %s\n", c.word(), c.ID, strings.ReplaceAll(c.Detail, "\n", " "))
		if level != "" {
			text := c.Detail
			if c.Remedy != "" {
				text += "\n-> " + c.Remedy
			}
			line = fmt.Sprintf("::%s title=%s::%s\n", level, githubProperty(s.Name+": "+c.ID), githubData(text))
		}
		if _, err := io.WriteString(w, line); err != nil {
			return err
		}
	}
	return nil
}

// githubData and githubProperty escape as the runner's command parser unescapes (actions/toolkit,
// packages/core/src/command.ts).
func githubData(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(s)
}

func githubProperty(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C").Replace(s)
}
