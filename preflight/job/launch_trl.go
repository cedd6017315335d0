package job

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"oomguard/preflight/job/document"
	"oomguard/preflight/job/shell"
)

// trlConfigs is where TRL keeps the configurations of accelerate that it brings along, by the name that
// --accelerate_config takes.
const trlConfigs = "trl/accelerate_configs/"

// trlAccelerateConfigs are those configurations (trl/accelerate_configs, the same from 0.17 to 1.9), less what decides
// nothing here.
func trlAccelerateConfigs() map[string]string {
	const common = "machine_rank: 0\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 8\n"
	const fsdp = "distributed_type: FSDP\nfsdp_config: {fsdp_activation_checkpointing: false, " +
		"fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP, " +
		"fsdp_cpu_ram_efficient_loading: true, fsdp_offload_params: false, fsdp_state_dict_type: FULL_STATE_DICT, "
	const zero = "distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_multinode_launcher: standard, "
	const stays = "offload_optimizer_device: none, offload_param_device: none, "
	return map[string]string{
		"fsdp1": common + fsdp + "fsdp_version: 1, fsdp_backward_prefetch: BACKWARD_PRE, fsdp_forward_prefetch: " +
			"true, fsdp_reshard_after_forward: FULL_SHARD, " +
			"fsdp_sync_module_states: true, fsdp_use_orig_params: true}\n",
		"fsdp2":      common + fsdp + "fsdp_version: 2, fsdp_reshard_after_forward: true}\n",
		"multi_gpu":  common + "distributed_type: MULTI_GPU\ngpu_ids: all\n",
		"single_gpu": common + "distributed_type: \"NO\"\ngpu_ids: all\n",
		"zero1":      common + zero + "gradient_accumulation_steps: 1, zero3_init_flag: false, zero_stage: 1}\n",
		"zero2":      common + zero + stays + "zero3_init_flag: false, zero_stage: 2}\n",
		"zero3":      common + zero + stays + "zero3_init_flag: true, zero3_save_16bit_model: true, zero_stage: 3}\n",
	}
}

// accelerateDocument reads a configuration of accelerate: a file, or one that TRL brings along.
func (r *reader) accelerateDocument(file string) (*document.Node, []error, error) {
	if name, packaged := strings.CutPrefix(strings.TrimSuffix(file, ".yaml"), trlConfigs); packaged &&
		!isFile(r.path(file)) {
		if text, known := trlAccelerateConfigs()[name]; known {
			return document.YAML([]byte(text), file)
		}
	}
	return r.loadFile(file)
}

// readTRLCommand reads `trl sft ...`, which is accelerate launch of TRL's own script: options that the script does not
// know go to accelerate launch (trl/cli). Up to 0.28 only sft passed them on; the other programs dropped them.
func (r *reader) readTRLCommand(prog string, args []string) {
	if len(args) == 0 {
		r.blocked = prog + " without a program does not train"
		return
	}
	program := args[0]
	if task, known := trlTasks()[program]; !known || task == "" {
		r.blocked = prog + " " + program + " does not train"
		return
	}
	script := "trl/scripts/" + program + ".py"
	known := r.trlOptions(program)
	launch, own := r.splitTRL(args[1:], known)
	r.readVersions()
	passes, versioned := r.atLeast("trl", 0, 29)
	if program == "sft" {
		passes, versioned = r.atLeast("trl", 0, 17)
	}
	if versioned && !passes && len(launch) > 0 {
		r.note(fmt.Sprintf("%s drops %s before accelerate launch", r.installed("trl"), strings.Join(launch, " ")))
		launch = nil
	}
	r.withholdRanks(args)
	r.readWords(slices.Concat([]string{"accelerate", "launch"}, launch, []string{script}, own), 1)
}

// withholdRanks makes the number of processes unknown where options stand that nobody can see and that may change it.
func (r *reader) withholdRanks(words []string) {
	for i, word := range words {
		if why, _ := shell.Unknown(word); shell.Whole(word) && !r.valueAt(words, i) {
			r.job.NNodes.Withhold(why)
			r.job.NProc.Withhold(why)
		}
	}
}

// trlOptions are the options that TRL's script knows.
func (r *reader) trlOptions(program string) map[string]argumentKind {
	before := r.family
	r.family = family{framework: "trl", program: program, fields: trlFields}
	known := r.argumentKinds()
	r.family = before
	for name := range strings.FieldsSeq(otherTrainingFields) {
		known[name] = wordArgument
	}
	return known
}

// splitTRL separates the words of accelerate launch from those of the script; both may come from the file of --config
// too.
func (r *reader) splitTRL(words []string, known map[string]argumentKind) (launch, own []string) {
	options := map[string]option{}
	for _, o := range accelerateOptions() {
		if _, script := known[o.dest]; !script {
			options[o.dest] = o
		}
	}
	if file, _ := trlConfigWord(words); shell.Whole(file) {
		why, _ := shell.Unknown(file)
		r.job.NNodes.Withhold(why)
		r.job.NProc.Withhold(why)
	} else if file != "" {
		launch = r.launchFields(file, options)
	}
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		name, value, attached := strings.Cut(word, "=")
		dest := strings.ReplaceAll(strings.TrimPrefix(name, "--"), "-", "_")
		o, accelerate := options[dest]
		switch {
		case !strings.HasPrefix(word, "--") || dest != "accelerate_config" && !accelerate:
			own = append(own, word)
			continue
		case accelerate && o.kind == flagOption:
			launch = append(launch, word)
			continue
		case !attached && len(words) > 0:
			value, words = words[0], words[1:]
		}
		if dest == "accelerate_config" {
			launch = append([]string{"--config_file", r.trlConfigFile(value)}, launch...)
		} else {
			launch = append(launch, name, value)
		}
	}
	return launch, own
}

// trlConfigFile is the file that --accelerate_config means: one that is there, or a packaged one.
func (r *reader) trlConfigFile(name string) string {
	if _, packaged := trlAccelerateConfigs()[name]; packaged && !r.hasFile(name) {
		return trlConfigs + name + ".yaml"
	}
	return name
}

// launchFields are the options of accelerate launch in the file of --config. What is wrong with the file is recorded
// where the script's own fields are read.
func (r *reader) launchFields(file string, options map[string]option) (launch []string) {
	doc, _, err := r.loadFile(file)
	if err != nil {
		return nil
	}
	fields, _ := doc.Value.(map[string]*document.Node)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		text, err := fields[name].Text()
		if err != nil {
			continue
		}
		if name == "accelerate_config" {
			launch = append([]string{"--config_file", r.trlConfigFile(text)}, launch...)
		} else if o, known := options[name]; known && o.kind != flagOption {
			launch = append(launch, "--"+name, text)
		} else if on, ok := document.ParseBool(text); known && ok && on {
			launch = append(launch, "--"+name)
		}
	}
	return launch
}
