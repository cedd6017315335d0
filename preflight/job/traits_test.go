package job

import (
	"reflect"
	"testing"
)

// Every framework that can be recognised has its traits.
func TestEveryFrameworkHasTraits(t *testing.T) {
	rows := map[string]bool{}
	for _, row := range traitRows() {
		if rows[row.name] {
			t.Errorf("%s has two rows", row.name)
		}
		rows[row.name] = true
		if row.on != "" && !rows[row.on] {
			t.Errorf("%s is built on %s, which has no row before it", row.name, row.on)
		}
	}
	for _, f := range frameworks() {
		if f.name != "" && !rows[f.name] {
			t.Errorf("%s has no row", f.name)
		}
	}
}

// What is built on Trainer does what Trainer does: as the estimate sees it, and as the readers do.
func TestBuiltOnTrainer(t *testing.T) {
	rows := append(traitRows(), traitRow{name: "made-up", on: "hf-trainer"}, traitRow{name: "on that", on: "made-up", change: func(t *Traits) { t.KeepsLogits = true }})
	trainer := traitsOf(rows, "hf-trainer")
	if got := traitsOf(rows, "made-up"); !reflect.DeepEqual(got, trainer) {
		t.Errorf("%+v, want Trainer's %+v", got, trainer)
	}
	trainer.KeepsLogits = true
	if got := traitsOf(rows, "on that"); !reflect.DeepEqual(got, trainer) {
		t.Errorf("%+v, want %+v", got, trainer)
	}
	for _, name := range []string{"hf-trainer", "trl", "axolotl", "llamafactory", "unsloth"} {
		if !(family{framework: name}).huggingFace() {
			t.Errorf("%s has nothing of Trainer", name)
		}
	}
	if unknown := traitsOf(rows, ""); !unknown.NoDefaults || unknown.Trainer {
		t.Errorf("no framework: %+v", unknown)
	}
}
