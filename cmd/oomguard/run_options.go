package main

import (
	"slices"

	"github.com/urfave/cli/v2"

	"oomguard/monitor/oom"
)

// The options of run that concern the launch itself. None of them is on by default: without them oomguard changes
// nothing.

const (
	allocConfKeep      = "keep"
	allocConfRecommend = "recommend"

	captureAll    = "all"
	captureStderr = "stderr"
	captureNone   = "none"
)

func launchFlags() []cli.Flag {
	const category = "Launch"
	return []cli.Flag{
		&cli.BoolFlag{Name: "dry-run", Usage: "start nothing: show the command, what would be added to its " +
			"environment, and the checklist's decision; status as check", Category: category},
		&cli.StringFlag{Name: "alloc-conf", Value: allocConfKeep,
			Usage:    "PyTorch's allocator settings: keep, recommend, or a `VALUE` such as expandable_segments:True",
			Category: category},
		&cli.DurationFlag{Name: "kill-after",
			Usage: "last resort: SIGKILL to the whole process tree, so long (90s) after a signal to end was " +
				"handed on",
			Category: category},
		&cli.BoolFlag{Name: "die-with-oomguard",
			Usage: "when oomguard dies, SIGTERM to the command, and SIGKILL to what still lives of it after 30s (or " +
				"--kill-after); without it the command goes on", Category: category},
		&cli.IntFlag{Name: "oom-exit-code",
			Usage: "exit with `N` instead of the command's own status when it failed and the post-mortem says that " +
				"memory ran out", Category: category},
		&cli.StringFlag{Name: "capture", Value: captureAll,
			Usage: "what is copied of output that goes to a pipe: all, stderr, none", Category: category},
	}
}

// checkLaunchFlags judges their values, before anything is done.
func checkLaunchFlags(c *cli.Context) error {
	if what := c.String("capture"); !slices.Contains([]string{captureAll, captureStderr, captureNone}, what) {
		return usagef("--capture %q: must be all, stderr or none", what)
	}
	if after := c.Duration("kill-after"); c.IsSet("kill-after") && after <= 0 {
		return usagef("--kill-after %s: must be above 0; torchrun itself takes up to 30s to end", after)
	}
	if n := c.Int("oom-exit-code"); c.IsSet("oom-exit-code") &&
		(n < 1 || n > 255 || slices.Contains(ownStatuses(), n)) {
		return usagef("--oom-exit-code %d: must be from 1 to 255 and none of those that mean something else: %v", n,
			ownStatuses())
	}
	return nil
}

// ownStatuses are those of run itself.
func ownStatuses() []int { return []int{exitRefused, exitCannotStart, exitNotExecutable, exitNotFound} }

// ranOut tells whether a post-mortem is sure enough that memory ran out for --oom-exit-code. A signal alone is no
// proof: anybody can send it.
func ranOut(d *oom.Diagnosis) bool {
	if d != nil && (d.Cause == oom.HostOOMKill || d.Cause == oom.ShmBusError) && d.Confidence != "high" {
		return false
	}
	return d != nil && d.Confidence != "low" &&
		!slices.Contains([]oom.Cause{oom.NotOOM, oom.NoCause, oom.AllocatorConfigError}, d.Cause)
}
