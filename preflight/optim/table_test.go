package optim

import (
	"slices"
	"testing"
)

// Every row has all that a row needs, its forms are rows, and no word means two optimizers to one reader.
func TestRowsAreWhole(t *testing.T) {
	readers := [][]Vocabulary{{Ours, Trainer, Axolotl}, {Class}, {DeepSpeed}, {Megatron}, {Nanotron}, {LLaMAFactory}}
	for _, o := range optimizers {
		if o.Name == "" || o.Title == "" || o.state == nil || o.step == nil || o.source == "" {
			t.Errorf("the row %q lacks a name, a title, its state, its step or their source", o.Name)
		}
		for _, name := range o.forms {
			if _, known := Find(name, Ours); !known {
				t.Errorf("%s: its form %q has no row", o.Name, name)
			}
		}
		for v := range o.words {
			if !slices.ContainsFunc(readers, func(in []Vocabulary) bool { return slices.Contains(in, v) }) {
				t.Errorf("%s: no reader of this test has its vocabulary %d", o.Name, v)
			}
		}
		for _, in := range readers {
			for _, v := range in {
				for _, word := range o.Words(v) {
					if found, _ := Find(word, in...); found.Name != o.Name {
						t.Errorf("%s: its word %q is taken for %s", o.Name, word, found.Name)
					}
				}
			}
		}
	}
}

// What plan offers as an 8-bit form has a name that Trainer takes, which its text shows.
func TestEightBitFormsCanBeAskedFor(t *testing.T) {
	for _, o := range optimizers {
		if o.Has(EightBit) && len(o.In(EightBit).Words(Trainer)) == 0 {
			t.Errorf("%s: its 8-bit form has no name of Trainer's", o.Name)
		}
	}
}

// A class is found by any module of its package.
func TestClasses(t *testing.T) {
	for class, want := range map[string]string{
		"torch.optim.adamw.AdamW": "adamw", "torchao.prototype.low_bit_optim.AdamW8bit": "adamw_torch_8bit",
		"transformers.optimization.Adafactor": "adafactor", "torch.optim.Adafactor": "adafactor_torch",
		"bitsandbytes.optim.adamw.AdamW": "adamw_bnb", "AdamW": "", "mine.AdamW": "", "": "",
	} {
		if o, _ := Find(class, Class); o.Name != want {
			t.Errorf("%q is %q, want %q", class, o.Name, want)
		}
	}
}
