package model

import "slices"

// family is one row of the table of model types: how a config becomes weights, and all else that is known of the
// type. The rows stand in rows_*.go; TestRowsAreWhole names what a new one still needs.
//
// A decoder like Llama is a variable in decoders.go; for another type write a function that returns its blueprint, in
// a file of its own (gpt_neox.go is a short example). Each weight is declared with its Part.
type family struct {
	modelType string
	usual     string // the class that is meant when a config names none; "": it stands only inside others
	build     func(*config) *blueprint
	// sizes are defaults of sizes where it stands under text_config or vision_config: such a section leaves out what
	// equals the default of its configuration class (transformers 5.12.1). nil: it does not stand there.
	sizes map[string]int64
	facts Facts
}

func rows() []family {
	return slices.Concat(decoderRows, laterDecoderRows, mixtureRows, encoderRows, multimodalRows, insideRows)
}
