package main

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"

	"oomguard/launcher"
	"oomguard/launcher/fence"
	"oomguard/monitor"
	"oomguard/monitor/gpu"
	"oomguard/monitor/probe"
	"oomguard/preflight"
)

// session is the run itself: the command, and what watches it. What is known of the job comes from the adviser.
type session struct {
	env     environment
	cli     *cli.Context
	argv    []string
	options runOptions
	adviser adviser
	advice  advice
	devices seen
	scrub   *monitor.Scrubber
	setup   setup
}

// setup is what is prepared right before the start.
type setup struct {
	// what only we and the ranks can read: the probe's files, the copy of the output; nil: there is none
	private  *monitor.Private
	probed   bool // the probe is in it
	relay    *launcher.Relay
	tail     outputTail
	oomKills int64    // of our cgroup; negative: unknown
	lost     []string // what the report will miss, and why
}

// bare is the setup of a run that is not recorded.
func (s *session) bare() setup {
	return setup{relay: &launcher.Relay{Stdout: s.env.stdout, Stderr: s.env.stderr}, oomKills: -1}
}

func (u *setup) missing(format string, args ...any) {
	u.lost = append(u.lost, fmt.Sprintf(format, args...))
}

// within does behind a fence what must not hurt the run. It may go on after its time, so it must not write into s.
func within[T any](s *session, part string, otherwise T, do func() T) T {
	result, fault := fence.Within(part, setupLimit, do)
	if fault != nil {
		s.adviser.faults = append(s.adviser.faults, fault)
		s.setup.missing("%v", fault)
		return otherwise
	}
	return result
}

// setupLimit bounds each thing that is done right before the start and after the end.
const setupLimit = 5 * time.Second

// prepare makes the private folder, the probe and the relay.
func (s *session) prepare() setup {
	u := s.bare()
	u.oomKills = preflight.CgroupOOMKills("/")
	if s.advice.Store == nil {
		return u
	}
	var err error
	if u.private, err = monitor.NewPrivate(s.advice.Store); err != nil { // it also says that the run lives
		u.missing("memory by stage, and what the command printed: %v", err)
		u.tail = openTail(s.env)
		return u
	}
	u.installProbe(s)
	u.openRelay(s)
	return u
}

// privateDir is the private folder's path; "" without one.
func (u *setup) privateDir() string {
	if u.private == nil {
		return ""
	}
	return u.private.Dir
}

// installProbe puts the probe into the private folder, unless it is not wanted.
func (u *setup) installProbe(s *session) {
	if s.cli.Bool("no-probe") {
		u.missing("memory by stage: the probe was switched off with --no-probe")
		return
	}
	if err := probe.Install(u.private.Dir); err != nil {
		u.missing("memory by stage: the probe could not be installed: %v", err)
		return
	}
	u.probed = true
}

// openRelay prepares the command's output so that its end is known afterwards: where it goes to a pipe, a relay takes a
// copy; where it goes to a file, that is read. A terminal is left alone.
func (u *setup) openRelay(s *session) {
	u.tail = openTail(s.env)
	what := s.cli.String("capture")
	stdout, stderr := s.env.stdout, s.env.stderr
	switch {
	// what one pipe keeps in order is not parted
	case what == captureNone || what == captureStderr && launcher.SameStream(stdout, stderr):
		if launcher.IsPipe(stdout) || launcher.IsPipe(stderr) {
			u.missing("what the command printed: not copied, as asked for with --capture %s", what)
		}
		return
	case what == captureStderr:
		stdout = nil
	}
	relay, err := launcher.StartRelay([]string{s.env.executable, relayWord}, u.outputCopy(), stdout, stderr)
	if err != nil {
		u.missing("what the command printed: %v", err)
	}
	if stdout == nil {
		relay.Stdout = s.env.stdout
	}
	u.relay = relay
}

// outputCopy is where the relay copies the output to; "" where there is no private folder.
func (u *setup) outputCopy() string {
	if u.private == nil {
		return ""
	}
	return filepath.Join(u.private.Dir, monitor.OutputFile)
}

// probeDir is where the ranks' probes write; "" without a probe.
func (u *setup) probeDir() string {
	if u.probed {
		return u.privateDir()
	}
	return ""
}

// watch starts the recording.
func (s *session) watch(proc *launcher.Process, devices gpu.Source) *monitor.Watcher {
	if s.advice.Store == nil {
		return nil
	}
	if s.devices.Devices == nil {
		devices = nil
	}
	return monitor.Watch(monitor.Config{
		Store: s.advice.Store, Devices: devices, Interval: s.cli.Duration("interval"), ProbeDir: s.setup.probeDir(),
		Scrub: s.scrub,
		Owns:  proc.Owns,
		Ranks: func() []monitor.RankPID {
			var out []monitor.RankPID
			for _, r := range proc.Ranks() {
				out = append(out, monitor.RankPID{PID: r.PID, Rank: r.Rank})
			}
			return out
		},
	})
}
