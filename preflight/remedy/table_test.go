package remedy

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"oomguard/preflight/job"
)

// forgotten lists what a row lacks.
func forgotten(r Row) []string {
	var list []string
	lacks := func(missing bool, what string) {
		if missing {
			list = append(list, what)
		}
	}
	lacks(r.ID == "", "an id")
	lacks(r.Title == "", "a title")
	lacks(len(r.Causes) == 0, "causes of death that it aims at")
	lacks(r.Price.Time == "", "a price: what it costs in time or hardware")
	lacks(r.Price.Source == "", "the source of its price")
	lacks(r.Why == "" && r.Finding == "", "why it helps, or the finding that says so")
	if !r.ChangesJob() {
		lacks(r.How == nil, "how it is done, or options that change the job")
		return list
	}
	lacks(len(r.Components) == 0, "components of the estimate that it makes smaller")
	lacks(r.Price.Rank <= 0, "a rank in its price: without one it would be free")
	lacks(!r.writtenIn(""), "words for plain PyTorch")
	for _, o := range r.Options {
		lacks(o.edits == nil, "the change of the option "+o.key)
		lacks(len(o.ways) == 0, "a framework that writes the option "+o.key)
	}
	return list
}

// TestRowsAreWhole names what was forgotten in a row of the table.
func TestRowsAreWhole(t *testing.T) {
	var ids []string
	for _, r := range Rows() {
		if list := forgotten(r); len(list) > 0 {
			t.Errorf("the remedy %q lacks %s", r.ID, strings.Join(list, ", "))
		}
		if slices.Contains(ids, r.ID) {
			t.Errorf("two rows are %q", r.ID)
		}
		ids = append(ids, r.ID)
	}
	for _, r := range Rows() {
		for _, other := range r.Conflicts {
			if !slices.Contains(ids, other) || other == r.ID {
				t.Errorf("%s conflicts with %q, which is no other row", r.ID, other)
			}
		}
	}
	if !slices.IsSortedFunc(jobRows(), func(a, b Row) int { return a.Price.Rank - b.Price.Rank }) {
		t.Error("the rows that change a job do not stand in the order of their ranks")
	}
}

// TestForgottenIsNamed: a new row that has nothing but its id is told all of it.
func TestForgottenIsNamed(t *testing.T) {
	bare := strings.Join(forgotten(Row{ID: "new"}), "; ")
	for _, want := range []string{"a title", "causes", "a price", "the source", "why it helps", "how it is done"} {
		if !strings.Contains(bare, want) {
			t.Errorf("%q is not asked for: %s", want, bare)
		}
	}
	unpriced := jobRows()[0]
	unpriced.Price, unpriced.Options, unpriced.Components = Price{}, []Option{{key: "o"}}, nil
	text := strings.Join(forgotten(unpriced), "; ")
	for _, want := range []string{"components", "a rank", "plain PyTorch", "the change of the option o",
		"a framework that writes the option o"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not asked for: %s", want, text)
		}
	}
}

// withoutSetting are the remedies for which a framework has no setting, so that they are not offered there.
func withoutSetting() map[string][]string {
	return map[string][]string{
		"llamafactory": {"model-parallel"},
		// its loss takes whole logits, or shards of them with tensor parallelism
		"torchtitan":    {"fused-loss", "optimizer-8bit", "lora"},
		"megatron":      {"lora"},                                    // NeMo and Megatron Bridge have adapters
		"litgpt":        {"fused-loss", "offload", "model-parallel"}, // it takes the loss in chunks already
		"nanotron":      {"fused-loss", "optimizer-8bit", "offload", "lora"},
		"open-instruct": {"model-parallel"},
		"verl":          {"model-parallel"},
		"openrlhf":      {"fused-loss", "optimizer-8bit"}, // Liger's kernels leave whole logits there
	}
}

// TestEachFrameworkIsAnswered: for each framework a remedy has words, or the table above says that there is no setting.
func TestEachFrameworkIsAnswered(t *testing.T) {
	for _, f := range frameworks() {
		for _, r := range jobRows() {
			_, offered := r.Listing(Case{Framework: f.name})
			if none := slices.Contains(withoutSetting()[f.name], r.ID); offered == none {
				t.Errorf("%s in %s: words %v, listed as without a setting %v", r.ID, f.title, offered, none)
			}
		}
	}
}

// TestWays: each is of a framework that exists, its placeholders have a start, and nothing is left unfilled.
func TestWays(t *testing.T) {
	names := regexp.MustCompile(`\{([a-z_]+)\}`)
	for _, r := range jobRows() {
		for _, o := range r.Options {
			for _, w := range o.ways {
				if _, known := frameworkNamed(w.framework); !known || w.text == "" {
					t.Errorf("%s, %s: a way of %q, which is no framework, or without words", r.ID, o.key, w.framework)
				}
				for _, m := range names.FindAllStringSubmatch(w.text, -1) {
					if placeholders()[m[1]] == "" {
						t.Errorf("%s, %s: %s has no number to start with", r.ID, o.key, m[0])
					}
				}
			}
		}
	}
}

// TestApplyIsPure: a change leaves the job as it is, and the changed job is offered the rest.
func TestApplyIsPure(t *testing.T) {
	j := job.Read(job.Sources{Flags: map[string]string{"precision": "fp32", "micro-batch": "8", "grad-accum": "2",
		"seq-len": "2048", "nproc": "8",
		"checkpointing": "none", "optimizer": "adamw", "sharding": "ddp"}, Getenv: func(string) string { return "" },
		GPUs: -1})
	before := *j
	for _, r := range jobRows() {
		offers := r.Offers(Case{Job: j})
		if len(offers) == 0 {
			t.Errorf("%s: nothing is offered", r.ID)
		}
		for _, o := range offers {
			after := o.Apply(*j)
			if j.MicroBatch != before.MicroBatch || j.Sharding != before.Sharding || j.Precision != before.Precision ||
				j.SeqLen != before.SeqLen ||
				j.Offload != before.Offload || j.Optimizer != before.Optimizer || j.TP != before.TP ||
				j.Checkpointing != before.Checkpointing {
				t.Fatalf("%s: %s changed the job", r.ID, o.Do)
			}
			if again := r.Offers(Case{Job: &after}); slices.ContainsFunc(again,
				func(n Offer) bool { return n.How == o.How }) {
				t.Errorf("%s: %s is offered again", r.ID, o.Do)
			}
		}
	}
}

// TestWordsByVersion: a version that is known gives its own words, one that is not gives all with their versions.
func TestWordsByVersion(t *testing.T) {
	how := func(version string) string {
		j := job.Job{SeqLen: set(2048), Framework: set("trl")}
		if version != "" {
			j.Versions = map[string]string{"trl": version}
		}
		i := slices.IndexFunc(jobRows(), func(r Row) bool { return r.ID == "shorter-seq" })
		return jobRows()[i].Offers(Case{Job: &j})[0].How
	}
	for version, want := range map[string]string{
		"0.19.1": "sequences of 1024 tokens\nTRL: --max_seq_length 1024",
		"0.20.0": "sequences of 1024 tokens\nTRL: --max_length 1024",
		"": "sequences of 1024 tokens\nTRL: --max_length 1024 (TRL 0.20 and newer), or --max_seq_length 1024 " +
			"(before TRL 0.20)",
	} {
		if got := how(version); got != want {
			t.Errorf("trl %q: %q, want %q", version, got, want)
		}
	}
}
