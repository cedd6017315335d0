package main

import (
	"context"
	"strings"

	"github.com/urfave/cli/v2"

	"oomguard/launcher/fence"
	"oomguard/monitor"
	"oomguard/monitor/report"
	"oomguard/preflight/job"
)

// The adviser's own side; adviser.go has what it is asked and answers.

// serve answers the questions of one run.
func (l *link) serve(env environment, c *cli.Context) error {
	stop := fence.LimitMemory(maxAdviserBytes)
	r, out, answer := l.advise(env, c)
	stop()
	if err := l.out.Encode(answer); err != nil || r == nil || answer.Refused {
		return err
	}
	var o opening
	if err := l.in.Decode(&o); err != nil {
		return nil // the one that asks is gone
	}
	r.open(o)
	if err := l.out.Encode(struct{}{}); err != nil {
		return err
	}
	var e ending
	if err := l.in.Decode(&e); err != nil {
		return nil
	}
	defer fence.LimitMemory(maxAdviserBytes)()
	return l.out.Encode(r.finish(e, out))
}

// advise reads, estimates and judges, makes the run's folder, and says what there is to say before the start.
func (l *link) advise(env environment, c *cli.Context) (*record, output, advice) {
	wrong := func(err error) (*record, output, advice) {
		return nil, output{}, advice{Status: exitStatus(err),
			Text: spoken("%s", monitor.NewScrubber(env.environ, l.Argv).Text(err.Error()))}
	}
	out, err := newOutput(c, env, env.stderr)
	if err != nil {
		return wrong(err)
	}
	out.style.Color = l.Color && out.file == ""
	r, err := newRecord(env, c, l.briefing)
	if err != nil {
		return wrong(err)
	}
	answer := advice{Refused: r.outcome.Err() != nil, Alloc: r.alloc}
	if r.alloc.Change == report.EnvAdded {
		answer.AllocConf = r.alloc.Name + "=" + r.alloc.Value
	}
	r.announce(out)
	if answer.Refused {
		r.refused(out)
		answer.Text = r.said.String()
		return r, out, answer
	}
	r.openStore()
	r.part("clearing away what killed runs left", func() {
		// a left-over is no matter of this run
		monitor.SweepPrivate(func(p *monitor.Private, store *monitor.Store) { _, _ = adopt(env, p, store) })
	})
	j := r.prep.job
	answer.Store, answer.Single, answer.SingleWords = r.store, j.Launcher.Or("") == "python" || j.OneProcess,
		singleWords(j)
	if l.Fault == nil { // the one that asks tells of that
		noteFaults(r.store, r.scrub, r.prep.faults, r.say)
		r.prep.faults = nil
	}
	answer.Text = r.said.String()
	r.said.Reset()
	return r, out, answer
}

// singleWords are the words behind the interpreter of the one training process that a launcher starts and tells no
// rank: the script and its arguments, as the launcher's command line ends with them. Nil for other jobs.
func singleWords(j *job.Job) []string {
	if !j.OneProcess || !j.Script.Known {
		return nil
	}
	words := []string{j.Script.Value}
	if module, isModule := strings.CutPrefix(j.Script.Value, "-m "); isModule {
		words = []string{"-m", module}
	}
	return append(words, j.ScriptArgs...)
}

// announce says what the job needs, and the checklist; as text, as it goes to stderr.
func (r *record) announce(out output) {
	page := report.Announcement{Estimate: r.doc.Estimate, EstimateError: r.doc.EstimateError, Outcome: r.outcome}
	r.part("showing the checklist", func() {
		if err := report.Write(&r.said, "text", report.Clean(page, r.scrub.Text), out.style); err != nil {
			r.say("the checklist could not be printed: %v", err)
		}
	})
	if r.alloc.Name != "" {
		r.say("%s", r.alloc.Sentence())
	}
}

// refused records a run that is not started.
func (r *record) refused(out output) {
	r.doc.Refused = true
	r.openStore()
	r.part("writing the report", func() { r.save(out, false) })
	r.say("nothing was started; report: %s", r.doc.Dir)
	noteFaults(r.store, r.scrub, r.prep.faults, r.say)
}

// dryRun answers --dry-run: what the run would be. It is the answer itself, so it needs no adviser.
func dryRun(ctx context.Context, env environment, c *cli.Context, argv []string, o runOptions) error {
	out, err := newOutput(c, env, env.stdout)
	if err != nil {
		return err
	}
	devices, err := watchedSource(env, c)
	if err != nil {
		return err
	}
	defer devices.Close()
	r, err := newRecord(env, c, briefing{Argv: argv, Environ: o.environ, Simulated: o.simulated,
		Devices: lookOnce(ctx, devices)})
	if err != nil {
		return err
	}
	s := session{env: env, cli: c, argv: argv, options: o, advice: advice{Alloc: r.alloc}}
	s.advice.Single = r.prep.job.Launcher.Or("") == "python" || r.prep.job.OneProcess
	if r.alloc.Change == report.EnvAdded {
		s.advice.AllocConf = r.alloc.Name + "=" + r.alloc.Value
	}
	probeDir := "PRIVATE-FOLDER"
	if c.Bool("no-probe") {
		probeDir = ""
	}
	refusal := r.outcome.Err()
	err = out.write(report.DryRun{
		Schema: report.DryRunSchema, Command: r.doc.Command, WorkDir: env.dir,
		EnvironmentChanges: changes(env.environ, s.commandEnv(probeDir), r.alloc),
		Estimate:           r.doc.Estimate, EstimateError: r.doc.EstimateError, Outcome: r.outcome,
		WouldStart: refusal == nil,
	})
	noteFaults(nil, r.scrub, r.prep.faults, env.say)
	if err == nil && refusal != nil {
		return status(exitNo)
	}
	return err
}
