package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/urfave/cli/v2"

	"oomguard/checklists"
	"oomguard/launcher/files"
	"oomguard/monitor"
	"oomguard/monitor/gpu"
	"oomguard/monitor/report"
	"oomguard/preflight/job"
)

// jobFlags are the job's own keys; the table is job.Keys.
func jobFlags() []cli.Flag {
	var flags []cli.Flag
	for _, k := range job.Keys() {
		usage := k.Usage
		if len(k.Values) > 0 {
			usage += ": " + strings.Join(k.Values, ", ")
		}
		if slices.Equal(k.Values, boolWords()) {
			flags = append(flags, &cli.BoolFlag{Name: k.Flag, Usage: usage, Category: "Job"})
			continue
		}
		flags = append(flags, &cli.StringFlag{Name: k.Flag, Usage: usage, Category: "Job"})
	}
	return append(flags, &cli.BoolFlag{Name: "online",
		Usage: "ask the Hugging Face hub for the config.json of a model that is not cached here", Category: "Job"})
}

// boolWords are the values of a key that is a flag without a value.
func boolWords() []string { return []string{"true", "false"} }

// givenJobFlags are those of jobFlags that were typed.
func givenJobFlags(c *cli.Context) map[string]string {
	given := map[string]string{}
	for _, k := range job.Keys() {
		if !c.IsSet(k.Flag) {
			continue
		}
		if slices.Equal(k.Values, boolWords()) {
			given[k.Flag] = strconv.FormatBool(c.Bool(k.Flag))
		} else {
			given[k.Flag] = c.String(k.Flag)
		}
	}
	return given
}

func hardwareFlags() []cli.Flag {
	const category = "Hardware"
	return []cli.Flag{
		&cli.StringFlag{Name: "gpu", Usage: "judge for this hardware instead of the GPUs here: 8xH100-80GB, " +
			"a100-80gb, p4d.24xlarge", Category: category},
		&cli.StringFlag{Name: "gpu-memory", Usage: "memory of one GPU, when it is not in the catalogue: 48GiB, 80GB",
			Category: category},
		&cli.StringFlag{Name: "devices", Usage: "read the GPUs from a `FILE` that oomguard gpus --format json wrote",
			Category: category},
		&cli.StringFlag{Name: "headroom", Value: "10",
			Usage:    "fail when less than `PERCENT` of a GPU stays free after the estimate; below 20 it warns",
			Category: category},
	}
}

func modelFlags() []cli.Flag {
	const category = "Estimate"
	return []cli.Flag{
		&cli.Float64Flag{Name: "activation-factor",
			Usage: "rough rule instead of the model: activations = batch x seq x hidden x layers x `FACTOR` bytes " +
				"(10 to 20; 16 is usual)", Category: category},
		&cli.StringFlag{Name: "activations", Usage: "`SIZE` of activations and logits on one GPU, when it is known",
			Category: category},
		&cli.StringFlag{Name: "second-models",
			Usage: "`SIZE` on one GPU of the models beside the trained one (VAE, text encoders, teacher, reward), " +
				"when it is known", Category: category},
		&cli.StringFlag{Name: "context",
			Usage: "`SIZE` that a process holds on its GPU outside PyTorch, when it is known", Category: category},
	}
}

// outputFlags say where and how the command writes its document.
func outputFlags(writes report.Document) []cli.Flag {
	const category = "Output"
	return []cli.Flag{
		&cli.StringFlag{Name: "format", Value: "text", Usage: strings.Join(report.FormatsOf(writes), ", "),
			Category: category},
		&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write to `FILE`", Category: category},
		&cli.StringFlag{Name: "units", Value: "binary", Usage: "binary (GiB) or si (GB)", Category: category},
		&cli.BoolFlag{Name: "redact", Usage: "leave out paths, hosts, users, addresses and tokens: for an issue",
			Category: category},
	}
}

func checkFlags() []cli.Flag {
	const category = "Checklist"
	return []cli.Flag{
		&cli.StringFlag{Name: "checklist", Value: "pretraining", Usage: "built-in `NAME` or FILE", Category: category},
		&cli.StringSliceFlag{Name: "skip", Usage: "do not run the check with this `ID` (shown as skipped)",
			Category: category},
		&cli.StringSliceFlag{Name: "waive", Usage: "run and show the check with this `ID`, but do not refuse for it",
			Category: category},
		&cli.StringFlag{Name: "fail-on", Value: "fail", Usage: "fail, or warn: a warning refuses too",
			Category: category},
	}
}

