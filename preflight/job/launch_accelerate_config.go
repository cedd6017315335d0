package job

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"oomguard/preflight/job/document"
	"oomguard/preflight/job/shell"
)

// readConfig finds the configuration: the one that is named, or the user's default one, which is used without a word.
func (a *acceleration) readConfig() bool {
	r := a.r
	named := a.line.values["config_file"]
	file, origin := named.text, named.origin
	if file == "" && !a.line.flag("cpu") {
		file, origin = r.defaultAccelerateConfig(), "used without being named"
	}
	if file == "" {
		return true
	}
	if why, unknown := shell.Unknown(file); unknown {
		r.blocked = "the configuration of accelerate is not known: " + why
		return false
	}
	doc, problems, err := r.accelerateDocument(file)
	r.unread(problems...)
	if err != nil {
		r.rejected(fmt.Errorf("configuration of accelerate (%s): %w", origin, err), origin)
		r.blocked = "the configuration of accelerate could not be read"
		return false
	}
	fields, ok := doc.Value.(map[string]*document.Node)
	if !ok {
		err := doc.Wrong("keys such as distributed_type")
		r.objects(doc.File, err)
		r.blocked = "the configuration of accelerate could not be read"
		return false
	}
	if environment := fields["compute_environment"]; environment != nil && environment.Value != "LOCAL_MACHINE" &&
		environment.Value != nil {
		r.blocked = environment.Origin() + ": only compute_environment LOCAL_MACHINE is read here"
		return false
	}
	a.config = doc
	if err := a.checkConfig(fields); err != nil {
		r.objects(doc.File, err)
	}
	for _, section := range accelerateSections() {
		a.flatten(section.key, section.prefix, fields[section.key])
	}
	return true
}

// defaultAccelerateConfig is the file that accelerate config writes (accelerate/commands/config/config_args.py); ""
// when there is none.
func (r *reader) defaultAccelerateConfig() string {
	home := r.getenv("HF_HOME")
	if home == "" {
		cache := r.getenv("XDG_CACHE_HOME")
		if cache == "" && r.getenv("HOME") != "" {
			cache = filepath.Join(r.getenv("HOME"), ".cache")
		}
		if cache == "" {
			return ""
		}
		home = filepath.Join(cache, "huggingface")
	}
	if rest, ok := strings.CutPrefix(home, "~/"); ok {
		home = filepath.Join(r.getenv("HOME"), rest)
	}
	for _, name := range []string{"default_config.yaml", "default_config.json"} {
		if file := filepath.Join(home, "accelerate", name); isFile(r.path(file)) {
			return file
		}
	}
	return ""
}

// configKeys are the top-level keys of accelerate's ClusterConfig up to 1.15; accelerate refuses others.
func configKeys() []string {
	return strings.Fields(`compute_environment distributed_type mixed_precision use_cpu debug num_processes machine_rank
		num_machines gpu_ids
		main_process_ip main_process_port rdzv_backend same_network main_training_function enable_cpu_affinity
		fp8_config deepspeed_config
		fsdp_config parallelism_config megatron_lm_config ipex_config mpirun_config downcast_bf16 tpu_name tpu_zone
		tpu_use_cluster tpu_use_sudo
		command_file commands tpu_vm tpu_env dynamo_config dynamo_backend fp16 use_xpu`)
}

// distributedTypes are the values of accelerate's DistributedType up to 1.15.
func distributedTypes() []string {
	return strings.Fields("NO MULTI_CPU MULTI_GPU MULTI_NPU MULTI_MLU MULTI_SDAA MULTI_MUSA MULTI_XPU MULTI_HPU " +
		"MULTI_NEURON DEEPSPEED FSDP XLA TPU MEGATRON_LM")
}

// checkConfig finds what accelerate refuses.
func (a *acceleration) checkConfig(fields map[string]*document.Node) error {
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(configKeys(), key) {
			return fmt.Errorf("%s: accelerate knows no key %q and refuses the file; remove it, or update accelerate",
				fields[key].Origin(), key)
		}
	}
	kind := fields["distributed_type"]
	if kind == nil {
		return fmt.Errorf("%s: accelerate needs a distributed_type, such as MULTI_GPU", a.config.File)
	}
	if word, text := kind.Value.(string); text && !slices.Contains(distributedTypes(), word) {
		return kind.Wrong("one of " + strings.Join(distributedTypes(), ", "))
	}
	if n := fields["mixed_precision"]; n != nil {
		if _, boolean := n.Value.(bool); boolean && a.line.values["mixed_precision"].text == "" {
			return fmt.Errorf("%s: mixed_precision is %s, which YAML reads as a boolean, and accelerate fails on it "+
				"(AttributeError: 'bool' object has no attribute 'lower'); write 'no' in quotes",
				n.Origin(), n.Raw)
		}
	}
	return nil
}

// accelerateSections are the nested sections with the prefix that their keys may leave out, because the option has it.
func accelerateSections() []struct{ key, prefix string } {
	return []struct{ key, prefix string }{
		{"fsdp_config", "fsdp_"}, {"fp8_config", "fp8_"}, {"dynamo_config", "dynamo_"}, {"deepspeed_config", ""},
		{"megatron_lm_config", ""},
		{"parallelism_config", ""}, {"mpirun_config", ""},
	}
}

// flatten notes what a section says under the names of the options.
func (a *acceleration) flatten(section, prefix string, at *document.Node) {
	if at == nil {
		return
	}
	fields, _ := at.Value.(map[string]*document.Node)
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		n := fields[key]
		name := key
		if !strings.HasPrefix(key, prefix) {
			name = prefix + key
		}
		if section == "parallelism_config" && !strings.HasPrefix(key, section) {
			a.r.unread(fmt.Errorf("%s: accelerate does not use %q; write %s_%s", n.Origin(), key, section, key))
		}
		switch text, err := n.Text(); {
		case err == nil:
			a.below[name] = sourced{text, n.Origin()}
		case n.Value != nil:
			a.r.unread(err)
		}
	}
}
