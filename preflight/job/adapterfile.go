package job

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"oomguard/preflight/job/document"
)

// adapterFile is where PEFT keeps an adapter's settings.
const adapterFile = "adapter_config.json"

// readAdapterFolder reads the adapter that a folder holds: what it trains, and the model that it was made for, with the
// revision. base is not known when the file names none or cannot be read; the reason is recorded.
func (r *reader) readAdapterFolder(folder string) (base Setting[string]) {
	shown := filepath.Join(folder, adapterFile)
	if inside, err := filepath.Rel(r.path("."), shown); err == nil && filepath.IsLocal(inside) {
		shown = inside
	}
	data, err := document.Read(filepath.Join(folder, adapterFile), shown)
	var doc *document.Node
	var problems []error
	if err == nil {
		doc, problems, err = document.JSON(data, shown)
	}
	if err == nil {
		if _, ok := doc.Value.(map[string]*document.Node); !ok {
			err = doc.Wrong("an object of PEFT's settings")
		}
	}
	for _, problem := range problems {
		r.unread(problem)
	}
	if err != nil {
		r.unusable(err)
		r.adapter.lost = shown + " could not be read"
		r.job.ModelParams.Unknown(r.adapter.lost)
		return base
	}
	r.readAdapterConfig(doc)
	name := doc.Get("base_model_name_or_path")
	text := ""
	if name != nil {
		text, _ = name.Value.(string)
	}
	if text == "" {
		r.job.ModelParams.Unknown(shown + " names no base model; give it with --model")
		return base
	}
	base.Offer(text, fmt.Sprintf("%s: the model of the adapter %s", name.Origin(), r.job.Model.Value))
	r.revision = Setting[string]{} // that of the script was the adapter's
	if revision := doc.Get("revision"); revision != nil {
		if text, ok := revision.Value.(string); ok && text != "" {
			r.revision.Offer(text, revision.Origin())
		}
	}
	return base
}

// readAdapterConfig reads the settings of one PEFT adapter (peft/tuners/lora/config.py).
func (r *reader) readAdapterConfig(doc *document.Node) {
	p := &r.adapter
	at := doc.Origin()
	kind := "LORA"
	if n := doc.Get("peft_type"); n != nil {
		kind, _ = n.Value.(string)
		at = n.Origin()
	}
	switch strings.ToUpper(kind) {
	case "LORA", "ADALORA", "XLORA":
	case "OFT", "BOFT", "HRA":
		r.job.Method.Offer("oft", at)
		return
	default:
		r.job.Method.Offer("adapter", at)
		return
	}
	p.use.Offer(true, at)
	r.adapterNumber(doc.First("init_r", "r"), &p.r) // AdaLoRA begins with init_r
	r.adapterNumber(doc.Get("lora_alpha"), &p.alpha)
	if n := doc.Get("lora_dropout"); n != nil {
		if dropout, err := n.Float(); err != nil || dropout < 0 || dropout >= 1 {
			r.unread(n.Wrong("a number from 0 up to 1"))
		} else {
			p.dropout.Offer(dropout, n.Origin())
		}
	}
	if targets, n := r.adapterTargets(doc); len(targets) > 0 {
		p.targets.Offer(targets, n.Origin())
	}
	if n := doc.Get("modules_to_save"); n != nil && n.Value != nil {
		p.save.Offer(listedNames(n), n.Origin())
	}
	if n := doc.Get("task_type"); n != nil {
		if text, ok := n.Value.(string); ok {
			p.kind.Offer(text, n.Origin())
		}
	}
	p.dora = p.dora || isTrue(doc.Get("use_dora"))
	p.rslora = p.rslora || isTrue(doc.Get("use_rslora"))
	if n := doc.Get("bias"); n != nil && n.Value != "none" {
		p.bias, _ = n.Value.(string)
	}
	if n := doc.Get("rank_pattern"); n != nil {
		p.ranks = r.adapterRanks(n)
	}
}

func (r *reader) adapterNumber(n *document.Node, set *Setting[int]) {
	if n == nil || n.Value == nil {
		return
	}
	switch value, err := n.Integer(); {
	case err != nil:
		r.unread(err)
	case value < 1 || value > 1<<30:
		r.unread(n.Wrong("a whole number from 1"))
	default:
		set.Offer(int(value), n.Origin())
	}
}

// adapterTargets are target_modules: a list of names, or a text, which PEFT takes as a regular expression (or for
// "all-linear"). layers_to_transform narrows the names to some blocks; both together are one expression.
func (r *reader) adapterTargets(doc *document.Node) ([]string, *document.Node) {
	n := doc.Get("target_modules")
	if n == nil {
		return nil, nil
	}
	targets := listedNames(n)
	layers := doc.Get("layers_to_transform")
	if layers == nil || layers.Value == nil || len(targets) == 0 {
		return targets, n
	}
	for i, target := range targets {
		targets[i] = regexp.QuoteMeta(target)
	}
	pattern := fmt.Sprintf(`(?:.*\.)?(?:%s)\.(?:.*\.)?(?:%s)`, strings.Join(listedNames(layers), "|"),
		strings.Join(targets, "|"))
	return []string{pattern}, n
}

// adapterRanks are the ranks of single modules, which differ from r.
func (r *reader) adapterRanks(n *document.Node) map[string]int {
	fields, ok := n.Value.(map[string]*document.Node)
	if !ok || len(fields) == 0 {
		return nil
	}
	ranks := map[string]int{}
	for name, field := range fields {
		var rank Setting[int]
		if r.adapterNumber(field, &rank); rank.Known {
			ranks[name] = rank.Value
		}
	}
	return ranks
}

// listedNames are a list's texts and whole numbers, or the one that stands there alone.
func listedNames(n *document.Node) []string {
	items, ok := n.Value.([]*document.Node)
	if !ok {
		items = []*document.Node{n}
	}
	var list []string
	for _, item := range items {
		if text, err := item.Text(); err == nil && text != "" {
			list = append(list, text)
		}
	}
	return list
}

func isTrue(n *document.Node) bool {
	if n == nil {
		return false
	}
	on, err := n.Boolean()
	return err == nil && on
}
