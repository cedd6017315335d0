package job

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"oomguard/preflight/job/shell"
)

// What a word that nobody can see does to the settings, in one place:
//
// A part of a value that is not known (--lr $LR) makes the setting unknown that its option names, and what follows from that one.
//
// A word that may stand for any number of words ($ARGS, filled where nobody can see) may hold any option. Settings that nothing else
// gives are then unknown, and no default stands in for them (withholdOpen). Those that the command gives keep their values, although
// argparse would take a later one: people add options that way, and seldom repeat them.
//
// A variable that is set nowhere is empty where the command runs in this environment. Elsewhere it may be set; it is taken for empty where
// it stands as a whole unquoted word that is neither the value of an option nor among those of a launcher ($EXTRA_ARGS), and is not known
// otherwise (settleWords).
//
// As long as a word may be another one, a contradiction is not certain, and is a warning (uncertain).

// settleWords makes of a command's words what the shell makes of them where variables are set nowhere; unset are the reasons of what is
// taken for empty.
func (r *reader) settleWords(words []string) (settled, unset []string) {
	for i, word := range words {
		text, vanishes, empty := shell.Empty(word)
		switch {
		case len(empty) == 0, vanishes && !r.goesOn(settled, words[i+1:], word), !vanishes && r.src.Place != Here:
			settled = append(settled, word)
			continue
		case !vanishes:
			settled = append(settled, text)
		}
		unset = append(unset, empty...)
	}
	return settled, unset
}

// goesOn reports whether a command goes on behind a word that vanishes: with its program where it was the first. Elsewhere than in this
// environment, it was neither among the options of a launcher nor the value of an option.
func (r *reader) goesOn(before, after []string, word string) bool {
	here := r.src.Place == Here
	switch {
	case len(before) == 0 && len(after) > 0:
		return r.leads(after[0]) && (here || !strings.HasSuffix(after[0], ".py"))
	case len(before) == 0, here:
		return true
	}
	return !launching(before) && (!isOption(before[len(before)-1]) || holdsOptions(word))
}

// launching reports that a launcher's own options are being given: its script does not stand there yet.
func launching(words []string) bool {
	open := false
	for i, word := range words {
		switch {
		case strings.HasSuffix(word, ".py"), open && (word == "-m" || word == "--module"):
			open = false
		case slices.Contains([]string{"torchrun", "deepspeed", "accelerate", "composer", "colossalai"}, filepath.Base(word)),
			i > 0 && words[i-1] == "-m" && (word == "torch.distributed.run" || word == "torch.distributed.launch"):
			open = true
		}
	}
	return open
}

// doubtWords records what is not certain of the words of the command that is followed.
func (r *reader) doubtWords(words, unset []string) {
	for _, why := range unset {
		r.doubt(why + "; it is taken for empty")
		r.note(why + "; it is taken for empty")
	}
	for i, word := range words {
		whys := shell.Reasons(word)
		r.gaps = append(r.gaps, whys...)
		if shell.Several(word) && !r.valueAt(words, i) {
			r.doubt(whys[0])
		}
	}
}

// settleText is a text of a script, such as a file that it writes, where variables are set nowhere.
func (r *reader) settleText(text string) string {
	if r.src.Place != Here {
		return text
	}
	text, _, unset := shell.Empty(text)
	if len(unset) > 0 {
		r.doubt(unset[0] + "; it is taken for empty")
	}
	return text
}

// doubt records why no contradiction is certain.
func (r *reader) doubt(why string) {
	if r.uncertain == "" {
		r.uncertain = why
	}
}

// openWords says why the script may be told more than can be seen: a word of which nobody knows how many it is stands among its arguments.
func (r *reader) openWords() string {
	for i, word := range r.job.ScriptArgs {
		if shell.Several(word) && !r.valueAt(r.job.ScriptArgs, i) {
			why, _ := shell.Unknown(word)
			return why
		}
	}
	return ""
}

// valueAt reports whether a word is the value of the option in front of it. Of an option that is not known, a word is the value unless its
// name says that it holds options.
func (r *reader) valueAt(words []string, i int) bool {
	if i == 0 || !isOption(words[i-1]) || strings.Contains(words[i-1], "=") {
		return false
	}
	takes, known := takesValue(words[i-1])
	return takes || !known && !holdsOptions(words[i])
}

// takesValue reports whether an option takes a word, where its name means the same everywhere.
func takesValue(option string) (takes, known bool) {
	name := plainName(option)
	fields := trainingFields()
	switch {
	case slices.Contains(strings.Fields(fields[wordArgument]), name), slices.Contains(strings.Fields(fields[truthArgument]), name):
		return true, true
	case slices.Contains(strings.Fields(fields[boolArgument]), name), slices.Contains(strings.Fields(fields[listArgument]), name),
		slices.Contains(strings.Fields(trainingFlags), name):
		return false, true
	case slices.Contains(strings.Fields(otherTrainingFields), name):
		return true, true
	}
	for _, o := range torchrunOptions() {
		if slices.Contains(o.names, option) {
			return o.kind != flagOption, true
		}
	}
	return false, false
}

// trainingFlags are those of otherTrainingFields that take no value, or none but true and false.
const trainingFlags = `overwrite_output_dir do_predict eval_on_start prediction_loss_only log_on_each_node logging_first_step logging_nan_inf_filter
	save_safetensors save_on_each_node use_mps_device use_ipex jit_mode_eval dataloader_drop_last dataloader_pin_memory
	dataloader_persistent_workers disable_tqdm remove_unused_columns greater_is_better ignore_data_skip group_by_length skip_memory_metrics
	use_legacy_prediction_loop push_to_hub hub_private_repo hub_always_push include_inputs_for_metrics full_determinism
	include_tokens_per_second include_num_input_tokens_seen batch_eval_metrics eval_use_gather_object average_tokens_across_devices
	enable_jit_checkpoint eval_do_concat_batches use_cache restore_callback_states_from_checkpoint`

// holdsOptions judges a variable by its name: EXTRA_ARGS and TRAIN_OPTIONS hold options, DATA_PATH does not.
func holdsOptions(word string) bool {
	name := strings.ToUpper(shell.Plain(word))
	return slices.ContainsFunc([]string{"ARG", "OPT", "FLAG", "PARAM", "EXTRA", "CONF", "CMD", "$@", "$*"}, func(part string) bool { return strings.Contains(name, part) })
}

// withholdOpen keeps defaults away from what an open word may hold.
func (r *reader) withholdOpen() {
	why := r.openWords()
	if why == "" {
		return
	}
	said := []string{"launcher", "outer", "framework", "task", "nnodes", "nproc", "world_size", "script", "model_params", "global_batch", "will_fail", "ds_resolved"}
	r.job.eachFact(func(key string, f fact) {
		if !slices.Contains(said, key) {
			f.Withhold("not seen, but " + why)
		}
	})
	r.load.Withhold("not seen, but " + why)
}

// tellUnread names the settings that are not known because of a word of a script that is not.
func (r *reader) tellUnread() {
	slices.Sort(r.gaps)
	for _, why := range slices.Compact(r.gaps) {
		var keys []string
		r.job.eachFact(func(key string, f fact) {
			if n := f.named(key); !n.Known && strings.Contains(n.Origin, why) {
				keys = append(keys, key)
			}
		})
		const most = 6
		switch {
		case len(keys) > most:
			r.unread(fmt.Errorf("%s; %d settings are not known for it, %s among them", why, len(keys), strings.Join(keys[:most], ", ")))
		case len(keys) > 0:
			r.unread(fmt.Errorf("%s; not known for it: %s", why, strings.Join(keys, ", ")))
		}
	}
}
