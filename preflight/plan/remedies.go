package plan

import (
	"fmt"

	"oomguard/preflight/estimate"
	"oomguard/preflight/job"
	"oomguard/preflight/remedy"
)

// A Remedy is one change to the job that lowers the peak of a GPU.
type Remedy struct {
	ID   string `json:"id"` // of a row of preflight/remedy
	Why  string `json:"why"`
	How  string `json:"how"` // the change, and behind a line break how the job's framework writes it
	Cost string `json:"cost"`
	// SavesBytes is how much lower the peak in question gets; NewDeviceBytes is what the device then needs at its
	// highest stage. nil: what the remedy makes smaller is not counted, or its size not known.
	SavesBytes     *int64 `json:"saves_bytes"`
	NewDeviceBytes *int64 `json:"new_device_bytes"`
	// Fits says whether this change alone is enough; nil when the device is unknown.
	Fits *bool `json:"fits"`
}

// A situation is the job as it stands and what it was estimated to need.
type situation struct {
	in    estimate.Input
	stage estimate.Stage // whose memory is to be lowered; "" for the peak of all stages
	now   int64          // what it takes
	whole int64          // what the peak of all takes
	open  bool           // something is not counted, or assumed
}

// IDs lists the remedies that this package can weigh, in their order.
func IDs() []string {
	var ids []string
	for _, r := range remedy.JobRows() {
		ids = append(ids, r.ID)
	}
	return ids
}

// Remedies lists what lowers the peak, cheapest first. Each is the estimator's answer for the job with that one change,
// so a change that shrinks something which is not alive at the peak saves nothing. Such a change, one that raises
// another peak above it, and one that is already on or cannot be made, is left out: advice that does not help would be
// tried first. Where not all is counted, a change that applies and cannot be weighed stands without its size.
func Remedies(in estimate.Input) ([]Remedy, error) { return RemediesAt(in, "") }

// RemediesAt is Remedies for the peak of one stage, where a run has died; a stage that the estimate does not have
// counts as "", the peak of all.
func RemediesAt(in estimate.Input, stage estimate.Stage) ([]Remedy, error) {
	now, err := estimate.Run(in)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	s := situation{in: in, stage: stage, whole: now.PerGPU.DeviceBytes, open: now.Open()}
	s.now = s.need(now)
	var out []Remedy
	for _, row := range remedy.JobRows() {
		if r, ok := s.try(row); ok {
			out = append(out, r)
		}
	}
	return out, nil
}

// need is what the stage takes.
func (s situation) need(e *estimate.Estimate) int64 {
	for _, m := range e.Stages {
		if m.Stage == s.stage {
			return m.DeviceBytes
		}
	}
	return e.PerGPU.DeviceBytes
}

// Case is the remedies' question about a job.
func Case(in estimate.Input) remedy.Case {
	return remedy.Case{Job: in.Job, Architecture: architecture(in), GPUs: in.Hardware.Count}
}

// try takes the mildest of a remedy's changes that fits, or the strongest when none does.
func (s situation) try(row remedy.Row) (Remedy, bool) {
	best := Remedy{ID: row.ID, Why: row.Why, Cost: row.Price.Text()}
	found := false
	c := Case(s.in)
	for _, offer := range row.Offers(c) {
		e := s.after(offer)
		if e == nil {
			continue
		}
		saves, whole := s.now-s.need(e), e.PerGPU.DeviceBytes
		if saves <= 0 || whole > s.whole || found && saves <= *best.SavesBytes {
			continue
		}
		best.How, best.SavesBytes, best.NewDeviceBytes, best.Fits = offer.How, &saves, &whole, e.Fits
		found = true
		if e.Fits != nil && *e.Fits {
			break
		}
	}
	if !found && s.open {
		best.How, found = row.Listing(c)
	}
	return best, found
}

// after is the estimate for the job with one change; nil when the change cannot be weighed or contradicts the job.
func (s situation) after(offer remedy.Offer) *estimate.Estimate {
	if offer.Apply == nil {
		return nil
	}
	in := s.in
	in.Job = withOffer(in.Job, offer)
	e, err := estimate.Run(in)
	if err != nil {
		return nil
	}
	return e
}

func withOffer(j *job.Job, offer remedy.Offer) *job.Job {
	after := offer.Apply(*j)
	return &after
}
