package remedy

import (
	"fmt"
	"slices"
	"strings"

	"oomguard/preflight/job"
)

// A framework is a place where remedies are written down.
type framework struct {
	name  string // as in explain's key framework; "" plain PyTorch
	title string
	// distribution is the package whose version decides which of several words it knows.
	distribution string
	// on is the framework whose words work too where it has none for a remedy; closed when there is no such one: a
	// program whose code the user does not write.
	on string
	// arguments: it takes transformers' TrainingArguments.
	arguments bool
}

const closed = "closed"

// frameworks are all that some row has words for.
func frameworks() []framework {
	return []framework{
		{"", "plain PyTorch", "torch", closed, false},
		{"custom", "plain PyTorch", "torch", "", false},
		{"hf-trainer", "Hugging Face Trainer", "transformers", "", true},
		{"trl", "TRL", "trl", "hf-trainer", true},
		{"unsloth", "Unsloth", "unsloth", "trl", true},
		{"accelerate", "Accelerate", "accelerate", "", false},
		{"deepspeed", "DeepSpeed", "deepspeed", "", false},
		{"fsdp", "FSDP", "torch", "", false},
		{"lightning", "Lightning", "lightning", "", false},
		{"axolotl", "axolotl", "axolotl", closed, false},
		{"llamafactory", "LLaMA-Factory", "llamafactory", closed, true},
		{"torchtune", "torchtune", "torchtune", closed, false},
		{"torchtitan", "torchtitan", "torchtitan", closed, false},
		{"megatron", "Megatron-LM", "megatron-core", closed, false},
		{"litgpt", "LitGPT", "litgpt", closed, false},
		{"nanotron", "nanotron", "nanotron", closed, false},
		{"open-instruct", "open-instruct", "open-instruct", closed, false},
		{"verl", "verl", "verl", closed, false},
		{"openrlhf", "OpenRLHF", "openrlhf", closed, false},
	}
}

func frameworkNamed(name string) (framework, bool) {
	list := frameworks()
	i := slices.IndexFunc(list, func(f framework) bool { return f.name == name })
	if i < 0 {
		return framework{}, false
	}
	return list[i], true
}

// A way is how an option is written in a framework, from one of its versions on and before another; "" without such a
// bound. {name} in it stands for a number of the job.
type way struct {
	framework, text string
	from, until     string
}

func in(framework, text string) way { return way{framework: framework, text: text} }

func (w way) since(version string) way {
	w.from = version
	return w
}

func (w way) before(version string) way {
	w.until = version
	return w
}

// where are the frameworks whose words a remedy is given in.
type where struct {
	home framework // whose options count
	// whose words are given beside, and whose options count too: the engine beneath, or plain PyTorch
	also    []framework
	unknown bool // no framework was recognised
	job     *job.Job
}

// places finds where a remedy is written down: in the job's framework, or that on which it is built and which has words
// for it.
func (r Row) places(c Case) where {
	name, engine := c.framework(), c.engine()
	at := where{job: c.Job}
	f, known := frameworkNamed(name)
	if !known || name == "" {
		at.unknown = true
		f, _ = frameworkNamed("hf-trainer") // those that most people use
		plain, _ := frameworkNamed("")
		at.also = append(at.also, plain)
	}
	open := f.on != closed
	for !r.writtenIn(f.name) && f.on != closed {
		f, _ = frameworkNamed(f.on)
	}
	at.home = f
	if e, ok := frameworkNamed(engine); ok && engine != "" && open && e.name != f.name {
		at.also = append(at.also, e)
	}
	return at
}

// takesArguments tells whether the framework takes the arguments of transformers' Trainer; where none was recognised
// most do.
func (c Case) takesArguments() bool {
	f, known := frameworkNamed(c.framework())
	return !known || f.name == "" || f.arguments
}

func (r Row) writtenIn(framework string) bool {
	return slices.ContainsFunc(r.Options, func(o Option) bool {
		return slices.ContainsFunc(o.ways, func(w way) bool { return w.framework == framework })
	})
}

