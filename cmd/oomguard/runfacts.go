package main

import (
	"slices"
	"strings"

	"oomguard/launcher/files"
	"oomguard/monitor"
	"oomguard/monitor/gpu"
	"oomguard/monitor/oom"
	"oomguard/monitor/report"
	"oomguard/preflight"
	"oomguard/preflight/estimate"
	"oomguard/preflight/plan"
	"oomguard/preflight/remedy"
)

// runFacts is what the recording, the estimate and the job say about the rank that died. r nil: no rank is known to
// have died first, and the one with the highest peak stands for all.
func runFacts(doc *report.Run, r *monitor.Rank) *oom.RunFacts {
	f := &oom.RunFacts{Memory: doc.Recording.Memory, Job: jobFacts(doc), Setup: remedyCase(doc)}
	if doc.Estimate != nil && !doc.Estimate.Partial { // a lower bound is no prediction
		f.Predicted = map[string]int64{}
		for _, s := range doc.Estimate.Stages {
			f.Predicted[string(s.Stage)] = s.AllocatedBytes
		}
		for _, a := range doc.Estimate.Assumptions {
			if a.Widens {
				f.Unsure = append(f.Unsure, a.What)
			}
		}
	}
	addParts(f, doc.Estimate, r)
	if r == nil {
		r = highestRank(doc.Recording)
	}
	if r == nil {
		return f
	}
	f.Steps, f.ParamBytes, f.GradBytes, f.OptimizerBytes = r.Steps, r.ParamBytes, r.GradBytes, r.OptimizerBytes
	for _, s := range r.Course {
		f.Course = append(f.Course, oom.CoursePoint{Step: s.Step, PeakBytes: s.PeakBytes, HeldBytes: s.HeldBytes})
	}
	if t := r.Turnover; t != nil {
		f.Turnover = oom.Turnover{
			FirstForwardBytes: t.FirstForwardBytes, LaterForwardBytes: t.LaterForwardBytes,
			LaterForwards:  t.LaterForwards,
			AfterStepBytes: t.AfterStepBytes, AfterClearBytes: t.AfterClearBytes, Steps: t.Steps, Cleared: t.Cleared,
		}
	}
	addDevice(f, doc.Recording.Devices, r)
	f.AMP = ampFacts(doc, r)
	return f
}

// addParts adds what the memory of the stage in which r died is predicted to consist of.
func addParts(f *oom.RunFacts, e *estimate.Estimate, r *monitor.Rank) {
	if e == nil || e.Open() {
		return
	}
	stage, parts := string(e.PerGPU.PeakStage), e.PerGPU.Components
	if r != nil && r.Exception != nil {
		if bytes, died := stageOf(e, r.Exception.Stage); bytes > 0 {
			stage, parts = r.Exception.Stage, died
		}
	}
	f.PartsStage, f.Parts = stage, map[string]int64{}
	for i, name := range estimate.ComponentNames() {
		f.Parts[name] = parts[i]
	}
}

func highestRank(rec *monitor.Recording) *monitor.Rank {
	var highest *monitor.Rank
	var most int64 = -1
	for i := range rec.Ranks {
		for _, s := range rec.Ranks[i].Stages {
			if s.AllocatedBytes > most {
				most, highest = s.AllocatedBytes, &rec.Ranks[i]
			}
		}
	}
	return highest
}

// addDevice adds what NVML saw on the rank's GPU. CUDA's index is NVML's only where nothing reorders the GPUs, so the
// UUID decides where the rank told it.
func addDevice(f *oom.RunFacts, devices []monitor.DeviceRecord, r *monitor.Rank) {
	for _, d := range devices {
		same := d.Index == r.Device
		if r.UUID != "" && d.UUID != "" {
			same = strings.HasSuffix(d.UUID, r.UUID)
		}
		if !same || r.Device < 0 {
			continue
		}
		f.HeldBeforeBytes, f.GPUBytes = d.StartBytes, d.TotalBytes
		for _, p := range d.Others {
			bytes := p.UsedBytes
			if !p.Known {
				bytes = oom.Unknown
			}
			f.Strangers = append(f.Strangers, oom.Stranger{PID: p.PID, Name: p.Name, Bytes: bytes})
		}
	}
}

func jobFacts(doc *report.Run) oom.JobFacts {
	j := doc.Job
	if j == nil {
		return oom.JobFacts{}
	}
	return oom.JobFacts{Framework: j.Framework.Or(""), Sharding: j.Sharding.Or(""), MicroBatch: j.MicroBatch.Or(0)}
}

// remedyCase is what the remedies are asked about the job.
func remedyCase(doc *report.Run) remedy.Case {
	if doc.EstimateInput != nil {
		return plan.Case(*doc.EstimateInput)
	}
	return remedy.Case{Job: doc.Job}
}

// ampFacts compare the measurement with what the estimate gives with and without mixed precision; nil where it is off
// or the job is not at hand any more.
func ampFacts(doc *report.Run, r *monitor.Rank) *oom.AMPFacts {
	in := doc.EstimateInput
	if in == nil || doc.Estimate == nil || doc.Estimate.Partial ||
		!slices.Contains([]string{"bf16", "fp16"}, in.Job.Precision.Or("")) || in.Job.ParamDtype.Or("") != "fp32" {
		return nil
	}
	fp32 := *in
	j := *in.Job
	j.Precision.Value = "fp32"
	fp32.Job = &j
	without, err := estimate.Run(fp32)
	if err != nil {
		return nil
	}
	a := &oom.AMPFacts{Bytes: doc.Estimate.PerGPU.AllocatedBytes}
	for _, s := range r.Stages {
		if inPass(s.Stage) && s.AllocatedBytes > a.MeasuredBytes {
			a.MeasuredBytes, a.Stage = s.AllocatedBytes, s.Stage
		}
	}
	with, parts := stageOf(doc.Estimate, a.Stage)
	a.WithBytes, a.TouchedBytes = with, parts[estimate.Activations]+parts[estimate.Logits]
	a.WithoutBytes, _ = stageOf(without, a.Stage)
	if a.WithBytes == 0 || a.WithoutBytes == 0 {
		return nil
	}
	return a
}

