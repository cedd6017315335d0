package oom

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The bars for the labelled public logs, without those that were composed: causes right (the label or one of
// also_accept), and no log without a shortage called one, nor the other way round.
const causesRight = 0.95

// confusion counts answers by label.
type confusion map[Cause]map[Cause]int

func (c confusion) add(label, answer Cause) {
	if c[label] == nil {
		c[label] = map[Cause]int{}
	}
	c[label][answer]++
}

// String lists the labels with their answers, the label's own first.
func (c confusion) String() string {
	var b strings.Builder
	for _, label := range sortedCauses(c) {
		total := 0
		for _, n := range c[label] {
			total += n
		}
		fmt.Fprintf(&b, "\n  %-24s %3d of %3d", label, c[label][label], total)
		for _, answer := range sortedCauses(c[label]) {
			if answer != label {
				fmt.Fprintf(&b, "  %s %d", answer, c[label][answer])
			}
		}
	}
	return b.String()
}

func sortedCauses[V any](m map[Cause]V) []Cause {
	var list []Cause
	for c := range m {
		list = append(list, c)
	}
	slices.Sort(list)
	return list
}

// TestCauses: the causes of public logs. The rules and their thresholds were made with these logs and labels in view,
// so what it prints says how well they fit, not how often a diagnosis of a new log is right; it guards against
// regressions.
func TestCauses(t *testing.T) {
	table := confusion{}
	var public, right, exact, composed, composedRight int
	for _, l := range readLabels(t) {
		d := Diagnose(scanFile(t, l.File), NoFacts())
		if d.Cause == NoCause { // the labels do not tell another cause from none
			d.Cause = NotOOM
		}
		ok := d.Cause == l.Class || slices.Contains(l.AlsoAccept, d.Cause)
		if !ok {
			t.Logf("%s: %s (%s), want %s or %v; stage %q; %s", l.ID, d.Cause, d.Confidence, l.Class, l.AlsoAccept,
				d.Stage, d.Summary)
		}
		if !ok && (l.Class == NotOOM || d.Cause == NotOOM) {
			t.Errorf("%s: a shortage of memory and none were confused: %s, want %s", l.ID, d.Cause, l.Class)
		}
		if l.Provenance == "composed" {
			composed++
			composedRight += oneIf(ok)
			continue
		}
		public++
		right += oneIf(ok)
		exact += oneIf(d.Cause == l.Class)
		table.add(l.Class, d.Cause)
	}
	t.Logf("public logs that the rules were made with: %d of %d causes right (%.1f %%), %d of them the label "+
		"itself; composed ones %d of %d; answers by label:%v",
		right, public, 100*float64(right)/float64(public), exact, composedRight, composed, table)
	if float64(right) < causesRight*float64(public) {
		t.Errorf("%d of %d causes right, promised are %.0f %%", right, public, 100*causesRight)
	}
}

func oneIf(b bool) int {
	if b {
		return 1
	}
	return 0
}
