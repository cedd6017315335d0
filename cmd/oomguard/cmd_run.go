package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"oomguard/launcher"
	"oomguard/monitor/gpu"
	"oomguard/monitor/report"
	"oomguard/preflight"
	"oomguard/preflight/job"
)

func runCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "run",
		Usage:     "check, launch, watch and report",
		UsageText: "oomguard run [flags] -- CMD...\noomguard torchrun ARGS...   (also accelerate, deepspeed, python, python3)",
		Description: "Everything after -- reaches the command byte for byte; its stdin, stdout, stderr and terminal are its own.\n" +
			"Exit status: the command's own, 128+N if it died of signal N; 122 the checklist refused the run; 125 oomguard could not\n" +
			"start it; 126 it cannot be executed; 127 it was not found; 2 wrong usage.",
		Flags: runFlags(env),
		Action: func(c *cli.Context) error {
			return runAction(c.Context, env, c, runOptions{})
		},
	}
}

func runFlags(env environment) []cli.Flag {
	return join(jobFlags(), hardwareFlags(), modelFlags(), checkFlags(), outputFlags(env), []cli.Flag{
		dirFlag(env), intervalFlag(),
		&cli.BoolFlag{Name: "no-probe", Usage: "do not look inside the ranks: no memory by stage", Category: "Watching"},
	}, launchFlags())
}

// runOptions are what demo adds to run.
type runOptions struct {
	argv      []string // instead of the command line's
	environ   []string // added to the command's environment
	simulated bool     // the run raises its own out-of-memory error
}

// commandLine is what to run, when nothing is wrong with the options of its launch.
func commandLine(c *cli.Context, o runOptions) ([]string, error) {
	argv := c.Args().Slice()
	if o.argv != nil {
		argv = o.argv
	}
	if len(argv) == 0 {
		return nil, usagef("no command after --: oomguard run [flags] -- torchrun --nproc-per-node=8 train.py ...")
	}
	return argv, checkLaunchFlags(c)
}

func runAction(ctx context.Context, env environment, c *cli.Context, o runOptions) error {
	argv, err := commandLine(c, o)
	if err != nil {
		return err
	}
	dry, to := c.Bool("dry-run"), env.stderr
	if dry {
		to = env.stdout // the answer, as nothing else will be written there
	}
	out, err := newOutput(c, env, to)
	if err != nil {
		return err
	}
	if _, err := launcher.Lookup(argv[0], env.getenv("PATH"), env.dir); err != nil && !dry {
		return err
	}
	devices, err := openDevices(env, c)
	if err != nil {
		return err
	}
	if devices == nil { // the hardware was declared; what is here is watched all the same
		devices = watchedDevices(env)
	}
	defer devices.Close()

	asked, cancel := withDeadline(ctx)
	p, err := prepare(asked, env, c, question{argv: argv, here: true, devices: devices})
	cancel()
	if err != nil {
		return err
	}
	root, inherited := runRoot(env, c), env.environ
	env, alloc, err := setAllocConf(env, c, p)
	if err != nil {
		return err
	}
	outcome, err := judge(env, c, p, root, preflight.ModeRun)
	if err != nil {
		return err
	}
	s := newSession(env, c, p, outcome, root, o)
	s.inherited, s.alloc = inherited, alloc
	if dry {
		return s.rehearse(out)
	}
	// a closed stderr of ours must not kill us; caught, not ignored, so that the command inherits what we inherited
	if !signal.Ignored(syscall.SIGPIPE) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	}
	s.announce(out)
	if alloc.Name != "" {
		s.say("%s", alloc.Sentence())
	}
	if refusal := outcome.Err(); refusal != nil {
		s.refused(out)
		return status(exitRefused)
	}
	return s.launch(devices, out)
}

// watchedDevices is NVML in its helper, or its absence.
func watchedDevices(env environment) gpu.Source {
	source, err := gpu.OpenHelper([]string{env.executable, nvmlWord}, gpu.HelperOptions{})
	if err != nil {
		return gpu.Absent{Reason: err}
	}
	return source
}

// helperPIDs are our own processes among our children.
func helperPIDs(devices gpu.Source) []int {
	if h, ok := devices.(interface{ PID() int }); ok {
		return []int{h.PID()}
	}
	return nil
}

