package report

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Units chooses how bytes are written: binary (GiB, as PyTorch and nvidia-smi do) or, with SI, decimal (GB).
type Units struct {
	SI bool
	// UTF8 allows bars and dashes beyond ASCII.
	UTF8 bool
}

// Unit is one unit of size; all sizes of a table share it.
type Unit struct {
	Name  string
	Bytes float64
}

// For gives the unit for sizes up to largest: GiB (GB), or MiB (MB) when nothing reaches one of those.
func (u Units) For(largest int64) Unit {
	switch {
	case u.SI && largest >= 1e9:
		return Unit{"GB", 1e9}
	case u.SI:
		return Unit{"MB", 1e6}
	case largest >= 1<<30:
		return Unit{"GiB", 1 << 30}
	}
	return Unit{"MiB", 1 << 20}
}

// Format writes bytes with two decimals and without the unit's name.
func (u Unit) Format(bytes int64) string {
	return fmt.Sprintf("%.2f", float64(bytes)/u.Bytes)
}

// Size writes one size with its unit.
func (u Units) Size(bytes int64) string {
	unit := u.For(max(bytes, -bytes))
	return unit.Format(bytes) + " " + unit.Name
}

// Count writes a number of parameters as people say it: 8.03 B, 124.4 M.
func Count(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.2f B", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f M", float64(n)/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.1f k", float64(n)/1e3)
	}
	return fmt.Sprint(n)
}

// percent writes part of whole, "-" when there is no whole.
func percent(part, whole int64) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", 100*float64(part)/float64(whole))
}

const barWidth = 24

// bar draws part of whole.
func (u Units) bar(part, whole int64) string {
	if whole <= 0 || part <= 0 {
		return ""
	}
	n := int(min(1, float64(part)/float64(whole))*barWidth + 0.5)
	if u.UTF8 {
		return strings.Repeat("█", n)
	}
	return strings.Repeat("#", n)
}

// level is how full part of whole is, as one character.
func (u Units) level(part, whole int64) rune {
	levels := []rune(" .:-=+*#%@")
	if u.UTF8 {
		levels = []rune(" ▁▂▃▄▅▆▇█")
	}
	full := float64(part) / float64(max(whole, 1))
	return levels[int(float64(len(levels)-1)*min(1, max(0, full)))]
}

// ShellWords writes a command so that a shell reads the same words again; what is unprintable stands as an escape in
// $'...', which bash and zsh read.
func ShellWords(argv []string) string {
	words := make([]string, len(argv))
	for i, a := range argv {
		words[i] = a
		if strings.ContainsFunc(a, unprintable) || !utf8.ValidString(a) {
			words[i] = "$'" + escaped(strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(a), "") + "'"
			continue
		}
		if a == "" || strings.ContainsFunc(a, func(r rune) bool { return !strings.ContainsRune(shellSafe, r) }) {
			words[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

const shellSafe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,@%+"
