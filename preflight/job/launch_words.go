package job

import (
	"strings"
)

// torchrunOptions is the parser of torch/distributed/run.py (get_args_parser, torch 2.6 to 2.15).
func torchrunOptions() []option {
	both := func(dest string, kind optionKind) option {
		dashed := "--" + strings.ReplaceAll(dest, "_", "-")
		return option{names: []string{dashed, "--" + dest}, dest: dest, kind: kind, env: true}
	}
	options := []option{
		{names: []string{"-h", "--help"}, dest: "help", kind: flagOption},
		{names: []string{"--nnodes"}, dest: "nnodes", env: true},
		both("nproc_per_node", textOption),
		both("rdzv_backend", textOption),
		both("rdzv_endpoint", textOption),
		both("rdzv_id", textOption),
		both("rdzv_conf", textOption),
		{names: []string{"--standalone"}, dest: "standalone", kind: flagOption, env: true},
		both("max_restarts", intOption),
		both("monitor_interval", floatOption),
		both("start_method", textOption),
		both("event_log_handler", textOption),
		{names: []string{"--role"}, dest: "role", env: true},
		{names: []string{"-m", "--module"}, dest: "module", kind: flagOption, env: true},
		both("no_python", flagOption),
		both("run_path", flagOption),
		both("log_dir", textOption),
		{names: []string{"-r", "--redirects"}, dest: "redirects", env: true},
		{names: []string{"-t", "--tee"}, dest: "tee", env: true},
		both("log_line_prefix_template", textOption),
		both("local_ranks_filter", textOption),
		both("duplicate_stdout_filters", textOption),
		both("duplicate_stderr_filters", textOption),
		both("node_rank", intOption),
		both("master_addr", textOption),
		both("master_port", intOption),
		both("local_addr", textOption),
		both("logs_specs", textOption),
		both("numa_binding", textOption),
		both("signals_to_handle", textOption),
		both("shutdown_timeout", intOption),
		both("virtual_local_rank", flagOption),
	}
	for i := range options {
		if options[i].dest == "logs_specs" || options[i].dest == "numa_binding" {
			options[i].env = false // plain argparse actions
		}
	}
	return options
}