// singleRank recognises the training process of a launcher that starts only one and tells it no rank: Python with the script and its
// arguments, as the launcher's command line ends with them. Nil for other jobs.
func singleRank(j *job.Job) func(argv []string) bool {
	if !j.OneProcess || !j.Script.Known {
		return nil
	}
	module, isModule := strings.CutPrefix(j.Script.Value, "-m ")
	words := []string{module}
	if isModule {
		words = []string{"-m", module}
	}
	words = append(words, j.ScriptArgs...)
	return func(argv []string) bool { return len(argv) > 1 && slices.Equal(argv[1:], words) }
}

// announce prints the checklist before the start, always as text on stderr: stdout is the training's.
func (s *session) announce(out output) {
	page := report.Announcement{Estimate: s.doc.Estimate, EstimateError: s.doc.EstimateError, Outcome: s.outcome}
	if err := report.Write(s.env.stderr, "text", page, out.style); err != nil {
		s.say("the checklist could not be printed: %v", err)
	}
}

// rehearse answers --dry-run: what the run would be.
func (s *session) rehearse(out output) error {
	probeDir := "PRIVATE-FOLDER"
	if s.cli.Bool("no-probe") {
		probeDir = ""
	}
	refusal := s.outcome.Err()
	err := out.write(report.DryRun{
		Schema: report.DryRunSchema, Command: s.doc.Command, WorkDir: s.env.dir, EnvironmentChanges: s.changes(s.commandEnv(probeDir)),
		Estimate: s.doc.Estimate, EstimateError: s.doc.EstimateError, Outcome: s.outcome, WouldStart: refusal == nil,
	})
	if err == nil && refusal != nil {
		return status(exitNo)
	}
	return err
}

// relayLimit bounds how long the last bytes of the command's output are waited for, should their reader not take them.
const relayLimit = 5 * time.Second

// launch starts the command, watches it, and reports. The result is the command's own exit status whatever happens to us.
func (s *session) launch(devices gpu.Source, out output) error {
	s.openStore()
	commandEnv := s.commandEnv(s.openProbe())
	s.doc.EnvironmentChanges = s.changes(commandEnv)
	oomKills := preflight.CgroupOOMKills("/")
	relay := s.openRelay()
	s.remember()
	proc, err := launcher.Start(launcher.Command{
		Argv: s.argv, Env: commandEnv, Dir: s.env.dir,
		Stdin: s.env.stdin, Stdout: relay.Stdout, Stderr: relay.Stderr,
	}, launcher.Options{
		KillAfter: s.cli.Duration("kill-after"), DieWithUs: s.cli.Bool("die-with-oomguard"), WholeJob: s.env.getenv("SLURM_JOB_ID") != "",
		Exclude: func() []int { return append(helperPIDs(devices), relay.PID()) }, SingleRank: singleRank(s.prep.job),
		LeftBehind: func(n int) {
			s.say("the command has ended and %d of its ranks go on; ending them (SIGTERM, and SIGKILL after %s)", n, launcher.DefaultGrace)
		},
	})
	relay.Started()
	if err != nil {
		s.closePrivate()
		if errors.Is(err, launcher.ErrNotFound) || errors.Is(err, launcher.ErrNotExecutable) {
			return err
		}
		return fmt.Errorf("%w: %w", errCannotStart, err)
	}
	watcher := s.watch(proc, devices)
	exit, waitErr := proc.Wait()
	relay.Finish(relayLimit)
	if waitErr != nil {
		s.missing("the account of the command's processes is incomplete: %v", waitErr)
	}
	s.guarded("the report could not be made", func() {
		s.doc.Missing = append(s.doc.Missing, watcher.Stop()...)
		s.finish(exit, oomKills, out)
	})
	if exit.Interrupted {
		launcher.Interrupt()
	}
	switch {
	case exit.Code == 0:
		return nil
	case s.doc.OOMExitCode != 0:
		return status(s.doc.OOMExitCode)
	}
	return status(exit.Code)
}

// refused records a run that was not started.
func (s *session) refused(out output) {
	s.doc.Refused = true
	s.openStore()
	s.guarded("the report could not be written", func() { s.save(out, false) })
	s.say("nothing was started; report: %s", s.doc.Dir)
}
