package checklists

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/hashicorp/go-multierror"
)

// facts of these tests are the verdicts themselves, by check id.
type facts map[string]Status

func judge(id string) func(facts, Params) Verdict {
	return func(f facts, _ Params) Verdict { return Verdict{f[id], id + " detail", id + " remedy"} }
}

func three() []Check[facts] {
	return []Check[facts]{
		{ID: "a", Title: "a holds", Judge: judge("a")},
		{ID: "b", Title: "b holds", After: []string{"a"}, Judge: judge("b")},
		{ID: "c", Title: "c holds", After: []string{"b"}, Judge: judge("c")},
	}
}

func listOf(entries ...string) List {
	l := List{Name: "test"}
	for _, e := range entries {
		id, severity, _ := strings.Cut(e, ":")
		if severity == "" {
			severity = "fail"
		}
		l.Entries = append(l.Entries, Entry{ID: id, Severity: Status(severity)})
	}
	return l
}

// summary is "id=status" of every result, "!" for waived, and the outcome.
func summary(o Outcome) string {
	var words []string
	for _, r := range o.Results {
		word := r.ID + "=" + string(r.Status)
		if r.Waived {
			word += "!"
		}
		words = append(words, word)
	}
	return strings.Join(append(words, string(o.Outcome)), " ")
}

func TestRun(t *testing.T) {
	tests := []struct {
		name   string
		list   List
		facts  facts
		policy Policy
		want   string
	}{
		{"all pass", listOf("a", "b", "c"), facts{"a": Pass, "b": Pass, "c": Pass}, Policy{},
			"a=pass b=pass c=pass pass"},
		{"order is the list's", listOf("c", "a", "b"), facts{"a": Pass, "b": Pass, "c": Fail}, Policy{},
			"c=fail a=pass b=pass fail"},
		{"a failure blocks what follows from it", listOf("a", "b", "c"), facts{"a": Fail, "b": Pass, "c": Pass},
			Policy{},
			"a=fail b=skip c=skip fail"},
		{"a warning blocks nothing", listOf("a", "b"), facts{"a": Warn, "b": Pass}, Policy{}, "a=warn b=pass warn"},
		{"a skip blocks", listOf("a", "b"), facts{"a": Skip, "b": Pass}, Policy{}, "a=skip b=skip pass"},
		{"what is not listed blocks nothing", listOf("b", "c"), facts{"a": Fail, "b": Pass, "c": Pass}, Policy{},
			"b=pass c=pass pass"},
		{"severity warn caps a failure, which blocks all the same", listOf("a:warn", "b"), facts{"a": Fail, "b": Pass},
			Policy{},
			"a=warn b=skip warn"},
		{"severity warn leaves milder ones", listOf("a:warn"), facts{"a": Pass}, Policy{}, "a=pass pass"},
		{"waived failures are shown and do not count", listOf("a"), facts{"a": Fail}, Policy{Waive: []string{"a"}},
			"a=fail! pass"},
		{"waiving does not unblock", listOf("a", "b"), facts{"a": Fail, "b": Fail}, Policy{Waive: []string{"a"}},
			"a=fail! b=skip pass"},
		{"waiving a pass marks nothing", listOf("a"), facts{"a": Pass}, Policy{Waive: []string{"a"}}, "a=pass pass"},
		{"skipped as asked", listOf("a", "b"), facts{"a": Fail, "b": Fail}, Policy{Skip: []string{"a", "b"}},
			"a=skip b=skip pass"},
		{"fail on warn", listOf("a"), facts{"a": Warn}, Policy{FailOn: Warn}, "a=warn fail"},
		{"fail on warn, waived", listOf("a"), facts{"a": Warn}, Policy{FailOn: Warn, Waive: []string{"a"}},
			"a=warn! pass"},
		{"skip of a check that this list leaves out", listOf("a"), facts{"a": Pass}, Policy{Skip: []string{"c"}},
			"a=pass pass"},
		{"empty list", listOf(), facts{}, Policy{}, "pass"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o, err := Run(tt.list, three(), tt.facts, tt.policy)
			if err != nil {
				t.Fatal(err)
			}
			if got := summary(o); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if refused := o.Err() != nil; refused != (o.Outcome == Fail) {
				t.Errorf("Err() is %v with outcome %s", o.Err(), o.Outcome)
			}
			for _, r := range o.Results {
				if r.Detail == "" || r.Title == "" || (r.Status != Pass && r.Remedy == "") {
					t.Errorf("result without detail, title or remedy: %+v", r)
				}
			}
		})
	}
}

func TestBlockedSaysByWhat(t *testing.T) {
	o, err := Run(listOf("a", "b"), three(), facts{"a": Fail, "b": Pass}, Policy{})
	if err != nil {
		t.Fatal(err)
	}
	want := Verdict{Skip, "blocked by a, which failed: a detail", "a remedy"}
	if o.Results[1].Verdict != want {
		t.Errorf("got %+v, want %+v", o.Results[1].Verdict, want)
	}
}

