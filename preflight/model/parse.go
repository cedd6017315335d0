package model

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// UnknownTypeError says that a model_type is not in the table, so that its parameters cannot be counted.
type UnknownTypeError struct {
	Type  string   // the model_type found; "" when the config has none
	Path  string   // the file
	Known []string // the types that can be counted
}

// Error asks for --params: an architecture is never guessed from the look of its config.
func (e *UnknownTypeError) Error() string {
	found := fmt.Sprintf("model_type %q is not one that oomguard can count", e.Type)
	if e.Type == "" {
		found = "there is no model_type, so its parameters cannot be counted"
	}
	return fmt.Sprintf("%s: %s (known: %s): give --params for a lower bound, for example --params 7B",
		e.Path, found, strings.Join(e.Known, ", "))
}

// Parse reads the text of a config.json; source names it in errors and in the result. It returns an architecture with
// every weight, or one error that lists all problems at once (a *multierror.Error when there are several). Keys that
// the config leaves out take the defaults of their transformers configuration class.
func Parse(data []byte, source string) (*Architecture, error) {
	return parse(data, source, "")
}

// parse counts the weights of class, or of the class that the config names when class is "".
func parse(data []byte, source, class string) (*Architecture, error) {
	root, err := parseObject(data, source)
	if err != nil {
		return nil, err
	}
	c := &config{object: root}
	modelType := c.text("", "model_type")
	if err := c.err(); err != nil {
		return nil, err
	}
	f := find(rows(), modelType)
	if f == nil || f.usual == "" {
		return nil, &UnknownTypeError{Type: modelType, Path: source, Known: Types()}
	}
	c.types = rows()
	c.readClass(*f, class)
	b := f.build(c)
	b.Name, b.Source, b.Type, b.Class = source, source, modelType, c.class
	b.takeFacts()
	b.Dtype = cmp.Or(c.dtype(), b.Dtype)
	c.quantization(&b.Architecture)
	c.checkHeads(&b.Architecture)
	if b.Encoder != nil {
		c.checkHeads(b.Encoder)
	}
	if err := c.err(); err != nil {
		return nil, err
	}
	a := b.assemble(c.task)
	a.Assumptions = c.assumptions
	if !a.countable() {
		return nil, fmt.Errorf("%s: its sizes multiply to more than %d parameters: correct the config", source,
			int64(maxParameters))
	}
	return a, nil
}

// Types lists every model_type that can be counted, sorted.
func Types() []string {
	var names []string
	for _, f := range rows() {
		if f.usual != "" {
			names = append(names, f.modelType)
		}
	}
	slices.Sort(names)
	return names
}

// task is what a transformers class does on top of the base model.
type task struct {
	suffix     string // how the names of its classes end
	vocabulary bool   // puts out a number for every token of the vocabulary
	classifies bool   // puts out a number for every label
	pools      bool   // does so once for a sequence
}

// The tasks that some family knows.
var (
	bareModel              = task{suffix: "Model"}
	causalLM               = task{suffix: "ForCausalLM", vocabulary: true}
	causalLMOldName        = task{suffix: "LMHeadModel", vocabulary: true} // GPT2LMHeadModel, BertLMHeadModel
	maskedLM               = task{suffix: "ForMaskedLM", vocabulary: true}
	preTraining            = task{suffix: "ForPreTraining", vocabulary: true}
	nextSentence           = task{suffix: "ForNextSentencePrediction"}
	sequenceClassification = task{suffix: "ForSequenceClassification", classifies: true, pools: true}
	tokenClassification    = task{suffix: "ForTokenClassification", classifies: true}
	questionAnswering      = task{suffix: "ForQuestionAnswering", classifies: true}
	multipleChoice         = task{suffix: "ForMultipleChoice"}
	conditionalGeneration  = task{suffix: "ForConditionalGeneration", vocabulary: true}
	imageClassification    = task{suffix: "ForImageClassification", classifies: true, pools: true}
	audioClassification    = task{suffix: "ForAudioClassification", classifies: true}
	encoderAlone           = task{suffix: "EncoderModel"} // T5EncoderModel
)

