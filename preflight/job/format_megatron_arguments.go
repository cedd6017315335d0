package job

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"oomguard/preflight/job/document"
	"oomguard/preflight/job/shell"
)

// megatron is one reading of Megatron-LM's arguments.
type megatron struct {
	r         *reader
	args      map[string]argument // by argparse's dest: num_layers
	origin    string              // of defaults
	open      string              // why options may have been given that nobody can see; "": none
	unsharded bool                // no option shards anything over the replicas
}

// megatronFlags are the options without a value that decide about memory, and megatronValues those with one. Options
// that are in neither belong to somebody else; argparse is told to accept no abbreviations (allow_abbrev=False).
const (
	megatronFlags = `bf16 fp16 group-query-attention untie-embeddings-and-output-weights swiglu quick-geglu squared-relu
		disable-bias-linear add-qkv-bias qk-layernorm
		multi-latent-attention use-distributed-optimizer use-custom-fsdp use-megatron-fsdp use-torch-fsdp2
		fsdp-double-buffer overlap-grad-reduce
		overlap-param-gather optimizer-cpu-offload use-precision-aware-optimizer sequence-parallel recompute-activations
		moe-layer-recompute
		distribute-saved-activations use-flash-attn cross-entropy-loss-fusion fp8-param-gather grad-reduce-in-bf16
		accumulate-allreduce-grads-in-fp32
		no-gradient-accumulation-fusion use-checkpoint-args use-rotary-position-embeddings no-position-embedding
		moe-grouped-gemm moe-shared-expert-overlap
		account-for-embedding-in-pipeline-split account-for-loss-in-pipeline-split fine-grained-activation-offloading
		is-hybrid-model
		checkpoint-activations deterministic-mode tp-comm-overlap use-legacy-models no-overlap-p2p-communication
		deepspeed`
	megatronValues = `num-layers encoder-num-layers hidden-size ffn-hidden-size num-attention-heads kv-channels
		num-query-groups max-position-embeddings
		position-embedding-type make-vocab-size-divisible-by vocab-size padded-vocab-size tokenizer-type tokenizer-model
		vocab-file normalization num-experts moe-layer-freq
		moe-ffn-hidden-size moe-shared-expert-intermediate-size moe-router-topk q-lora-rank kv-lora-rank qk-head-dim
		qk-pos-emb-head-dim v-head-dim
		mtp-num-layers seq-length encoder-seq-length micro-batch-size global-batch-size batch-size optimizer
		sgd-momentum optimizer-offload-fraction
		main-grads-dtype main-params-dtype exp-avg-dtype exp-avg-sq-dtype data-parallel-sharding-strategy
		tensor-model-parallel-size
		pipeline-model-parallel-size context-parallel-size expert-model-parallel-size expert-tensor-parallel-size
		model-parallel-size
		num-layers-per-virtual-pipeline-stage num-virtual-stages-per-pipeline-rank decoder-first-pipeline-num-layers
		decoder-last-pipeline-num-layers
		pipeline-model-parallel-layout recompute-granularity recompute-method recompute-num-layers
		cpu-offloading-num-layers attention-backend
		transformer-impl fp8-format fp8-recipe fp4-format cross-entropy-fusion-impl attention-dropout hidden-dropout
		empty-unused-memory-level
		train-iters train-samples eval-iters yaml-cfg spec hybrid-layer-pattern hybrid-override-pattern
		heterogeneous-layers-config-path deepspeed-config zero-stage
		moe-router-load-balancing-type`
	// megatronLists take words up to the next option.
	megatronLists = `rampup-batch-size recompute-modules`
)

// megatronArguments reads the words of the command line, or the file of --yaml-cfg, which replaces all of them. nil:
// the file could not be read.
func (r *reader) megatronArguments() *megatron {
	m := &megatron{r: r, args: map[string]argument{}, origin: "default of " + r.installed("megatron-core")}
	if r.versions["megatron-core"] == "" {
		m.origin = "default of Megatron-LM"
	}
	m.words(r.job.ScriptArgs)
	file, given := m.args["yaml_cfg"]
	if !given {
		return m
	}
	m.args = map[string]argument{}
	doc := r.loadDocument(file.text)
	if doc == nil {
		return nil
	}
	m.fields(doc)
	return m
}

// words reads a command line as Megatron-LM's parser does: options alone, and the last one of a name wins.
func (m *megatron) words(words []string) {
	flags, values, lists := optionSet(megatronFlags), optionSet(megatronValues), optionSet(megatronLists)
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		if shell.Whole(word) {
			m.open, _ = shell.Unknown(word)
			continue
		}
		option, value, attached := strings.Cut(word, "=")
		name := dest(option)
		a := argument{text: value, origin: "command line " + option}
		switch {
		case !strings.HasPrefix(option, "--"):
			continue
		case flags[name]:
			a.bare = true
		case lists[name]:
			for len(words) > 0 && !isOption(words[0]) {
				a.list = append(a.list, words[0])
				words = words[1:]
			}
			a.text = strings.Join(a.list, " ")
		case values[name] && attached:
		case values[name] && len(words) > 0 && !isOption(words[0]):
			a.text, words = words[0], words[1:]
		case values[name]:
			m.r.fail("error: argument "+option+": expected one argument", a.origin)
			continue
		default:
			m.abbreviated(option, values)
			// the value of an option that is not read
			if !attached && len(words) > 0 && shell.Several(words[0]) && !holdsOptions(words[0]) {
				words = words[1:]
			}
			continue
		}
		if why, unknown := shell.Unknown(a.text); unknown && name != "micro_batch_size" &&
			name != "global_batch_size" && !slices.Contains(strings.Fields(scriptFields), name) {
			m.open = why // it may decide the model, and what else has to be given
		}
		m.args[name] = a
	}
}

