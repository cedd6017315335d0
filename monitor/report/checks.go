package report

import (
	"fmt"

	"oomguard/checklists"
)

// Checks is the outcome of a checklist (schema oomguard.check/v1).
type Checks struct {
	checklists.Outcome
}

// Page lists every check, then every remedy.
func (d Checks) Page(Units) Page {
	page := Page{Heading("Checklist " + d.List), checkTable(d.Results)}
	return append(page, checkSummary(d.Outcome)...)
}

// statusWord is a status as the first word of a line, and its tone.
func statusWord(r checklists.Result) (string, Tone) {
	switch {
	case r.Waived && r.Status == checklists.Fail:
		return "waived", Caution
	case r.Status == checklists.Fail:
		return "FAIL", Bad
	case r.Status == checklists.Warn:
		return "warn", Caution
	case r.Status == checklists.Skip:
		return "skip", Faint
	}
	return "pass", Good
}

func checkTable(results []checklists.Result) Table {
	t := Table{Columns: []Column{{"", false}, {"check", false}, {"what was found", false}}}
	for _, r := range results {
		word, tone := statusWord(r)
		row := cells(word, r.ID, r.Detail)
		row[0].Tone = tone
		if r.Status == checklists.Skip {
			row = toned(row, Faint)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// checkSummary says what to do, failures first, and how to waive them.
func checkSummary(o checklists.Outcome) []Block {
	var todo List
	count := map[string]int{}
	for _, want := range []checklists.Status{checklists.Fail, checklists.Warn} {
		for _, r := range o.Results {
			if r.Status == want && r.Remedy != "" {
				word, tone := statusWord(r)
				todo = append(todo, Paragraph{Text: fmt.Sprintf("%s %s: %s", word, r.ID, r.Remedy), Tone: tone})
			}
		}
	}
	var firstFail string
	for _, r := range o.Results {
		word, _ := statusWord(r)
		count[word]++
		if r.Status == checklists.Fail && !r.Waived && firstFail == "" {
			firstFail = r.ID
		}
	}
	var out []Block
	if len(todo) > 0 {
		out = append(out, Heading("What to do"), todo)
	}
	line := Paragraph{Text: fmt.Sprintf("%d passed, %d warned, %d failed, %d skipped, %d waived: %s",
		count["pass"], count["warn"], count["FAIL"], count["skip"], count["waived"], o.Outcome)}
	switch o.Outcome {
	case checklists.Fail:
		line.Tone = Bad
	case checklists.Warn:
		line.Tone = Caution
	default:
		line.Tone = Good
	}
	out = append(out, line)
	if firstFail != "" {
		out = append(out, Paragraph{Text: "to go on in spite of a failed check: --waive " + firstFail, Tone: Faint})
	}
	return out
}
