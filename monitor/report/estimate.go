package report

import (
	"fmt"
	"strings"

	"oomguard/preflight/estimate"
	"oomguard/preflight/job"
)

// Estimate is the predicted memory of one GPU.
type Estimate struct {
	*estimate.Estimate
}

// Page shows verdict, components, stages and assumptions.
func (d Estimate) Page(u Units) Page {
	e := d.Estimate
	page := Page{
		Heading("Memory estimate"),
		Paragraph{Text: e.Model.Name + ": " + modelLine(e)},
		verdict(e, u),
		Heading(peakTitle(e)),
		componentTable(e, u),
		Heading("By stage"),
		stageTable(e, u),
	}
	if len(e.Ranks) > 1 {
		page = append(page, Heading("By pipeline stage"), rankTable(e.Ranks, u))
	}
	if e.Host.PerRankHighBytes > 0 {
		page = append(page, Heading("Host memory, for what is offloaded"), hostTable(e.Host, u))
	}
	return append(page, assumptions(e.Assumptions)...)
}

// peakTitle says what the table of components is about.
func peakTitle(e *estimate.Estimate) string {
	title := fmt.Sprintf("Each %s at the peak, which is the %s stage", deviceWord(e.GPU.Kind), e.PerGPU.PeakStage)
	switch {
	case e.Partial:
		return fmt.Sprintf("Each %s in the %s stage, as far as it is counted", deviceWord(e.GPU.Kind),
			e.PerGPU.PeakStage)
	case e.Open():
		return title + ", as assumed below"
	}
	return title
}

func deviceWord(kind string) string {
	if kind == "cpu" {
		return "rank (resident host memory)"
	}
	return "GPU"
}

func modelLine(e *estimate.Estimate) string {
	parts := []string{Count(e.Model.Parameters) + " parameters"}
	if e.Model.TrainableParameters != e.Model.Parameters {
		parts = append(parts, Count(e.Model.TrainableParameters)+" of them trainable")
	}
	if e.Job != nil {
		parts = append(parts, jobLine(e.Job)...)
	}
	return strings.Join(parts, ", ")
}

func jobLine(j *job.Job) []string {
	var parts []string
	add := func(s job.Setting[string], skip string) {
		if s.Known && s.Value != "" && s.Value != skip {
			parts = append(parts, s.Value)
		}
	}
	add(j.Method, "full")
	parts = append(parts, dtypes(j)...)
	add(j.Optimizer, "")
	if j.MicroBatch.Known {
		parts = append(parts, fmt.Sprintf("micro-batch %d", j.MicroBatch.Value))
	}
	if j.SeqLen.Known {
		parts = append(parts, fmt.Sprintf("sequence %d", j.SeqLen.Value))
	}
	if j.Checkpointing.Known && j.Checkpointing.Value != "none" {
		parts = append(parts, j.Checkpointing.Value+" checkpointing")
	}
	add(j.Sharding, "none")
	if j.WorldSize.Known {
		parts = append(parts, fmt.Sprintf("world size %d", j.WorldSize.Value))
	}
	return parts
}

// dtypes say how the weights are stored: those that are frozen as a base, and those that are trained.
func dtypes(j *job.Job) []string {
	var parts []string
	trained, all := "weights", ""
	if j.LoRA.Known && j.LoRA.Value != nil {
		trained, all = "adapters", " adapters"
	}
	switch q := j.Quant.Value; {
	case q != nil && q.Type != "":
		parts = append(parts, q.Type+" base")
	case q != nil:
		parts = append(parts, fmt.Sprintf("%d-bit %s base", q.Bits, q.Method))
	case all != "" && j.BaseDtype.Known:
		parts = append(parts, j.BaseDtype.Value+" base")
	}
	switch dtype := j.ParamDtype.Value; {
	case !j.ParamDtype.Known:
		return append(parts, "dtype unknown")
	case j.MasterFP32.Or(false):
		return append(parts, dtype+all+" with an fp32 master copy")
	case j.Autocast.Or(false) || j.Precision.Or(dtype) != dtype:
		return append(parts, j.Precision.Or("16-bit")+" autocast over "+dtype+" "+trained)
	default:
		return append(parts, dtype+all)
	}
}

// verdict is the one line that people came for.
func verdict(e *estimate.Estimate, u Units) Paragraph {
	if e.Open() {
		return openVerdict(e, u)
	}
	p := e.PerGPU
	unit := u.For(*p.HighBytes)
	need := fmt.Sprintf("needs %s %s (%s to %s) on each %s",
		unit.Format(p.DeviceBytes), unit.Name, unit.Format(p.LowBytes), unit.Format(*p.HighBytes),
		deviceWord(e.GPU.Kind))
	if e.Fits == nil {
		return Paragraph{Text: need + noGPU}
	}
	return judged(e, need, p.DeviceBytes, *e.Fits, u)
}

const noGPU = "; whether that fits is unknown: no GPU is known here (give --gpu, for example --gpu 8xH100-80GB)"

