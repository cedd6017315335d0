package oom

import (
	"bytes"
	"cmp"
	"iter"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Traceback is what the Python frames around a message say.
type Traceback struct {
	Stage string // a stage of the contract, "" unknown
	// Logits: the frames are those of the loss or of the output layer; Nearest: the innermost frame of the project's
	// own code.
	Logits  bool
	Nearest string

	rank int // that the line with "Traceback" names, -1 none
}

// stageRule tells a stage by the squeezed text of a traceback.
type stageRule struct {
	stage    string
	logits   bool
	patterns []guarded
}

// stageRules in the order of their weight: an optimizer's frames stand below "train", loading frames below anything.
// Evaluation comes before the forward pass that it calls, and before the loss.
var stageRules = sync.OnceValue(func() []stageRule {
	r := func(stage string, logits bool, patterns ...string) stageRule {
		rule := stageRule{stage: stage, logits: logits}
		for _, p := range patterns {
			rule.patterns = append(rule.patterns, newGuarded(p))
		}
		return rule
	}
	const in = `(?:,in|pyin|\din)_?`
	return []stageRule{
		r("optimizer-init", false, `[/\\]optim[/\\](?:adam|sgd|optimizer|_multi|adagrad|rmsprop|lion|lamb|nadam|radam|rprop|_functional)`, `exp_avg`, `_multi_tensor_`,
			`_single_tensor_`, `_init_group`, `optimizer['"]?\]?\.step\(`, `optim\.step\(`, `run_optimizer_step`,
			`initialize_optimizer_states`, `_maybe_opt_step`,
			`_take_model_step`, in+`optimizer_step`,
			`fused_(?:adam|lamb|sgd|lion)`, in+`init(?:ialize)?_states?\b`, // apex, Transformer Engine, bitsandbytes
			`_create_fp32_partitions`, `distrib_optimizer\.py`), // DeepSpeed's and Megatron's copies of the weights
		r("model-load", false, `serialization\.py`, `from_pretrained\(`, `load_checkpoint`, `load_\w{0,20}state_dict`,
			`set_model_state_dict`, `_move_model_to_device`, `load_model\(`,
			`module\.py(?:",line\d+,in|:\d+in|in)(?:convert|cuda|to)\b`, in+`convert`, `torch\.load\(`,
			in+`_materialize`, `safetensors`),
		r("eval", false, in+`(?:evaluat|predict|generat|validat|val_(?:one_)?(?:epoch|step|loop|batch)|infer|beam_search|sample\b)`, `\.(?:evaluate|predict|generate|validate|beam_search)\(`,
			`nested_concat`, `pad_and_concatenate`),
		r("forward", true, `cross_entropy`, `lm_head`, `log_softmax\(`, `logsumexp`, `logits\.float`, `output\.float\(`,
			`from_logits`, `_logps\(`, `loss_function\(`,
			`empty_strided\w*\(\([^)]*\b(?:[3-9]\d{4}|\d{6})\)`), // a dimension of at least 30,000 is a vocabulary
		r("backward", false, `\.backward\(`, in+`backward`, `run_backward`),
		r("forward", false, in+`forward`, `_call_impl`, `forward_call\(`, `\bmodel\(`, `functional\.py`),
		r("checkpoint-save", false, in+`(?:_?save|state_dict)`, `\.state_dict\(`),
		r("model-load", false, `\.cuda\(`, `\.to\(`, `deepspeed\.initialize\(`, `,in__init__`, `pyin__init__`),
	}
})

// A traceback is found by its frame lines: at most frameGap other lines lie between two of them (code, carets, lines of
// other ranks).
const (
	frameGap    = 12
	framesReach = 200
)

type framePatterns struct {
	line                   guarded
	python, launcher, code *regexp.Regexp
}

var frame = sync.OnceValue(func() framePatterns {
	return framePatterns{
		line:     newGuarded(`File "|^File$|^line \d+, in \w|^-*> *\d+ |❱|\.py in \w|(?:\.|^)py:\d+,? in \w|\w \([\w/]+\.py:\d+\b|> in <module>|^Cell In`),
		python:   regexp.MustCompile(`File "([^"]+)", line (\d+), in (\S+)`),
		launcher: regexp.MustCompile(`bin/(?:torchrun|accelerate|deepspeed)"|torch/distributed/(?:run|launcher|elastic)|load_entry_point`),
		code:     regexp.MustCompile(`^(?:return )?(?:[\w.\[\], ]{1,80} = )?[\w.]{1,80}\(`),
	}
})

// tracebackAround reads the frames before a message, or when there are none (a message may stand before its traceback)
// those after it.
func tracebackAround(p place, end, rank int) Traceback {
	if inside := escapedLines(p); inside != nil && p.affords(len(inside)) {
		if before, _ := framesBefore(linesBack(inside), rank); len(before) > 0 {
			return readFrames(p, before)
		}
	}
	if before, named := framesBefore(p.behind(), rank); len(before) > 0 {
		t := readFrames(p, before)
		t.rank = named
		return t
	}
	t := readFrames(p, framesAfter(p.ahead(end, 3*frameGap), rank))
	if t.Stage == "" {
		return codeBefore(p)
	}
	return t
}

// codeReach is how many lines of a frame may stand before a message in a text that begins inside it.
const codeReach = 3

// codeBefore reads the lines of code before a message, where the text begins with them: its frames were cut off. What
// moves a tensor says little without its frame.
func codeBefore(p place) Traceback {
	var lines []*line
	for l := range p.behind() {
		if p.line > codeReach+1 || !frame().code.MatchString(l.string) {
			return Traceback{rank: -1}
		}
		lines = append(lines, l)
	}
	t := readFrames(p, lines)
	if t.Stage == "model-load" {
		return Traceback{rank: -1}
	}
	return t
}

// escapedLines returns what stands before a message inside one line of JSON or of a Python repr, with its newlines and
// quotes as they were before they were escaped; nil: nothing is escaped.
func escapedLines(p place) []byte {
	line := p.buf[max(0, p.at-behindBytes):p.at]
	line = line[bytes.LastIndexByte(line, '\n')+1:]
	if !bytes.Contains(line, []byte(`\n`)) {
		return nil
	}
	return []byte(strings.NewReplacer(`\n`, "\n", `\"`, `"`).Replace(string(line)))
}

// framesBefore returns the lines of the traceback that ends with the nearest line, and the rank that its first line
// names, -1 none.
func framesBefore(lines iter.Seq[*line], rank int) (kept []*line, named int) {
	named = -1 // kept has the nearest line first until the end
	gap, frames, read := 0, 0, 0
	for l := range lines {
		if read++; read > framesReach || gap > frameGap {
			break
		}
		if ofOtherRank(l, rank) {
			continue
		}
		if strings.Contains(l.string, "Traceback (most recent call last)") ||
			strings.Contains(l.string, "out of memory") ||
			strings.Contains(l.string, "During handling of the above") {
			named = l.rank
			break
		}
		kept = append(kept, l)
		gap++
		if l.isFrame() {
			gap, frames = 0, len(kept)
		}
	}
	kept = kept[:frames]
	slices.Reverse(kept)
	return kept, named
}

// framesAfter returns the lines of a traceback that begins soon, unless it is that of the launcher.
func framesAfter(lines []*line, rank int) []*line {
	var kept []*line
	seen, gap := false, 0
	for _, l := range lines {
		if ofOtherRank(l, rank) {
			continue
		}
		switch {
		case frame().launcher.MatchString(l.string) || strings.Contains(l.string, "During handling of the above"):
			return kept
		case l.isFrame():
			seen, gap = true, 0
		default:
			gap++
		}
		if gap > frameGap {
			return kept
		}
		if seen {
			kept = append(kept, l)
		}
	}
	return kept
}

// ofOtherRank: a line that names a rank belongs to that rank; one without a name may belong to any.
func ofOtherRank(l *line, rank int) bool { return l.rank >= 0 && rank >= 0 && l.rank != rank }

// readFrames reads the lines of a traceback around a place. A stage is found by words that may stand across lines, so
// all of them are read together, if the text affords it.
func readFrames(p place, lines []*line) Traceback {
	t := Traceback{rank: -1}
	var all strings.Builder
	for _, l := range lines {
		all.WriteString(l.squeezedCode())
		t.Nearest = cmp.Or(l.ownFrame(), t.Nearest)
	}
	if !p.affords(all.Len()) {
		return t
	}
	joined := all.String()
	for _, r := range stageRules() {
		if slices.ContainsFunc(r.patterns, func(g guarded) bool { return g.isIn(joined) }) {
			t.Stage, t.Logits = r.stage, r.logits
			break
		}
	}
	return t
}

// squeezeCode drops white space and box characters, as wraps put them into frames too, but keeps quotes.
func squeezeCode(s string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r >= 0x7f {
			return -1
		}
		return r
	}, s)
}
