package job

import (
	"path/filepath"
	"slices"
	"strings"

	"oomguard/preflight/job/shell"
)

// settleWords makes of a command's words what the shell makes of them where variables are set nowhere; unset are the
// reasons of what is taken for empty.
func (r *reader) settleWords(words []string) (settled, unset []string) {
	for i, word := range words {
		text, vanishes, empty := shell.Empty(word)
		switch {
		case len(empty) == 0, vanishes && !r.goesOn(settled, words[i+1:], word), !vanishes && r.src.Place != Here:
			settled = append(settled, word)
			continue
		case !vanishes:
			settled = append(settled, text)
		}
		unset = append(unset, empty...)
	}
	return settled, unset
}

// goesOn reports whether a command goes on behind a word that vanishes: with its program where it was the first.
// Elsewhere than in this environment, it was neither among the options of a launcher nor the value of an option.
func (r *reader) goesOn(before, after []string, word string) bool {
	here := r.src.Place == Here
	switch {
	case len(before) == 0 && len(after) > 0:
		return r.leads(after[0]) && (here || !strings.HasSuffix(after[0], ".py"))
	case len(before) == 0, here:
		return true
	}
	return !startsLauncher(before) && (!isOption(before[len(before)-1]) || holdsOptions(word))
}

// startsLauncher reports that a launcher's own options are being given: its script does not stand there yet.
func startsLauncher(words []string) bool {
	open := false
	for i, word := range words {
		switch {
		case strings.HasSuffix(word, ".py"), open && (word == "-m" || word == "--module"):
			open = false
		case slices.Contains([]string{"torchrun", "deepspeed", "accelerate", "composer", "colossalai"},
			filepath.Base(word)),
			i > 0 && words[i-1] == "-m" && (word == "torch.distributed.run" || word == "torch.distributed.launch"):
			open = true
		}
	}
	return open
}

// doubtWords records what is not certain of the words of the command that is followed.
func (r *reader) doubtWords(words, unset []string) {
	for _, why := range unset {
		r.doubt(why + "; it is taken for empty")
		r.note(why + "; it is taken for empty")
	}
	for i, word := range words {
		whys := shell.Reasons(word)
		r.gaps = append(r.gaps, whys...)
		// of bash -c, which is read itself
		text := i > 0 && strings.HasPrefix(words[i-1], "-") && strings.HasSuffix(words[i-1], "c") &&
			strings.Contains(word, " ")
		if len(whys) > 0 && !text && !idle(words, i) {
			r.doubt(whys[0])
		}
	}
}
