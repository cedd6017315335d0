package report

import (
	"strings"
	"testing"

	"oomguard/monitor"
	"oomguard/preflight/estimate"
	"oomguard/preflight/plan"
)

// partial is anEstimate without its activations, on a GPU that the rest does not fill.
func partial() *estimate.Estimate {
	e := anEstimate()
	e.Partial, e.Bottleneck, e.Fits, e.HeadroomBytes = true, "", nil, nil
	e.PerGPU.LowBytes, e.PerGPU.HighBytes = 24*gib+gib/10, nil
	e.NotCounted = []estimate.NotCounted{
		{What: "activations", Why: "not known", Give: "--model DIR or config.json, or --activations SIZE"},
		{What: "vae a/b", Why: "not counted: its size is not known (command line --vae)", Give: "--second-models SIZE"},
	}
	return e
}

func TestPartialEstimateText(t *testing.T) {
	const lacks = "activations not known; vae a/b not counted: its size is not known (command line --vae); give " +
		"--second-models SIZE, --model DIR or config.json, or --activations SIZE"
	e := partial()
	text := write(t, "text", Estimate{e}, Style{})
	for _, want := range []string{"needs at least 24.10 GiB on each GPU; " + lacks +
		": whether it fits H100 SXM 80GB with 79.00 GiB is unknown", "counted", "as far as it is counted"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	for _, not := range []string{"bottleneck", "<- peak", ": fits", "stays free"} {
		if strings.Contains(text, not) {
			t.Errorf("%q stands in\n%s", not, text)
		}
	}
	e.Fits, e.PerGPU.LowBytes = ptr(false), 90*gib
	if text := write(t, "text", Estimate{e}, Style{}); !strings.Contains(text,
		"needs at least 90.00 GiB on each GPU: does not fit H100 SXM 80GB with 79.00 GiB, 11.00 GiB too much; "+
			"activations not known") {
		t.Error(text)
	}
	e.Fits, e.GPU = nil, estimate.GPUSize{}
	if text := write(t, "text", Estimate{e}, Style{}); !strings.Contains(text, "no GPU is known here") {
		t.Error(text)
	}
	if s := (Estimate{partial()}).Suite().Cases[0]; s.Status != "skip" ||
		!strings.Contains(s.Detail, "at least 24.10 GiB") {
		t.Errorf("%+v", s)
	}
}

func TestUnsettledEstimateText(t *testing.T) {
	e := anEstimate()
	e.Unsettled, e.Fits, e.PerGPU.LowBytes = []string{"method", "optimizer"}, nil, 20*gib
	want := "needs between 20.00 and 80.00 GiB on each GPU; method, optimizer not known; give --method, " +
		"--optimizer: whether it fits H100 SXM 80GB with 79.00 GiB is unknown"
	if text := write(t, "text", Estimate{e}, Style{}); !strings.Contains(text, want) ||
		strings.Contains(text, "bottleneck") {
		t.Error(text)
	}
	e.Fits, e.PerGPU.HighBytes = ptr(true), ptr[int64](60*gib)
	if text := write(t, "text", Estimate{e}, Style{}); !strings.Contains(text,
		"needs between 20.00 and 60.00 GiB on each GPU: fits H100 SXM 80GB with 79.00 GiB, 19.00 GiB (24 %) stays free") {
		t.Error(text)
	}
}

// A lower bound is not compared with a measurement as if it were all.
func TestPartialComparison(t *testing.T) {
	rec := &monitor.Recording{Memory: "cuda",
		Ranks: []monitor.Rank{{Rank: 0, Memory: "cuda",
			Stages: []monitor.StagePeak{{Stage: "backward", AllocatedBytes: 74 * gib}}}}}
	e := partial()
	for _, c := range Compare(e, rec) {
		if c.ErrorPercent != nil || !c.AtLeast {
			t.Errorf("%+v", c)
		}
	}
	run := aDeath()
	run.Estimate, run.Recording, run.Comparison = e, rec, Compare(e, rec)
	text := write(t, "text", run, Style{})
	if !strings.Contains(text, "at least 73.00") || strings.Contains(text, "-1.4 %") {
		t.Error(text)
	}
}

func TestPartialPlanText(t *testing.T) {
	text := write(t, "text", Plan{Estimate: partial(),
		Remedies: []plan.Remedy{{ID: "optimizer-8bit", SavesBytes: new(int64), NewDeviceBytes: new(int64)},
			{ID: "grad-accum"}}}, Style{})
	for _, want := range []string{"at least 24.10 GiB", "what these save is of what is counted", "unknown"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	most := plan.Max{Quantity: "params", RuleOfThumb: 5e9, Estimate: 4e9}.WithoutReserve()
	if text := write(t, "text", Max{Max: most, GPU: "H100", GPUBytes: 80 * gib}, Style{}); !strings.Contains(text,
		"no more than this fits, and perhaps less: activations not known; give --reserve SIZE") {
		t.Error(text)
	}
}
