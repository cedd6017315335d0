package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"oomguard/monitor"
	"oomguard/monitor/report"
)

// Everything oomguard says on its own account goes to stderr with the prefix "oomguard:", lower case, no full stop;
// results go to stdout, except for run, whose stdout belongs to the training.

// spoken is what oomguard says outside reports. It may hold words from outside, and is made safe to show here, for all
// who say something.
func spoken(format string, args ...any) string {
	return "oomguard: " + report.Lines(fmt.Sprintf(format, args...)) + "\n"
}

func (e environment) say(format string, args ...any) { fmt.Fprint(e.stderr, spoken(format, args...)) }

// launcherWords are the first words that mean "run this".
func launcherWords() []string {
	return []string{"torchrun", "accelerate", "deepspeed", "python", "python3"}
}

// run is the whole program; it returns the exit status.
func run(env environment) int {
	if len(env.args) > 0 && slices.Contains(launcherWords(), env.args[0]) {
		env.args = append([]string{"run", "--"}, env.args...)
	}
	app := newApp(env)
	args, err := arrange(app.Commands, env.args)
	if err == nil {
		err = app.RunContext(context.Background(), append([]string{"oomguard"}, args...))
	}
	var quiet status
	if err != nil && !errors.As(err, &quiet) {
		env.say("%s", monitor.NewScrubber(env.environ, env.args).Text(err.Error()))
	}
	return exitStatus(err)
}

func newApp(env environment) *cli.App {
	app := &cli.App{
		Name: "oomguard",
		Usage: "launch training instead of torchrun: estimate and check memory before, watch it during, " +
			"explain the end",
		UsageText:       "oomguard torchrun ARGS...\noomguard run [flags] -- CMD...\noomguard COMMAND [flags]",
		Version:         version(),
		HideHelpCommand: true,
		Writer:          env.stdout,
		ErrWriter:       env.stderr,
		// urfave must neither print nor exit: run above does both
		ExitErrHandler: func(*cli.Context, error) {},
		OnUsageError:   onUsageError,
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usagef("unknown command %q; commands: %s", c.Args().First(),
					strings.Join(commandNames(c.App), ", "))
			}
			return cli.ShowAppHelp(c)
		},
		Commands: []*cli.Command{
			runCommand(env), checkCommand(env), explainCommand(env), estimateCommand(env), planCommand(env),
			postmortemCommand(env), reportCommand(env), runsCommand(env), demoCommand(env), gpusCommand(env),
			nvmlCommand(env), relayCommand(), guardCommand(), adviseCommand(env),
		},
	}
	for _, c := range app.Commands {
		c.OnUsageError = onUsageError
		c.HideHelpCommand = true // its words "help" and "h" are those of the wrapped command
		c.Before = func(c *cli.Context) error { return errors.Join(checkJobFlags(c), warnMisplaced(env, c)) }
	}
	return app
}

func onUsageError(c *cli.Context, err error, _ bool) error {
	return usagef("%w (see oomguard %s --help)", err, strings.TrimPrefix(c.Command.Name, "oomguard"))
}

func commandNames(app *cli.App) []string {
	var names []string
	for _, c := range app.Commands {
		if !c.Hidden {
			names = append(names, c.Name)
		}
	}
	return names
}

// version is what the linker or the build information says.
func version() string {
	if linkedVersion != "" {
		return linkedVersion
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown)"
}

// linkedVersion is set by the Makefile: -ldflags "-X main.linkedVersion=...".
var linkedVersion string
