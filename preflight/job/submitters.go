package job

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"oomguard/preflight/job/shell"
)

// Scripts that submit a command to a cluster: python submit.py OPTIONS -- torchrun train.py. What stands behind -- is
// the job.

// readSubmitter reads the command behind -- when a script is started with one that begins with a launcher; false when
// there is none.
func (r *reader) readSubmitter(script string, args []string) bool {
	at := slices.Index(args, "--")
	if at < 0 {
		return false
	}
	options, inside := args[:at], args[at+1:]
	// source env.sh && python train.py, in one string for the other side
	if and := slices.Index(inside, "&&"); and >= 0 {
		inside = inside[and+1:]
	}
	inside = r.takeVariables(inside)
	if len(inside) > 0 && shell.Whole(inside[0]) {
		why, _ := shell.Unknown(inside[0])
		r.blocked = "the command is not known: " + why
		return true
	}
	if len(inside) == 0 || !isPython(inside[0]) &&
		!slices.ContainsFunc(launchers(),
			func(l launcher) bool { return slices.Contains(l.words, filepath.Base(inside[0])) }) {
		return false
	}
	r.src.Place = Elsewhere
	r.note(filepath.Base(script) + " submits the command behind --")
	if filepath.Base(script) == "mason.py" {
		inside = masonCommand(options, inside)
		for _, word := range args {
			if why, unknown := shell.Unknown(word); unknown {
				r.job.NNodes.Withhold(why)
				r.job.NProc.Withhold(why)
			}
		}
	}
	r.readWords(inside, 1)
	return true
}

// masonCommand is what open-instruct's mason.py makes of accelerate launch on several nodes: --num_processes is that of
// one node there.
func masonCommand(options, inside []string) []string {
	nodes := 1
	for i, word := range options {
		name, value, attached := strings.Cut(word, "=")
		if !attached && i+1 < len(options) {
			value = options[i+1]
		}
		if name == "--num_nodes" {
			nodes, _ = strconv.Atoi(value)
		}
	}
	at := slices.Index(inside, "--num_processes")
	if nodes < 2 || at < 0 || at+1 >= len(inside) || filepath.Base(inside[0]) != "accelerate" {
		return inside
	}
	each, err := strconv.Atoi(inside[at+1])
	if err != nil {
		return inside
	}
	more := []string{"--num_processes", strconv.Itoa(product(each, nodes)), "--num_machines", fmt.Sprint(nodes)}
	return slices.Concat(inside[:at], more, inside[at+2:])
}
