package job

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"oomguard/preflight/job/document"
	"oomguard/preflight/job/python"
	"oomguard/preflight/optim"
)

// Training loops that a script writes itself, on top of PyTorch, Accelerate, DeepSpeed or Lightning: only what its text
// says in one place and without condition is taken.

// recogniseLoop judges a script that has neither Trainer nor TRL.
func (t *sourceText) recogniseLoop(f family) (family, bool) {
	if calls := t.lightningTrainers(); len(calls) > 0 {
		f.framework, f.origin = "lightning", calls[0].origin()+" calls Trainer of Lightning"
		return f, true
	}
	for _, sign := range []struct{ framework, call string }{
		{"deepspeed", "deepspeed.initialize"}, {"custom", "Accelerator"}, {"custom", "DistributedDataParallel"},
		{"custom", "FullyShardedDataParallel"},
		{"custom", "fully_shard"}, {"custom", "torch.nn.DataParallel"},
		{"lightning", "lightning.Fabric"}, {"lightning", "lightning.fabric.Fabric"},
		{"lightning", "lightning_fabric.Fabric"},
	} {
		if calls := t.calls(sign.call); len(calls) > 0 {
			f.framework, f.origin = sign.framework, calls[0].origin()+" calls "+calls[0].Callee
			return f, true
		}
	}
	if calls := t.optimizerCalls(); len(calls) > 0 {
		f.framework, f.origin = "custom", calls[0].origin()+" has its own training loop"
		return f, true
	}
	return f, false
}

// optimizerCalls are the calls that make an optimizer whose class is known.
func (t *sourceText) optimizerCalls() []foundCall {
	var names []string
	for _, class := range optim.Words(optim.Class) {
		names = append(names, class[strings.LastIndex(class, ".")+1:])
	}
	return slices.DeleteFunc(t.calls(names...), func(c foundCall) bool {
		_, known := optim.Find(c.file.Qualified(c.Callee), optim.Class)
		return !known
	})
}

// numberInSource offers a whole number that a call is given.
func (r *reader) numberInSource(c foundCall, name string, e *python.Expr, set *Setting[int]) {
	if n, ok := e.Value.(int64); ok && e.Kind == python.Literal && n > 0 && n < 1<<31 {
		set.Offer(int(n), c.file.from(e.Line, e))
		return
	}
	set.Withhold(fmt.Sprintf("%s passes %s, which is decided when the script runs (%s)", c.origin(), name, e))
}

func (r *reader) optimizerInSource() {
	calls := r.seen().optimizerCalls()
	c, ok := one(calls, func(string) {
		r.job.Optimizer.Withhold(fmt.Sprintf("%s and %s make optimizers; give --optimizer", calls[0].origin(),
			calls[1].origin()))
	})
	if !ok {
		return
	}
	fields := map[string]*document.Node{}
	hold := withhold("give --optimizer", &r.job.Optimizer)
	c.arguments().Each(func(name string, value *python.Expr) {
		if n, whole := c.file.node(value, name, c.Place); whole {
			fields[name] = n
		} else if containsWord(stateArguments, name) {
			hold(c.why(name, value))
		}
	}, func(why *python.Expr) { hold(c.why("what decides its state", why)) })
	arguments := &configuration{r: r, doc: &document.Node{Value: fields, File: c.file.Name, Line: c.Line},
		fallback: "default of torch"}
	r.optimizerClass(c.file.Qualified(c.Callee), arguments, false, c.origin())
}

// agreed offers a number when all calls give the same.
func (r *reader) agreed(calls []foundCall, position int, name string, set *Setting[int]) {
	hold := withhold("", set)
	numbers := map[int]string{}
	for _, c := range calls {
		if n, origin, given := c.argument(position, name).number(hold); given && numbers[n] == "" {
			numbers[n] = origin
		}
	}
	if len(numbers) > 1 {
		hold(fmt.Sprintf("%s and %s give %s, and not the same", calls[0].origin(), calls[1].origin(), name))
	}
	for n, origin := range numbers {
		set.Offer(n, origin)
	}
}

// stateArguments are arguments of optimizers on which the size of their state depends.
const stateArguments = "amsgrad momentum centered fused foreach rank beta1 betas optim_bits is_paged min_8bit_size " +
	"scale_parameter"

