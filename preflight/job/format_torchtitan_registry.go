package job

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"oomguard/preflight/job/document"
	"oomguard/preflight/job/python"
)

// torchtitan since February 2026: --module names a Python module and --config a function of its config_registry.py,
// which returns the configuration (torchtitan/config/manager.py). The function is read as text; its calls become the
// sections and keys of the files before.

// A titanRegistry is one config_registry.py.
type titanRegistry struct {
	r     *reader
	file  *sourceFile
	model string // family of the models in its package
}

// isTitanRegistry: the two options that took the place of --job.config_file.
func isTitanRegistry(arguments []titanArgument) bool {
	return slices.ContainsFunc(arguments, func(a titanArgument) bool { return a.path == "module" })
}

// readTitanRegistry reads the function and lays the command line over it.
func (r *reader) readTitanRegistry(arguments []titanArgument) {
	chosen := map[string]string{}
	var overrides []titanArgument
	for _, a := range arguments {
		if a.path == "module" || a.path == "config" {
			chosen[a.path] = a.text
		} else {
			overrides = append(overrides, a)
		}
	}
	if chosen["config"] == "" {
		r.fail("ValueError: --config is required. Example: --module llama3 --config llama3_debugmodel",
			"command line --module")
	}
	g := r.findTitanRegistry(chosen["module"])
	if g == nil {
		r.lost("the configurations of --module " + chosen["module"] +
			" are not on this machine; give the settings as flags")
		return
	}
	fn := g.file.Function(chosen["config"])
	if fn == nil {
		r.fail(fmt.Sprintf("ValueError: Config function '%s' not found in %s", chosen["config"], g.file.Name),
			"command line --config")
		r.lost(fmt.Sprintf("%s has no function %s", g.file.Name, chosen["config"]))
		return
	}
	doc := &document.Node{Value: map[string]*document.Node{}, File: g.file.Name, Line: fn.Line}
	g.build(doc, fn, 0)
	r.titanOverrides(doc, overrides)
	c := &configuration{r: r, doc: doc, fallback: "default of " + r.installed("torchtitan")}
	r.titanTokens(c)
	r.titanClasses(c)
	r.job.Attention.Withhold("model_registry chooses the attention of " + c.word("", "model.flavor").Value +
		"; give --attention")
	r.titanSettings(c)
}

// findTitanRegistry finds the file of a module: torchtitan's own by their short names, any other as Python imports it.
func (r *reader) findTitanRegistry(module string) *titanRegistry {
	parts := strings.ReplaceAll(module, ".", "/")
	var candidates []string
	for _, folder := range append(r.moduleFolders(), sitePackages(r.job.Interpreter)...) {
		if !strings.Contains(module, ".") {
			candidates = append(candidates, filepath.Join(folder, "torchtitan/models", parts, "config_registry.py"),
				filepath.Join(folder, "torchtitan/experiments", parts, "config_registry.py"))
		}
		candidates = append(candidates, filepath.Join(folder, parts, "config_registry.py"),
			filepath.Join(folder, parts+".py"), filepath.Join(folder, parts, "__init__.py"))
	}
	for _, file := range candidates {
		if !isFile(r.path(file)) {
			continue
		}
		t := &sourceText{r: r}
		f := t.add(file, "")
		if f == nil {
			return nil
		}
		for _, problem := range f.Problems {
			r.unread(problem)
		}
		return &titanRegistry{r: r, file: f, model: filepath.Base(filepath.Dir(file))}
	}
	return nil
}

// maxConfigurations bounds how many functions may build on each other.
const maxConfigurations = 10

// build adds what a function returns to the document: a call of Trainer.Config, or another function's configuration
// that it changes.
func (g *titanRegistry) build(doc *document.Node, fn *python.Function, depth int) {
	if len(fn.Returns) == 0 || depth > maxConfigurations {
		return
	}
	returned := fn.Returns[len(fn.Returns)-1]
	end := python.Place{Line: math.MaxInt, Scope: fn.Name}
	value := g.file.scope.Resolve(returned, end)
	if value.Kind != python.Invoke {
		g.r.lost(fmt.Sprintf("%s returns what is decided when it runs (%s)", g.file.at(fn.Line), value))
		return
	}
	if base := g.file.Function(value.Call.Callee); base != nil {
		g.build(doc, base, depth+1)
	} else {
		g.sections(doc, value.Call, "")
	}
	if returned.Kind != python.Name {
		return
	}
	for _, a := range g.file.Assignments {
		if path, inside := strings.CutPrefix(a.Target, returned.Text+"."); inside && a.Scope == fn.Name &&
			a.Key == nil {
			g.put(doc, path, a.Value, a.Place)
		}
	}
}

