package job

import (
	"fmt"
	"oomguard/preflight/job/document"
	"os"
	"strings"
)

// An argument is one option of the training script, as HfArgumentParser would store it.
type argument struct {
	text   string         // "" when bare
	list   []string       // words of a list option
	bare   bool           // given without a value
	node   *document.Node // the value in a JSON file of arguments; nil on the command line
	origin string         // "command line --bf16", "args.json:7"
}

type argumentKind int

const (
	wordArgument argumentKind = iota
	boolArgument              // bare, or with a truth word
	listArgument              // takes every word up to the next option
)

// trainingOptions are the options that this reader understands, by the name of their field, for Hugging Face's TrainingArguments,
// the example scripts and TRL's ModelConfig and SFTConfig. Options that are not here belong to the script.
func trainingOptions() map[string]argumentKind {
	options := map[string]argumentKind{}
	for kind, names := range map[argumentKind]string{
		wordArgument: `model_name_or_path output_dir per_device_train_batch_size per_gpu_train_batch_size gradient_accumulation_steps
			optim optim_args deepspeed deepspeed_config fsdp fsdp_config torch_dtype dtype attn_implementation
			block_size max_seq_length max_length model_max_length max_seq_len lora_r lora_alpha lora_dropout
			bnb_4bit_quant_type bnb_4bit_quant_storage eval_strategy evaluation_strategy save_strategy`,
		boolArgument: `bf16 fp16 bf16_full_eval fp16_full_eval tf32 gradient_checkpointing adafactor use_peft use_rslora use_dora
			load_in_4bit load_in_8bit use_bnb_nested_quant packing use_liger_kernel use_liger auto_find_batch_size do_train
			activation_offloading ddp_find_unused_parameters torch_compile`,
		listArgument: `lora_target_modules lora_modules_to_save`,
	} {
		for name := range strings.FieldsSeq(names) {
			options[name] = kind
		}
	}
	return options
}

// otherTrainingFields are the fields of TrainingArguments (transformers 4.5x and 5) that this reader does not use. They count when
// argparse decides whether an abbreviation is unique.
const otherTrainingFields = `overwrite_output_dir do_eval do_predict eval_steps eval_delay eval_accumulation_steps eval_on_start
	per_device_eval_batch_size per_gpu_eval_batch_size prediction_loss_only torch_empty_cache_steps learning_rate weight_decay
	adam_beta1 adam_beta2 adam_epsilon max_grad_norm num_train_epochs max_steps lr_scheduler_type lr_scheduler_kwargs warmup_ratio
	warmup_steps log_level log_level_replica log_on_each_node logging_dir logging_strategy logging_first_step logging_steps
	logging_nan_inf_filter save_steps save_total_limit save_safetensors save_on_each_node save_only_model
	restore_callback_states_from_checkpoint no_cuda use_cpu use_mps_device use_ipex seed data_seed jit_mode_eval fp16_opt_level
	fp16_backend half_precision_backend local_rank ddp_backend ddp_bucket_cap_mb ddp_broadcast_buffers ddp_timeout tpu_num_cores
	tpu_metrics_debug debug dataloader_drop_last dataloader_num_workers dataloader_prefetch_factor dataloader_pin_memory
	dataloader_persistent_workers past_index run_name disable_tqdm remove_unused_columns label_names load_best_model_at_end
	metric_for_best_model greater_is_better ignore_data_skip fsdp_min_num_params fsdp_transformer_layer_cls_to_wrap
	accelerator_config parallelism_config label_smoothing_factor group_by_length train_sampling_strategy length_column_name report_to
	project trackio_space_id skip_memory_metrics use_legacy_prediction_loop push_to_hub resume_from_checkpoint hub_model_id hub_strategy
	hub_token hub_private_repo hub_always_push hub_revision gradient_checkpointing_kwargs include_inputs_for_metrics include_for_metrics
	mp_parameters full_determinism torchdynamo ray_scope torch_compile_backend torch_compile_mode include_tokens_per_second
	include_num_input_tokens_seen neftune_noise_alpha optim_target_modules batch_eval_metrics liger_kernel_config eval_use_gather_object
	average_tokens_across_devices`

// parseArguments reads the script's words by the grammar of HfArgumentParser: two spellings of every option, --option=value, bare
// booleans, --no_option, lists, the last one wins. With abbreviations it also accepts unique prefixes, as argparse does. Words that
// belong to no known option are the script's own business.
func parseArguments(words []string, abbreviations bool, origin func(option string) string) map[string]argument {
	g := &grammar{options: trainingOptions(), abbreviations: abbreviations, origin: origin}
	args := map[string]argument{}
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		if !strings.HasPrefix(word, "--") || word == "--" {
			continue
		}
		option, value, attached := strings.Cut(word, "=")
		name, negated := g.resolve(option)
		if name == "" {
			continue
		}
		a := argument{text: value, origin: g.origin(option)}
		if abbreviated := strings.ReplaceAll(strings.TrimPrefix(option, "--"), "-", "_"); !negated && abbreviated != name {
			a.origin += " (for --" + name + ")"
		}
		switch {
		case negated:
			a.text = "false"
		case attached:
			a.list = []string{value}
		default:
			words = g.value(&a, name, words)
		}
		args[name] = a
	}
	return args
}

type grammar struct {
	options       map[string]argumentKind
	abbreviations bool
	origin        func(option string) string
}

