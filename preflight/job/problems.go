package job

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"oomguard/preflight/job/document"
	"oomguard/preflight/job/shell"
)

// Three things are kept apart. A contradiction (problem, fail) would end the job at its start, and so would a file that
// is there and that the program itself would refuse (unusable). What could not be read (unread) says nothing about the
// job. What is not on this machine and may be where the job runs (absent) says nothing either, and is no fault of
// anybody.

// problem records a contradiction, once. With a part that a shell script leaves open, or a word that is not certain, it
// is none: another text may stand there when the script runs.
func (r *reader) problem(err error) {
	if option := r.odd(); option != "" {
		r.doubt(option + " is an option that is not known here")
	}
	switch why, open := openText(err.Error()); {
	case open:
		r.unread(errors.New(why))
	case r.uncertain != "":
		r.unread(fmt.Errorf("%s, as far as the command is known: %s", err.Error(), r.uncertain))
	default:
		record(&r.job.Problems, err)
	}
}

// fail records that the job would die at start.
func (r *reader) fail(why, origin string) {
	if option := r.odd(); option != "" {
		r.doubt(option + " is an option that is not known here")
	}
	if gap, open := openText(why); open {
		r.unread(errors.New(gap))
		return
	}
	if r.uncertain != "" {
		r.unread(fmt.Errorf("it would stop at its start, as far as the command is known (%s): %s", r.uncertain, why))
		return
	}
	if !r.family.foreign { // a program that is not known has rules of its own
		r.job.WillFail.Offer(why, origin)
	}
}

// rejected records a file with which the program ends at its start, unless the file may be another one where the job
// runs.
func (r *reader) rejected(err error, origin string) {
	if r.unusable(err) {
		r.fail(err.Error(), origin)
	}
}

// unusable records a file that is named and gives nothing, and reports whether the program would refuse it too.
func (r *reader) unusable(err error) bool {
	gone := errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)
	switch {
	case gone && r.src.Place == Elsewhere:
		record(&r.job.Absent, err)
	case errors.Is(err, document.ErrOurs):
		r.unread(err)
	default:
		r.problem(err)
		return true
	}
	return false
}

// unread records what could not be read.
func (r *reader) unread(list ...error) {
	for _, err := range list {
		if why, open := openText(err.Error()); open {
			err = errors.New(why)
		}
		record(&r.job.Unreadable, err)
	}
}

// openText says why a part of a message is not known, quoted parts included.
func openText(text string) (why string, open bool) {
	return shell.Unknown(strings.NewReplacer(`\x00`, "\x00", `\x01`, "\x01").Replace(text))
}

func record(list *[]error, err error) {
	same := func(before error) bool { return before.Error() == err.Error() }
	if !slices.ContainsFunc(*list, same) {
		*list = append(*list, err)
	}
}

// trial follows readers whose findings do not count: a file that turns out to be another framework's says nothing about
// this job.
func (r *reader) trial(follow func()) {
	problems, unreadable, absent, fails := r.job.Problems, r.job.Unreadable, r.job.Absent, r.job.WillFail
	follow()
	r.job.Problems, r.job.Unreadable, r.job.Absent, r.job.WillFail = problems, unreadable, absent, fails
}

// odd is what oddOption finds; "" where there is none to ask.
func (r *reader) odd() string {
	if r.oddOption == nil {
		return ""
	}
	return r.oddOption()
}
