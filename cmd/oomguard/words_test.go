package main

import (
	"slices"
	"strings"
	"testing"
)

// TestArrange: what stands where, as the flags' library is then given it.
func TestArrange(t *testing.T) {
	app := newApp(environment{})
	for _, tt := range []struct{ args, want string }{
		{"", ""}, {"nonsense --x y", "nonsense --x y"}, {"--help", "--help"}, {"__relay 2 x", "__relay 2 x"},
		{"report", "report"}, {"report RUN", "report -- RUN"},
		{"report RUN --format json", "report --format json -- RUN"},
		{"report --format json RUN", "report --format json -- RUN"},
		{"report RUN --redact -o f", "report --redact -o f -- RUN"},
		{"report -- RUN --format json", "report -- RUN --format json"},
		{"report RUN -- --format", "report -- RUN --format"},
		{"postmortem a - b --format=json", "postmortem --format=json -- a - b"},
		{"runs --unknown x", "runs --unknown -- x"},
		{"check --packing true --gpu x -- c --gpu y", "check --packing=true --gpu x -- c --gpu y"},
		{"check --packing c true", "check --packing c true"},
		{"check --packing -- true", "check --packing -- true"}, {"run echo --packing true", "run echo --packing true"},
		{"run --redact true", "run --redact true"},
		{"check --skip a --skip b", "check --skip a --skip b"}, {"check --gpu x --gpu=x", "check --gpu x --gpu=x"},
		{"check --headroom -5", "check --headroom -5"},
		{"check --gpu x --gpu y", "!given twice"}, {"check --params", "!needs a value"},
		{"check --params -- c", "!needs a value"}, {"report RUN -o", "!needs a value"},
	} {
		got, err := arrange(app.Commands, strings.Fields(tt.args))
		if problem, wrong := strings.CutPrefix(tt.want, "!"); wrong {
			if err == nil || !strings.Contains(err.Error(), problem) {
				t.Errorf("%q: %q, %v", tt.args, got, err)
			}
		} else if err != nil || !slices.Equal(got, strings.Fields(tt.want)) {
			t.Errorf("%q: %q, %v; want %q", tt.args, got, err, tt.want)
		}
		if again, _ := arrange(app.Commands, got); err == nil && !slices.Equal(again, got) {
			t.Errorf("%q: arranged twice: %q", tt.args, again)
		}
	}
}
