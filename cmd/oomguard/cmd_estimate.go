package main

import (
	"context"
	"errors"

	"github.com/urfave/cli/v2"

	"oomguard/monitor/report"
	"oomguard/preflight/estimate"
	"oomguard/preflight/plan"
)

func estimateCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "estimate",
		Usage:     "memory of each GPU by component and stage, the bottleneck, and whether it fits",
		UsageText: "oomguard estimate [flags] [-- CMD...]",
		Description: "Exit status: 0 it fits (or no GPU is known to judge by), 3 it does not fit, 4 no answer: what " +
			"decides is not known of the job,\n" +
			"2 wrong usage or unreadable input, 1 oomguard failed.",
		Flags: join(jobFlags(), hardwareFlags(), modelFlags(), outputFlags(report.Estimate{})),
		Action: func(c *cli.Context) error {
			return estimateAction(c.Context, env, c)
		},
	}
}

func estimateAction(ctx context.Context, env environment, c *cli.Context) error {
	out, p, err := asked(ctx, env, c)
	if err != nil {
		return err
	}
	if err := p.noEstimate(); err != nil {
		return err
	}
	if err := out.write(report.Estimate{Estimate: p.estimate}); err != nil {
		return err
	}
	return answer(p.estimate, p.estimate.Fits)
}

// noEstimate is why there is none: nothing is known of the job's model, or what was given cannot be estimated.
func (p *prepared) noEstimate() error {
	var unknown unknownModel
	switch {
	case p.estimateErr == nil:
		return nil
	case errors.As(p.estimateErr, &unknown) && (len(p.job.Argv) > 0 || p.job.Model.Known):
		return noAnswer(unknown)
	}
	return usageError{p.estimateErr}
}

// answer is the exit status of a verdict. Without a GPU nothing was asked that could be answered.
func answer(e *estimate.Estimate, fits *bool) error {
	switch {
	case fits != nil && !*fits:
		return status(exitNo)
	case fits == nil && e.GPU.TotalBytes > 0:
		return noAnswer{e.Lacks() + "; give " + e.Give()}
	}
	return nil
}

// asked is what a command that answers about a job begins with: where to write, and the job with its estimate. Input
// that cannot be read is an error: an answer about half of a job would mislead.
func asked(ctx context.Context, env environment, c *cli.Context) (output, *prepared, error) {
	out, err := newOutput(c, env, env.stdout)
	if err != nil {
		return out, nil, err
	}
	p, err := prepareHere(ctx, env, c, false)
	if err != nil {
		return out, nil, err
	}
	p.tellFaults(env)
	return out, p, firstProblem(p.job)
}

// prepareHere opens the devices of this machine (or what stands for them), prepares, and closes them.
func prepareHere(ctx context.Context, env environment, c *cli.Context, here bool) (*prepared, error) {
	devices, err := openDevices(env, c)
	if err != nil {
		return nil, err
	}
	if devices != nil {
		defer devices.Close()
	}
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	return prepare(ctx, env, c, question{argv: c.Args().Slice(), here: here, devices: devices})
}

func planCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "plan",
		Usage:     "what would make the job fit, cheapest first; --max batch|seq|params: the largest that fits",
		UsageText: "oomguard plan [flags] [-- CMD...]",
		Description: "Exit status: 0 it fits or something makes it fit, 3 nothing does, 4 no answer: what decides " +
			"is not known of the job,\n" +
			"2 wrong usage or unreadable input, 1 oomguard failed.",
		Flags: join(jobFlags(), hardwareFlags(), modelFlags(), outputFlags(report.Plan{}), []cli.Flag{
			&cli.StringFlag{Name: "max", Usage: "batch, seq or params: the largest micro-batch, the longest " +
				"sequence, or how many parameters fit"},
			&cli.StringFlag{Name: "reserve",
				Usage: "`SIZE` on each GPU that is kept for activations and buffers (with --max params)"},
		}),
		Action: func(c *cli.Context) error {
			return planAction(c.Context, env, c)
		},
	}
}

func planAction(ctx context.Context, env environment, c *cli.Context) error {
	out, p, err := asked(ctx, env, c)
	if err != nil {
		return err
	}
	what := c.String("max")
	if what == "" {
		return planRemedies(p, out)
	}
	reserve, err := sizeFlag(c, "reserve")
	if err != nil {
		return err
	}
	var most plan.Max
	switch what {
	case "params":
		reserve = max(reserve, p.input.Options.ActivationBytes) // what was given as --activations is a reserve too
		most, err = p.maxParams(reserve)
	case "batch", "seq":
		if c.IsSet("reserve") {
			return usagef("--reserve is for --max params: the activations of a batch or sequence are estimated")
		}
		most, err = plan.Largest(p.input, what)
	default:
		return usagef("--max %q: want batch, seq or params", what)
	}
	if errors.Is(err, plan.ErrUnknown) {
		return noAnswer{err.Error()}
	}
	if err != nil {
		return usageError{err}
	}
	err = out.write(report.Max{Schema: report.PlanSchema, Max: most, GPU: p.hardware.Name,
		GPUBytes: p.hardware.TotalBytes, ReserveBytes: max(reserve, 0),
		HeadroomPercent: p.input.Options.HeadroomPercent})
	if err == nil && most.Estimate == 0 {
		return status(exitNo)
	}
	return err
}

// maxParams asks for the largest model; a reserve below 0 was not given.
func (p *prepared) maxParams(reserve int64) (plan.Max, error) {
	most, err := plan.MaxParams(p.input, max(reserve, 0))
	if reserve < 0 {
		most = most.WithoutReserve()
	}
	return most, err
}

func planRemedies(p *prepared, out output) error {
	if err := p.noEstimate(); err != nil {
		return err
	}
	remedies, err := plan.Remedies(p.input)
	if err != nil {
		return err
	}
	if err := out.write(report.Plan{Schema: report.PlanSchema, Estimate: p.estimate, Remedies: remedies}); err != nil {
		return err
	}
	fits := p.estimate.Fits
	for _, r := range remedies {
		fits = better(fits, r.Fits)
	}
	return answer(p.estimate, fits)
}

// better is the more hopeful of two verdicts: yes, not known, no.
func better(a, b *bool) *bool {
	if a == nil && (b == nil || !*b) || a != nil && *a {
		return a
	}
	return b
}
