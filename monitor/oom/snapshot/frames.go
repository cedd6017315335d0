package snapshot

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// A sign tells a component by one frame of a stack. File is a part of the frame's file, Name a part of its function; ""
// matches any. Names are PyTorch's, transformers' and DeepSpeed's own.
type sign struct{ component, file, name string }

// signs are looked for in this order: the first that any frame of a stack shows decides. So an optimizer's state is the
// optimizer's although a training step called it, and a gradient buffer that DDP makes in its constructor is
// communication.
var signs = []sign{
	{"optimizer", "torch/optim/", ""},
	{"optimizer", "bitsandbytes/optim/", ""},
	{"optimizer", "transformers/optimization", "step"},
	{"optimizer", "deepspeed/ops/adam", ""},
	{"optimizer", "deepspeed/runtime/zero/", "initialize_optimizer_states"},
	{"communication", "torch/nn/parallel/distributed.py", ""},
	{"communication", "torch/distributed/fsdp/", ""},
	{"communication", "torch/distributed/_composable/fsdp/", ""},
	{"communication", "torch/distributed/distributed_c10d.py", ""},
	{"communication", "deepspeed/comm/", ""},
	{"communication", "", "c10d::Reducer"},
	{"communication", "", "ncclComm"},
	{"logits", "", "cross_entropy"},
	{"logits", "", "CrossEntropy"},
	{"logits", "transformers/loss/", ""},
	{"gradients", "", "AccumulateGrad"},
	{"temporaries", "torch/utils/checkpoint.py", "recompute_fn"},
	{"temporaries", "torch/utils/checkpoint.py", "unpack_hook"},
	{"gradients", "torch/autograd/", "backward"},
	{"gradients", "torch/_tensor.py", "backward"},
	{"gradients", "", "torch::autograd::Engine::"},
	{"activations", "torch/nn/modules/", "_call_impl"},
	{"activations", "torch/nn/modules/", "forward"},
	{"activations", "torch/nn/functional.py", ""},
	{"activations", "", "forward"},
	{"parameters", "torch/nn/modules/module.py", ""},
	{"parameters", "torch/nn/modules/", "__init__"},
	{"parameters", "", "from_pretrained"},
	{"parameters", "", "load_state_dict"},
	{"parameters", "safetensors/", ""},
	{"parameters", "torch/serialization.py", ""},
}

// unknown is the component of stacks without a sign, and of blocks without a stack (memory history was not recorded
// then).
const unknown = "unknown"

// firstSign is the number of the first sign that a frame shows, len(signs) for none.
func firstSign(f Frame) int {
	i := slices.IndexFunc(signs, func(s sign) bool {
		return strings.Contains(f.File, s.file) &&
			strings.Contains(f.Name, s.name)
	})
	if i < 0 {
		return len(signs)
	}
	return i
}

// component judges a stack. A frame stands in many stacks and is looked at once.
func (a *analysis) component(stack []int32) string {
	first := len(signs)
	for _, n := range stack {
		sign, seen := a.signs[n]
		if !seen {
			sign = firstSign(a.snapshot.Frames[n])
			a.signs[n] = sign
		}
		first = min(first, sign)
	}
	if first == len(signs) {
		return unknown
	}
	return signs[first].component
}

// isPython tells frames of Python from those of C++ and of the interpreter, which carry no line of the user's.
func isPython(f Frame) bool {
	return strings.HasSuffix(f.File, ".py") || strings.HasPrefix(f.File, "<ipython") || f.File == "<stdin>"
}

// library reports whether a frame belongs to PyTorch itself or to what calls it on everybody's behalf.
func library(f Frame) bool {
	for _, part := range []string{"/torch/", "/bitsandbytes/", "/deepspeed/", "/accelerate/", "/contextlib.py",
		"<string>", "/apex/"} {
		if strings.Contains(f.File, part) {
			return true
		}
	}
	return strings.HasPrefix(f.File, "torch/")
}

// where names the place in the code that a person would look at: the innermost Python frame outside of PyTorch, else
// the innermost one.
func where(frames []Frame) string {
	python := slices.DeleteFunc(slices.Clone(frames), func(f Frame) bool { return !isPython(f) })
	if i := slices.IndexFunc(python, func(f Frame) bool { return !library(f) }); i >= 0 {
		return python[i].String()
	}
	switch {
	case len(python) > 0:
		return python[0].String()
	case len(frames) > 0:
		return native(frames)
	}
	return "no stack recorded"
}

// native names a place in C++. The thread in which PyTorch runs backward has no frame of Python: there it is the node
// of autograd's graph, or the operation where no node runs; elsewhere the innermost function that is not the
// allocator's own.
func native(frames []Frame) string {
	var node, operation string
	backward := false
	for _, f := range slices.Backward(frames) {
		backward = backward || strings.Contains(f.Name, "torch::autograd::Engine::")
		if name, found := before(f.Name, "::apply("); found &&
			strings.HasPrefix(f.Name, "torch::autograd::generated::") {
			node = name
		}
		if name, found := before(f.Name, "::call("); found && strings.HasPrefix(f.Name, "at::_ops::") {
			operation = name
		}
	}
	switch {
	case backward && node != "":
		return "backward pass, " + node
	case backward && operation != "":
		return "backward pass, " + operation
	case backward:
		return "backward pass"
	}
	for _, f := range frames {
		if !slices.ContainsFunc(recorders, func(part string) bool { return strings.Contains(f.Name, part) }) {
			return f.String()
		}
	}
	return frames[0].String()
}

// before is the last part of a qualified name that stands before a text.
func before(name, text string) (part string, found bool) {
	name, _, found = strings.Cut(name, text)
	if i := strings.LastIndex(name, "::"); i >= 0 {
		name = name[i+len("::"):]
	}
	return name, found
}

// recorders are the functions through which every allocation with a stack goes.
var recorders = []string{"torch::unwind::", "CapturedTraceback", "gather_with_cpp", "CachingAllocator",
	"at::detail::empty_"}

// String is the frame in one word: "modeling_llama.py:123 forward".
func (f Frame) String() string {
	return fmt.Sprintf("%s:%d %s", path.Base(strings.ReplaceAll(f.File, `\`, "/")), f.Line, f.Name)
}

// readable keeps the frames of Python, innermost first, as many as a person reads.
func readable(frames []Frame) []Frame {
	const most = 12
	var kept []Frame
	for _, f := range frames {
		if isPython(f) && len(kept) < most {
			kept = append(kept, f)
		}
	}
	return kept
}