// batchInSource reads the rows of the only DataLoader that trains, and their length.
func (r *reader) batchInSource() {
	j := r.job
	loaders := r.seen().trainingLoaders()
	if c, ok := one(r.seen().calls("deepspeed.initialize"), immaterial); ok && c.keyword("training_data").written() {
		loaders = nil // DeepSpeed makes the loader, with the micro-batch of its configuration
	}
	if len(loaders) > 0 {
		r.agreed(loaders, 1, "batch_size", &j.MicroBatch)
		if len(r.seen().calls("torch.nn.DataParallel")) > 0 && r.visibleGPUs() > 1 && j.MicroBatch.Known &&
			!j.MicroBatch.own() {
			j.MicroBatch.Value = max(1, j.MicroBatch.Value/r.visibleGPUs())
			j.MicroBatch.Origin += " split over the GPUs by DataParallel"
		}
	}
	r.lengthInSource()
	r.namedInSource(&j.GradAccum, "gradient_accumulation_steps", "grad_accum_steps", "accumulation_steps",
		"grad_accumulation_steps", "accum_steps", "grad_accum")
	r.namedInSource(&j.MicroBatch, "micro_batch_size", "batch_size_per_gpu", "per_device_batch_size",
		"device_batch_size", "per_device_train_batch_size")
	if len(loaders) == 0 {
		r.namedInSource(&j.MicroBatch, "batch_size")
	}
}

// lengthInSource reads the length to which the tokenizer cuts its texts, or a number that has the name of one.
func (r *reader) lengthInSource() {
	j := r.job
	if r.seen().requires("diffusers") { // the length of a prompt, not of what is trained
		return
	}
	lengths := map[int]string{}
	for _, c := range r.seen().tokenizerCalls() {
		if n, origin, given := c.keyword("max_length").number(immaterial); given { // no default stands in its place
			lengths[n] = origin
		}
	}
	if len(lengths) == 1 {
		for length, origin := range lengths {
			j.SeqLen.Offer(length, origin)
		}
	}
	r.namedInSource(&j.SeqLen, "block_size", "seq_len", "seq_length", "sequence_length", "max_seq_len",
		"max_seq_length", "max_length", "context_length", "model_max_length", "cutoff_len")
}

// tokenizerCalls are the calls that make tokens of texts: only these take a length together with how it is reached.
func (t *sourceText) tokenizerCalls() []foundCall {
	var found []foundCall
	for _, f := range t.files {
		for _, c := range f.Calls {
			cuts := slices.ContainsFunc([]string{"truncation", "padding", "return_tensors"},
				func(name string) bool { return c.Written(-1, name) != nil })
			if holds, known := f.scope.Holds(c.Place); c.Written(-1, "max_length") != nil && cuts && (holds || !known) {
				found = append(found, foundCall{c, f, known})
			}
		}
	}
	return found
}

// namedInSource takes a number from an option, a constant of the module or a field of a class, by names that mean one
// thing. It must have one value only.
func (r *reader) namedInSource(set *Setting[int], names ...string) {
	found := map[int64]string{}
	for _, f := range r.seen().files {
		for _, name := range names {
			for _, spelled := range []string{name, strings.ToUpper(name)} {
				value, line := f.named(spelled)
				if n, ok := value.Value.(int64); ok && value.Kind == python.Literal && n > 0 && n < 1<<31 {
					found[n] = f.from(line, value)
				}
			}
		}
	}
	if len(found) == 1 {
		for n, origin := range found {
			set.Offer(int(n), origin)
		}
	}
}

