package job

import (
	"slices"
	"strings"
)

// strange finds an option among the command's words of which nobody here has heard. It may say in other words what
// seems to be missing. A job with many contradictions asks often, so the answer is kept as long as it can be no other.
func (r *reader) strange() string {
	now := stranger{words: len(r.words), kinds: len(r.kinds), framework: r.family.framework}
	if found := r.stranger; found != nil && found.words == now.words && found.kinds == now.kinds &&
		found.framework == now.framework {
		return found.option
	}
	now.option = r.findStrange()
	r.stranger = &now
	return now.option
}

func (r *reader) findStrange() string {
	var known map[string]bool
	for _, word := range r.words {
		given, _, _ := strings.Cut(word, "=")
		if !strings.HasPrefix(given, "--") || given == "--" || strings.Contains(given, ".") {
			continue
		}
		if known == nil {
			known = r.knownOptions()
		}
		if name := plainName(given); !known[name] && !abbreviates(name, known) && !r.mentioned(name) {
			return given
		}
	}
	return ""
}

// abbreviates reports whether a name is the beginning of a known one, or negates one.
func abbreviates(name string, known map[string]bool) bool {
	if positive, negated := strings.CutPrefix(name, "no_"); negated && known[positive] {
		return true
	}
	for option := range known {
		if strings.HasPrefix(option, name) {
			return true
		}
	}
	return false
}

// knownOptions are the names of all options of which something is known here.
func (r *reader) knownOptions() map[string]bool {
	known := optionSet(strings.Join([]string{otherTrainingFields, scriptFields, launchFields, fileFields, scriptFlags,
		megatronFlags, megatronValues, megatronLists}, " "))
	for name := range r.argumentKinds() {
		known[name] = true
	}
	for name := range r.kinds {
		known[name] = true
	}
	for _, o := range slices.Concat(torchrunOptions(), accelerateOptions(), deepspeedOptions(), fabricOptions()) {
		for _, name := range o.names {
			known[plainName(name)] = true
		}
	}
	return known
}

// mentioned reports whether the script's own text has an option.
func (r *reader) mentioned(name string) bool {
	t := r.scriptText()
	return t != nil && slices.ContainsFunc(t.files, func(f *sourceFile) bool {
		return strings.Contains(f.raw, name) || strings.Contains(f.raw, strings.ReplaceAll(name, "_", "-"))
	})
}

// fileFields are options that name files of settings, or settings of few frameworks.
const fileFields = `config config_file config_path config_dir quantize precision devices num_nodes data out_dir
	logger_name zero_stage max_seq_length batch_size loss_type beta
	max_completion_length max_prompt_length num_generations model_type config_overrides stage template tokenizer_type`
