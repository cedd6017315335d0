//go:build linux

package conformance

import (
	"path/filepath"
	"regexp"
	"strings"
)

// masks are all that may differ between two runs of the same command.
func masks() []struct{ what, pattern, becomes string } {
	return []struct{ what, pattern, becomes string }{
		{"time and pid at the head of a log line", `\[?([IWE])\d{4} \d{2}:\d{2}:\d{2}\.\d+ \d+ `, "$1 TIME PID "},
		{"time and pid of glog", `([IWE])\d{8} \d{2}:\d{2}:\d{2}\.\d+ +\d+ `, "$1 TIME PID "},
		{"time", `\d{4}-\d{2}-\d{2}[T _]\d{2}:\d{2}:\d{2}([.,]\d+)?`, "TIME"},
		{"time of C++ logs", `\[([IWE])\d{4} \d{2}:\d{2}:\d{2}\.\d+`, "[$1 TIME"},
		{"pid", `(?i)\b(pid|process|pids|subprocess)([:= ]+)\d+`, "$1${2}PID"},
		{"pid of a job", `(?m)^\[(\d)\] \d{2,}`, "[$1] PID"},
		{"torchrun's folder of logs", `torchelastic_\w{8}`, "torchelastic_X"},
		{"its folder of one run", `none_\w{8}`, "none_X"},
		{"duration", `\d+(\.\d+)?(e-\d+)? seconds`, "N seconds"},
		{"number of a pipe", `pipe:\[\d+\]`, "pipe:[N]"},
		{"where torchrun just was when it took a signal",
			`(?m)^Traceback \(most recent call last\):\r?\n(?:[ \t].*\n)+(\S*SignalException: )`, "Traceback\n$1"},
		{"echo of a key, which the kernel may write before or after what the key's signal makes a command say",
			`\^[CZ\\]`, ""},
		{"where Python lies", `/[^\s"':;,()]*/lib/(python3)`, "LIB/$1"},
		{"name of the machine", `(?m)^(  host +: )\S+`, "${1}HOST"},
		{"address in memory", `0x[0-9a-f]{6,}`, "ADDRESS"},
	}
}

// masked replaces what may differ, and the run's own folder and port.
func (r *run) masked(text string) string {
	for _, m := range masks() {
		text = regexp.MustCompile(m.pattern).ReplaceAllString(text, m.becomes)
	}
	text = strings.ReplaceAll(text, r.folder, "FOLDER")
	text = strings.ReplaceAll(text, filepath.Dir(r.data("rank.py")), "DATA")
	text = strings.ReplaceAll(text, r.bin, "BIN")
	text = strings.ReplaceAll(text, filepath.Dir(r.bin), "PYTHON")
	if r.port != "" {
		text = strings.ReplaceAll(text, r.port, "PORT")
	}
	text = strings.ReplaceAll(text, r.runs, "RUNS")
	return probeVariables.ReplaceAllString(text, "")
}

// probeVariables are those that the README says are added to the environment, as a rank logs them, and the one in which
// bash notes what it executes.
var probeVariables = regexp.MustCompile(`(?m)^(_=.*\n|OOMGUARD_PROBE_DIR=.*\n|OOMGUARD_SINGLE=.*\n|PYTHONPATH=[^:\n]*oomguard[^:\n]*\n)|/[^:\n]*oomguard[^:\n]*:`)

var (
	announcement = regexp.MustCompile(`(?s)oomguard\r?\n.*? waived: (pass|warn|fail)\r?\n`)
	reporting    = regexp.MustCompile(`(?s)oomguard report: .*run folder: [^\n]*\n`)
	remark       = regexp.MustCompile(`(?m)^oomguard: .*\n`)
)

// withoutOwnWords takes out what oomguard says: the checklist before and the report after the command, each once and in
// one piece, so that nothing of the command's can hide in between, and lines that begin with oomguard:.
func (r *run) withoutOwnWords(streams map[string]string) map[string]string {
	r.Helper()
	rest := map[string]string{}
	for name, text := range streams {
		begin := announcement.FindStringIndex(text)
		if begin != nil {
			text = text[:begin[0]] + text[begin[1]:]
		}
		if end := reporting.FindStringIndex(text); end != nil {
			if begin != nil && end[0] < begin[0] {
				r.Errorf("the report comes before the checklist")
			}
			text = text[:end[0]] + text[end[1]:]
		}
		rest[name] = remark.ReplaceAllString(text, "")
	}
	return rest
}
