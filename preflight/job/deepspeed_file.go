package job

import (
	"oomguard/preflight/job/document"
)

// A deepspeedFile is a DeepSpeed configuration before its "auto" values are filled.
type deepspeedFile struct {
	doc  *document.Node
	file string
	// filled: Hugging Face's Trainer replaces "auto" (transformers integrations/deepspeed.py); a native script does
	// not.
	filled bool
	// lenient: accelerate fills them for a training loop of its own, and compares nothing with the script's arguments.
	lenient bool
	half    string // "bf16", "fp16", or "" when both are off
	open    bool   // whether half precision is on is left to the script
	origin  string // of half
	master  bool   // an fp32 copy beside half-precision weights
}
