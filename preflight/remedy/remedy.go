// Package remedy is the one table of what makes a job smaller or cures a death for want of memory: what each remedy
// aims at, what it costs, when it applies, how it changes a job and how it is written in each framework. plan, the
// checks and the post-mortem read it, so that the same job gets the same advice in the same words from all of them. It
// is pure.
package remedy

import (
	"slices"

	"oomguard/preflight/job"
	"oomguard/preflight/model"
)

// A Row is all that is known of one remedy. It either changes settings of the job (Options) or cures what a post-mortem
// has found (How).
type Row struct {
	ID    string // published: stable
	Title string // its name for people
	Why   string // what it does to memory; "": the finding says it

	// Components are the estimate's components that it makes smaller, Causes the causes of death for which a
	// post-mortem names it.
	Components []string
	Causes     []string
	Price      Price
	Conflicts  []string // ids that cannot be used beside it; one of the two rows says so

	Options []Option

	// Finding must have been made, and Unless not, for a remedy of a post-mortem to apply; "" always.
	Finding, Unless string
	// Asked: the reason repeats how much was asked for.
	Asked bool
	How   func(Case) string
}

// A Price is what a remedy costs, and who says so.
type Price struct {
	// Rank orders combinations: a rank, no measurement. What changes nothing is cheaper than what costs time, that is
	// cheaper than what needs other hardware or changes the training, whose ranks exceed those of all before them
	// together.
	Rank   int
	Time   string // in speed or hardware
	Result string // in the result of the training; "" nothing
	Source string
}

// Text is the price for people.
func (p Price) Text() string {
	if p.Result == "" {
		return p.Time
	}
	return p.Time + "; " + p.Result
}

// An Option is one way to do what a remedy does, such as one way of sharing model states. A framework has those that it
// has words for.
type Option struct {
	key string
	// edits are the changes from mild to strong; none: it is on already or cannot be made.
	edits func(Case) []edit
	ways  []way
}

// An edit is one change of a job.
type edit struct {
	do     string         // with its numbers, in no framework's words
	values map[string]int // for the placeholders of the ways
	apply  func(*job.Job) // nil: its size follows from a setting that is not known
}

// A Case is what advice is asked for.
type Case struct {
	Job *job.Job // nil: not known
	// Architecture is the model's; nil: not known. GPUs is how many one machine has, 0 unknown.
	Architecture *model.Architecture
	GPUs         int
	// Framework and Engine are what a log gives away, for where the job does not say; "" unknown. Names as in explain's
	// key framework.
	Framework, Engine string
	Evidence          *Evidence // nil: nothing has died
}

// An Offer is one change of a job, in the words of its framework.
type Offer struct {
	Do  string // with its numbers, in no framework's words
	How string // Do, and behind a line break how to write it
	// Apply is the job after the change; the job itself stays as it is. nil: it cannot be weighed.
	Apply func(job.Job) job.Job
}

// Rows is the table: what costs nothing first, what changes the training last.
func Rows() []Row {
	rows := append(deviceRows(), hostRows()...)
	return append(rows, jobRows()...)
}

// ChangesJob tells whether a remedy changes settings that the estimate can weigh.
func (r Row) ChangesJob() bool { return len(r.Options) > 0 }

// JobRows are the remedies that change a job, cheapest first.
func JobRows() []Row { return jobRows() }

// AimedAt names the remedies that make a component of the estimate smaller, cheapest first.
func AimedAt(component string) []string {
	var ids []string
	for _, r := range jobRows() {
		if slices.Contains(r.Components, component) {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// Offers are the changes that a remedy can still make to the case's job in its framework, from mild to strong; none: it
// is on already, cannot be made, or the framework has no setting for it.
func (r Row) Offers(c Case) []Offer {
	at := r.places(c)
	var list []Offer
	for _, o := range r.Options {
		how, ok := at.words(o)
		if !ok {
			continue
		}
		for _, e := range o.edits(c) {
			offer := Offer{Do: e.do, How: e.do + "\n" + fill(how, e.values)}
			if e.apply != nil {
				offer.Apply = func(j job.Job) job.Job {
					e.apply(&j)
					return j
				}
			}
			list = append(list, offer)
		}
	}
	return list
}

// Listing is how a remedy is written, without the numbers of a job: all its options that the framework has and a known
// job has not used. ok is false when there is none.
func (r Row) Listing(c Case) (how string, ok bool) {
	at := r.places(c)
	var options []Option
	for _, o := range r.Options {
		if _, written := at.words(o); written && (c.Job == nil || len(o.edits(c)) > 0) {
			options = append(options, o)
		}
	}
	return at.listing(options), len(options) > 0
}

// Conflict tells whether two remedies cannot be used together.
func Conflict(a, b Row) bool {
	return slices.Contains(a.Conflicts, b.ID) || slices.Contains(b.Conflicts, a.ID)
}
