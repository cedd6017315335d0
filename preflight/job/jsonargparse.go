package job

import (
	"path/filepath"
	"strings"

	"oomguard/preflight/job/document"
	"oomguard/preflight/job/shell"
)

// A classArguments is a command line of jsonargparse (Lightning CLI, LitGPT): files and options in their order, later
// ones win.
type classArguments struct {
	doc        *document.Node
	positional []string
	lost       bool // a file that is named could not be read
}

// classArguments reads words such as --config f.yaml --trainer.devices 4 --model my.Net --model.width=8.
func (r *reader) classArguments(words []string) classArguments {
	a := classArguments{doc: &document.Node{Value: map[string]*document.Node{}, Source: "command line"}}
	for i := 0; i < len(words); i++ {
		option, text, attached := strings.Cut(words[i], "=")
		if !strings.HasPrefix(option, "-") || option == "-" || option == "--" {
			a.positional = append(a.positional, words[i])
			continue
		}
		word := words[i]
		if !attached {
			text = "true"
			if i+1 < len(words) && !strings.HasPrefix(words[i+1], "--") {
				i++
				text = words[i]
				word += " " + text
			}
		}
		r.classArgument(&a, strings.TrimLeft(option, "-"), text, "command line "+word)
	}
	return a
}

// classArgument lays one option over what came before it. A file may stand for the whole (--config) or for one group
// (--trainer t.yaml).
func (r *reader) classArgument(a *classArguments, name, text, origin string) {
	extension := filepath.Ext(text)
	group := !strings.Contains(name, ".") && (extension == ".yaml" || extension == ".yml") && r.hasFile(text)
	switch {
	case name == "config" || name == "c":
		file := r.loadDocument(text)
		if file == nil {
			a.lost = true
			return
		}
		if _, ok := file.Fields(); !ok && file.Value != nil {
			r.unread(file.Wrong("an object with the settings of the command"))
			a.lost = true
			return
		}
		if file.Value != nil {
			a.doc = document.Merge(a.doc, file)
		}
	case group:
		file := r.loadDocument(text)
		if file == nil {
			a.lost = true
			return
		}
		if err := document.Put(a.doc, name, file); err != nil {
			r.unread(err)
		}
	default:
		if err := document.SetArgument(a.doc, strings.TrimSuffix(name, "+"), text, origin); err != nil {
			r.unread(err)
		}
	}
}

// lightningPrecision is what a word of Lightning's precision means: dtypes of weights and of computation, and whether
// the word is known (lightning/fabric/connector.py; plugins/precision). -true casts the weights, -mixed keeps them in
// fp32.
func lightningPrecision(word string) (weights, compute string, known bool) {
	switch word {
	case "32", "32-true", "64", "64-true": // 64 bits have no word in the vocabulary; they count as the next smaller
		return "fp32", "fp32", !strings.HasPrefix(word, "64")
	case "16", "16-mixed":
		return "fp32", "fp16", true
	case "bf16", "bf16-mixed":
		return "fp32", "bf16", true
	case "16-true":
		return "fp16", "fp16", true
	case "bf16-true":
		return "bf16", "bf16", true
	case "transformer-engine":
		return "bf16", "fp8", true
	case "transformer-engine-float16":
		return "fp16", "fp8", true
	}
	return "", "", false
}

// devices reads how many processes Lightning starts on a node: a number, -1 or auto for all GPUs, or a list of GPUs
// (lightning/fabric/utilities/device_parser.py).
func (c *configuration) devices(fallback string, paths ...string) Setting[int] {
	origin := c.fallback
	text := fallback
	if n := c.find(paths...); n != nil {
		origin = n.Origin()
		if items, ok := n.Items(); ok {
			return Setting[int]{Value: len(items), Known: len(items) > 0, Origin: origin}
		}
		word, err := n.Text()
		if err != nil {
			c.r.unread(err)
			return Setting[int]{Origin: "the number of devices could not be read"}
		}
		text = word
	} else if why := c.r.openWords(); why != "" {
		return Setting[int]{Origin: "not seen, but " + why}
	}
	if why, unknown := shell.Unknown(text); unknown {
		return Setting[int]{Origin: why}
	}
	switch gpus := c.r.visibleGPUs(); {
	case strings.Contains(text, ","):
		return Setting[int]{Value: len(splitList(text)), Known: true, Origin: origin}
	case text != "auto" && text != "-1":
		count, err := pythonInt(text)
		if err != nil || count < 1 {
			c.r.fail("devices must be auto, a number from 1 or a list of GPUs, got "+text, origin)
			return Setting[int]{Origin: origin + " is not a number of devices"}
		}
		return Setting[int]{Value: count, Known: true, Origin: origin}
	case gpus > 0:
		return Setting[int]{Value: gpus, Known: true, Origin: origin + ": all visible GPUs"}
	case gpus == 0:
		return Setting[int]{Value: 1, Known: true, Origin: origin + ": no GPU is visible"}
	}
	return Setting[int]{Origin: "all GPUs (" + origin + "), and their number is not known; give --nproc"}
}
