package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"oomguard/launcher"
	"oomguard/launcher/files"
	"oomguard/monitor"
	"oomguard/monitor/oom"
	"oomguard/monitor/report"
	"oomguard/preflight"
	"oomguard/preflight/estimate"
)

// complete adds to a run's document what its folder holds: the recording, and the comparison with the estimate.
func complete(store *monitor.Store, doc *report.Run) {
	rec, err := monitor.Load(store)
	if err != nil {
		doc.Missing = append(doc.Missing, err.Error())
		return
	}
	doc.Recording = rec
	doc.Comparison = report.Compare(doc.Estimate, rec)
	doc.PeakStage, doc.Bottleneck = bottleneck(doc.Estimate, rec)
	doc.Missing = append(doc.Missing, rec.Missing...)
	doc.Missing = append(doc.Missing, silentRanks(doc)...)
}

// silentRanks says which ranks were started and not heard of, and which lost events.
func silentRanks(doc *report.Run) []string {
	heard := map[int]bool{}
	var out []string
	for _, r := range doc.Recording.Ranks {
		if len(r.Stages) > 0 {
			heard[r.PID] = true
		}
		out = append(out, r.Notes...)
	}
	if !doc.Probed {
		return out
	}
	if len(doc.Recording.Ranks) == 0 && (doc.Exit == nil || len(doc.Exit.Ranks) == 0) {
		return append(out, "memory by stage: no process with RANK or LOCAL_RANK in its environment imported torch")
	}
	if doc.Exit == nil {
		return out
	}
	var silent []string
	for _, r := range doc.Exit.Ranks {
		if !heard[r.PID] {
			silent = append(silent, "rank "+strconv.Itoa(r.Rank))
		}
	}
	if len(silent) > 0 {
		out = append(out, "no memory by stage from "+strings.Join(silent, ", ")+
			": the probe was not loaded there (python -I/-E/-S, another interpreter, a container), or torch was "+
			"never imported")
	}
	return out
}

// bottleneck is the stage that was measured highest and its largest predicted part.
func bottleneck(e *estimate.Estimate, rec *monitor.Recording) (stage, component string) {
	var highest int64 = -1
	for _, s := range rec.Stages {
		if s.AllocatedBytes > highest && !notStages(s.Stage) {
			highest, stage = s.AllocatedBytes, s.Stage
		}
	}
	if e == nil || e.Open() {
		return stage, ""
	}
	for _, s := range e.Stages {
		if string(s.Stage) == stage {
			component = s.Components.Bottleneck().String()
		}
	}
	return stage, component
}

// explainDeath adds a post-mortem when the command ended badly. text is what is known of its output.
func explainDeath(doc *report.Run, text string) {
	if doc.Exit != nil && doc.Exit.Clean() ||
		doc.Exit == nil && (doc.Recording == nil || firstFatal(doc.Recording) == nil) {
		return
	}
	log, err := oom.Scan(strings.NewReader(text))
	if err != nil {
		doc.Missing = append(doc.Missing, err.Error())
		return
	}
	believe(doc.Exit, log)
	facts := deathFacts(doc)
	if doc.Recording != nil {
		log.Messages = append(log.Messages, observed(doc.Recording)...)
	}
	d := oom.Diagnose(log, facts)
	priced(&d, doc)
	doc.Postmortem = &d
}

// believe takes from the launcher's output how those ranks ended that nobody saw end, or saw at all: one that fails at
// once is gone before we look.
func believe(exit *launcher.Exit, log *oom.Log) {
	if exit == nil {
		return
	}
	attempt := 0
	for _, r := range exit.Ranks {
		attempt = max(attempt, r.Attempt)
	}
	for _, told := range log.Exits {
		i := slices.IndexFunc(exit.Ranks, func(r launcher.RankExit) bool { return r.PID == told.PID })
		switch {
		case i >= 0 && exit.Ranks[i].Known:
		case i >= 0:
			exit.Ranks[i].Known, exit.Ranks[i].Code, exit.Ranks[i].Told = true, told.ExitCode, true
		case told.PID > 0 && told.Rank >= 0: // torchrun's list of failures, which is about its last attempt
			exit.Ranks = append(exit.Ranks, launcher.RankExit{
				PID: told.PID, Rank: told.Rank, LocalRank: told.LocalRank, Attempt: attempt, Known: true,
				Code: told.ExitCode, Told: true,
			})
		}
	}
	slices.SortStableFunc(exit.Ranks, func(a, b launcher.RankExit) int {
		return cmp.Or(cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.Rank, b.Rank))
	})
}

