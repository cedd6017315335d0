package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/urfave/cli/v2"

	"oomguard/checklists"
	"oomguard/launcher"
	"oomguard/monitor"
	"oomguard/monitor/gpu"
	"oomguard/monitor/probe"
	"oomguard/monitor/report"
	"oomguard/preflight"
)

// session is one run from its checklist to its report.
type session struct {
	env     environment
	cli     *cli.Context
	argv    []string
	options runOptions
	// inherited is our own environment; env.environ has what --alloc-conf adds, and alloc says what that was.
	inherited []string
	alloc     report.EnvChange
	root      string
	outcome   checklists.Outcome
	prep      *prepared
	scrub     *monitor.Scrubber
	store     *monitor.Store // nil: nothing can be recorded
	tail      outputTail
	doc       report.Run
}

func newSession(env environment, c *cli.Context, p *prepared, outcome checklists.Outcome, root string, o runOptions) *session {
	s := &session{
		env: env, cli: c, argv: p.job.Argv, options: o, root: root, outcome: outcome, prep: p,
		scrub: monitor.NewScrubber(env.environ, p.job.Argv),
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	s.doc = report.Run{
		Schema: report.RunSchema, Version: version(), Command: s.scrub.Args(s.argv), WorkDir: env.dir, Host: host,
		Started: env.now().UTC(), JobKey: preflight.JobKey(p.job), RemedyKey: preflight.RemedyKey(p.job), Simulated: o.simulated,
		Job: p.job, Estimate: p.estimate, Devices: p.devices, List: outcome.List, Checks: outcome.Results, Outcome: outcome.Outcome,
		Environment: preflight.AllowedEnv(env.environ), Versions: p.job.Versions,
	}
	if p.estimate != nil {
		s.doc.EstimateInput = &p.input
	}
	if p.estimateErr != nil {
		s.doc.EstimateError = p.estimateErr.Error()
	}
	if p.devicesErr != nil {
		s.doc.DevicesError = p.devicesErr.Error()
	}
	return s
}

func (s *session) say(format string, args ...any) {
	fmt.Fprintf(s.env.stderr, "oomguard: "+format+"\n", args...)
}

func (s *session) missing(format string, args ...any) {
	s.doc.Missing = append(s.doc.Missing, fmt.Sprintf(format, args...))
}

// guarded runs what must not hurt the run: a panic in it is our fault and changes nothing but the report.
func (s *session) guarded(what string, do func()) {
	defer func() {
		if r := recover(); r != nil {
			s.say("%s (a fault of oomguard; the run is not affected): %v\n%s", what, r, debug.Stack())
		}
	}()
	do()
}

// openStore makes the run folder, or one among the temporary files when that cannot be written: a place to record is no reason not
// to train.
func (s *session) openStore() {
	var problem error
	for _, root := range []string{s.root, filepath.Join(os.TempDir(), "oomguard-runs")} {
		err := s.createStore(root)
		if err == nil {
			break
		}
		if problem == nil {
			problem = err
		}
	}
	if problem != nil {
		s.say("%v", problem)
		s.missing("%v", problem)
	}
	if s.store == nil {
		return
	}
	s.doc.ID, s.doc.Dir = s.store.ID(), s.store.Dir
	if err := record(s.store, s.doc); err != nil {
		s.missing("%v", err)
	}
}

// createStore makes the run folder under root, or this node's part of it where several nodes record one run.
func (s *session) createStore(root string) (err error) {
	node := placement(s.env, s.prep.job)
	if node == nil {
		s.store, err = monitor.CreateRun(root, s.env.now())
		return err
	}
	store, joined, err := monitor.JoinRun(root, s.env.now(), *node)
	if err == nil {
		s.store, s.doc.Node = store, &joined
	}
	return err
}

// openPrivate makes the folder that only we and the ranks can read, for what must not lie in the run folder as it is: the probe's files
// and the copy of the output may hold secrets.
func (s *session) openPrivate() error {
	if s.store == nil || s.doc.PrivateDir != "" {
		return nil
	}
	dir, err := probe.Dir()
	if err != nil {
		return err
	}
	s.doc.PrivateDir = dir
	return nil
}

// remember writes down what is known before the start, for a report after oomguard was killed.
func (s *session) remember() {
	if s.store == nil {
		return
	}
	if err := s.store.WriteMeta(s.doc); err != nil {
		s.missing("%v", err)
	}
}

// openProbe installs the probe and returns its folder, "" when there is no probe.
func (s *session) openProbe() string {
	if s.cli.Bool("no-probe") {
		s.missing("memory by stage: the probe was switched off with --no-probe")
		return ""
	}
	if s.store == nil {
		return ""
	}
	err := s.openPrivate()
	if err == nil {
		err = probe.Install(s.doc.PrivateDir)
	}
	if err != nil {
		s.missing("memory by stage: the probe could not be installed: %v", err)
		return ""
	}
	s.doc.Probed = true
	return s.doc.PrivateDir
}

// openRelay prepares the command's output so that its end is known afterwards: where it goes to a pipe, a relay takes a copy; where it
// goes to a file, that is read. A terminal is left alone.
func (s *session) openRelay() *launcher.Relay {
	s.tail = openTail(s.env)
	as := &launcher.Relay{Stdout: s.env.stdout, Stderr: s.env.stderr}
	what := s.cli.String("capture")
	stdout, stderr := s.env.stdout, s.env.stderr
	switch {
	case s.store == nil:
		return as
	case what == captureNone || what == captureStderr && launcher.SameStream(stdout, stderr): // what one pipe keeps in order is not parted
		if launcher.IsPipe(stdout) || launcher.IsPipe(stderr) {
			s.missing("what the command printed: not copied, as asked for with --capture %s", what)
		}
		return as
	case what == captureStderr:
		stdout = nil
	}
	if err := s.openPrivate(); err != nil {
		s.missing("what the command printed: %v", err)
		return as
	}
	relay, err := launcher.StartRelay([]string{s.env.executable, relayWord}, s.outputCopy(), stdout, stderr)
	if err != nil {
		s.missing("what the command printed: %v", err)
	}
	if stdout == nil {
		relay.Stdout = s.env.stdout
	}
	return relay
}

func (s *session) outputCopy() string { return filepath.Join(s.doc.PrivateDir, outputFile) }

func (s *session) closePrivate() {
	if s.doc.PrivateDir == "" {
		return
	}
	if err := os.RemoveAll(s.doc.PrivateDir); err != nil {
		s.missing("the private folder %s could not be removed: %v", s.doc.PrivateDir, err)
	}
	s.doc.PrivateDir = ""
}

// watch starts the recording.
func (s *session) watch(proc *launcher.Process, devices gpu.Source) *monitor.Watcher {
	if s.store == nil {
		return nil
	}
	probeDir := ""
	if s.doc.Probed {
		probeDir = s.doc.PrivateDir
	}
	if s.prep.devices == nil {
		devices = nil
	}
	return monitor.Watch(monitor.Config{
		Store: s.store, Devices: devices, Interval: s.cli.Duration("interval"), ProbeDir: probeDir, Scrub: s.scrub,
		Owns: proc.Owns,
		Ranks: func() []monitor.RankPID {
			var out []monitor.RankPID
			for _, r := range proc.Ranks() {
				out = append(out, monitor.RankPID{PID: r.PID, Rank: r.Rank})
			}
			return out
		},
	})
}

// outputFile holds what is known of the command's output, to which the line numbers of a post-mortem refer: the end of what it wrote, if
// that went to a file, and the exceptions that its ranks reported.
const outputFile = "output.log"

// finish completes the document after the end and writes the report.
func (s *session) finish(exit launcher.Exit, oomKills int64, out output) {
	for _, r := range exit.Ranks {
		if r.Error != nil {
			r.Error.Message, r.Error.Traceback = s.scrub.Text(r.Error.Message), s.scrub.Text(r.Error.Traceback)
		}
	}
	s.doc.Exit = &exit
	text := s.scrub.Text(s.tail.read() + launcher.ReadTail(s.outputCopy()))
	if s.store != nil {
		complete(s.store, &s.doc)
		if s.doc.Recording != nil {
			text += s.doc.Recording.Output()
		}
		text += s.written(exit.Ranks)
		if text != "" {
			if err := s.store.WriteFile(outputFile, []byte(text)); err != nil {
				s.missing("%v", err)
			}
		}
	}
	if kills := preflight.CgroupOOMKills("/"); kills >= 0 && oomKills >= 0 {
		s.doc.CgroupOOMKills = kills - oomKills
	} else {
		s.doc.CgroupOOMKills = -1
	}
	explainDeath(&s.doc, text)
	if s.cli.IsSet("oom-exit-code") && exit.Code != 0 && ranOut(s.doc.Postmortem) {
		s.doc.OOMExitCode = s.cli.Int("oom-exit-code")
	}
	s.closePrivate()
	s.save(out, true)
}

// written is what ranks wrote into their error files, as far as their probes have not told it already; each line with its rank, as in
// Recording.Output.
func (s *session) written(ranks []launcher.RankExit) string {
	told := map[int]bool{}
	if s.doc.Recording != nil {
		for _, r := range s.doc.Recording.Ranks {
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
func (s *session) save(out output, show bool) {
	if s.store != nil {
		if err := saveReport(s.store, s.doc); err != nil {
			s.say("%v", err)
		}
	}
	if !show && out.file == "" {
		return
	}
	if err := out.write(s.doc); err != nil {
		s.say("%v", err)
	}
}

// saveReport writes run.json, summary.json, report.json, report.md and report.html.
func saveReport(store *monitor.Store, doc report.Run) error {
	if err := record(store, doc); err != nil {
		return err
	}
	if err := store.WriteJSON("report.json", doc); err != nil {
		return err
	}
	for name, format := range map[string]string{"report.md": "markdown", "report.html": "html"} {
		var text strings.Builder
		if err := report.Write(&text, format, doc, report.Style{Units: report.Units{UTF8: true}}); err != nil {
			return err
		}
		if err := store.WriteFile(name, []byte(text.String())); err != nil {
			return err
		}
	}
	return nil
}