// openVerdict is the line where not all of the job is known: an interval, or a lower bound alone.
func openVerdict(e *estimate.Estimate, u Units) Paragraph {
	need := fmt.Sprintf("needs at least %s on each %s", u.Size(e.Least()), deviceWord(e.GPU.Kind))
	most, known := e.Most()
	if known {
		unit := u.For(most)
		need = fmt.Sprintf("needs between %s and %s %s on each %s", unit.Format(e.Least()), unit.Format(most),
			unit.Name, deviceWord(e.GPU.Kind))
	}
	lacks := "; " + e.Lacks() + "; give " + e.Give()
	switch {
	case e.Fits != nil && !*e.Fits:
		p := judged(e, need, e.Least(), false, u)
		p.Text += lacks
		return p
	case e.Fits != nil:
		return judged(e, need, most, true, u)
	case e.GPU.TotalBytes <= 0:
		return Paragraph{Text: need + lacks + noGPU}
	}
	return Paragraph{Text: fmt.Sprintf("%s%s: whether it fits %s with %s is unknown", need, lacks, e.GPU.Name,
		u.Size(e.GPU.TotalBytes)), Tone: Caution}
}

// judged compares what is needed with the device.
func judged(e *estimate.Estimate, need string, bytes int64, fits bool, u Units) Paragraph {
	on := fmt.Sprintf("%s with %s", e.GPU.Name, u.Size(e.GPU.TotalBytes))
	free := e.GPU.TotalBytes - bytes
	switch {
	case fits:
		return Paragraph{Text: fmt.Sprintf("%s: fits %s, %s (%s) stays free", need, on, u.Size(free),
			percent(free, e.GPU.TotalBytes)), Tone: Good}
	case free >= 0:
		return Paragraph{Text: fmt.Sprintf("%s: does not fit %s with headroom, only %s (%s) stays free", need, on,
			u.Size(free), percent(free, e.GPU.TotalBytes)), Tone: Bad}
	}
	return Paragraph{Text: fmt.Sprintf("%s: does not fit %s, %s too much", need, on, u.Size(-free)), Tone: Bad}
}

// componentTable lists the parts with share and bar, and sums up model states and total. Which part is the bottleneck
// it marks where all of them are known.
func componentTable(e *estimate.Estimate, u Units) Table {
	c, sum := e.PerGPU.Components, "total"
	if e.Partial {
		sum = "counted"
	}
	total := c.Sum()
	unit := u.For(total)
	t := Table{Columns: []Column{{"component", false}, {unit.Name, true}, {"share", true}, {"", false}}}
	bottleneck := c.Bottleneck()
	for i, bytes := range c {
		component := estimate.Component(i)
		if bytes == 0 {
			continue
		}
		row := cells(component.String(), unit.Format(bytes), percent(bytes, total), u.bar(bytes, total))
		if component == bottleneck && !e.Open() {
			row[3].Text += " <- bottleneck"
			row = toned(row, Strong)
		}
		t.Rows = append(t.Rows, row)
	}
	states := c.ModelStates()
	t.Rows = append(t.Rows,
		toned(cells("model states (parameters to optimizer)", unit.Format(states), percent(states, total), ""), Faint),
		cells(sum, unit.Format(total), percent(total, total), ""))
	return t
}

func stageTable(e *estimate.Estimate, u Units) Table {
	var largest int64
	for _, s := range e.Stages {
		largest = max(largest, s.DeviceBytes)
	}
	unit := u.For(largest)
	t := Table{Columns: []Column{{"stage", false}, {"allocated " + unit.Name, true}, {"device " + unit.Name, true},
		{"largest part", false}}}
	for _, s := range e.Stages {
		row := cells(string(s.Stage), unit.Format(s.AllocatedBytes), unit.Format(s.DeviceBytes),
			s.Components.Bottleneck().String())
		if s.Stage == e.PerGPU.PeakStage && !e.Partial {
			row[3].Text += " <- peak"
			row = toned(row, Strong)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func rankTable(ranks []estimate.Rank, u Units) Table {
	var largest int64
	for _, r := range ranks {
		largest = max(largest, r.DeviceBytes)
	}
	unit := u.For(largest)
	t := Table{Columns: []Column{{"pipeline stage", true}, {"allocated " + unit.Name, true},
		{"device " + unit.Name, true}, {"", false}}}
	for _, r := range ranks {
		row := cells(fmt.Sprint(r.PipelineStage), unit.Format(r.AllocatedBytes), unit.Format(r.DeviceBytes), "")
		if r.Why != "" {
			row[3].Text = "<- worst: " + r.Why
			row = toned(row, Strong)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// hostTable lists what each rank takes of the host, and what all ranks of a node take together.
func hostTable(h estimate.HostMemory, u Units) Table {
	unit := u.For(h.PerNodeHighBytes)
	t := Table{Columns: []Column{{"part", false}, {unit.Name, true}, {"at most " + unit.Name, true}}}
	add := func(what string, bytes, high int64) {
		t.Rows = append(t.Rows, cells(what, unit.Format(bytes), unit.Format(high)))
	}
	for _, p := range h.Parts {
		add(p.What, p.Bytes, p.HighBytes)
	}
	add("each rank", h.PerRankBytes, h.PerRankHighBytes)
	if h.RanksPerNode > 1 {
		add(fmt.Sprintf("a node with %d ranks", h.RanksPerNode), h.PerNodeBytes, h.PerNodeHighBytes)
	}
	return t
}

func assumptions(list []estimate.Assumption) []Block {
	if len(list) == 0 {
		return nil
	}
	items := make(List, len(list))
	for i, a := range list {
		items[i].Text = a.What
		if a.Origin != "" {
			items[i].Text += " (" + a.Origin + ")"
		}
		if a.Widens {
			items[i].Text += "; widens the interval"
			items[i].Tone = Caution
		}
	}
	return []Block{Heading("Assumptions"), items}
}
