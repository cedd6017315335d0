package main

import (
	"context"
	"encoding/json"
	"errors"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"oomguard/launcher"
	"oomguard/launcher/fence"
	"oomguard/monitor"
	"oomguard/monitor/gpu"
	"oomguard/monitor/report"
)

// Between reading and running stands a fence. Everything that run knows (the job, its estimate, the checks, the report)
// is worked out in a process of its own, the adviser, which is asked three times: before the start, at the start and
// after the end. Whatever becomes of it, the command is started and its status handed on: only an answer that says
// "refused" keeps it from starting.

// adviseWord starts us as the adviser.
const adviseWord = "__advise"

// How long the adviser may take. An ordinary answer takes some tens of milliseconds; a file system that does not answer
// takes for ever.
const (
	adviceLimit  = 20 * time.Second
	onlineLimit  = time.Minute // with --online, which waits for a hub
	accountLimit = 20 * time.Second
)

// A briefing is what the adviser is told before the start.
type briefing struct {
	Args      []string     `json:"args"` // our own command line
	Argv      []string     `json:"argv"` // the command
	Environ   []string     `json:"environ"`
	Simulated bool         `json:"simulated"`
	Color     bool         `json:"color"`
	Devices   seen         `json:"devices"`
	Fault     *fence.Fault `json:"fault"` // of an adviser before this one: it is not tried again to understand the job
}

// Advice is the adviser's answer to a briefing.
type advice struct {
	Status int    `json:"status"` // not 0: the command line of oomguard is wrong, and Text says how
	Text   string `json:"text"`   // to print before the start
	// Refused: the checklist found a reason not to start.
	Refused bool `json:"refused"`
	// Store is the run's folder; nil: nothing can be recorded.
	Store *monitor.Store `json:"store"`
	// AllocConf is the entry that --alloc-conf adds to the command's environment, Alloc what was changed; both may be
	// empty.
	AllocConf string           `json:"alloc_conf"`
	Alloc     report.EnvChange `json:"alloc"`
	// Single: the command is one training process, which is told no rank; SingleWords is its command line behind the
	// interpreter, where a launcher starts it.
	Single      bool     `json:"single"`
	SingleWords []string `json:"single_words"`
}

// An opening is what the adviser is told right before the start, to write down for a report after oomguard was killed.
type opening struct {
	PrivateDir string             `json:"private_dir"`
	Probed     bool               `json:"probed"`
	Changes    []report.EnvChange `json:"changes"`
	Missing    []string           `json:"missing"`
}

// An ending is what the adviser is told after the end.
type ending struct {
	Exit     launcher.Exit `json:"exit"`
	OOMKills int64         `json:"oom_kills"` // of our cgroup, before the start; negative: unknown
	Tail     outputTail    `json:"tail"`
	Copy     string        `json:"copy"` // of the command's output, by the relay
	Missing  []string      `json:"missing"`
}

// An account is the adviser's answer to an ending.
type account struct {
	Text        string `json:"text"`          // the report, to print
	OOMExitCode int    `json:"oom_exit_code"` // to hand on instead of the command's own; 0: none
}

// seen is a look at the devices of this machine, as it is handed to the adviser.
type seen struct {
	Devices  *gpu.Snapshot `json:"devices"`
	Error    string        `json:"error"`
	NoDriver bool          `json:"no_driver"`
}

// lookOnce asks for the devices, within the time that they have before a run.
func lookOnce(ctx context.Context, devices gpu.Source) seen {
	const grace = 5 * time.Second // the source keeps its own, shorter limits
	s, fault := fence.Within("looking at the GPUs", deviceDeadline+grace, func() seen {
		ctx, cancel := withDeadline(ctx)
		defer cancel()
		snap, err := devices.Snapshot(ctx)
		if err != nil {
			return seen{Error: err.Error(), NoDriver: errors.Is(err, gpu.ErrNoDriver)}
		}
		return seen{Devices: &snap}
	})
	if fault != nil {
		return seen{Error: fault.Error()}
	}
	return s
}

// Snapshot gives what was seen.
func (s seen) Snapshot(context.Context) (gpu.Snapshot, error) {
	switch {
	case s.Devices != nil:
		return *s.Devices, nil
	case s.NoDriver:
		return gpu.Snapshot{}, told{s.Error, gpu.ErrNoDriver}
	}
	return gpu.Snapshot{}, errors.New(s.Error)
}

// Close does nothing.
func (s seen) Close() error { return nil }

// told is an error that another process had: its text, and what it is.
type told struct {
	text string
	is   error
}

func (t told) Error() string { return t.text }
func (t told) Unwrap() error { return t.is }

// adviser is the process, as the one that asks it has it; its zero value is one that is gone.
type adviser struct {
	process *fence.Process
	faults  []*fence.Fault
}

// brief starts an adviser and asks it. When it fails a second one is asked, that does not look at the job again: a run
// that nobody understood is recorded all the same. ok is false when there is no advice at all.
func (a *adviser) brief(env environment, b briefing, limit time.Duration) (answer advice, ok bool) {
	for range 2 {
		process, err := fence.Start([]string{env.executable, adviseWord}, env.environ)
		if err != nil {
			a.faults = append(a.faults, &fence.Fault{Part: "starting its helper", What: err.Error()})
			return advice{}, false
		}
		a.process, answer = process, advice{}
		fault := process.Ask("reading and judging the job", limit, b, &answer)
		if fault == nil {
			return answer, true
		}
		a.process = nil
		a.faults = append(a.faults, fault)
		b.Fault = fault
	}
	return advice{}, false
}

// ask puts a later question; ok is false when there is no answer, now or any more.
func (a *adviser) ask(part string, limit time.Duration, question, answer any) (ok bool) {
	if a.process == nil {
		return false
	}
	if fault := a.process.Ask(part, limit, question, answer); fault != nil {
		a.process = nil
		a.faults = append(a.faults, fault)
		return false
	}
	return true
}

func (a *adviser) pids() []int {
	if a.process == nil {
		return nil
	}
	return []int{a.process.PID()}
}

func (a *adviser) close() {
	if a.process != nil {
		a.process.Close()
	}
	a.process = nil
}

// link is the adviser's own end.
type link struct {
	in  *json.Decoder
	out *json.Encoder
	briefing
}

// adviseMain is the body of the adviser: the command line that it is told is parsed as ours was, and its command leads
// to serve.
func adviseMain(env environment) error {
	fence.OfferToKernel()
	// who signals every process of the job (Slurm) means the command; we end when our input does
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE, syscall.SIGUSR1,
		syscall.SIGUSR2, syscall.SIGTSTP)
	l := &link{in: json.NewDecoder(env.stdin), out: json.NewEncoder(env.stdout)}
	if err := l.in.Decode(&l.briefing); err != nil {
		return usagef("%s is oomguard's own", adviseWord)
	}
	env.args, env.adviser = slices.Clone(l.Args), l
	if code := run(env); code != exitOK {
		return status(code)
	}
	return nil
}

// maxAdviserBytes bounds the adviser's memory: an ordinary job takes it 30 MiB, the end of a long log 200.
const maxAdviserBytes = 2 << 30