// named is the value of an option or of a constant by its name.
func (f *sourceFile) named(name string) (value *python.Expr, line int) {
	if o := f.options[name]; o != nil {
		if f.text.changes(name) {
			return &python.Expr{}, 0
		}
		return o.value(f), o.line
	}
	for _, key := range slices.Sorted(maps.Keys(f.options)) { // a parameter that fire or click fills
		if strings.HasSuffix(key, "("+name+")") {
			return f.options[key].value(f), f.options[key].line
		}
	}
	// to a parser that is not read
	if o := (&scriptOption{names: []string{"--" + name}}); f.scope.Override == nil && o.isGiven(f.text.r) {
		return o.value(f), 0
	}
	var last *python.Assignment
	for _, a := range f.Assignments {
		if a.Target == name && a.Key == nil && a.Value != nil {
			last = a
		}
	}
	if last == nil {
		return &python.Expr{}, 0
	}
	read := &python.Expr{Kind: python.Name, Text: name, Line: last.Line}
	switch operator, inPlace := last.Value.Value.(string); {
	case last.Value.Kind == python.Unknown && inPlace:
		before := f.scope.Resolve(read, python.Place{Line: last.Line, Scope: last.Scope})
		return f.sharedOut(before, operator, last.Value.Items[0], last.Scope), last.Line
	case f.scope.Override == nil && name != strings.ToUpper(name) && !f.mentionsTwice(name):
		return &python.Expr{}, 0
	case f != f.text.files[0] && f.Class(last.Scope) != nil: // a model's class has defaults for its own arguments
		return &python.Expr{}, 0
	}
	return f.scope.Resolve(read, python.Place{Line: math.MaxInt, Scope: last.Scope}), last.Line
}

// sharedOut is a number that the script divides by the number of its processes, in place.
func (f *sourceFile) sharedOut(before *python.Expr, operator string, by *python.Expr, scope string) *python.Expr {
	r := f.text.r
	world := product(r.job.NNodes.Or(0), r.job.NProc.Or(0))
	n, isNumber := before.Value.(int64)
	if before.Kind != python.Literal || !isNumber || operator != "//=" || world <= 0 || by.Kind != python.Name ||
		!f.stems(by, scope, isWorldSize, 0) || n%int64(world) != 0 {
		return &python.Expr{}
	}
	shared := *before
	shared.Value, shared.Text = n/int64(world),
		strings.TrimPrefix(fmt.Sprintf("%s, shared out over %d processes", before.Text, world), ", ")
	return &shared
}

// mentionsTwice reports whether a name stands in the file more often than where it is bound first: one that nothing
// reads says nothing.
func (f *sourceFile) mentionsTwice(name string) bool {
	count := 0
	for rest := f.raw; count < 2; {
		at := strings.Index(rest, name)
		if at < 0 {
			break
		}
		end := at + len(name)
		if (at == 0 || !isNameByte(rest[at-1])) && (end == len(rest) || !isNameByte(rest[end])) {
			count++
		}
		rest = rest[end:]
	}
	return count > 1
}

func isNameByte(b byte) bool {
	return b == '_' || b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
}

// autocastInSource reads torch.autocast(dtype=...) and torch.cuda.amp.autocast(), whose default is fp16.
func (r *reader) autocastInSource() {
	// whose precision it is; what the script casts besides is for images and samples between steps
	if len(r.seen().calls("Accelerator")) > 0 {
		return
	}
	dtypes := map[string]string{}
	// of an engine, with the engine's dtype
	calls := slices.DeleteFunc(r.seen().trainingCalls("autocast"), func(c foundCall) bool {
		name := c.file.Qualified(c.Callee)
		return name != "autocast" && !strings.HasPrefix(name, "torch.")
	})
	r.autocastOff = len(calls) > 0
	for _, c := range calls {
		hidden := false
		hide := func(string) { hidden = true }
		if on, given := c.keyword("enabled").truth(hide); (given || hidden) && !on {
			r.autocastOff = r.autocastOff && !hidden
			continue
		}
		r.autocastOff = false
		device, _, _ := c.argument(0, "device_type").text(immaterial)
		text, origin, given := c.keyword("dtype").text(hide)
		switch dtype := dtypeName(text); {
		case !given && !hidden && !strings.HasPrefix(device, "cpu"):
			dtypes["fp16"] = c.origin() + ": default of autocast on GPUs"
		case dtype != "":
			dtypes[dtype] = origin
		default:
			r.job.Precision.Withhold(c.origin() +
				" decides the dtype of autocast when the script runs; give --precision")
			return
		}
	}
	if len(dtypes) == 1 {
		for dtype, origin := range dtypes {
			r.job.Precision.Offer(dtype, origin)
			r.offerAutocast(dtype, origin)
		}
	}
}

// hasNames reports whether a variable of the script has one of some words in its name.
func (r *reader) hasNames(words ...string) bool {
	for _, f := range r.seen().files {
		for _, a := range f.Assignments {
			if containsAny(a.Target, words) {
				return true
			}
		}
		for name := range f.options {
			if containsAny(name, words) {
				return true
			}
		}
	}
	return false
}
