package document

import (
	"strings"
)

// Objects in files for jsonargparse (Lightning CLI, LitGPT) name a class and its arguments:
//
//	strategy:
//	  class_path: lightning.pytorch.strategies.FSDPStrategy
//	  init_args:
//	    cpu_offload: true
//
// On the command line --trainer.strategy FSDPStrategy and --trainer.strategy.cpu_offload true are short for it.

// Class is the class that a value names, without the modules in front, and its arguments; "" when it names none.
func Class(n *Node) (name string, arguments *Node) {
	if n == nil {
		return "", nil
	}
	if path := n.Get("class_path"); path != nil {
		arguments, n = n.Get("init_args"), path
	}
	text, _ := n.Value.(string)
	return text[strings.LastIndexByte(text, '.')+1:], arguments
}

// SetArgument sets one --path value of a command line in jsonargparse's short forms: a path below a class is one below
// its init_args, and a class's name alone replaces the class.
func SetArgument(root *Node, path, text, origin string) error {
	value, err := Scalar(text, path, origin)
	if err != nil {
		value = &Node{Value: text, Path: path, Source: origin, Raw: text} // a text that is no YAML is a text
	}
	steps := pathSteps(path)
	at := root
	for i, step := range steps {
		class := isClass(at)
		if class && step != "class_path" && step != "init_args" && i > 0 {
			return Put(root, strings.Join(steps[:i], ".")+".init_args."+strings.Join(steps[i:], "."), value)
		}
		next := at.step(step)
		if next == nil {
			break
		}
		if word, isText := next.Value.(string); isText && i+1 < len(steps) && at.step("class_path") == nil {
			next.Value = map[string]*Node{"class_path": {Value: word, Path: next.Path + ".class_path", File: next.File,
				Line: next.Line, Source: next.Source}}
		}
		at = next
	}
	if before := root.At(path); isClass(before) && !value.nested() && value.Value != nil {
		class := *value
		return Put(root, path+".class_path", &class)
	}
	return Put(root, path, value)
}

func isClass(n *Node) bool { return n.Get("class_path") != nil }
