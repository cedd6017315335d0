package job

import (
	"fmt"
	"oomguard/preflight/job/document"
	"slices"
	"strings"
)

// fsdpStrategies maps Trainer's words (transformers trainer_utils.py, FSDPOption) and accelerate's names to the job vocabulary.
// Hybrid strategies replicate over groups; no_shard is plain data parallelism.
func fsdpStrategies() map[string]string {
	return map[string]string{"full_shard": "fsdp-full", "shard_grad_op": "fsdp-grad", "hybrid_shard": "fsdp-hybrid", "hybrid_shard_zero2": "fsdp-hybrid", "no_shard": "ddp"}
}

// readFSDP reads --fsdp and --fsdp_config of Trainer. Its configuration is read without --fsdp too, but then has no effect.
func (r *reader) readFSDP() {
	a, given := r.args["fsdp"]
	if !given || r.deepspeed != nil {
		return
	}
	words := strings.FieldsFunc(strings.ToLower(strings.Join(a.list, " ")), func(c rune) bool { return c == ' ' || c == ',' })
	if len(words) > 0 {
		if on, ok := document.ParseBool(words[0]); ok { // newer versions: fsdp is a boolean
			if !on {
				return
			}
			words[0] = "full_shard"
		}
	}
	strategy := ""
	for _, word := range words {
		if s := fsdpStrategies()[word]; s != "" {
			strategy = s
		} else if word != "offload" && word != "auto_wrap" {
			r.wrongArgument(a, "words from full_shard, shard_grad_op, hybrid_shard, hybrid_shard_zero2, no_shard, offload, auto_wrap")
		}
	}
	switch {
	case strategy == "" && r.family.huggingFace() && len(words) == 0 && !a.bare:
		return // --fsdp "" is Trainer's default: off
	case strategy == "":
		r.lostSharding(fmt.Sprintf("%s names no strategy; give --sharding", a.origin))
		return
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
	r.job.Problems = append(r.job.Problems, problems...)
	if err == nil {
		if _, object := doc.Value.(map[string]*document.Node); !object {
			err = doc.Wrong("an object with FSDP's settings")
		}
	}
	if err != nil {
		r.problem(fmt.Errorf("FSDP configuration: %w", err))
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
	origin := a.origin
	if reshard := fsdpKey(config, "reshard_after_forward"); j.FSDPVersion.Known && j.FSDPVersion.Value == 2 && strategy == "fsdp-full" {
		// Version 2 has no strategies: parameters are resharded after the forward pass, or stay gathered as in ZeRO-2. Trainer's
		// own default is false up to transformers 5.2 (trainer: _process_fsdp_args), unlike accelerate's.
		if !r.nodeBool(reshard, false) {
			strategy = "fsdp-grad"
			origin += ", reshard_after_forward is off"
		}
	}
	j.Sharding.Offer(strategy, origin)

	offload := Offload{Optimizer: "none", Params: "none"}
	if slices.Contains(words, "offload") || r.nodeBool(config.First("cpu_offload", "offload_params", "fsdp_offload_params"), false) {
		offload = Offload{Optimizer: "cpu", Params: "cpu"}
	}
	j.Offload.Offer(offload, a.origin)

	wrap := "whole"
	switch {
	case r.fsdpWrapsBySize(config):
		wrap = "size"
	case slices.Contains(words, "auto_wrap"):
		wrap = "layers"
	}
	j.FSDPWrap.Offer(wrap, a.origin)
	if n := fsdpKey(config, "activation_checkpointing"); n != nil && r.nodeBool(n, false) {
		j.Checkpointing.Offer("full", n.Origin())
	}
}

// fsdpWrapsBySize: min_num_params above zero replaces the wrapping by layer class.
func (r *reader) fsdpWrapsBySize(config *document.Node) bool {
	n := fsdpKey(config, "min_num_params")
	if n == nil {
		return false
	}
	count, err := n.Integer()
	if err != nil {
		r.problem(err)
	}
	return count > 0
}

// fsdpVersion: Trainer's default is 1 up to transformers 5.2; a later release, whose number is not known here, makes it 2.
func (r *reader) fsdpVersion(config *document.Node, set *Setting[int]) {
	if n := fsdpKey(config, "version"); n != nil {
		version, err := n.Integer()
		if err == nil && version != 1 && version != 2 {
			err = n.Wrong("1 or 2")
		}
		if err != nil {
			r.problem(err)
			return
		}
		set.Offer(int(version), n.Origin())
		return
	}
	switch newer, known := r.atLeast("transformers", 5, 3); {
	case known && !newer:
		set.Offer(1, "default of "+r.installed("transformers"))
	default:
		set.Unknown("the default of Trainer changed from 1 to 2 after transformers 5.2; give --fsdp-version")
	}
}
