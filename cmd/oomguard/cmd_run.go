package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"oomguard/launcher"
	"oomguard/launcher/fence"
	"oomguard/monitor"
	"oomguard/monitor/gpu"
	"oomguard/monitor/report"
)

func runCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "run",
		Usage: "check, launch, watch and report",
		UsageText: "oomguard run [flags] -- CMD...\noomguard torchrun ARGS...   (also accelerate, deepspeed, " +
			"python, python3)",
		Description: "Everything after -- reaches the command byte for byte; its stdin, stdout, stderr and terminal " +
			"are its own.\n" +
			"Exit status: the command's own, 128+N if it died of signal N; 122 the checklist refused the run; 125 " +
			"oomguard could not\n" +
			"start it; 126 it cannot be executed; 127 it was not found; 2 wrong usage.",
		Flags: runFlags(env),
		Action: func(c *cli.Context) error {
			return runAction(c.Context, env, c, runOptions{})
		},
	}
}

func runFlags(env environment) []cli.Flag {
	return join(jobFlags(), hardwareFlags(), modelFlags(), checkFlags(), outputFlags(report.Run{}), []cli.Flag{
		dirFlag(env), intervalFlag(),
		&cli.BoolFlag{Name: "no-probe", Usage: "do not look inside the ranks: no memory by stage",
			Category: "Watching"},
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
	if env.adviser != nil {
		return env.adviser.serve(env, c)
	}
	argv, err := commandLine(c, o)
	if err != nil {
		return err
	}
	if c.Bool("dry-run") {
		return dryRun(ctx, env, c, argv, o)
	}
	if _, err := launcher.Lookup(argv[0], env.getenv("PATH"), env.dir); err != nil {
		return err
	}
	devices, err := watchedSource(env, c)
	if err != nil {
		return err
	}
	defer devices.Close()
	s := &session{env: env, cli: c, argv: argv, options: o, devices: lookOnce(ctx, devices)}
	defer s.adviser.close()
	if err := s.advise(); err != nil {
		return err
	}
	s.scrub = within(s, "learning the secrets", nil,
		func() *monitor.Scrubber { return monitor.NewScrubber(env.environ, argv) })
	switch {
	case s.scrub == nil:
		s.advice.Store = nil // nothing may be written that could hold a secret
	case s.advice.Store != nil:
		s.advice.Store.Scrub = s.scrub
	}
	return s.launch(devices)
}

// advise asks the adviser whether to start, and prints what it says. Its error ends the program: the command line is
// wrong, or the checklist refuses. Without an answer the command is started all the same.
func (s *session) advise() error {
	limit := adviceLimit
	if s.cli.Bool("online") {
		limit += onlineLimit
	}
	// a closed stderr of ours must not kill us; caught, not ignored, so that the command inherits what we inherited
	if !signal.Ignored(syscall.SIGPIPE) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	}
	answer, ok := s.adviser.brief(s.env, briefing{
		Args: s.env.args, Argv: s.argv, Environ: s.options.environ, Simulated: s.options.simulated, Devices: s.devices,
		Color: wantsColor(s.env, s.env.stderr),
	}, limit)
	s.advice = answer
	switch {
	case !ok:
		s.env.say("%v; the command is started, and nothing is recorded", s.adviser.faults[0])
		return nil
	case answer.Status != exitOK:
		fmt.Fprint(s.env.stderr, answer.Text)
		return status(answer.Status)
	}
	fmt.Fprint(s.env.stderr, answer.Text)
	if answer.Refused {
		return status(exitRefused)
	}
	return nil
}

// watchedSource is whom to ask for the devices, before the run and while it lives: also where the hardware was
// declared.
func watchedSource(env environment, c *cli.Context) (gpu.Source, error) {
	devices, err := openDevices(env, c)
	if err == nil && devices == nil {
		devices = watchedDevices(env)
	}
	return devices, err
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

// singleRank recognises the training process of a launcher that starts only one and tells it no rank, by the words
// behind the interpreter. Nil for other jobs.
func singleRank(words []string) func(argv []string) bool {
	if len(words) == 0 {
		return nil
	}
	return func(argv []string) bool { return len(argv) > 1 && slices.Equal(argv[1:], words) }
}

// launch starts the command, watches it, and reports. The result is the command's own exit status whatever happens to
// us.
func (s *session) launch(devices gpu.Source) error {
	s.setup = within(s, "preparing the recording", s.bare(), s.prepare)
	commandEnv := s.commandEnv(s.setup.probeDir())
	s.open(commandEnv)
	proc, err := s.start(commandEnv, devices)
	if errors.Is(err, syscall.E2BIG) { // what we add is too much: the command has no room for it
		s.setup.missing("memory by stage: the environment is too large for the variables of the probe, and the " +
			"command got none of them")
		proc, err = s.start(s.env.environ, devices)
	}
	relay := s.setup.relay
	relay.Started()
	if err != nil {
		s.removePrivate()
		if errors.Is(err, launcher.ErrNotFound) || errors.Is(err, launcher.ErrNotExecutable) {
			return err
		}
		return fmt.Errorf("%w: %w", errCannotStart, err)
	}
	s.letGo()
	watcher := within(s, "starting the recording", nil, func() *monitor.Watcher { return s.watch(proc, devices) })
	exit, waitErr := proc.Wait()
	asked := relay.Finish(s.drainLimit(exit))
	if asked != nil { // the report may wait for the same reader
		time.AfterFunc(lastWords, func() { launcher.Die(asked) })
	}
	if waitErr != nil {
		s.setup.missing("the account of the command's processes is incomplete: %v", waitErr)
	}
	told := s.account(watcher, exit)
	if exit.Interrupted {
		launcher.Interrupt()
	}
	if asked != nil {
		launcher.Die(asked)
	}
	switch {
	case exit.Code == 0:
		return nil
	case told.OOMExitCode != 0:
		return status(told.OOMExitCode)
	}
	return status(exit.Code)
}

// lastWords is how long the report may take when somebody has asked us to end.
const lastWords = 5 * time.Second

// killedLimit bounds how long the last output of a command is waited for that was killed: it would not have been able
// to write it.
const killedLimit = 5 * time.Second

// drainLimit is how long the reader of the command's last output has: as long as it takes, since the command would have
// waited for it too.
func (s *session) drainLimit(exit launcher.Exit) time.Duration {
	if exit.Signal != 0 || exit.LastResort {
		return killedLimit
	}
	if len(exit.Forwarded) > 0 {
		return s.cli.Duration("kill-after")
	}
	return 0
}

// letGo gives up our copies of the streams that only the command uses now.
func (s *session) letGo() {
	launcher.Release(s.env.stdin)
	if s.setup.relay.Stdout == s.env.stdout {
		launcher.Release(s.env.stdout)
	}
}

// start starts the command.
func (s *session) start(commandEnv []string, devices gpu.Source) (*launcher.Process, error) {
	relay := s.setup.relay
	return launcher.Start(launcher.Command{
		Argv: s.argv, Env: commandEnv, Dir: s.env.dir,
		Stdin: s.env.stdin, Stdout: relay.Stdout, Stderr: relay.Stderr, Descriptors: s.env.descriptors,
	}, launcher.Options{
		KillAfter: s.cli.Duration("kill-after"), DieWithUs: s.cli.Bool("die-with-oomguard"),
		Guard:      []string{s.env.executable, guardWord},
		WholeJob:   s.env.getenv("SLURM_JOB_ID") != "",
		Exclude:    func() []int { return slices.Concat(helperPIDs(devices), s.adviser.pids(), []int{relay.PID()}) },
		SingleRank: singleRank(s.advice.SingleWords),
		LeftBehind: func(n int) {
			s.env.say("the command has ended and %d of its ranks go on; ending them (SIGTERM, and SIGKILL after %s)", n,
				launcher.DefaultGrace)
		},
	})
}

// open tells the adviser what is added to the command, right before its start.
func (s *session) open(commandEnv []string) {
	changes := within(s, "comparing the environments", nil,
		func() []report.EnvChange { return changes(s.env.environ, commandEnv, s.advice.Alloc) })
	o := opening{PrivateDir: s.setup.privateDir(), Probed: s.setup.probed, Changes: changes, Missing: s.setup.lost}
	s.setup.lost = nil
	s.adviser.ask("writing down the start", setupLimit, o, &struct{}{})
}

// account ends the recording, and prints the report of the run.
func (s *session) account(watcher *monitor.Watcher, exit launcher.Exit) (told account) {
	lost := within(s, "ending the recording", nil, watcher.Stop)
	e := ending{Exit: exit, OOMKills: s.setup.oomKills, Tail: s.setup.tail, Copy: s.setup.outputCopy(),
		Missing: append(s.setup.lost, lost...)}
	store := s.advice.Store
	if !s.adviser.ask("making the report", accountLimit, e, &told) && store != nil {
		_ = within(s, "writing down the end", nil, func() error { return store.WriteJSON(exitFile, e.Exit) })
		s.env.say("the report could not be made; oomguard report %s tries it again", store.Dir)
	}
	fmt.Fprint(s.env.stderr, told.Text)
	s.removePrivate()
	_, _ = fence.Within("noting its own faults", setupLimit, func() bool {
		noteFaults(store, s.scrub, s.adviser.faults, s.env.say)
		return true
	})
	return told
}

// exitFile is how the command ended, where the report could not be made at once.
const exitFile = "exit.json"

// maxExit is far above what exitFile holds: some hundred ranks with their last words.
const maxExit = 16 << 20

func (s *session) removePrivate() {
	private := s.setup.private
	if private == nil {
		return
	}
	if err := within(s, "removing the private folder", nil, private.Remove); err != nil {
		s.env.say("the private folder %s could not be removed: %v", private.Dir, err)
	}
}