func dirFlag(env environment) cli.Flag {
	return &cli.StringFlag{Name: "dir", Usage: "folder of the recorded runs", EnvVars: []string{"OOMGUARD_DIR"},
		Value: "oomguard-runs", Category: "Output"}
}

func join(groups ...[]cli.Flag) []cli.Flag {
	var all []cli.Flag
	for _, g := range groups {
		all = append(all, g...)
	}
	return all
}

// policy reads the checklist's flags.
func policy(c *cli.Context) (checklists.Policy, error) {
	p := checklists.Policy{Skip: c.StringSlice("skip"), Waive: c.StringSlice("waive"),
		RequireAnswer: c.Bool("require-answer")}
	switch on := c.String("fail-on"); on {
	case "fail":
		p.FailOn = checklists.Fail
	case "warn":
		p.FailOn = checklists.Warn
	default:
		return p, usagef("--fail-on %q: must be fail or warn", on)
	}
	return p, nil
}

// parseHeadroom reads the share of a GPU, in percent, that must stay free.
func parseHeadroom(text string) (float64, error) {
	percent, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(text), "%"), 64)
	if err != nil || percent < 0 || percent >= 100 {
		return 0, usagef("--headroom %q: must be a percentage from 0 to below 100, such as 10", text)
	}
	return percent, nil
}

// sizeFlag reads a size flag; negative when it was not given.
func sizeFlag(c *cli.Context, name string) (int64, error) {
	if !c.IsSet(name) {
		return -1, nil
	}
	n, err := gpu.ParseMemory(c.String(name))
	if err != nil {
		return -1, usagef("--%s: %w", name, err)
	}
	return n, nil
}

// output is where and how a command's result is written.
type output struct {
	format string
	file   string
	style  report.Style
	to     *os.File
	redact bool
	scrub  *monitor.Scrubber // of our environment and the wrapped command
	// hosts and users are names of this machine and its user, which redact takes out wherever they stand.
	hosts, users []string
}

func newOutput(c *cli.Context, env environment, to *os.File) (output, error) {
	o := output{format: c.String("format"), file: c.String("output"), to: to, redact: c.Bool("redact"),
		scrub: monitor.NewScrubber(env.environ, c.Args().Slice())}
	if host, err := os.Hostname(); err == nil {
		o.hosts = []string{host}
	}
	o.users = []string{env.getenv("USER"), env.getenv("LOGNAME"), filepath.Base(env.getenv("HOME"))}
	known := false
	for _, f := range report.Formats() {
		known = known || f == o.format
	}
	if !known {
		return o, usagef("--format %q: must be one of %s", o.format, strings.Join(report.Formats(), ", "))
	}
	switch u := c.String("units"); u {
	case "binary":
	case "si":
		o.style.Units.SI = true
	default:
		return o, usagef("--units %q: must be binary or si", u)
	}
	o.style.Units.UTF8 = utf8Locale(env)
	o.style.Color = o.file == "" && wantsColor(env, to)
	return o, nil
}

// write renders a document to the chosen place.
func (o output) write(d report.Document) error { return o.render(o.to, d) }

// render is write with another place for what goes to no file.
func (o output) render(to io.Writer, d report.Document) error {
	d = report.Clean(d, o.scrub.Text)
	if o.redact {
		redacted, err := report.Redact(d, o.hosts, o.users)
		if err != nil {
			return err
		}
		d = redacted
	}
	if err := report.Supports(o.format, d); err != nil {
		return usageError{err}
	}
	if o.file == "" {
		return report.Write(to, o.format, d, o.style)
	}
	var text bytes.Buffer
	if err := report.Write(&text, o.format, d, o.style); err != nil {
		return fmt.Errorf("write %s: %w", o.file, err)
	}
	if err := files.WriteNamed(o.file, text.Bytes()); err != nil {
		return usagef("-o: %w", err)
	}
	return nil
}

// wantsColor honours NO_COLOR and dumb terminals.
func wantsColor(env environment, to *os.File) bool {
	return env.getenv("NO_COLOR") == "" && env.getenv("TERM") != "dumb" && isTerminal(to)
}

func isTerminal(f *os.File) bool {
	return f != nil && isatty.IsTerminal(f.Fd())
}

func utf8Locale(env environment) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToUpper(env.getenv(name)); v != "" {
			return strings.Contains(v, "UTF-8") || strings.Contains(v, "UTF8")
		}
	}
	return false
}

// intervalFlag is how often devices are sampled.
func intervalFlag() cli.Flag {
	return &cli.DurationFlag{Name: "interval", Value: time.Second, Usage: "time between device samples",
		Category: "Watching"}
}
