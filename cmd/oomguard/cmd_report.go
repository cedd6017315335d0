package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

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
		Flags:     join(outputFlags(report.Run{}), []cli.Flag{dirFlag(env)}),
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

// rebuildPart makes the document of what one oomguard recorded. A run whose end was recorded is shown as it was; one
// that was cut off is put together from what is there.
func rebuildPart(env environment, store *monitor.Store) (report.Run, error) {
	var doc report.Run
	if err := store.ReadMeta(&doc); err != nil {
		return doc, err
	}
	doc.Dir = store.Dir
	var exit launcher.Exit
	// its end was seen, and the report could not be made
	known := doc.Exit == nil && store.ReadJSON(exitFile, maxExit, &exit) == nil
	if doc.Exit != nil || doc.Refused {
		return doc, nil
	}
	var text string
	doc.State, text = unfinished(env, store, &doc)
	if known {
		doc.Exit, doc.State = &exit, report.StateUnknown
	}
	complete(store, &doc)
	doc.CgroupOOMKills = -1
	if doc.Recording != nil {
		text += doc.Recording.Output()
	}
	explainDeath(&doc, text)
	if !known {
		doc.Missing = append(doc.Missing, "the end of the run: "+doc.State.Sentence())
	}
	return doc, nil
}

// unfinished looks at a run whose end was not recorded: whether it goes on, and what is known of its output. Of one
// whose oomguard was killed it brings into the run folder what is left, and clears that away when nobody uses it any
// more.
func unfinished(env environment, store *monitor.Store, doc *report.Run) (report.State, string) {
	before, err := store.ReadFile(monitor.OutputFile, 2*maxTail)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		doc.Missing = append(doc.Missing, err.Error())
	}
	if doc.PrivateDir == "" || !here(*doc) { // the private folder is on that machine
		return report.StateUnknown, string(before)
	}
	p, err := monitor.FindPrivate(store, doc.PrivateDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return report.StateCutOff, string(before)
	case err != nil:
		doc.Missing = append(doc.Missing, fmt.Sprintf("what is left in the run's private folder: %v", err))
		return report.StateUnknown, string(before)
	case p.Owned():
		_ = p.Close() // nothing was written
		return report.StateLive, string(before)
	}
	used := p.Used()
	output, err := adopt(env, p, store)
	if output == "" {
		output = string(before)
	}
	end := p.Close
	if err == nil && !used {
		end = p.Remove
	}
	if err := errors.Join(err, end()); err != nil {
		doc.Missing = append(doc.Missing, err.Error())
	}
	if used {
		return report.StateUnwatched, output
	}
	return report.StateCutOff, output
}

// adopt brings what a killed oomguard left in its private folder into the run folder, without the secrets of our
// environment and of the run's command.
func adopt(env environment, p *monitor.Private, store *monitor.Store) (output string, err error) {
	var meta struct {
		Command []string `json:"command"`
	}
	if err := store.ReadMeta(&meta); err != nil {
		return "", err
	}
	return p.Adopt(store, monitor.NewScrubber(env.environ, meta.Command), launcher.ReadTail)
}

// here tells whether this is the machine that the run was on.
func here(doc report.Run) bool {
	host, err := os.Hostname()
	return err == nil && host == doc.Host
}

func runsCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "runs",
		Usage:     "list the recorded runs",
		UsageText: "oomguard runs [flags]",
		Flags:     join(outputFlags(report.Runs{}), []cli.Flag{dirFlag(env)}),
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
			list := report.Runs{Schema: "oomguard.runs/v1", Root: root, Runs: []report.RunLine{}}
			var unreadable []error
			for _, s := range stores {
				doc, err := recorded(s)
				if err != nil {
					unreadable = append(unreadable, err)
					continue
				}
				list.Runs = append(list.Runs, runLine(s, doc))
			}
			if err := out.write(list); err != nil {
				return err
			}
			if len(unreadable) > 0 {
				env.say("some runs cannot be read: %v", errors.Join(unreadable...))
			}
			return nil
		},
	}
}

func runLine(store *monitor.Store, doc report.Run) report.RunLine {
	line := report.RunLine{ID: doc.ID, Started: doc.Started.Format("2006-01-02 15:04:05"),
		Outcome: earlier(doc).Outcome, Command: report.ShellWords(doc.Command)}
	if doc.Estimate != nil {
		line.Model = doc.Estimate.Model.Name
	}
	if doc.Exit == nil && !doc.Refused && doc.PrivateDir != "" && here(doc) {
		if p, err := monitor.FindPrivate(store, doc.PrivateDir); err == nil {
			if p.Owned() {
				line.Outcome = "running"
			}
			_ = p.Close() // nothing was written
		}
	}
	return line
}
