package job

import (
	"slices"
)

// readLitGPT reads litgpt COMMAND ...; its processes are started by the command itself.
func (r *reader) readLitGPT(_ string, args []string) {
	if len(args) == 0 {
		r.blocked = "litgpt is started without a command"
		return
	}
	command, rest := args[0], args[1:]
	kinds := []string{"lora", "full", "adapter", "adapter_v2"}
	if command == "finetune" && len(rest) > 0 && slices.Contains(kinds, rest[0]) { // two words, until 0.3
		command, rest = "finetune_"+rest[0], rest[1:]
	}
	name := litgptCommands()[command]
	if name == "" {
		r.blocked = "litgpt " + command + " does not train"
		return
	}
	r.setScript(name, rest)
}