// sections turns the keywords of a Config call into the keys of a section; path is where it stands in the
// configuration, "" for the whole.
func (g *titanRegistry) sections(doc *document.Node, c *python.Call, path string) {
	g.file.scope.Arguments(c).Each(
		func(name string, value *python.Expr) { g.put(doc, name, value, c.Place) },
		func(*python.Expr) {
			g.withhold(path, g.file.at(c.Line)+" passes arguments that are decided when it runs")
		})
}

// put stores one value under its path. Calls become sections that remember their class; what is not decided is
// withheld.
func (g *titanRegistry) put(doc *document.Node, path string, e *python.Expr, at python.Place) {
	value := g.file.scope.Resolve(e, at)
	if value.Kind == python.Invoke {
		g.section(doc, path, value.Call)
		return
	}
	n, whole := g.file.node(value, path, at)
	if !whole {
		g.withhold(path, fmt.Sprintf("%s: %s is decided when it runs (%s)", g.file.at(e.Line), path, value))
		return
	}
	n.Line = e.Line
	if err := document.Put(doc, path, n); err != nil {
		g.r.unread(err)
	}
}

// section stores a call: Class.Config(...), a helper such as default_adamw(lr=...), or model_registry("8B").
func (g *titanRegistry) section(doc *document.Node, path string, c *python.Call) {
	name := g.file.Qualified(c.Callee)
	section := &document.Node{Value: map[string]*document.Node{}, Path: path, File: g.file.Name, Line: c.Line}
	text := func(value string) *document.Node {
		return &document.Node{Value: value, Path: path, File: g.file.Name, Line: c.Line}
	}
	if python.EndsIn(name, "model_registry") {
		family := g.model
		if before, _, ok := cutLast(name); ok && strings.HasPrefix(before, "torchtitan.") {
			_, family, _ = cutLast(before)
		}
		flavour, _, _ := g.call(c).argument(0, "flavor").literal(withhold("give --model", &g.r.job.Model))
		section.Value = map[string]*document.Node{"name": text(family), "flavor": text(flavour)}
		path = "model"
		g.attention(c)
		g.converters(section, c)
	} else {
		g.sections(section, c, path)
		fields, _ := section.Value.(map[string]*document.Node)
		fields["_class"] = text(strings.TrimSuffix(name, ".Config"))
		for _, e := range c.Args {
			if e.Kind == python.Invoke {
				fields["_inner"] = text(strings.TrimSuffix(g.file.Qualified(e.Call.Callee), ".Config"))
			}
		}
	}
	if path == "model_converters" {
		path = "model"
		g.converters(section, c)
	}
	if err := document.Put(doc, path, section); err != nil {
		g.r.unread(err)
	}
}

func (g *titanRegistry) call(c *python.Call) foundCall { return foundCall{c, g.file, true} }

// attention is the kernel that model_registry is told to use.
func (g *titanRegistry) attention(c *python.Call) {
	word, _, _ := g.call(c).keyword("attn_backend").literal(withhold("give --attention", &g.r.job.Attention))
	kernels := map[string]string{"sdpa": "sdpa", "flex": "flex_attention", "flex_flash": "flex_attention",
		"varlen": "flash_attention_2"}
	if kernel := kernels[word]; kernel != "" {
		g.r.job.Attention.Offer(kernel, g.file.at(c.Line)+" attn_backend "+word)
	}
}

// converters lists the classes that change the model: Float8LinearConverter is float8. They stand in a section of the
// configuration at first, and in the call of model_registry since the summer of 2026.
func (g *titanRegistry) converters(section *document.Node, c *python.Call) {
	list := g.call(c).keyword("converters").value(withhold("give --method and --lora-r", &g.r.job.Method,
		&g.r.job.LoRA))
	if list == nil {
		return
	}
	names := []*document.Node{}
	for _, item := range list.Items {
		if item.Kind != python.Invoke {
			continue
		}
		_, class, _ := cutLast("." + strings.TrimSuffix(g.file.Qualified(item.Call.Callee), ".Config"))
		for prefix, name := range map[string]string{"Float8": "float8", "MX": "mx", "NVFP4": "nvfp4", "LoRA": "lora"} {
			if strings.HasPrefix(class, prefix) {
				names = append(names, &document.Node{Value: name, File: g.file.Name, Line: item.Line})
			}
		}
		if strings.HasPrefix(class, "LoRA") {
			why := g.file.at(item.Line) + ": which modules get adapters is not read from a converter; give --method " +
				"and --lora-r"
			g.r.job.Method.Withhold(why)
			g.r.job.LoRA.Withhold(why)
		}
	}
	if fields, ok := section.Value.(map[string]*document.Node); ok {
		fields["converters"] = &document.Node{Value: names, Path: "model.converters", File: g.file.Name, Line: c.Line}
	}
}