// resolve finds the field that an option names; "" when it is unknown or ambiguous.
func (g *grammar) resolve(option string) (name string, negated bool) {
	given := strings.TrimPrefix(option, "--")
	plain := strings.ReplaceAll(given, "-", "_")
	if _, ok := g.options[plain]; ok {
		return plain, false
	}
	if positive, ok := strings.CutPrefix(plain, "no_"); ok {
		if kind, known := g.options[positive]; known && kind == boolArgument {
			return positive, true
		}
	}
	// A prefix must be spelt with one kind of dash throughout: --per-device_train matches neither spelling.
	if !g.abbreviations || strings.Contains(given, "-") && strings.Contains(given, "_") {
		return "", false
	}
	matches := 0
	for field := range strings.FieldsSeq(otherTrainingFields) {
		if strings.HasPrefix(field, plain) {
			matches++
		}
	}
	for field := range g.options {
		if strings.HasPrefix(field, plain) {
			matches++
			name = field
		}
	}
	if matches != 1 {
		return "", false
	}
	return name, false
}

// value takes an option's words from the front of words and returns what is left.
func (g *grammar) value(a *argument, name string, words []string) []string {
	for len(words) > 0 && !isOption(words[0]) && words[0] != "--" {
		if g.options[name] == boolArgument {
			if _, ok := document.ParseBool(words[0]); !ok {
				break // a positional word of the script
			}
		}
		a.list = append(a.list, words[0])
		words = words[1:]
		if g.options[name] != listArgument {
			break
		}
	}
	if len(a.list) == 0 {
		a.bare = true
		return words
	}
	a.text = a.list[0]
	return words
}

// jsonArguments reads a JSON file of arguments: `run_clm.py args.json`.
func jsonArguments(doc *document.Node) (map[string]argument, error) {
	fields, ok := doc.Value.(map[string]*document.Node)
	if !ok {
		return nil, doc.Wrong("an object of arguments")
	}
	args := map[string]argument{}
	options := trainingOptions()
	for name, field := range fields {
		if _, known := options[name]; !known || field.Value == nil {
			continue
		}
		a := argument{node: field, origin: field.Origin()}
		if items, ok := field.Value.([]*document.Node); ok {
			for _, item := range items {
				text, err := item.Text()
				if err != nil {
					return nil, err
				}
				a.list = append(a.list, text)
			}
			a.text = strings.Join(a.list, " ")
		} else if text, err := field.Text(); err == nil {
			a.text, a.list = text, []string{text}
		}
		args[name] = a
	}
	return args, nil
}

// collectArguments gathers the script's arguments from where its parser takes them.
func (r *reader) collectArguments(abbreviations bool) map[string]argument {
	words := r.job.ScriptArgs
	onCommandLine := func(option string) string { return "command line " + option }
	if len(words) == 1 && strings.HasSuffix(words[0], ".json") && r.family.readsJSON {
		doc, problems, err := r.jsonFile(words[0])
		r.job.Problems = append(r.job.Problems, problems...)
		if err == nil {
			var args map[string]argument
			if args, err = jsonArguments(doc); err == nil {
				return args
			}
		}
		r.problem(fmt.Errorf("arguments of %s: %w", r.job.Script.Value, err))
		return nil
	}
	args := parseArguments(words, abbreviations, onCommandLine)
	if !abbreviations {
		return args
	}
	// HfArgumentParser reads <script>.args before the command line, without a word.
	file := strings.TrimSuffix(r.job.Script.Value, ".py") + ".args"
	if _, err := os.Stat(r.path(file)); err != nil {
		return args
	}
	data, err := document.Read(r.path(file), file)
	if err != nil {
		r.problem(err)
		return args
	}
	for name, a := range parseArguments(strings.Fields(string(data)), true, func(option string) string { return file + " " + option }) {
		if _, given := args[name]; !given {
			args[name] = a
		}
	}
	return args
}

// jsonFile reads a JSON file, or the document itself when the word is one ("{...}"), as HfArgumentParser does for dictionaries.
func (r *reader) jsonFile(word string) (*document.Node, []error, error) {
	if strings.HasPrefix(word, "{") {
		return document.JSON([]byte(word), "JSON on the command line")
	}
	data, err := document.Read(r.path(word), word)
	if err != nil {
		return nil, nil, err
	}
	return document.JSON(data, word)
}

// Helpers that read one argument, record what is wrong with it, and say whether it was given.

func (r *reader) boolean(name string) (value, given bool) {
	a, given := r.args[name]
	if !given || a.bare {
		return given, given
	}
	value, ok := document.ParseBool(a.text)
	if !ok {
		r.wrongArgument(a, "true or false")
	}
	return value, ok
}

func (r *reader) on(name string) bool {
	value, _ := r.boolean(name)
	return value
}

func (r *reader) integer(name string, set *Setting[int]) {
	a, given := r.args[name]
	if !given {
		return
	}
	n, err := pythonInt(a.text)
	if err != nil || n < 1 {
		r.wrongArgument(a, "a whole number from 1")
		return
	}
	set.Offer(n, a.origin)
}

// wrongArgument is an error only where HfArgumentParser would refuse it too; another script may mean something else by the name.
func (r *reader) wrongArgument(a argument, need string) {
	if !r.family.huggingFace() {
		return
	}
	if a.node != nil {
		r.problem(a.node.Wrong(need))
		return
	}
	r.problem(fmt.Errorf("%s is %q, need %s", a.origin, a.text, need))
}