// deathFacts is what is known of the end beside the text.
func deathFacts(doc *report.Run) oom.Facts {
	facts := oom.NoFacts()
	facts.Simulated, facts.CgroupOOMKills = doc.Simulated, int(doc.CgroupOOMKills)
	facts.AllocConf, facts.TorchVersion = allocConf(doc.Environment), doc.Versions["torch"]
	facts.PeaksByStage = map[string]int64{}
	if doc.Exit != nil {
		facts.ExitCode = doc.Exit.Code
		for _, r := range doc.Exit.Ranks {
			if r.Known && r.Code != 0 {
				facts.Deaths = append(facts.Deaths, oom.RankDeath{Rank: r.Rank, ExitCode: r.Code})
			}
		}
		if len(facts.Deaths) == 0 && doc.Exit.Signal != 0 { // the command itself is the training
			facts.Deaths = append(facts.Deaths, oom.RankDeath{Rank: -1, ExitCode: -int(doc.Exit.Signal)})
		}
	}
	if doc.Recording == nil {
		return facts
	}
	for _, s := range doc.Recording.Stages {
		if !notStages(s.Stage) {
			facts.PeaksByStage[s.Stage] = s.AllocatedBytes
		}
	}
	fatal := firstFatal(doc.Recording)
	if fatal != nil {
		facts.Stage, facts.Rank, facts.GPU = fatal.Exception.Stage, fatal.Rank, fatal.Device
		facts.TorchVersion = fatal.Torch
	}
	facts.Run = runFacts(doc, fatal)
	facts.Run.Smaller = smallerRun(doc, history(filepath.Dir(doc.Dir)))
	facts.NoExpandable = noExpandable(doc)
	return facts
}

// observed are the failed allocations that a rank's allocator told the probe of and no exception did: the script caught
// the exception, or the process was gone before Python could raise it. Where another exception ended the rank, the
// failure may have been overcome.
func observed(rec *monitor.Recording) []oom.Message {
	var out []oom.Message
	for _, r := range rec.Ranks {
		if len(r.OOMs) == 0 || r.Exception != nil && r.Exception.OOM {
			continue
		}
		e := r.OOMs[len(r.OOMs)-1]
		m := oom.Message{
			Generation: "observer", Form: oom.FormCUDA, GPU: e.Device, Rank: r.Rank, TriedBytes: e.WantBytes,
			TotalBytes: e.TotalBytes,
			FreeBytes:  e.FreeBytes, AllocatedBytes: e.AllocatedBytes, ReservedBytes: e.ReservedBytes,
			ReservedUnallocatedBytes: e.ReservedBytes - e.AllocatedBytes, PrivatePoolBytes: oom.Unknown,
			AllowedBytes: oom.Unknown,
			ProcessBytes: oom.Unknown, Text: fmt.Sprintf("rank %d's allocator failed in %s, step %d", r.Rank, e.Stage,
				e.Step),
		}
		if r.Exception != nil {
			m.Form = oom.FormWarning
		}
		out = append(out, m)
	}
	return out
}

// notStages are windows of the recording that are no stage of training.
func notStages(name string) bool {
	return slices.Contains([]string{"start", "other", "whole-run"}, name)
}

// firstFatal is the rank whose out-of-memory exception came first, or else the first exception of all: the others are
// echoes.
func firstFatal(rec *monitor.Recording) *monitor.Rank {
	var first *monitor.Rank
	for i := range rec.Ranks {
		r := &rec.Ranks[i]
		if r.Exception == nil {
			continue
		}
		if first == nil || r.Exception.OOM && !first.Exception.OOM ||
			r.Exception.OOM == first.Exception.OOM && r.Exception.Time.Before(first.Exception.Time) {
			first = r
		}
	}
	return first
}

