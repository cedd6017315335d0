package job

import (
	"slices"
	"strings"
)

// readAxolotl reads `axolotl train CONFIG`, which starts accelerate, torchrun or Python itself (axolotl/cli/main.py,
// cli/utils/train.py): words after -- are the launcher's, --num-processes and --main-process-port go to accelerate, and
// the rest overrides the configuration.
func (r *reader) readAxolotl(prog string, args []string) {
	if len(args) == 0 || args[0] != "train" {
		r.blocked = prog + " without train does not train; give the command that trains"
		return
	}
	words, launcherArgs := args[1:], []string(nil)
	if i := slices.Index(words, "--"); i >= 0 {
		words, launcherArgs = words[:i], words[i+1:]
	}
	r.withholdRanks(args)
	launcher := "accelerate"
	var overrides []string
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		option, value, attached := strings.Cut(word, "=")
		if !attached && len(words) > 0 &&
			slices.Contains([]string{"--launcher", "--num-processes", "--num_processes", "--main-process-port",
				"--main_process_port", "--sweep", "--cloud"}, option) {
			value, words = words[0], words[1:]
		}
		switch strings.ReplaceAll(option, "_", "-") {
		case "--launcher":
			launcher = value
		case "--num-processes":
			launcherArgs = append([]string{"--num_processes", value}, launcherArgs...)
		case "--main-process-port":
			launcherArgs = append([]string{"--main_process_port", value}, launcherArgs...)
		case "--sweep":
			r.blocked = "--sweep " + value +
				" starts a run for each combination of its values; give the configuration of one of them"
			return
		case "--cloud":
			r.blocked = "--cloud " + value + " trains on other machines; give the command that they run"
			return
		default:
			overrides = append(overrides, word)
		}
	}
	script := append([]string{"-m", "axolotl.cli.train"}, overrides...)
	switch launcher {
	case "accelerate":
		r.readWords(slices.Concat([]string{"accelerate", "launch"}, launcherArgs, script), 1)
	case "torchrun":
		r.readWords(slices.Concat([]string{"torchrun"}, launcherArgs, script), 1)
	case "python":
		r.readWords(slices.Concat([]string{"python"}, script), 1)
	default:
		r.blocked = "--launcher " + launcher + ": axolotl knows accelerate, torchrun and python"
	}
}
