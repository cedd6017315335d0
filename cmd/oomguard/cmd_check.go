package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"oomguard/checklists"
	"oomguard/launcher/files"
	"oomguard/monitor"
	"oomguard/monitor/report"
	"oomguard/preflight"
	"oomguard/preflight/estimate"
	"oomguard/preflight/job"
)

const (
	explainSchema = "oomguard.explain/v1"
	whySchema     = "oomguard.why/v1"
)

func checkCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "check",
		Usage:     "the checklist alone: the gate for CI",
		UsageText: "oomguard check [flags] [-- CMD...]",
		Description: "Exit status: 0 it passes, 3 a check failed (--fail-on warn: or warned), 4 no answer: whether " +
			"the job fits is not known\n" +
			"(only with --require-answer, which the checklist ci sets), 2 wrong usage or unreadable input, 1 " +
			"oomguard failed.",
		Flags: join(jobFlags(), hardwareFlags(), modelFlags(), checkFlags(), outputFlags(report.Checks{}),
			[]cli.Flag{dirFlag(env), requireAnswerFlag()}),
		Action: func(c *cli.Context) error {
			return checkAction(c.Context, env, c)
		},
	}
}

func checkAction(ctx context.Context, env environment, c *cli.Context) error {
	out, err := newOutput(c, env, env.stdout)
	if err != nil {
		return err
	}
	p, err := prepareHere(ctx, env, c, false)
	if err != nil {
		return err
	}
	outcome, err := judge(env, c, p, runRoot(env, c), preflight.ModeCheck)
	if err != nil {
		return err
	}
	if err := out.write(report.Checks{Outcome: outcome}); err != nil {
		return err
	}
	p.tellFaults(env)
	if outcome.Err() != nil {
		return status(exitNo)
	}
	return unanswered(outcome)
}

// requireAnswerFlag is for the gate alone: run starts what it cannot judge.
func requireAnswerFlag() cli.Flag {
	return &cli.BoolFlag{Name: "require-answer", Usage: "status 4 when whether the job fits cannot be told",
		Category: "Checklist"}
}

// unanswered is the error of a gate that must come to an answer and did not.
func unanswered(o checklists.Outcome) error {
	for _, r := range o.Results {
		if slices.Contains(o.Unanswered, r.ID) {
			return noAnswer{fmt.Sprintf("%s: %s; %s", r.ID, r.Detail, r.Remedy)}
		}
	}
	return nil
}

// judge runs the chosen checklist over what was prepared.
func judge(env environment, c *cli.Context, p *prepared, root string, mode preflight.Mode) (checklists.Outcome, error) {
	rules, err := policy(c)
	if err != nil {
		return checklists.Outcome{}, err
	}
	list, err := checklists.Load(c.String("checklist"), files.Read)
	if err != nil {
		return checklists.Outcome{}, usageError{err}
	}
	outcome, err := checklists.Run(list, preflight.Checks(), p.facts(env, c, root, mode), rules)
	if err != nil {
		return outcome, usageError{err}
	}
	return outcome, nil
}

func explainCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:        "explain",
		Usage:       "what was understood of a command, each setting with where it comes from",
		UsageText:   "oomguard explain [flags] -- CMD...",
		Description: "Exit status: 0, 2 wrong usage or unreadable input, 1 oomguard failed.",
		Flags:       join(jobFlags(), hardwareFlags(), outputFlags(report.Explain{}), []cli.Flag{whyFlag()}),
		Action: func(c *cli.Context) error {
			return explainAction(c.Context, env, c)
		},
	}
}

func explainAction(ctx context.Context, env environment, c *cli.Context) error {
	out, err := newOutput(c, env, env.stdout)
	if err != nil {
		return err
	}
	if !c.Args().Present() {
		return usagef("explain needs a command: oomguard explain [flags] -- torchrun ...")
	}
	p, err := prepareHere(ctx, env, c, false)
	if err != nil {
		return err
	}
	if key := c.String("why"); key != "" {
		return explainWhy(env, out, p, key)
	}
	j := p.job
	doc := report.Explain{
		Schema: explainSchema, Command: monitor.NewScrubber(env.environ, j.Argv).Args(j.Argv), Job: j,
		Versions: j.Versions, Problems: texts(j.Problems),
		Unreadable: texts(slices.Concat(j.Unreadable, j.Absent)),
	}
	if h := p.hardware; h.Kind != "" {
		doc.Hardware = &estimate.GPUSize{Name: h.Name, Kind: h.Kind, Count: h.Count, TotalBytes: h.TotalBytes,
			Origin: h.Origin}
	}
	if err := out.write(doc); err != nil {
		return err
	}
	noteFaults(nil, nil, p.faults, env.say)
	return nil
}

func whyFlag() cli.Flag {
	return &cli.StringFlag{Name: "why",
		Usage: "all that was said about the setting `KEY`, by every source, and what counts", Category: "Output"}
}

// explainWhy shows what every source said about one setting.
func explainWhy(env environment, out output, p *prepared, key string) error {
	key = strings.ReplaceAll(key, "-", "_")
	claims, ok := p.job.Why(key)
	if !ok {
		var keys []string
		for _, s := range p.job.Settings() {
			keys = append(keys, s.Key)
		}
		return usagef("--why %s: there is no such setting; there are %s", key, strings.Join(keys, ", "))
	}
	doc := report.Why{Schema: whySchema, Key: key, Claims: claims, Order: job.Order()}
	for _, claim := range claims {
		if claim.Used {
			doc.Value = claim.Value
		}
	}
	if err := out.write(doc); err != nil {
		return err
	}
	noteFaults(nil, nil, p.faults, env.say)
	return nil
}