func inPass(stage string) bool {
	return stage == string(estimate.Forward) || stage == string(estimate.Backward)
}

func stageOf(e *estimate.Estimate, stage string) (int64, estimate.Components) {
	for _, s := range e.Stages {
		if string(s.Stage) == stage {
			return s.AllocatedBytes, s.Components
		}
	}
	return 0, estimate.Components{}
}

// smallerRun is the largest earlier run of the folder with fewer tokens in a forward pass that saved memory by the same
// means and ended well.
func smallerRun(doc *report.Run, earlier []preflight.Earlier) *oom.SmallerRun {
	if doc.Job == nil {
		return nil
	}
	here := preflight.Tokens(doc.Job)
	var best *oom.SmallerRun
	for _, e := range earlier {
		if e.Outcome != preflight.OutcomeOK || e.RemedyKey != doc.RemedyKey || doc.RemedyKey == "" ||
			e.Model != doc.Job.Model.Or("") ||
			e.Tokens <= 0 || e.Tokens >= here || e.PeakBytes <= 0 {
			continue
		}
		if best == nil || e.Tokens > best.Tokens {
			best = &oom.SmallerRun{ID: e.Run, Tokens: e.Tokens, Here: here, PeakBytes: e.PeakBytes}
		}
	}
	return best
}

// priced puts the planner's words in place of the remedies that change the job, and beside them what each would save in
// the stage where it died, and whether the job then fits, if the estimate knows the whole job. It leaves out those that
// the planner does not offer, and adds what fits together.
func priced(d *oom.Diagnosis, doc *report.Run) {
	if doc.Estimate == nil || doc.EstimateInput == nil || !aboutDevice(d) {
		return
	}
	in := whereItDied(*doc.EstimateInput, d)
	offers, err := plan.RemediesAt(in, estimate.Stage(d.Stage))
	if err != nil {
		doc.Missing = append(doc.Missing, "what the remedies would save: "+err.Error())
		return
	}
	open := doc.Estimate.Open()
	now, err := estimate.Run(in)
	// It was said to fit and has not: what the estimate lacks is not known, and with it what would fit.
	refuted := err == nil && now.Fits != nil && *now.Fits
	byID := map[string]plan.Remedy{}
	for _, o := range offers {
		byID[o.ID] = o
	}
	kept := []oom.Remedy{}
	for _, r := range d.Remedies {
		offer, ok := byID[r.ID]
		if !ok && slices.Contains(plan.IDs(), r.ID) {
			continue // it is on already, or would not lower this peak
		}
		if ok {
			r.How = offer.How
		}
		if ok && !open {
			r.SavesBytes, r.NewDeviceBytes, r.Fits = offer.SavesBytes, offer.NewDeviceBytes, offer.Fits
		}
		if refuted && r.Fits != nil && *r.Fits {
			r.Fits = nil
		}
		kept = append(kept, r)
	}
	d.Remedies = kept
	if open {
		return
	}
	c, err := plan.Combine(in)
	if err != nil {
		doc.Missing = append(doc.Missing, "which remedies fit together: "+err.Error())
		return
	}
	if c != nil {
		d.Combination = &oom.Combination{IDs: c.IDs, How: c.How, DeviceBytes: c.DeviceBytes, TotalBytes: c.TotalBytes,
			Fits: c.Fits}
	}
}

// whereItDied is the estimate's question for the device that ran out of memory, which is not always the one that was
// declared, or seen, and with the framework that the log gives away where the job does not.
func whereItDied(in estimate.Input, d *oom.Diagnosis) estimate.Input {
	for _, m := range d.OOMs {
		if m.TotalBytes > 0 && (in.Hardware.TotalBytes <= 0 || m.TotalBytes < in.Hardware.TotalBytes) {
			in.Hardware.TotalBytes = m.TotalBytes
		}
	}
	if !in.Job.Framework.Known && d.Framework != "" { // the log tells it
		j := *in.Job
		j.Framework.Offer(d.Framework, "the log")
		in.Job = &j
	}
	return in
}

// aboutDevice: a job that is made smaller cures a shortage on the GPU, not one of the host or of nothing.
func aboutDevice(d *oom.Diagnosis) bool {
	return slices.ContainsFunc(d.Remedies, func(r oom.Remedy) bool { return slices.Contains(plan.IDs(), r.ID) })
}

// noExpandable says why expandable segments must not be advised for this run; "" nothing is known against them. The log
// gives more away.
func noExpandable(doc *report.Run) string {
	if doc.Devices != nil && slices.ContainsFunc(doc.Devices.Devices, func(d gpu.Device) bool { return d.MIG }) {
		return "a slice of a GPU (MIG), where the driver may refuse them"
	}
	if doc.Job != nil && doc.Job.InferenceShare.Or(0) > 0 {
		return "a job whose processes share tensors with an inference engine"
	}
	if !here(*doc) {
		return ""
	}
	release, err := files.Read("/proc/sys/kernel/osrelease", 1<<10)
	if err == nil && strings.Contains(strings.ToLower(string(release)), "microsoft") {
		return "WSL, where the first allocation may fail with them"
	}
	return ""
}
