package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/urfave/cli/v2"

	"oomguard/launcher"
	"oomguard/monitor"
	"oomguard/monitor/report"
)

func reportCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "report",
		Usage:     "show the report of a recorded run, also of one that was cut off",
		UsageText: "oomguard report [flags] [RUN]   (a folder, a name or its end; default: the newest)",
		Flags:     join(outputFlags(env), []cli.Flag{dirFlag(env)}),
		Action: func(c *cli.Context) error {
			out, err := newOutput(c, env, env.stdout)
			if err != nil {
				return err
			}
			store, err := monitor.Open(runRoot(env, c), c.Args().First())
			if err != nil {
				return usageError{err}
			}
			doc, err := rebuild(env, store)
			if err != nil {
				return usageError{err}
			}
			return out.write(doc)
		},
	}
}

// rebuild makes the document of a run from its folder, of a run of several nodes from their parts.
func rebuild(env environment, store *monitor.Store) (report.Run, error) {
	return assembled(store, func(part *monitor.Store) (report.Run, error) { return rebuildPart(env, part) })
}

// recorded is the document as it was written, for which nothing but run.json is read.
func recorded(store *monitor.Store) (report.Run, error) {
	return assembled(store, func(part *monitor.Store) (doc report.Run, err error) {
		err = part.ReadMeta(&doc)
		return doc, err
	})
}

// assembled reads a run with read, or each of its nodes' parts. A part that cannot be read is said to be missing.
func assembled(store *monitor.Store, read func(*monitor.Store) (report.Run, error)) (report.Run, error) {
	nodes := store.Nodes()
	if len(nodes) == 0 {
		return read(store)
	}
	var parts []report.Run
	var unreadable []error
	for _, node := range nodes {
		part, err := read(node)
		if err == nil && part.Node == nil {
			err = fmt.Errorf("%s is not a node's part of a run", node.Dir)
		}
		if err != nil {
			unreadable = append(unreadable, err)
			continue
		}
		part.Dir = node.Dir
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return report.Run{}, errors.Join(unreadable...)
	}
	doc := merge(store, parts)
	for _, err := range unreadable {
		doc.Missing = append(doc.Missing, err.Error())
	}
	return doc, nil
}

// rebuildPart makes the document of what one oomguard recorded. A run whose end was recorded is shown as it was; one that was cut off is
// put together from what is there.
func rebuildPart(env environment, store *monitor.Store) (report.Run, error) {
	var doc report.Run
	if err := store.ReadMeta(&doc); err != nil {
		return doc, err
	}
	doc.Dir = store.Dir
	var exit launcher.Exit
	known := doc.Exit == nil && store.ReadJSON(exitFile, &exit) == nil // its end was seen, and the report could not be made
	if doc.Exit != nil || doc.Refused {
		return doc, nil
	}
	scrub := monitor.NewScrubber(env.environ, doc.Command)
	if !here(doc) { // the private folder is on that machine
		doc.PrivateDir = ""
	}
	text := adoptOutput(store, doc.PrivateDir, scrub)
	if err := monitor.Adopt(store, doc.PrivateDir, scrub); err != nil {
		doc.Missing = append(doc.Missing, err.Error())
	}
	if known {
		doc.Exit = &exit
	}
	complete(store, &doc)
	if here(doc) && doc.Recording != nil && over(doc.Recording) { // the ranks write no more, and what they wrote is in the run folder now
		if err := os.RemoveAll(doc.PrivateDir); err != nil {
			doc.Missing = append(doc.Missing, fmt.Sprintf("the private folder could not be removed: %v", err))
		}
	}
	doc.CgroupOOMKills = -1
	if doc.Recording != nil {
		text += doc.Recording.Output()
	}
	explainDeath(&doc, text)
	if !known {
		doc.Missing = append(doc.Missing, "the end of the run: oomguard was stopped before the command ended")
	}
	return doc, nil
}

// here tells whether this is the machine that the run was on.
func here(doc report.Run) bool {
	host, err := os.Hostname()
	return err == nil && host == doc.Host
}

// adoptOutput takes over the copy of the command's output that oomguard had no time to.
func adoptOutput(store *monitor.Store, privateDir string, scrub *monitor.Scrubber) string {
	path := filepath.Join(store.Dir, outputFile)
	if privateDir != "" {
		if text := scrub.Text(launcher.ReadTail(filepath.Join(privateDir, outputFile))); text != "" {
			if err := store.WriteFile(outputFile, []byte(text)); err != nil {
				return text
			}
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(data)
}

// over tells whether all ranks that were heard of have ended.
func over(rec *monitor.Recording) bool {
	for _, r := range rec.Ranks {
		if !r.Ended && !errors.Is(syscall.Kill(r.PID, 0), syscall.ESRCH) {
			return false
		}
	}
	return len(rec.Ranks) > 0
}

func runsCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "runs",
		Usage:     "list the recorded runs",
		UsageText: "oomguard runs [flags]",
		Flags:     join(outputFlags(env), []cli.Flag{dirFlag(env)}),
		Action: func(c *cli.Context) error {
			out, err := newOutput(c, env, env.stdout)
			if err != nil {
				return err
			}
			root := runRoot(env, c)
			stores, err := monitor.List(root)
			if err != nil {
				return usageError{err}
			}
			list := report.Runs{Schema: "oomguard.runs/v1", Root: root}
			var unreadable []error
			for _, s := range stores {
				doc, err := recorded(s)
				if err != nil {
					unreadable = append(unreadable, err)
					continue
				}
				list.Runs = append(list.Runs, runLine(doc))
			}
			if err := out.write(list); err != nil {
				return err
			}
			if len(unreadable) > 0 {
				fmt.Fprintln(env.stderr, "oomguard: some runs cannot be read:", errors.Join(unreadable...))
			}
			return nil
		},
	}
}

func runLine(doc report.Run) report.RunLine {
	line := report.RunLine{ID: doc.ID, Started: doc.Started.Format("2006-01-02 15:04:05"), Outcome: earlier(doc).Outcome, Command: report.ShellWords(doc.Command)}
	if doc.Estimate != nil {
		line.Model = doc.Estimate.Model.Name
	}
	return line
}
