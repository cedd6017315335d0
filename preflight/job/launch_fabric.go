package job

import (
	"oomguard/preflight/job/document"
)

// fabricOptions is the parser of fabric run (lightning/fabric/cli.py), called lightning run model until 2.3.
func fabricOptions() []option {
	return []option{
		{names: []string{"--accelerator"}, dest: "accelerator"}, {names: []string{"--strategy"}, dest: "strategy"},
		{names: []string{"--devices"}, dest: "devices"},
		{names: []string{"--num-nodes", "--num_nodes"}, dest: "num_nodes", kind: intOption},
		{names: []string{"--node-rank", "--node_rank"}, dest: "node_rank", kind: intOption},
		{names: []string{"--main-address", "--main_address"}, dest: "main_address"},
		{names: []string{"--main-port", "--main_port"}, dest: "main_port", kind: intOption},
		{names: []string{"--precision"}, dest: "precision"},
	}
}

// readFabric reads fabric run [options] SCRIPT ...: torchrun with one process for each device, one by default. Strategy
// and precision reach the script's Fabric object through variables; arguments that it is given in the code itself must
// be the same.
func (r *reader) readFabric(prog string, args []string) {
	words := []string{"run"}
	if prog == "lightning" {
		words = []string{"run", "model"}
	}
	for _, word := range words {
		if len(args) == 0 || args[0] != word {
			r.blocked = prog + " does not train without " + word
			return
		}
		args = args[1:]
	}
	line, err := (&argparser{prog: prog + " run", options: fabricOptions(), wholeNames: true}).parse(args)
	if err == nil && len(line.rest) == 0 {
		r.fail("Error: Missing argument 'SCRIPT'.", "command line")
	} else if err != nil {
		r.fail(err.Error(), "command line")
	}
	if err != nil || len(line.rest) == 0 {
		r.blocked = "the launcher refuses its arguments"
		return
	}
	r.setScript(line.rest[0], line.rest[1:])
	if line.open != "" {
		r.open = line.open
		r.job.NProc.Withhold(line.open)
		r.job.NNodes.Withhold(line.open)
	}
	doc := &document.Node{Value: map[string]*document.Node{}, Source: "command line"}
	for dest, given := range line.values {
		if dest == "devices" && given.text == "auto" {
			given = sourced{"1", given.origin + ": auto is one device here"}
		}
		n := &document.Node{Value: given.text, Path: dest, Source: given.origin, Raw: given.text}
		if err := document.Put(doc, "trainer."+dest, n); err != nil {
			r.unread(err)
		}
	}
	c := &configuration{r: r, doc: doc, fallback: "default of " + prog + " run"}
	r.job.NProc.take(c.devices("1", "trainer.devices"))
	r.job.NNodes.take(c.size(1, "trainer.num_nodes"))
	if c.find("trainer.strategy") != nil {
		r.lightningStrategy(c)
	}
	if c.find("trainer.precision") != nil || !r.fabricInSource("precision") {
		r.lightningPrecisionOf(c)
	}
	if c.find("trainer.strategy") == nil && !r.fabricInSource("strategy") &&
		product(r.job.NProc.Or(0), r.job.NNodes.Or(0)) > 1 {
		r.job.Sharding.Offer("ddp", "default of "+prog+" run for several processes")
	}
}

// fabricInSource reports whether the script passes something to its Fabric object itself, or cannot be read.
func (r *reader) fabricInSource(name string) bool {
	t := r.scriptText()
	if t == nil {
		return true
	}
	c, ok := one(t.calls("Fabric"), immaterial) // without one that is known, the script may pass it
	hidden := false
	return !ok || c.keyword(name).value(func(string) { hidden = true }) != nil || hidden
}
