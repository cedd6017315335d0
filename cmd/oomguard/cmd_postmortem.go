package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"oomguard/monitor/oom"
	"oomguard/monitor/oom/snapshot"
	"oomguard/monitor/report"
)

func postmortemCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "postmortem",
		Usage:     "say why a run died, from its log alone; show what a memory snapshot of PyTorch holds",
		UsageText: "oomguard postmortem [flags] [FILE...]   (- or nothing: stdin)",
		Flags:     outputFlags(env),
		Action: func(c *cli.Context) error {
			out, err := newOutput(c, env, env.stdout)
			if err != nil {
				return err
			}
			if names := c.Args().Slice(); len(names) == 1 && isPickle(names[0]) {
				r, err := readSnapshot(names[0])
				if err != nil {
					return usageError{err}
				}
				return out.write(report.Snapshot{Report: r})
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

// isPickle tells a pickle from a log by its first byte: the protocol mark of protocols 2 to 5, or the name that people give to it.
func isPickle(name string) bool {
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	var first [2]byte
	n, _ := f.Read(first[:])
	return n == 2 && first[0] == 0x80 && first[1] >= 2 && first[1] <= 5 || strings.HasSuffix(name, ".pickle") || strings.HasSuffix(name, ".pkl")
}

func readSnapshot(name string) (snapshot.Report, error) {
	f, err := os.Open(name)
	if err != nil {
		return snapshot.Report{}, err
	}
	defer f.Close()
	s, err := snapshot.Read(f)
	if err != nil {
		return snapshot.Report{}, fmt.Errorf("%s: %w", name, err)
	}
	return snapshot.Analyse(s, name), nil
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
