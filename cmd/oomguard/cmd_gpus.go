package main

import (
	"context"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"oomguard/launcher"
	"oomguard/monitor/gpu"
	"oomguard/monitor/report"
)

// nvmlWord starts us as the helper that alone talks to NVML.
const nvmlWord = "__nvml"

func nvmlCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:   nvmlWord,
		Hidden: true,
		Action: func(c *cli.Context) error {
			return gpu.Serve(c.Context, env.stdin, env.stdout)
		},
	}
}

// relayWord starts us as the process that moves the command's output on.
const relayWord = "__relay"

func relayCommand() *cli.Command {
	return &cli.Command{
		Name:   relayWord,
		Hidden: true,
		Action: func(c *cli.Context) error {
			streams, err := strconv.Atoi(c.Args().First())
			if err != nil || c.Args().Len() != 2 {
				return usagef("%s is oomguard's own", relayWord)
			}
			if code := launcher.ServeRelay(streams, c.Args().Get(1)); code != exitOK {
				return status(code)
			}
			return nil
		},
	}
}

func adviseCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:   adviseWord,
		Hidden: true,
		Action: func(*cli.Context) error { return adviseMain(env) },
	}
}

// guardWord starts us as the process that ends the command when oomguard was killed.
const guardWord = "__guard"

func guardCommand() *cli.Command {
	return &cli.Command{
		Name:   guardWord,
		Hidden: true,
		Action: func(c *cli.Context) error {
			grace, err := time.ParseDuration(c.Args().First())
			if err != nil {
				return usagef("%s is oomguard's own", guardWord)
			}
			if code := launcher.ServeGuard(grace); code != exitOK {
				return status(code)
			}
			return nil
		},
	}
}

func gpusCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "gpus",
		Usage:     "the GPUs of this machine, or with --catalogue the known ones",
		UsageText: "oomguard gpus [--catalogue]",
		Flags: join(outputFlags(report.Devices{}),
			[]cli.Flag{&cli.BoolFlag{Name: "catalogue", Usage: "list the GPUs that --gpu knows"}}),
		Action: func(c *cli.Context) error {
			return gpusAction(c.Context, env, c)
		},
	}
}

func gpusAction(ctx context.Context, env environment, c *cli.Context) error {
	out, err := newOutput(c, env, env.stdout)
	if err != nil {
		return err
	}
	if c.Bool("catalogue") {
		return out.write(report.Catalogue{Schema: "oomguard.gpus/v1", GPUs: gpu.Catalogue()})
	}
	devices := watchedDevices(env)
	defer devices.Close()
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	snap, err := devices.Snapshot(ctx)
	if err != nil {
		return err
	}
	return out.write(report.Devices{Schema: "oomguard.devices/v1", Snapshot: snap})
}