// withhold keeps defaults away from what a value that is not decided decides.
func (g *titanRegistry) withhold(path, why string) {
	j := g.r.job
	for prefix, facts := range map[string][]fact{
		"training.local_batch_size": {&j.MicroBatch, &j.GradAccum}, "training.global_batch_size": {&j.GradAccum},
		"training.seq_len":            {&j.SeqLen},
		"training.max_context_length": {&j.SeqLen}, "training.num_tokens": {&j.MicroBatch, &j.GradAccum},
		"training.dtype": {&j.ParamDtype, &j.Precision},
		"parallelism":    {&j.Sharding, &j.TP, &j.PP, &j.CP, &j.EP}, "activation_checkpoint": {&j.Checkpointing},
		"optimizer": {&j.Optimizer}, "loss": {&j.FusedLoss},
		"model_spec": {&j.Model}, "training.mixed_precision_param": {&j.Precision},
	} {
		if path == "" || strings.HasPrefix(path, prefix) || strings.HasPrefix(prefix, path+".") {
			for _, f := range facts {
				f.Withhold(why)
			}
		}
	}
}

// titanTokens: since the summer of 2026 batches are given in tokens (torchtitan/config/training.py).
func (r *reader) titanTokens(c *configuration) {
	j := r.job
	const each, step = "training.num_tokens_per_microbatch_per_dp_rank", "training.num_tokens_per_train_step"
	length := c.find("training.max_context_length")
	if length == nil && c.find(each, step) == nil {
		if c.find("training.local_batch_size", "training.seq_len") == nil {
			j.MicroBatch.Withhold("neither rows nor tokens are given, and the default changed between releases; " +
				"give --micro-batch")
		}
		return
	}
	if length != nil {
		if err := document.Put(c.doc, "training.seq_len", length); err != nil {
			r.unread(err)
		}
	}
	tokens, all := c.size(16384, each), c.number(-1, step)
	why := fmt.Sprintf("configured in tokens: num_tokens_per_microbatch_per_dp_rank %d (%s)", tokens.Value,
		tokens.Origin)
	if rows := c.size(2048, "training.max_context_length"); rows.Known && tokens.Known && tokens.Value%rows.Value == 0 {
		why += fmt.Sprintf(", as many as %d rows of %d; give --micro-batch %d", tokens.Value/rows.Value, rows.Value,
			tokens.Value/rows.Value)
	}
	j.MicroBatch.Withhold(why)
	if all.Known && all.Value > 0 {
		j.GradAccum.Withhold(fmt.Sprintf("%s: %d tokens a step over the data-parallel ranks; give --grad-accum",
			all.Origin, all.Value))
	}
}

// titanClasses reads what a class says rather than a key: activation checkpointing, the loss, a step within backward.
func (r *reader) titanClasses(c *configuration) {
	j := r.job
	class := c.word("", "activation_checkpoint._class")
	_, name, _ := cutLast(class.Value)
	switch {
	case name == "FullAC":
		j.Checkpointing.Offer("full", class.Origin)
	case name == "MemoryBudgetAC":
		j.Checkpointing.Withhold("the compiler chooses what it keeps within a memory budget (" + class.Origin + ")")
	case name == "SelectiveAC":
		j.Checkpointing.Offer("selective", class.Origin)
	case c.find("activation_checkpoint.mode") == nil:
		if n := c.doc.Get("activation_checkpoint"); n != nil && n.Value == nil {
			j.Checkpointing.Offer("none", n.Origin())
		}
		j.Checkpointing.Offer("selective", c.fallback)
	case c.word("", "activation_checkpoint.mode").Value == "selective" &&
		c.find("activation_checkpoint.selective_ac_option") == nil:
		j.Checkpointing.Offer("selective", c.originOf("activation_checkpoint.mode"))
	}
	loss := c.word("", "loss._class")
	switch _, name, _ := cutLast(loss.Value); {
	case strings.HasPrefix(name, "Chunked"):
		j.FusedLoss.Offer("chunked", loss.Origin)
	case name == "" && c.find("training.max_context_length", "training.num_tokens_per_microbatch_per_dp_rank") != nil:
		j.FusedLoss.Withhold("no loss is named, and the default changed between releases; give --fused-loss")
	case name != "":
		j.FusedLoss.Offer("none", loss.Origin)
	}
	if optimizer := c.word("", "optimizer._class"); strings.HasSuffix(optimizer.Value, "InBackwardContainer") {
		j.OptimizerInBackward.Offer(true, optimizer.Origin)
	}
}
