package job

import (
	"fmt"
	"oomguard/preflight/job/document"
	"oomguard/preflight/job/shell"
	"slices"
	"strings"
)

// fsdpStrategies maps Trainer's words (transformers trainer_utils.py, FSDPOption) and accelerate's names to the job
// vocabulary. Hybrid strategies replicate over groups; no_shard is plain data parallelism.
func fsdpStrategies() map[string]string {
	return map[string]string{"full_shard": "fsdp-full", "shard_grad_op": "fsdp-grad", "hybrid_shard": "fsdp-hybrid",
		"hybrid_shard_zero2": "fsdp-hybrid", "no_shard": "ddp"}
}

// fsdpWords are the words of --fsdp; true, its newer form, is full_shard. None when it is off.
func (r *reader) fsdpWords() []string {
	if newer, known := r.atLeast("transformers", 5, 10); r.args["fsdp"].bare && known && newer {
		return []string{"full_shard"}
	}
	words := strings.FieldsFunc(strings.ToLower(strings.Join(r.args["fsdp"].list, " ")),
		func(c rune) bool { return c == ' ' || c == ',' })
	if len(words) > 0 {
		if on, ok := document.ParseBool(words[0]); ok && on {
			words[0] = "full_shard"
		} else if ok {
			return nil
		}
	}
	return words
}

// readFSDP reads --fsdp and --fsdp_config of Trainer. Its configuration is read without --fsdp too, but then has no
// effect.
func (r *reader) readFSDP() {
	a, given := r.args["fsdp"]
	if !given || r.deepspeed != nil {
		return
	}
	words := r.fsdpWords()
	if len(words) == 0 && r.family.huggingFace() && !a.bare {
		return // --fsdp "" is Trainer's default: off
	}
	strategies := map[string]bool{}
	strategy := ""
	for _, word := range words {
		if s := fsdpStrategies()[word]; s != "" {
			strategy, strategies[word] = s, true
		} else if word != "offload" && word != "auto_wrap" {
			r.wrongArgument(a, "words from full_shard, shard_grad_op, hybrid_shard, hybrid_shard_zero2, no_shard, "+
				"offload, auto_wrap")
		}
	}
	newer, known := r.atLeast("transformers", 5, 10) // only words that add something are left there
	switch {
	case strategy == "" && known && newer && len(words) > 0:
		strategy = "fsdp-full"
	case strategy == "" && r.family.huggingFace() && slices.Contains(words, "offload"):
		r.fail("ValueError: --fsdp offload can't work on its own", a.origin)
		r.problem(fmt.Errorf("%s: offload alone names no strategy; write \"full_shard offload\"", a.origin))
		fallthrough
	case strategy == "":
		r.lostSharding(fmt.Sprintf("%s names no strategy; give --sharding", a.origin))
		return
	case strategies["full_shard"] && strategies["shard_grad_op"] && r.family.huggingFace():
		r.fail("ValueError: --fsdp full_shard is not compatible with --fsdp shard_grad_op", a.origin)
		r.problem(fmt.Errorf("%s: full_shard and shard_grad_op exclude each other; keep one", a.origin))
	}
	config, ok := r.fsdpConfig()
	if !ok {
		r.lostSharding("the FSDP configuration could not be read")
		return
	}
	r.fsdp = strategy != "ddp"
	r.applyFSDP(a, words, strategy, config)
}

// fsdpConfig reads --fsdp_config; a nil document when there is none.
func (r *reader) fsdpConfig() (doc *document.Node, ok bool) {
	a, given := r.args["fsdp_config"]
	if !given {
		return nil, true
	}
	if a.node != nil {
		if _, inline := a.node.Value.(map[string]*document.Node); inline {
			return a.node, true
		}
	}
	doc, problems, err := r.jsonFile(a.text)
	r.unread(problems...)
	if err == nil {
		if _, object := doc.Value.(map[string]*document.Node); !object {
			err = doc.Wrong("an object with FSDP's settings")
		}
	}
	if err != nil {
		r.unusable(fmt.Errorf("FSDP configuration: %w", err))
	}
	return doc, err == nil
}

// fsdpKey finds a key with or without the prefix fsdp_, which Trainer strips.
func fsdpKey(config *document.Node, key string) *document.Node { return config.First(key, "fsdp_"+key) }

func (r *reader) applyFSDP(a argument, words []string, strategy string, config *document.Node) {
	j := r.job
	if r.fsdp {
		r.fsdpVersion(config, &j.FSDPVersion)
	}
	r.offerStrategy(a, strategy, config)

	offload := Offload{Optimizer: "none", Params: "none"}
	if slices.Contains(words, "offload") ||
		r.nodeBool(config.First("cpu_offload", "offload_params", "fsdp_offload_params"), false) {
		offload = Offload{Optimizer: "cpu", Params: "cpu"}
	}
	j.Offload.Offer(offload, a.origin)
	if n := fsdpKey(config, "state_dict_type"); n != nil {
		if text, err := n.Text(); err == nil {
			r.stateDictWord(sourced{text, n.Origin()})
		}
	}
	wrap, origin := r.fsdpUnits(a, words, config)
	j.FSDPWrap.Offer(wrap, origin)
	if n := fsdpKey(config, "activation_checkpointing"); n != nil && r.nodeBool(n, false) {
		j.Checkpointing.Offer("full", n.Origin())
		r.fsdpCheckpointing = true
	}
}

