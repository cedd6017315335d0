package job

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
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
	rows := append(traitRows(), traitRow{name: "made-up", on: "hf-trainer"},
		traitRow{name: "on that", on: "made-up", change: func(t *Traits) { t.KeepsLogits = true }})
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

// The estimate and what stands on it know keys of the job and traits of its framework: no words of the command, and no
// framework by name.
func TestNoRawWordsBelowTheJob(t *testing.T) {
	frameworks := map[string]bool{}
	for _, row := range traitRows() {
		frameworks[row.name] = true
	}
	var files []string
	for _, folder := range []string{"estimate", "plan"} {
		found, err := filepath.Glob(filepath.Join("..", folder, "*.go"))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v", folder, err)
		}
		files = append(files, found...)
	}
	set := token.NewFileSet()
	for _, name := range files {
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		test := strings.HasSuffix(name, "_test.go")
		allowed := map[ast.Node]bool{}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr: // older("deepspeed", 0, 4): a package by its name
				if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "older" {
					allowed[n.Args[0]] = true
				}
			case *ast.SelectorExpr:
				if inner, ok := n.X.(*ast.SelectorExpr); ok && n.Sel.Name == "Known" {
					allowed[inner] = true
				}
				raw := n.Sel.Name == "ScriptArgs" ||
					!test && (n.Sel.Name == "Argv" || n.Sel.Name == "Framework" && !allowed[n])
				if raw {
					t.Errorf("%s: %s is for preflight/job: make it a key of the job, or a field of job.Traits",
						set.Position(n.Pos()), n.Sel.Name)
				}
			case *ast.BasicLit:
				text, err := strconv.Unquote(n.Value)
				checkpointing := text == "unsloth" // a word of the key checkpointing
				if err == nil && frameworks[text] && !test && !allowed[n] && !checkpointing {
					t.Errorf("%s: %s is the name of a framework: give it a field of job.Traits", set.Position(n.Pos()),
						n.Value)
				}
			}
			return true
		})
	}
}