func TestThresholds(t *testing.T) {
	var got Params
	checks := []Check[int]{{ID: "a", Defaults: Params{"low": 1, "high": 2}, Judge: func(_ int, with Params) Verdict {
		got = with
		return Verdict{Status: Pass, Detail: "ok"}
	}}}
	list := List{Name: "l", Entries: []Entry{{ID: "a", Severity: Fail, With: Params{"high": 7}}}}
	if _, err := Run(list, checks, 0, Policy{}); err != nil {
		t.Fatal(err)
	}
	if got["low"] != 1 || got["high"] != 7 || len(got) != 2 {
		t.Errorf("thresholds %v", got)
	}
	if checks[0].Defaults["high"] != 2 {
		t.Error("judging changed the check's defaults")
	}
}

func TestRunRefusesNonsense(t *testing.T) {
	param := listOf("a")
	param.Entries[0].With = Params{"tpyo": 1}
	param.Entries[0].Origin = "team.yaml:7"
	cyclic := []Check[facts]{{ID: "a", After: []string{"b"}, Judge: judge("a")}, {ID: "b", Judge: judge("b")}}
	tests := []struct {
		name   string
		list   List
		checks []Check[facts]
		policy Policy
		want   []string
	}{
		{"unknown in list", listOf("a", "x"), three(), Policy{}, []string{`no check "x"`, "known: a, b, c"}},
		{"unknown in skip and waive, both said", listOf("a"), three(),
			Policy{Skip: []string{"x"}, Waive: []string{"y"}},
			[]string{`skip: no check "x"`, `waive: no check "y"`, "known: a, b, c"}},
		{"listed twice", listOf("a", "a"), three(), Policy{}, []string{"check a is listed twice"}},
		{"severity", listOf("a:fatal"), three(), Policy{}, []string{`severity of a is "fatal"`}},
		{"threshold", param, three(), Policy{}, []string{"team.yaml:7", `no threshold "tpyo"`, "it has: none"}},
		{"fail on", listOf("a"), three(), Policy{FailOn: "skip"}, []string{`fail on "skip"`}},
		{"built in twice", listOf("a"), append(three(), three()[0]), Policy{}, []string{"check a is built in twice"}},
		{"after something later", listOf("a"), cyclic, Policy{}, []string{"check a comes after b"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Run(tt.list, tt.checks, facts{"a": Pass}, tt.policy)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
			if errors.Is(err, ErrRefused) {
				t.Error("a wrong list is not a refusal")
			}
		})
	}
}

func TestErr(t *testing.T) {
	o, err := Run(listOf("a", "b:warn", "c"), []Check[facts]{
		{ID: "a", Title: "a holds", Judge: judge("a")},
		{ID: "b", Title: "b holds", Judge: judge("b")},
		{ID: "c", Title: "c holds", Judge: judge("c")},
	}, facts{"a": Fail, "b": Fail, "c": Fail}, Policy{})
	if err != nil {
		t.Fatal(err)
	}
	const want = `the checklist test refuses (2 of 3 checks):
  a: a detail
    do: a remedy
  c: c detail
    do: c remedy`
	if got := o.Err(); got.Error() != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if !errors.Is(o.Err(), ErrRefused) {
		t.Error("not ErrRefused")
	}
	var all *multierror.Error
	var first *CheckError
	if !errors.As(o.Err(), &all) || len(all.Errors) != 2 || !errors.As(o.Err(), &first) || first.Result.ID != "a" {
		t.Errorf("errors.As gives %v and %v", all, first)
	}
}

func TestOutcomeJSON(t *testing.T) {
	o, err := Run(listOf("a"), three(), facts{"a": Fail}, Policy{Waive: []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"schema":"oomguard.check/v1","list":"test","checks":[{"id":"a","title":"a holds","status":"fail",` +
		`"detail":"a detail","remedy":"a remedy","waived":true}],"outcome":"pass","fail_on":"fail"}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	empty, err := Run(listOf(), three(), nil, Policy{})
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := json.Marshal(empty); !strings.Contains(string(got), `"checks":[]`) {
		t.Errorf("no checks must be an empty array: %s", got)
	}
}

// Where an answer is required, a check that decides and could not judge is named; what the user left out is not.
func TestRequireAnswer(t *testing.T) {
	checks := three()
	checks[0].Decides, checks[2].Decides = true, true
	for _, tt := range []struct {
		name   string
		list   bool
		policy Policy
		facts  facts
		want   string
	}{
		{"not required", false, Policy{}, facts{"a": Skip, "b": Pass, "c": Pass}, ""},
		{"by the list", true, Policy{}, facts{"a": Skip, "b": Pass, "c": Pass}, "a c"}, // c waits for b, and b for a
		{"by the user", false, Policy{RequireAnswer: true}, facts{"a": Pass, "b": Pass, "c": Skip}, "c"},
		{"answered", true, Policy{}, facts{"a": Warn, "b": Skip, "c": Fail}, "c"},
		{"all answered", true, Policy{}, facts{"a": Pass, "b": Pass, "c": Fail}, ""},
		{"left out", true, Policy{Skip: []string{"c"}}, facts{"a": Pass, "b": Pass}, ""},
		{"waived", true, Policy{Waive: []string{"c"}}, facts{"a": Pass, "b": Pass, "c": Skip}, ""},
	} {
		list := listOf("a", "b", "c")
		list.RequireAnswer = tt.list
		o, err := Run(list, checks, tt.facts, tt.policy)
		if err != nil || strings.Join(o.Unanswered, " ") != tt.want {
			t.Errorf("%s: %v, %v: want %q", tt.name, o.Unanswered, err, tt.want)
		}
	}
}