// abbreviated tells of an option that is cut short: Megatron-LM refuses it.
func (m *megatron) abbreviated(option string, values map[string]bool) {
	var full []string
	for name := range values {
		if strings.HasPrefix(name, dest(option)) {
			full = append(full, name)
		}
	}
	if len(full) == 1 && len(option) > len("--num-") {
		m.r.fail("error: unrecognized arguments: "+option+" (Megatron-LM takes no abbreviations; write --"+
			strings.ReplaceAll(full[0], "_", "-")+")", "command line "+option)
	}
}

// fields reads a file of --yaml-cfg: the same names with underscores, some of them in sections (yaml_arguments.py).
func (m *megatron) fields(doc *document.Node) {
	doc.Walk(func(n *document.Node) {
		text, err := n.Text()
		if err != nil {
			return // a section, or null: not set
		}
		name := n.Path[strings.LastIndexByte(n.Path, '.')+1:]
		m.args[name] = argument{text: text, node: n, origin: n.Origin()}
	})
	for name, dest := range map[string]string{"num_moe_experts": "num_experts", "fp8": "fp8_format",
		"normalization": "normalization"} {
		if a, ok := m.args[name]; ok {
			m.args[dest] = a
		}
	}
	// The file names what the options negate.
	for positive, negative := range map[string]string{"add_bias_linear": "disable_bias_linear"} {
		if a, ok := m.args[positive]; ok {
			on, _ := document.ParseBool(a.text)
			a.text = strconv.FormatBool(!on)
			m.args[negative] = a
		}
	}
	if a, ok := m.args["activation_func"]; ok && a.text == "swiglu" {
		m.args["swiglu"] = argument{text: "true", node: a.node, origin: a.origin}
	}
}

func dest(option string) string {
	return strings.ReplaceAll(strings.TrimPrefix(option, "--"), "-", "_")
}

func optionSet(names string) map[string]bool {
	set := map[string]bool{}
	for name := range strings.FieldsSeq(names) {
		set[dest(name)] = true
	}
	return set
}

// word is an option's value; fallback when it was not given.
func (m *megatron) word(name, fallback string) Setting[string] {
	a, given := m.args[name]
	if !given {
		if m.open != "" {
			return Setting[string]{Origin: "not seen, but " + m.open}
		}
		return Setting[string]{Value: fallback, Known: true, Origin: m.origin}
	}
	if why, unknown := shell.Unknown(a.text); unknown {
		return Setting[string]{Origin: a.origin + ": " + why}
	}
	return Setting[string]{Value: a.text, Known: true, Origin: a.origin}
}

// flag is whether an option without a value is given.
func (m *megatron) flag(name string) Setting[bool] {
	a, given := m.args[name]
	switch {
	case !given && m.open != "":
		return Setting[bool]{Origin: "not seen, but " + m.open}
	case !given:
		return Setting[bool]{Known: true, Origin: m.origin}
	case a.bare:
		return Setting[bool]{Value: true, Known: true, Origin: a.origin}
	}
	on, ok := document.ParseBool(a.text)
	if !ok {
		m.r.unread(fmt.Errorf("%s: %s is %q, need true or false", a.origin, name, a.text))
		return Setting[bool]{Origin: a.origin + " is neither true nor false"}
	}
	return Setting[bool]{Value: on, Known: true, Origin: a.origin}
}

// size is a whole number from 0; what is none ends the training at once.
func (m *megatron) size(name string, fallback int) Setting[int] {
	w := m.word(name, strconv.Itoa(fallback))
	if !w.Known {
		return Setting[int]{Origin: w.Origin}
	}
	n, err := pythonInt(w.Value)
	switch {
	case err != nil:
		m.r.fail(fmt.Sprintf("error: argument --%s: invalid int value: '%s'", strings.ReplaceAll(name, "_", "-"),
			w.Value), w.Origin)
		return Setting[int]{Origin: w.Origin + " is not a whole number"}
	case n < 0 || n > 1<<40:
		m.r.unread(fmt.Errorf("%s: %s is %d, need a possible size", w.Origin, name, n))
		return Setting[int]{Origin: w.Origin + " is not a possible size"}
	}
	return Setting[int]{Value: n, Known: true, Origin: w.Origin}
}

// degree is a size of a parallel group, from 1.
func (m *megatron) degree(name string) Setting[int] {
	s := m.size(name, 1)
	if s.Known && s.Value == 0 {
		m.r.fail("AssertionError: --"+strings.ReplaceAll(name, "_", "-")+" must be above 0", s.Origin)
		return Setting[int]{Origin: s.Origin + " is 0"}
	}
	return s
}

// required is a size that has no default.
func (m *megatron) required(name string) Setting[int] {
	s := m.size(name, 0)
	if !s.Known || s.Value > 0 {
		return s
	}
	option := "--" + strings.ReplaceAll(name, "_", "-")
	if _, given := m.args[name]; given {
		m.r.fail("AssertionError: "+option+" must be above 0", s.Origin)
		return Setting[int]{Origin: s.Origin + " is 0"}
	}
	if !m.flag("use_checkpoint_args").Value {
		m.r.fail("AssertionError: "+option+" is not given", s.Origin)
	}
	return Setting[int]{Origin: option + " is not given"}
}

// megatronOf is what was kept of the configuration; nil: another framework reads the script.
func megatronOf(r *reader) *megatron {
	own, _ := r.own.(*megatron)
	return own
}