func allocConf(env map[string]string) string {
	for _, name := range []string{"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"} {
		if v := env[name]; v != "" {
			return v
		}
	}
	return ""
}

// history is what the earlier runs under root were, for the checks. Runs that cannot be read are not history.
func history(root string) []preflight.Earlier {
	runs, err := monitor.List(root)
	if err != nil {
		return nil
	}
	const most = 200 // the newest; a folder of years must not slow a start
	if len(runs) > most {
		runs = runs[len(runs)-most:]
	}
	var out []preflight.Earlier
	for _, store := range runs {
		var e preflight.Earlier
		if nodes := store.Nodes(); len(nodes) > 0 { // the nodes of a run are alike
			store = nodes[0]
		}
		if store.ReadJSON(summaryFile, maxSummary, &e) == nil {
			out = append(out, e)
		}
	}
	return out
}

// summaryFile says in a few lines what a run was: every later run reads those of its predecessors at its start.
const summaryFile = "summary.json"

// maxSummary is far above any summary, which has some hundred bytes.
const maxSummary = 64 << 10

// writeRun writes run.json and the summary.
func writeRun(store *monitor.Store, doc report.Run) error {
	if err := store.WriteMeta(doc); err != nil {
		return err
	}
	return store.WriteJSON(summaryFile, earlier(doc))
}

func earlier(doc report.Run) preflight.Earlier {
	e := preflight.Earlier{
		Schema: preflight.SummarySchema, Run: doc.ID, When: doc.Started, JobKey: doc.JobKey, RemedyKey: doc.RemedyKey,
		Bottleneck: doc.Bottleneck, Outcome: "unknown",
	}
	switch {
	case doc.Refused:
		e.Outcome = "refused"
	case doc.Exit != nil && doc.Exit.Clean():
		e.Outcome = preflight.OutcomeOK
	case doc.Postmortem != nil && doc.Postmortem.Cause != oom.NoCause:
		e.Outcome = string(doc.Postmortem.Cause)
	case doc.Exit != nil:
		e.Outcome = "failed"
	}
	if doc.Recording != nil {
		for _, r := range doc.Recording.Ranks {
			e.Measured = e.Measured || len(r.Stages) > 1
			e.Small = e.Small || r.Steps > 0 && r.Steps <= smallSteps
		}
		for _, d := range doc.Recording.Devices {
			e.PeakBytes = max(e.PeakBytes, d.OwnPeakBytes)
		}
	}
	if doc.Job != nil {
		e.Tokens, e.Model = preflight.Tokens(doc.Job), doc.Job.Model.Or("")
	}
	return e
}

// smallSteps: a run of so few optimizer steps was a try.
const smallSteps = 20

// outputTail reads what the command wrote, when its output went to a regular file: the one place from which a copy can
// be taken without standing in the way.
type outputTail struct {
	Path  string `json:"path"` // "": there is none
	Start int64  `json:"start"`
}

// maxTail bounds output.log.
const maxTail = 4 << 20

// openTail remembers where the command's stderr (or stdout) begins in its file.
func openTail(env environment) outputTail {
	for _, f := range []*os.File{env.stderr, env.stdout} {
		info, err := f.Stat()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		path, err := os.Readlink(filepath.Join("/proc/self/fd", strconv.Itoa(int(f.Fd()))))
		if err == nil {
			return outputTail{Path: path, Start: info.Size()}
		}
	}
	return outputTail{}
}

// read gives the last maxTail bytes written since openTail; "" when there is no file.
func (t outputTail) read() string {
	if t.Path == "" {
		return ""
	}
	f, err := files.Open(t.Path)
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	from := max(t.Start, info.Size()-maxTail)
	data, err := io.ReadAll(io.NewSectionReader(f, from, maxTail))
	if err != nil {
		return ""
	}
	return string(data)
}
