package job

import (
	"path/filepath"
	"slices"
	"strings"
)

// litgptCommands are the commands of litgpt that train (litgpt/__main__.py) with the files of the package that they
// stand for.
func litgptCommands() map[string]string {
	return map[string]string{
		"finetune": "finetune_lora", "finetune_lora": "finetune_lora", "finetune_full": "finetune_full",
		"finetune_adapter":    "finetune_adapter",
		"finetune_adapter_v2": "finetune_adapter_v2", "pretrain": "pretrain",
	}
}

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

// litgptScript is the command that a script stands for: the command's name itself, or a file or module of the package;
// "" for others.
func litgptScript(script string) string {
	if slices.Contains([]string{"finetune_lora", "finetune_full", "finetune_adapter", "finetune_adapter_v2",
		"pretrain"}, script) {
		return script
	}
	path := "/" + strings.TrimSuffix(filepath.ToSlash(script), ".py")
	if module, ok := strings.CutPrefix(script, "-m "); ok {
		path = "/" + strings.ReplaceAll(module, ".", "/")
	}
	for _, name := range litgptCommands() {
		if strings.HasSuffix(path, "/litgpt/"+strings.Replace(name, "finetune_", "finetune/", 1)) {
			return name
		}
	}
	return ""
}
