package oom

import (
	"strings"

	"oomguard/preflight/remedy"
)

// remedies are the rows of the remedies' table for a cause, cheapest first.
func (q *inquest) remedies(cause Cause) []Remedy {
	list := []Remedy{}
	for _, a := range remedy.Advise(q.remedyCase(cause)) {
		r := Remedy{ID: a.ID, Why: a.Why, How: a.How, Cost: a.Cost}
		if a.ChangesJob {
			r.Why += q.because(a.Components)
		}
		list = append(list, r)
	}
	return list
}

// remedyCase is what the table of remedies is asked about.
func (q *inquest) remedyCase(cause Cause) remedy.Case {
	var c remedy.Case
	if q.facts.Run != nil {
		c = q.facts.Run.Setup
	}
	c.Framework, c.Engine = q.framework(), q.engine()
	c.Evidence = &remedy.Evidence{Cause: string(cause), Findings: q.findings(), Asked: q.asked(),
		Allocator: q.allocator()}
	return c
}

// findings are the reasons for those remedies that need one.
func (q *inquest) findings() map[string]string {
	list := map[string]string{
		remedy.Holes: q.holesWhy(), remedy.Leak: q.leakWhy(), remedy.Killed: q.killWhy(),
		remedy.BadAllocConf:  q.badAllocConfWhy(),
		remedy.GradientsKept: q.facts.Run.gradientsKept(),
	}
	if q.strangers() {
		list[remedy.Strangers] = q.freeGPUWhy()
	}
	if q.limited() {
		list[remedy.Fraction] = q.fractionWhy()
	}
	if q.allocConfHelps() {
		list[remedy.SegmentsOff] = q.holesWhy()
	}
	if q.msg != nil && q.msg.Form == FormAsync {
		list[remedy.AsyncAllocator] = "the cudaMallocAsync backend is in use"
	}
	return list
}

// allocator says which settings work: by the torch, where its version is known, else by the kind of its message.
func (q *inquest) allocator() remedy.Allocator {
	a := remedy.Allocator{NoExpandable: q.noExpandable()}
	if q.msg != nil {
		a.HIP = q.msg.Form == FormHIP
		a.Old = strings.Contains(" G1 G2 G2h G2c ", " "+q.msg.Generation+" ")
	}
	if v := q.facts.TorchVersion; v != "" {
		a.Old = strings.HasPrefix(v, "1.") || strings.HasPrefix(v, "2.0")
	}
	return a
}
