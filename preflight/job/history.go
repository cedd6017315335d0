package job

import (
	"fmt"
	"strconv"
	"strings"
)

// A change is the default of a field since a release; "" is the first one, and the value "" is None.
type change struct{ since, value string }

// A fieldHistory lists the defaults of one field, oldest first, for some tasks (blank-separated; "": all).
type fieldHistory struct {
	field   string
	tasks   string
	changes []change
}

// since builds a history from "value" and "release=value" words: since("false", "0.22=true").
func since(words ...string) []change {
	changes := make([]change, len(words))
	for i, word := range words {
		release, value, dated := strings.Cut(word, "=")
		if !dated {
			release, value = "", word
		}
		changes[i] = change{release, value}
	}
	return changes
}

// fallbackTo makes the defaults of a package for a task the fallbacks of arguments that nobody gave. Where its version
// is not known and the default changed, the reason is kept instead.
func (r *reader) fallbackTo(name, task string, histories []fieldHistory) {
	if r.fallbacks == nil {
		r.fallbacks, r.unsaid = map[string]argument{}, map[string]string{}
	}
	for _, h := range histories {
		if _, given := r.args[h.field]; given || h.tasks != "" && !containsWord(h.tasks, task) {
			continue
		}
		value, origin, known := r.defaultOf(name, h.changes)
		switch {
		case !known:
			r.unsaid[h.field] = origin
		case value != "":
			r.fallbacks[h.field] = argument{text: value, list: []string{value}, origin: origin}
		default:
			delete(r.fallbacks, h.field)
		}
	}
}

// defaultOf is the default of a package's installed version, or why it is not known.
func (r *reader) defaultOf(name string, changes []change) (value, origin string, known bool) {
	last := changes[len(changes)-1]
	if len(changes) == 1 {
		return last.value, "default of " + name, true
	}
	if r.versions[name] == "" {
		return "", fmt.Sprintf("not given; %s %s changed its default to %s, and the version is not known; give "+
			"--versions %s=...",
			name, last.since, orNone(last.value), name), false
	}
	for _, c := range changes {
		if reached, _ := r.atLeast(name, numbers(c.since)...); reached || c.since == "" {
			value = c.value
		}
	}
	return value, "default of " + r.installed(name), true
}

// pythonFloat reads a number as Python's float does.
func pythonFloat(text string) (float64, error) {
	return strconv.ParseFloat(strings.ReplaceAll(strings.TrimSpace(text), "_", ""), 64)
}

func orNone(value string) string {
	if value == "" {
		return "None"
	}
	return value
}

// applyFallbacks reads the settings once more with the framework's defaults in place of what nobody gave: what a
// stronger source has said stays.
func (r *reader) applyFallbacks() {
	for name, a := range r.fallbacks {
		if _, given := r.args[name]; !given {
			r.args[name] = a
		}
	}
	r.readTrainingArguments()
	r.readPrecision()
	j := r.job
	for field, set := range map[string]fact{"gradient_checkpointing": &j.Checkpointing, "packing": &j.Packing,
		"max_length": &j.SeqLen, "bf16": &j.Precision,
		"loss_type": &j.FusedLoss, "activation_offloading": &j.ActivationOffload,
		"per_device_train_batch_size": &j.MicroBatch,
		"gradient_accumulation_steps": &j.GradAccum, "beta": &j.RefModel} {
		if why := r.unsaid[field]; why != "" {
			set.Unknown(why)
		}
	}
}
