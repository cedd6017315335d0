package job

import (
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"
)

// A mutant is a command line in whose script one word was replaced.
type mutant struct {
	word, by string
	place    Place
	text     string // of the script
	// asRule are the script with what the shell's rule makes of the word: none when there is no rule, two for an
	// option, which may have a value.
	asRule []string
}

// unseen are words that nobody can see through, and one option that no program has.
func unseen() []string {
	return []string{"$OOMGUARD_TEST_UNSET", `"$OOMGUARD_TEST_UNSET"`, "$(unknown_program)", "`unknown_program x`",
		"--unknown-option"}
}

// mutants replace each word of a script by each that nobody can see through. Only some are made unless all are asked
// for.
func mutants(t *testing.T, text string) []mutant {
	t.Helper()
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
	if err != nil {
		t.Fatal(err)
	}
	var words []*syntax.Word
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Redirect:
			return false
		case *syntax.Word:
			words = append(words, n)
			return false
		}
		return true
	})
	var all []mutant
	for i, w := range words {
		from, to := w.Pos().Offset(), w.End().Offset()
		next := words[min(i+1, len(words)-1)].End().Offset()
		for _, by := range unseen() {
			for _, place := range []Place{Here, Elsewhere} {
				m := mutant{text[from:to], by, place, text[:from] + by + text[to:], nil}
				switch {
				case by == "--unknown-option": // what is not given stays at its default
					m.asRule = []string{text[:from] + text[to:], text[:from] + text[next:]}
				case by == "$OOMGUARD_TEST_UNSET":
					m.asRule = []string{text[:from] + text[to:]}
				// also elsewhere, where a script puts it into a variable of extra arguments
				case strings.Contains(by, "UNSET"):
					m.asRule = []string{text[:from] + `""` + text[to:]}
				}
				h := fnv.New32()
				fmt.Fprint(h, m.text, place)
				if os.Getenv("OOMGUARD_TEST_ALL") != "" || h.Sum32()%20 == 0 {
					all = append(all, m)
				}
			}
		}
	}
	return all
}

// shellCommand is a job's command as bash reads it: a script with the arguments behind it, or the command itself as
// one.
func shellCommand(t *testing.T, src Sources) (text string, args []string) {
	t.Helper()
	argv := src.Argv
	if len(argv) > 1 && argv[0] == "bash" {
		data, err := os.ReadFile(filepath.Join(src.Dir, argv[1]))
		if err != nil {
			t.Fatal(err)
		}
		return string(data), argv[1:]
	}
	var words []string
	for _, word := range argv {
		if !assignment.MatchString(word) {
			quoted, err := syntax.Quote(word, syntax.LangBash)
			if err != nil {
				t.Fatal(err)
			}
			word = quoted
		}
		words = append(words, word)
	}
	return strings.Join(words, " ") + "\n", nil
}

// A word that nobody can see through never makes a job fail, and never turns what is not known into a value. A setting
// takes another value only where the shell's rule says that the word vanishes: then it is read as without it.
func TestUnseenWords(t *testing.T) {
	folders, err := filepath.Glob(filepath.Join("testdata", "jobs", "*"))
	if err != nil || len(folders) == 0 {
		t.Fatalf("no jobs: %v", err)
	}
	count := 0
	for _, dir := range folders {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			src := jobSources(t, dir)
			text, args := shellCommand(t, src)
			read := func(text string, place Place) *Job {
				src.Argv, src.Place = append([]string{"bash", "-c", text}, args...), place
				return Read(src)
			}
			before := map[Place]*Job{Here: read(text, Here), Elsewhere: read(text, Elsewhere)}
			for _, m := range mutants(t, text) {
				if m.word == "--with" && strings.Contains(dir, "uv-conda") {
					continue // uv run $(x) trl ...: what looks like the command was the option's value
				}
				count++
				j := read(m.text, m.place)
				if !fails(before[m.place]) && fails(j) {
					t.Errorf("%v: %s for %s fails: %v %s", m.place, m.by, m.word, j.Problems, j.WillFail.Value)
				}
				var rules []*Job
				for i, now := range j.Settings() {
					was := before[m.place].Settings()[i]
					if !now.Known || now.Value == was.Value && was.Known || now.Key == "will_fail" {
						continue
					}
					for _, text := range m.asRule[len(rules):] {
						rules = append(rules, read(text, m.place))
					}
					// One option of the command line gives it, and it keeps its value beside words that may hold any
					// option.
					byOption := strings.Contains(now.Origin, "bash -c:") && strings.Contains(now.Origin, "-") &&
						!strings.Contains(now.Origin, "default") && was.Known
					if byOption && now.Key != "script" && now.Key != "launcher" || less(was, now) ||
						m.by == "--unknown-option" && was.Known {
						continue
					}
					asRule := func(rule *Job) bool { return rule.Settings()[i].Value == now.Value }
					if !slices.ContainsFunc(rules, asRule) {
						t.Errorf("%v: %s for %s: %s is %s (%s), was %s", m.place, m.by, m.word, now.Key, now.Value,
							now.Origin, was.Value)
					}
				}
			}
		})
	}
	t.Logf("%d words replaced", count)
}

// less reports that a setting is what it was, with parts of it that are not known any more.
func less(was, now Named) bool {
	return now.Known && was.Known && (strings.HasPrefix(was.Value, now.Value) || strings.Contains(now.Value, "unknown"))
}

func fails(j *Job) bool { return len(j.Problems) > 0 || j.WillFail.Value != "" }
