package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/urfave/cli/v2"

	"oomguard/checklists"
	"oomguard/launcher"
	"oomguard/launcher/fence"
	"oomguard/monitor"
	"oomguard/monitor/report"
	"oomguard/preflight"
)

// record is all that is known and written of one run, from its checklist to its report. It lives in the adviser (see
// adviser.go).
type record struct {
	env       environment // with what --alloc-conf adds
	inherited []string    // our own environment
	cli       *cli.Context
	argv      []string
	alloc     report.EnvChange // what --alloc-conf changed
	root      string
	outcome   checklists.Outcome
	prep      *prepared
	scrub     *monitor.Scrubber
	store     *monitor.Store // nil: nothing can be recorded
	said      strings.Builder
	doc       report.Run
}

// newRecord reads, estimates and judges. Its error is a usage error: the command line of oomguard is wrong.
func newRecord(env environment, c *cli.Context, b briefing) (*record, error) {
	asked, cancel := withDeadline(c.Context)
	defer cancel()
	p, err := prepare(asked, env, c, question{argv: b.Argv, here: true, devices: b.Devices, fault: b.Fault})
	if err != nil {
		return nil, err
	}
	root, inherited := runRoot(env, c), env.environ
	env, alloc, err := setAllocConf(env, c, p)
	if err != nil {
		return nil, err
	}
	var outcome checklists.Outcome
	if b.Fault == nil {
		if outcome, err = judge(env, c, p, root, preflight.ModeRun); err != nil {
			return nil, err
		}
	}
	r := &record{
		env: env, inherited: inherited, cli: c, argv: b.Argv, alloc: alloc, root: root, outcome: outcome, prep: p,
		scrub: monitor.NewScrubber(inherited, b.Argv),
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	r.doc = report.Run{
		Schema: report.RunSchema, Version: version(), Command: r.scrub.Args(b.Argv), WorkDir: env.dir, Host: host,
		Started: env.now().UTC(), JobKey: preflight.JobKey(p.job), RemedyKey: preflight.RemedyKey(p.job),
		Simulated: b.Simulated,
		Job:       p.job, Estimate: p.estimate, Devices: p.devices, List: outcome.List, Checks: outcome.Results,
		Outcome:     outcome.Outcome,
		Environment: preflight.AllowedEnv(env.environ), Versions: p.job.Versions,
	}
	if p.estimate != nil {
		r.doc.EstimateInput = &p.input
	}
	if p.estimateErr != nil {
		r.doc.EstimateError = p.estimateErr.Error()
	}
	if p.devicesErr != nil {
		r.doc.DevicesError = p.devicesErr.Error()
	}
	for _, fault := range p.faults {
		r.missing("%v", fault)
	}
	return r, nil
}

// say adds a line of oomguard's own to what is printed next.
func (r *record) say(format string, args ...any) {
	r.said.WriteString(spoken("%s", r.scrub.Text(fmt.Sprintf(format, args...))))
}

func (r *record) missing(format string, args ...any) {
	r.doc.Missing = append(r.doc.Missing, fmt.Sprintf(format, args...))
}

// part does a part of the report behind a fence: a fault of ours in it leaves the other parts, and the run, as they
// are.
func (r *record) part(name string, do func()) {
	if fault := fence.Do(name, do); fault != nil {
		r.prep.faults = append(r.prep.faults, fault)
		r.missing("%v", fault)
	}
}

// faultsFile holds what a person who mends oomguard needs of its own faults: no word of the job's files, and no
// secrets.
const faultsFile = "faults.txt"

// noteFaults writes faultsFile, if there is anything to write, and says so. Without a store, what happened is only
// said.
func noteFaults(store *monitor.Store, scrub *monitor.Scrubber, faults []*fence.Fault,
	say func(format string, args ...any)) {
	if len(faults) == 0 {
		return
	}
	where := ""
	if store != nil && store.WriteFile(faultsFile, []byte(scrub.Text(describe(faults)))) == nil {
		where = "; to report it, send " + filepath.Join(store.Dir, faultsFile)
	}
	for i, f := range faults {
		if i == len(faults)-1 {
			say("%v%s", f, where)
		} else {
			say("%v", f)
		}
	}
}

// describe is the text of faultsFile.
func describe(faults []*fence.Fault) string {
	var text strings.Builder
	fmt.Fprintf(&text, "oomguard %s, %s/%s, %s\n", version(), runtime.GOOS, runtime.GOARCH, runtime.Version())
	for _, f := range faults {
		fmt.Fprintf(&text, "\n%v\n%s\n", f, f.Stack)
	}
	return text.String()
}

// tellFaults says what oomguard failed in itself, after an answer that is worth less for it.
func (p *prepared) tellFaults(env environment) { noteFaults(nil, nil, p.faults, env.say) }

// openStore makes the run folder, or one among the temporary files when that cannot be written: a place to record is no
// reason not to train.
func (r *record) openStore() {
	var problem error
	for _, place := range []func() (string, error){func() (string, error) { return r.root, nil }, monitor.TempRoot} {
		root, err := place()
		if err == nil {
			err = r.createStore(root)
		}
		if err == nil {
			break
		}
		problem = errors.Join(problem, err)
	}
	if problem != nil {
		r.say("%v", problem)
		r.missing("%v", problem)
	}
	if r.store == nil {
		return
	}
	r.store.Scrub = r.scrub
	r.doc.ID, r.doc.Dir = r.store.ID(), r.store.Dir
	if err := writeRun(r.store, r.doc); err != nil {
		r.missing("%v", err)
	}
}

// createStore makes the run folder under root, or this node's part of it where several nodes record one run.
func (r *record) createStore(root string) (err error) {
	node := placement(r.env, r.prep.job)
	if node == nil {
		r.store, err = monitor.CreateRun(root, r.env.now())
		return err
	}
	store, joined, err := monitor.JoinRun(root, r.env.now(), *node)
	if err == nil {
		r.store, r.doc.Node = store, &joined
	}
	return err
}

// open writes down what is known before the start, for a report after oomguard was killed.
func (r *record) open(o opening) {
	r.doc.PrivateDir, r.doc.Probed, r.doc.EnvironmentChanges = o.PrivateDir, o.Probed, o.Changes
	r.doc.Missing = append(r.doc.Missing, o.Missing...)
	if r.store == nil {
		return
	}
	if err := r.store.WriteMeta(r.doc); err != nil {
		r.missing("%v", err)
	}
}

// finish completes the document after the end and writes the report.
func (r *record) finish(e ending, out output) account {
	exit := e.Exit
	r.doc.Missing = append(r.doc.Missing, e.Missing...)
	r.doc.Exit = &exit
	text := ""
	r.part("reading what the command wrote", func() { text = r.scrubbed(e) })
	r.part("putting the recording together", func() { text += r.recorded(&exit, text) })
	r.doc.CgroupOOMKills = -1
	if kills := preflight.CgroupOOMKills("/"); kills >= 0 && e.OOMKills >= 0 {
		r.doc.CgroupOOMKills = kills - e.OOMKills
	}
	r.part("making the post-mortem", func() { explainDeath(&r.doc, text) })
	if r.cli.IsSet("oom-exit-code") && exit.Code != 0 && ranOut(r.doc.Postmortem) {
		r.doc.OOMExitCode = r.cli.Int("oom-exit-code")
	}
	r.doc.PrivateDir = ""
	r.part("writing the report", func() { r.save(out, true) })
	noteFaults(r.store, r.scrub, r.prep.faults, r.say)
	return account{Text: r.said.String(), OOMExitCode: r.doc.OOMExitCode}
}

// scrubbed is the end of what the command wrote, and what its ranks wrote into their error files, without secrets.
func (r *record) scrubbed(e ending) string {
	for _, rank := range e.Exit.Ranks {
		if rank.Error != nil {
			rank.Error.Message, rank.Error.Traceback = r.scrub.Text(rank.Error.Message),
				r.scrub.Text(rank.Error.Traceback)
		}
	}
	text := e.Tail.read()
	if e.Copy != "" {
		text += launcher.ReadTail(e.Copy)
	}
	return r.scrub.Text(text)
}

// recorded adds the recording to the document, and returns what ranks said in it; text is what the command wrote
// itself.
func (r *record) recorded(exit *launcher.Exit, text string) string {
	if r.store == nil {
		return ""
	}
	complete(r.store, &r.doc)
	said := ""
	if r.doc.Recording != nil {
		said = r.doc.Recording.Output()
	}
	said += r.written(exit.Ranks)
	if text+said != "" {
		if err := r.store.WriteFile(monitor.OutputFile, []byte(text+said)); err != nil {
			r.missing("%v", err)
		}
	}
	return said
}

// written is what ranks wrote into their error files, as far as their probes have not told it already; each line with
// its rank, as in Recording.Output.
func (r *record) written(ranks []launcher.RankExit) string {
	told := map[int]bool{}
	if r.doc.Recording != nil {
		for _, r := range r.doc.Recording.Ranks {
			told[r.PID] = r.Exception != nil
		}
	}
	var text strings.Builder
	for _, r := range ranks {
		if r.Error == nil || told[r.PID] {
			continue
		}
		lines := r.Error.Traceback
		if lines == "" {
			lines = r.Error.Message
		}
		for line := range strings.Lines(lines) {
			fmt.Fprintf(&text, "[rank%d]: %s\n", r.Rank, strings.TrimRight(line, "\n"))
		}
	}
	return text.String()
}

// save writes the report's files and, with show, prints it.
func (r *record) save(out output, show bool) {
	if r.store != nil {
		if err := saveReport(r.store, r.doc); err != nil {
			r.say("%v", err)
		}
	}
	if !show && out.file == "" {
		return
	}
	if err := out.render(&r.said, r.doc); err != nil {
		r.say("%v", err)
	}
}

// saveReport writes run.json, summary.json, report.json, report.md and report.html.
func saveReport(store *monitor.Store, doc report.Run) error {
	if err := writeRun(store, doc); err != nil {
		return err
	}
	if err := store.WriteJSON("report.json", doc); err != nil {
		return err
	}
	for name, format := range map[string]string{"report.md": "markdown", "report.html": "html"} {
		var text strings.Builder
		if err := report.Write(&text, format, report.Clean(doc, store.Scrub.Text),
			report.Style{Units: report.Units{UTF8: true}}); err != nil {
			return err
		}
		if err := store.WriteFile(name, []byte(text.String())); err != nil {
			return err
		}
	}
	return nil
}
