package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"
	"github.com/urfave/cli/v2"

	"oomguard/launcher/files"
	"oomguard/monitor"
	"oomguard/monitor/oom"
	"oomguard/monitor/oom/logfile"
	"oomguard/monitor/oom/snapshot"
	"oomguard/monitor/report"
)

func postmortemCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "postmortem",
		Usage: "say why a run died, from its log alone; show what a memory snapshot of PyTorch holds",
		UsageText: "oomguard postmortem [flags] [FILE...]   (- or nothing: stdin)\n\n" +
			"A FILE is a log (also .gz, .bz2, UTF-16), an error.json of torchrun, a folder of them such as " +
			"torchrun's --log-dir, a recorded run,\n" +
			"or a memory snapshot. Several belong to one run: one file a rank, or a log and its snapshots.",
		Flags: outputFlags(report.Postmortem{}),
		Action: func(c *cli.Context) error {
			out, err := newOutput(c, env, env.stdout)
			if err != nil {
				return err
			}
			doc, err := postmortemOf(env, c.Args().Slice())
			if err != nil {
				return err
			}
			return out.write(doc)
		},
	}
}

// postmortemOf reads what was named and judges it.
func postmortemOf(env environment, names []string) (report.Document, error) {
	if len(names) == 0 {
		names = []string{"-"}
	}
	if len(names) == 1 && isRunFolder(names[0]) {
		return postmortemOfRun(env, names[0])
	}
	files, err := logFiles(names)
	if err != nil {
		return nil, usageError{err}
	}
	bar := newProgress(env, files)
	defer bar.end()
	if len(files) == 1 && isPickle(files[0].Name) {
		r, err := readSnapshot(files[0], bar)
		if err != nil {
			return nil, usageError{err}
		}
		return report.Snapshot{Report: r}, nil
	}
	log, facts := oom.NewLog(), oom.NoFacts()
	var seen []snapshot.Report
	var unread *multierror.Error
	for _, f := range files {
		var err error
		if isPickle(f.Name) {
			var r snapshot.Report
			if r, err = readSnapshot(f, bar); err == nil {
				seen = append(seen, r)
			}
		} else {
			err = addLog(env, log, f, bar)
		}
		if err != nil {
			unread = multierror.Append(unread, err)
			facts.Unread = append(facts.Unread, err.Error())
		}
	}
	switch {
	case len(files) == 1 && unread != nil:
		return nil, usageError{unread.Errors[0]}
	case len(facts.Unread) == len(files):
		return nil, usageError{unread}
	}
	observeSnapshots(log, &facts, seen)
	return report.Postmortem{Diagnosis: oom.Diagnose(log, facts)}, nil
}

// logFiles lists the logs behind names, stdin among them.
func logFiles(names []string) ([]logfile.File, error) {
	var files []logfile.File
	for _, name := range names {
		if name == "-" {
			files = append(files, logfile.File{Name: name, Rank: -1, Bytes: -1})
			continue
		}
		found, err := logfile.List([]string{name})
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	return files, nil
}

func addLog(env environment, log *oom.Log, f logfile.File, bar *progress) error {
	if f.Name == "-" {
		text, err := logfile.Text(env.stdin, "stdin")
		if err != nil {
			return err
		}
		return log.Add(oom.Source{Name: "stdin", Rank: f.Rank, Text: text})
	}
	text, err := logfile.Open(f, bar.add)
	if err != nil {
		return err
	}
	defer text.Close()
	return log.Add(oom.Source{Name: f.Name, Rank: f.Rank, Text: text})
}

// isRunFolder tells a folder that oomguard recorded from one of logs.
func isRunFolder(name string) bool {
	_, err := os.Stat(filepath.Join(name, "run.json"))
	return err == nil || len((&monitor.Store{Dir: name}).Nodes()) > 0
}

// postmortemOfRun shows why a recorded run died, and the run itself if it did not.
func postmortemOfRun(env environment, folder string) (report.Document, error) {
	store, err := monitor.Open(filepath.Dir(folder), folder)
	if err != nil {
		return nil, usageError{err}
	}
	doc, err := rebuild(env, store)
	if err != nil {
		return nil, usageError{err}
	}
	if doc.Postmortem == nil {
		return doc, nil
	}
	return report.Postmortem{Diagnosis: *doc.Postmortem}, nil
}

// isPickle tells a pickle from a log by its first byte: the protocol mark of protocols 2 to 5 (packed or not), or the
// name that people give to it.
func isPickle(name string) bool {
	head, _ := files.Head(name, 4096) // nothing is taken out of a pipe
	var first [2]byte
	n := 0
	if in, err := logfile.Unpack(bytes.NewReader(head)); err == nil {
		n, _ = io.ReadFull(in, first[:])
	}
	ending := filepath.Ext(strings.TrimSuffix(strings.TrimSuffix(name, ".gz"), ".bz2"))
	return n == 2 && first[0] == 0x80 && first[1] >= 2 && first[1] <= 5 ||
		slices.Contains([]string{".pickle", ".pkl"}, strings.ToLower(ending))
}

func readSnapshot(f logfile.File, bar *progress) (snapshot.Report, error) {
	file, err := files.Open(f.Name)
	if err != nil {
		return snapshot.Report{}, err
	}
	defer file.Close()
	in, err := logfile.Unpack(bar.reader(file))
	if err != nil {
		return snapshot.Report{}, fmt.Errorf("unpack %s: %w", f.Name, err)
	}
	s, err := snapshot.Read(in)
	if err != nil {
		return snapshot.Report{}, fmt.Errorf("%s: %w", f.Name, err)
	}
	return snapshot.Analyse(s, f.Name), nil
}

// observeSnapshots makes evidence of what snapshots show. Where the logs hold no message, the failed allocations that a
// snapshot recorded stand in for them.
func observeSnapshots(log *oom.Log, facts *oom.Facts, seen []snapshot.Report) {
	bare := len(log.Messages) == 0
	for _, r := range seen {
		for _, d := range r.Devices {
			facts.Observations = append(facts.Observations, snapshotSentence(r.File, d))
			if n := len(d.OOMs); bare && n > 0 {
				log.Messages = append(log.Messages, snapshotMessage(r.File, d, d.OOMs[n-1]))
			}
		}
	}
}

func snapshotSentence(file string, d snapshot.Device) string {
	units := report.Units{}
	s := fmt.Sprintf("snapshot %s, GPU %d: %s reserved, %s of it allocated, %s stuck in holes (the largest %s)",
		file, d.Index, units.Size(d.ReservedBytes), units.Size(d.AllocatedBytes), units.Size(d.StuckBytes),
		units.Size(d.LargestFreeBytes))
	if len(d.Components) > 0 {
		s += fmt.Sprintf("; most is held by %s: %s", d.Components[0].Component, units.Size(d.Components[0].Bytes))
	}
	if len(d.Sites) > 0 {
		s += ", at " + d.Sites[0].Where
	}
	return s
}

func snapshotMessage(file string, d snapshot.Device, moment snapshot.OOMMoment) oom.Message {
	m := oom.UnknownMessage()
	m.Generation, m.Form, m.GPU = "snapshot", oom.FormCUDA, d.Index
	m.TriedBytes, m.FreeBytes, m.AllocatedBytes = moment.TriedBytes, moment.FreeBytes, moment.AllocatedBytes
	m.Text = fmt.Sprintf("snapshot %s recorded a failed allocation at %s", file, moment.Where)
	return m
}
