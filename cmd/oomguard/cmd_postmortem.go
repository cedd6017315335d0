package main

import (
	"fmt"
	"io"
	"os"

	"github.com/urfave/cli/v2"

	"oomguard/monitor/oom"
	"oomguard/monitor/report"
)

func postmortemCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "postmortem",
		Usage:     "say why a run died, from its log alone",
		UsageText: "oomguard postmortem [flags] [FILE...]   (- or nothing: stdin)",
		Flags:     outputFlags(env),
		Action: func(c *cli.Context) error {
			out, err := newOutput(c, env, env.stdout)
			if err != nil {
				return err
			}
			logs, closeAll, err := openLogs(env, c.Args().Slice())
			if err != nil {
				return err
			}
			defer closeAll()
			log, err := oom.Scan(logs)
			if err != nil {
				return usageError{err}
			}
			d := oom.Diagnose(log, oom.NoFacts())
			return out.write(report.Postmortem{Diagnosis: d})
		},
	}
}

// openLogs reads the named files one after the other.
func openLogs(env environment, names []string) (io.Reader, func(), error) {
	if len(names) == 0 {
		return env.stdin, func() {}, nil
	}
	var readers []io.Reader
	var files []*os.File
	closeAll := func() {
		for _, f := range files {
			f.Close()
		}
	}
	for _, name := range names {
		if name == "-" {
			readers = append(readers, env.stdin)
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			closeAll()
			return nil, nil, usageError{err}
		}
		files = append(files, f)
		if info, err := f.Stat(); err == nil && info.IsDir() {
			closeAll()
			return nil, nil, usageError{fmt.Errorf("%s is a directory; give a log file", name)}
		}
		readers = append(readers, f)
	}
	return io.MultiReader(readers...), closeAll, nil
}