// offerStrategy decides what is sharded. Version 2 has no strategies: parameters are resharded after the forward pass,
// or stay gathered as in ZeRO-2. Trainer's own default for that was false up to transformers 5.3 and follows the
// strategy since (training_args.py, _process_fsdp_args); version 1 takes a strategy's name there since 5.4.
func (r *reader) offerStrategy(a argument, strategy string, config *document.Node) {
	set, origin := &r.job.Sharding, a.origin
	reshard := fsdpKey(config, "reshard_after_forward")
	if version := r.job.FSDPVersion; !version.Known || version.Value == 1 {
		if name, err := reshardName(reshard); err == nil && fsdpStrategies()[name] != "" {
			strategy, origin = fsdpStrategies()[name], reshard.Origin()
		}
		set.Offer(strategy, origin)
		return
	}
	follows, known := r.atLeast("transformers", 5, 4)
	switch {
	case reshard == nil && !known && strategy == "fsdp-full":
		set.Unknown("whether parameters stay gathered after the forward pass by default changed in transformers " +
			"5.4, and its version is not known; give --sharding or --versions")
		return
	case reshard == nil && known && !follows && strategy == "fsdp-full":
		strategy = "fsdp-grad"
		origin += ", reshard_after_forward is off: default of " + r.installed("transformers")
	case reshard != nil && (strategy == "fsdp-full" || strategy == "fsdp-grad"):
		strategy = map[bool]string{true: "fsdp-full", false: "fsdp-grad"}[r.nodeBool(reshard, true)]
		origin += ", reshard_after_forward: " + reshard.Origin()
	}
	set.Offer(strategy, origin)
}

func reshardName(n *document.Node) (string, error) {
	if n == nil {
		return "", nil
	}
	text, err := n.Text()
	return strings.ToLower(text), err
}

// fsdpUnits decides what is gathered at once. Up to transformers 5.9 only auto_wrap makes units; later versions wrap
// layers unless auto_wrap_policy says something else.
func (r *reader) fsdpUnits(a argument, words []string, config *document.Node) (wrap, origin string) {
	if r.fsdpWrapsBySize(config) {
		return "size", a.origin
	}
	if newer, known := r.atLeast("transformers", 5, 10); known && newer {
		policy := fsdpKey(config, "auto_wrap_policy")
		if name, err := reshardName(policy); err == nil && (name == "no_wrap" || name == "size_based_wrap") {
			return "whole", policy.Origin()
		}
		return "layers", "default of " + r.installed("transformers")
	}
	if slices.Contains(words, "auto_wrap") {
		return "layers", a.origin
	}
	return "whole", a.origin + " without auto_wrap"
}

// fsdpWrapsBySize: min_num_params above zero replaces the wrapping by layer class.
func (r *reader) fsdpWrapsBySize(config *document.Node) bool {
	if r.number("fsdp_min_num_params") > 0 {
		return true
	}
	n := fsdpKey(config, "min_num_params")
	if n == nil {
		return false
	}
	count, err := n.Integer()
	if err != nil {
		r.unread(err)
	}
	if count > 0 && fsdpKey(config, "transformer_layer_cls_to_wrap") != nil && r.family.huggingFace() {
		r.contradiction(n, "min_num_params and transformer_layer_cls_to_wrap are mutually exclusive, and Trainer "+
			"refuses to start with both; remove one")
	}
	return count > 0
}

// fsdpVersion: Trainer passes the version of its configuration on since transformers 5.0, with the default 1 up to 5.9
// and 2 since 5.10; before, accelerate takes it from FSDP_VERSION alone (compared over the releases' training_args.py).
func (r *reader) fsdpVersion(config *document.Node, set *Setting[int]) {
	n := fsdpKey(config, "version")
	passed, known := r.atLeast("transformers", 5)
	if known && !passed {
		origin := r.installed("transformers") + " always starts version 1"
		if n != nil {
			origin += ", whatever " + n.Origin() + " says"
		}
		if r.getenv("FSDP_VERSION") == "2" {
			set.Offer(2, "environment FSDP_VERSION")
		}
		set.Offer(1, origin)
		return
	}
	if n != nil {
		version, err := n.Integer()
		if err == nil && version != 1 && version != 2 {
			err = n.Wrong("1 or 2")
		}
		if err != nil {
			r.unread(err)
			return
		}
		set.Offer(int(version), n.Origin())
		return
	}
	version, origin, known := r.defaultOf("transformers", since("1", "5.10=2"))
	if !known {
		set.Unknown(origin)
		return
	}
	set.Offer(int(version[0]-'0'), origin)
}

// stateDictWord reads how FSDP saves, in the words of PyTorch, accelerate and Lightning: StateDictType.FULL_STATE_DICT,
// its number, or full.
func (r *reader) stateDictWord(word sourced) {
	if why, unknown := shell.Unknown(word.text); unknown {
		r.job.StateDict.Withhold(why)
	}
	_, name, _ := cutLast(strings.ToLower(word.text))
	switch name {
	case "full_state_dict", "full", "1":
		r.job.StateDict.Offer("full", word.origin)
	case "sharded_state_dict", "sharded", "local_state_dict", "2", "3":
		r.job.StateDict.Offer("sharded", word.origin)
	}
}