var tasks = []task{causalLM, causalLMOldName, maskedLM, preTraining, nextSentence, sequenceClassification,
	tokenClassification,
	questionAnswering, multipleChoice, conditionalGeneration, imageClassification, audioClassification, encoderAlone,
	bareModel}

// readClass decides which class is counted: the one asked for, else the first of architectures, else the family's usual
// one.
func (c *config) readClass(f family, asked string) {
	var classes []string
	if name, text := c.find("architectures"); text != nil {
		if err := json.Unmarshal(text, &classes); err != nil {
			c.reject(name, "architectures is %s, want a list of class names", clip(text))
		}
	}
	switch {
	case asked != "":
		c.class = asked
		if strings.HasPrefix(asked, "For") { // the task alone
			stem, _, _ := taskOf(f.usual)
			c.class = stem + asked
		}
	case len(classes) > 0:
		c.class = classes[0]
	default:
		c.class = f.usual
		c.assume("the config names no class (architectures); its weights are those of %s", f.usual)
	}
	var ok bool
	if _, c.task, ok = taskOf(c.class); ok {
		return
	}
	c.reject("architectures", "class %q is not one whose weights can be counted: if the run trains another class, "+
		"such as %s, put that there; otherwise give --params for a lower bound",
		c.class, f.usual)
}

// taskOf splits the name of a class into its stem and its task.
func taskOf(class string) (string, task, bool) {
	for _, t := range tasks {
		stem, ok := strings.CutSuffix(class, t.suffix)
		// BertModel is a bare model; GPT2DoubleHeadsModel and LlamaForRewardModel are not.
		if !ok || t == bareModel && (strings.Contains(stem, "For") || strings.Contains(stem, "Head")) {
			continue
		}
		if t == causalLMOldName {
			t = causalLM
		}
		return stem, t, true
	}
	return "", task{}, false
}

// head picks the weights of the class's head out of those that the family has.
func (c *config) head(heads map[task][]Tensor) []Tensor {
	tensors, ok := heads[c.task]
	if !ok && c.task != (task{}) {
		c.reject("architectures", "class %q: this task is not known for its model_type: "+
			"give --params for a lower bound", c.class)
	}
	return tensors
}

// dtypes maps the names PyTorch uses in a config to oomguard's.
var dtypes = map[string]string{
	"float32": "fp32", "float": "fp32",
	"bfloat16": "bf16",
	"float16":  "fp16", "half": "fp16",
}

// dtype is that of the stored weights. transformers 5 writes dtype, 4 wrote torch_dtype.
func (c *config) dtype() string {
	name, text := c.find("dtype", "torch_dtype")
	if text == nil {
		return ""
	}
	stored := c.text("", name)
	known, ok := dtypes[trimTorch(stored)]
	if !ok {
		c.assume("%s %q is not fp32, fp16 or bf16, so the dtype of the stored weights is taken as unknown", name,
			stored)
	}
	return known
}

// checkHeads rejects head counts for which the model's constructor or its first forward pass would fail.
func (c *config) checkHeads(a *Architecture) {
	if c.problems != nil {
		return // the sizes below may be placeholders
	}
	if a.Heads == 0 { // no block has attention
		return
	}
	if a.HeadDim == 0 {
		c.reject("num_attention_heads",
			"hidden size %d is not a multiple of its %d attention heads and no head_dim is given: correct one of them",
			a.Hidden, a.Heads)
	}
	if a.KVHeads == 0 || a.Heads%a.KVHeads != 0 {
		defaulted := ""
		if name, _ := c.find("num_key_value_heads", "num_kv_heads"); name == "" {
			defaulted = " (the default of its configuration class, as the config does not say)"
		}
		c.reject("num_key_value_heads",
			"%d attention heads are not a multiple of %d key-value heads%s: correct one of them",
			a.Heads, a.KVHeads, defaulted)
	}
}

// trimTorch drops the prefix that some configs write: torch.bfloat16.
func trimTorch(dtype string) string { return strings.TrimPrefix(dtype, "torch.") }