// framework is what the job was read as, else what a log gives away; "" unknown. A loop of one's own is plain PyTorch,
// unless the log says more or accelerate starts it.
func (c Case) framework() string {
	var name string
	if c.Job != nil {
		name = c.Job.Framework.Or("")
	}
	switch {
	case name != "" && name != "custom":
		return name
	case c.Framework != "":
		return c.Framework
	case name == "custom" && c.Job.Launcher.Or("") == "accelerate":
		return "accelerate"
	}
	return name
}

// engine is what shards beneath the framework: as the job is sharded, else as a log gives away; "" unknown.
func (c Case) engine() string {
	if c.Job != nil {
		for prefix, name := range map[string]string{"zero": "deepspeed", "fsdp": "fsdp"} {
			if strings.HasPrefix(c.Job.Sharding.Or(""), prefix) {
				return name
			}
		}
	}
	return c.Engine
}

// words are how an option is written at these places; ok is false where the framework has no setting for it.
func (at where) words(o Option) (string, bool) {
	here := at.of(o, at.home)
	beside := make([]string, 0, len(at.also))
	for _, f := range at.also {
		if text := at.of(o, f); text != "" {
			beside = append(beside, text)
		}
	}
	if here != "" {
		beside = append([]string{here}, beside...)
	}
	if len(beside) == 0 {
		return "", false
	}
	text := strings.Join(slices.Compact(beside), "; ")
	if at.unknown {
		text = "the framework was not recognised; " + text
	}
	return text, true
}

// of is how a framework writes an option, with its name before it; "" not at all.
func (at where) of(o Option, f framework) string {
	text := at.texts([]Option{o}, f)
	if text == "" {
		return ""
	}
	return f.title + ": " + text
}

// texts are how a framework writes options, one behind the other.
func (at where) texts(options []Option, f framework) string {
	var texts []string
	for _, o := range options {
		for _, w := range o.ways {
			if text, ok := at.text(w, f); ok && !slices.Contains(texts, text) {
				texts = append(texts, text)
			}
		}
	}
	return strings.Join(texts, ", or ")
}

// text is a way's text when it is the framework's and its version knows it; where the version is not known, with the
// versions that do.
func (at where) text(w way, f framework) (string, bool) {
	if w.framework != f.name {
		return "", false
	}
	for _, bound := range []struct {
		version string
		least   bool
		note    string
	}{{w.from, true, " and newer"}, {w.until, false, ""}} {
		if bound.version == "" {
			continue
		}
		reached, known := at.job.AtLeast(f.distribution, bound.version)
		switch {
		case known && reached != bound.least:
			return "", false
		case !known && bound.least:
			return fmt.Sprintf("%s (%s %s%s)", w.text, f.title, bound.version, bound.note), true
		case !known:
			return fmt.Sprintf("%s (before %s %s)", w.text, f.title, bound.version), true
		}
	}
	return w.text, true
}

// listing are options at all places, without numbers.
func (at where) listing(options []Option) string {
	var parts []string
	for _, f := range append([]framework{at.home}, at.also...) {
		text := at.texts(options, f)
		if part := f.title + ": " + text; text != "" && !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	text := fill(strings.Join(parts, "; "), nil)
	if at.unknown {
		text = "the framework was not recognised; " + text
	}
	return text
}

// fill puts numbers for the placeholders: those of a change, or else what people start with.
func fill(text string, values map[string]int) string {
	pairs := make([]string, 0, 2*len(placeholders()))
	for name, start := range placeholders() {
		value := start
		if n, ok := values[name]; ok {
			value = fmt.Sprint(n)
		}
		pairs = append(pairs, "{"+name+"}", value)
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// placeholders of the ways, and what stands for them where the job is not known.
func placeholders() map[string]string {
	return map[string]string{"micro_batch": "1", "grad_accum": "N", "seq_len": "N", "tp": "2", "stage": "2"}
}
