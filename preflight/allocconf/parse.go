package allocconf

import (
	"fmt"
	"strconv"
	"strings"
)

// Severity is how bad a problem is.
type Severity string

// Fail: the run dies or measures nothing sensible. Warn: it runs otherwise than the setting says. Info: worth knowing.
const (
	Fail Severity = "fail"
	Warn Severity = "warn"
	Info Severity = "info"
)

// Problem is one finding: what stands there and what PyTorch does with it, and what to write instead.
type Problem struct {
	Severity Severity `json:"severity"`
	Key      string   `json:"key"` // option or variable
	Text     string   `json:"text"`
	Remedy   string   `json:"remedy"`
}

// Settings are the values by key, as written; of a key given twice the last one counts, as in PyTorch.
type Settings map[string]string

// On tells whether a boolean option is True.
func (s Settings) On(key string) bool { return s[key] == "True" }

// Number returns a numeric option.
func (s Settings) Number(key string) (float64, bool) {
	n, err := strconv.ParseFloat(s[key], 64)
	return n, err == nil
}

// pair is one key:value of the text.
type pair struct{ key, value string }

// Parse reads a setting as torch v does, only stricter: PyTorch reads past a missing separator and takes "512MB" for
// 512. Settings holds what is well formed and known. An unknown version accepts every known option.
func Parse(text string, v Version) (Settings, []Problem) {
	settings := Settings{}
	pairs, problems := split(text)
	for _, p := range pairs {
		o, known := findOption(p.key)
		if !known || v.before(o.since.Major, o.since.Minor) {
			problems = append(problems, unknownKey(p.key, o, known, v))
			continue
		}
		if _, twice := settings[p.key]; twice {
			problems = append(problems, Problem{Warn, p.key, p.key + " is given twice: the last one counts",
				"give it once"})
		}
		if bad := checkValue(o, p.value, v); bad != nil {
			problems = append(problems, *bad)
			continue
		}
		settings[p.key] = p.value
	}
	if bad := checkSegments(settings); bad != nil {
		problems = append(problems, *bad)
	}
	return settings, problems
}

// split cuts the text into pairs at the commas outside brackets; all white space is dropped, as PyTorch's lexer does.
func split(text string) (pairs []pair, problems []Problem) {
	text = strings.Join(strings.Fields(text), "")
	if text == "" {
		return nil, nil
	}
	parts, balanced := splitTop(text)
	if !balanced {
		problems = append(problems, Problem{Fail, "",
			fmt.Sprintf("the brackets in %q do not match: PyTorch stops with an internal assert", text),
			"close every [ with ]"})
	}
	for _, part := range parts {
		key, value, ok := strings.Cut(part, ":")
		switch {
		case part == "":
			problems = append(problems, Problem{Fail, "",
				fmt.Sprintf("nothing stands before or after a comma in %q: PyTorch dies with \"Index out of bounds "+
					"in ConfigTokenizer\"", text),
				"remove the comma"})
		case !ok && strings.Contains(part, "="):
			name, given, _ := strings.Cut(part, "=")
			problems = append(problems, Problem{Fail, name,
				fmt.Sprintf("%q has = where PyTorch expects a colon: it takes the whole for a key and does not know it",
					part),
				fmt.Sprintf("write %s:%s", name, given)})
		case !ok || key == "" || value == "":
			problems = append(problems, Problem{Fail, key, fmt.Sprintf("%q is not key:value", part),
				"write key:value, pairs separated by commas"})
		default:
			pairs = append(pairs, pair{key, value})
		}
	}
	return pairs, problems
}

func splitTop(text string) (parts []string, balanced bool) {
	depth, start := 0, 0
	for i, r := range text {
		switch r {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth == 0 {
				parts = append(parts, text[start:i])
				start = i + 1
			}
		}
		if depth < 0 || depth > 1 {
			return append(parts, text[start:]), false
		}
	}
	return append(parts, text[start:]), depth == 0
}

func unknownKey(key string, o option, known bool, v Version) Problem {
	dies := fmt.Sprintf("RuntimeError: Unrecognized CachingAllocator option: %s", key)
	if v.Known && !v.before(2, 9) {
		dies = fmt.Sprintf("ValueError: Unrecognized key '%s' in CUDA allocator config.", key)
	}
	if known {
		return Problem{Fail, key, fmt.Sprintf("torch %s does not know %s, which came with %d.%d: every rank dies at "+
			"its first use of CUDA with %q",
			v, key, o.since.Major, o.since.Minor, dies), "remove it, or upgrade torch"}
	}
	p := Problem{Fail, key, fmt.Sprintf("%q is no option: every rank dies at its first use of CUDA with %q", key, dies),
		"remove it"}
	if near := nearest(key); near != "" {
		p.Remedy = "write " + near
	}
	if !v.Known || !v.before(2, 15) { // beyond the newest table: it may be new
		p.Severity = Warn
		p.Text = fmt.Sprintf("%q is no option known here; unless torch %s has it, every rank dies at its first use "+
			"of CUDA with %q", key, v, dies)
	}
	return p
}

// nearest returns the option that differs by at most two letters.
func nearest(key string) string {
	for _, o := range options() {
		if distance(key, o.key) <= 2 {
			return o.key
		}
	}
	return ""
}

// distance is the Levenshtein distance, cut off for lengths that differ by more than two.
func distance(a, b string) int {
	if d := len(a) - len(b); d > 2 || d < -2 {
		return 3
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
