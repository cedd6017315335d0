package model

import (
	"embed"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// known are the published configs of public models, one file each with the source of its numbers, and aliases.txt.
//
//go:embed known
var known embed.FS

// knownDate is when the configs under known were last compared with their sources.
const knownDate = "2026-11"

// fourBit is the quantization_config of Unsloth's 4-bit mirrors (config.json of unsloth/Meta-Llama-3.1-8B-bnb-4bit).
const fourBit = `{"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": true,
	"bnb_4bit_compute_dtype": "bfloat16", "bnb_4bit_quant_storage": "uint8"}`

// Known is the architecture of a public model by its hub name, out of the table that is built into the program; nil
// when it is not there. Instruct and chat models, mirrors and Unsloth's 4-bit versions are found where they certainly
// share the architecture of a model of the table; Source says which one it is. Names are compared as the hub does,
// without regard to case.
func Known(name string) (*Architecture, error) {
	published, quantised := strings.CutSuffix(name, "-bnb-4bit")
	published, dynamic := strings.CutSuffix(published, "-unsloth")
	if quantised = quantised && strings.HasPrefix(strings.ToLower(name), "unsloth/"); !quantised {
		published, dynamic = name, false
	}
	published, dtype := publishedName(published)
	data, err := known.ReadFile("known/" + strings.Replace(published, "/", "__", 1) + ".json")
	if published == "" || err != nil {
		return nil, nil
	}
	var entry struct{ Config map[string]json.RawMessage }
	if err := json.Unmarshal(data, &entry); err != nil {
		return nil, fmt.Errorf("built-in config of %s: %w", published, err)
	}
	if quantised {
		entry.Config["quantization_config"] = json.RawMessage(fourBit)
	}
	if dtype != "" {
		entry.Config["torch_dtype"] = json.RawMessage(dtype)
	}
	config, err := json.Marshal(entry.Config)
	if err != nil {
		return nil, fmt.Errorf("built-in config of %s: %w", published, err)
	}
	source := fmt.Sprintf("built-in table of public models (%s): config of %s", knownDate, published)
	if !strings.EqualFold(name, published) {
		source += ", whose architecture " + name + " shares"
	}
	a, err := Parse(config, source)
	if err != nil {
		return nil, err
	}
	a.Name = name
	if dynamic {
		a.Assumptions = append(a.Assumptions,
			name+" keeps some layers in 16 bits (Unsloth's dynamic quantisation); which ones is not known, so that "+
				"it takes somewhat more")
	}
	return a, nil
}

// publishedName is the name under which a model or one of its aliases stands in the table, or "", and the dtype that it
// is stored in as JSON where that is not the table's ("null": not known).
func publishedName(name string) (published, dtype string) {
	aliases, err := known.ReadFile("known/aliases.txt")
	if err != nil {
		return "", ""
	}
	for line := range strings.Lines(string(aliases)) {
		names := strings.Fields(line)
		for _, word := range names {
			alias, stored, own := strings.Cut(word, "=")
			switch {
			case !strings.EqualFold(alias, name):
			case stored == "?":
				return names[0], "null"
			case own:
				return names[0], strconv.Quote(stored)
			default:
				return names[0], ""
			}
		}
	}
	return "", ""
}
