package main

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"oomguard/launcher"
	"oomguard/monitor"
	"oomguard/monitor/oom"
	"oomguard/preflight/plan"
)

// offered is a remedy as plan and the post-mortem both say it; bytes are left out, as the two may speak of different
// stages.
type offered struct {
	ID   string `json:"id"`
	Why  string `json:"why"`
	How  string `json:"how"`
	Cost string `json:"cost"`
}

const fullCard = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 132.00 MiB. GPU 0 has a total " +
	"capacity of 79.10 GiB of which " +
	"98.00 MiB is free. Including non-PyTorch memory, this process has 78.89 GiB memory in use. Of the allocated " +
	"memory 77.12 GiB is " +
	"allocated by PyTorch, and 165.81 MiB is reserved by PyTorch but unallocated.\n"

// preparedCase reads a case's job as its command does; nil when its flags are refused.
func preparedCase(t *testing.T, q gateCase, null *os.File) *prepared {
	t.Helper()
	env := environment{environ: append([]string{"PATH=/usr/bin:/bin", "HOME=/nonexistent"}, q.environ...), stdin: null,
		stdout: null, stderr: null,
		dir: q.dir, executable: "/nonexistent", now: func() time.Time { return time.Unix(0, 0) }}
	var p *prepared
	command := planCommand(env)
	command.Action = func(c *cli.Context) (err error) {
		_, p, err = asked(c.Context, env, c)
		return err
	}
	app := &cli.App{Commands: []*cli.Command{command}, Writer: null, ErrWriter: null}
	if err := app.Run(append([]string{"oomguard"}, q.args...)); err != nil {
		t.Logf("%s: %v", q.name, err)
		return nil
	}
	return p
}

// deathOfAFullCard is what is said after a job has filled its card, by an out-of-memory message that names no stage.
func deathOfAFullCard(p *prepared) *oom.Diagnosis {
	doc := aRun(1, monitor.Rank{Rank: 0, Memory: "cuda", Device: 0,
		Exception: &monitor.Exception{OOM: true, Type: "torch.OutOfMemoryError",
			Traceback: fullCard}})
	doc.Exit.Ranks = []launcher.RankExit{{Rank: 0, Known: true, Code: 1}}
	doc.Estimate, doc.EstimateInput, doc.Job = p.estimate, &p.input, p.job
	explainDeath(&doc, doc.Recording.Output())
	return doc.Postmortem
}

// TestOneSetOfRemedies: plan, the check and the post-mortem of the same job offer the same remedies in the same words
// and at the same price.
func TestOneSetOfRemedies(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	asked, contradictions := 0, 0
	for _, q := range jobCases(t) {
		if !strings.HasSuffix(q.name, ".plan") {
			continue
		}
		p := preparedCase(t, q, null)
		if p == nil || p.estimate == nil {
			continue
		}
		asked++
		planned := plannedRemedies(t, q, null)
		var after []offered
		if d := deathOfAFullCard(p); d != nil {
			for _, r := range d.Remedies {
				if slices.Contains(plan.IDs(), r.ID) {
					after = append(after, offered{r.ID, r.Why, r.How, r.Cost})
				}
			}
		}
		problem := contradiction(planned, after)
		if problem == "" {
			problem = contradictionOfCheck(planned, checkedRemedy(t, q, null))
		}
		if problem != "" {
			contradictions++
			t.Errorf("%s: %s", q.name, problem)
		}
	}
	t.Logf("%d jobs, %d contradictions", asked, contradictions)
}

// answerTo is the JSON of a case's command.
func answerTo(t *testing.T, q gateCase, null *os.File, into any) {
	t.Helper()
	stdout := scratchFile(t)
	defer stdout.Close()
	run(environment{args: q.args, environ: append([]string{"PATH=/usr/bin:/bin", "HOME=/nonexistent"}, q.environ...),
		stdin: null, stdout: stdout,
		stderr: null, dir: q.dir, executable: "/nonexistent", now: func() time.Time { return time.Unix(0, 0) }})
	if err := json.Unmarshal(readFile(t, stdout.Name()), into); err != nil {
		t.Fatalf("%s: %v", q.name, err)
	}
}

// plannedRemedies are those of plan's JSON.
func plannedRemedies(t *testing.T, q gateCase, null *os.File) []offered {
	t.Helper()
	var said struct {
		Remedies []offered `json:"remedies"`
	}
	answerTo(t, q, null, &said)
	return said.Remedies
}

// checkedRemedy is what the check remedy-chosen advises for the same job; "" nothing.
func checkedRemedy(t *testing.T, q gateCase, null *os.File) string {
	t.Helper()
	q.args = append([]string{"check", "--skip", "run-folder-writable"}, q.args[1:]...)
	var said struct {
		Checks []struct{ ID, Remedy string }
	}
	answerTo(t, q, null, &said)
	for _, c := range said.Checks {
		if do, advised := strings.CutSuffix(c.Remedy, "; oomguard plan shows all remedies"); advised &&
			c.ID == "remedy-chosen" {
			return do
		}
	}
	return ""
}

// contradictionOfCheck: what the check advises is one of plan's remedies, in its words.
func contradictionOfCheck(planned []offered, checked string) string {
	if checked == "" || slices.ContainsFunc(planned,
		func(r offered) bool { return strings.ReplaceAll(r.How, "\n", ": ") == checked }) {
		return ""
	}
	return "the check advises what plan does not: " + checked
}

// contradiction names the first difference. A post-mortem may add to a reason what it saw.
func contradiction(planned, after []offered) string {
	if len(planned) != len(after) {
		return strings.Join(namesOf(planned), " ") + " by plan, " + strings.Join(namesOf(after), " ") +
			" by the post-mortem"
	}
	for i, p := range planned {
		a := after[i]
		if p.ID != a.ID || p.How != a.How || p.Cost == "" || p.Cost != a.Cost ||
			a.Why != p.Why && !strings.HasPrefix(a.Why, p.Why+"; ") {
			return strings.Join([]string{"plan says", p.ID, p.Why, p.How, p.Cost, "and the post-mortem", a.ID, a.Why,
				a.How, a.Cost}, "\n\t")
		}
	}
	return ""
}

func namesOf(list []offered) []string {
	var names []string
	for _, r := range list {
		names = append(names, r.ID)
	}
	return names
}
