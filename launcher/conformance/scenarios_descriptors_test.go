//go:build linux

package conformance

import (
	"fmt"
	"slices"
	"testing"
)

// TestDescriptors: the command has the descriptors that it has without oomguard, under the same numbers, opened in the
// same way.
func TestDescriptors(t *testing.T) {
	for _, s := range descriptorScenarios() {
		conform(t, s, newestTorch(t))
	}
}

func descriptorScenarios() []scenario {
	var all []scenario
	streams := map[string]string{
		"pipes":                    ``,
		"one pipe":                 `2>&1`,
		"one file":                 `> log 2>&1`,
		"two files":                `> log 2> err`,
		"appended":                 `>> log 2>> err`,
		"written and appended":     `> log 2>> log`,
		"appended and written":     `>> log 2> log`,
		"/dev/null":                `> /dev/null 2>&1`,
		"/dev/null twice":          `> /dev/null 2> /dev/null`,
		"/dev/null and closed":     `> /dev/null 2>&-`,
		"closed and /dev/null":     `>&- 2> /dev/null`,
		"a pipe and closed":        `2>&-`,
		"closed and a pipe":        `>&-`,
		"stdin closed":             `<&-`,
		"stdin is a file":          `< f`,
		"stdin for writing too":    `<> f`,
		"all closed":               `<&- >&- 2>&-`,
		"stdout and stdin closed":  `<&- >&- 2>> err`,
		"stderr to stdin's file":   `<> f 2>&0`,
		"a named pipe":             `> fifo 2> err`,
		"a named pipe, appended":   `>> fifo 2>&1`,
		"a named pipe, both ways":  `1<> fifo 2>> fifo`,
		"a pipe, stderr a file":    `2>> err`,
		"everything the same file": `<> f >&0 2>&0`,
	}
	inherited := map[string]string{
		"nothing":         ``,
		"3":               `exec 3< f; `,
		"3 to 5":          `exec 3< f 4>> g 5<> f; `,
		"3 and 4 shared":  `exec 3< f; exec 4<&3; read -n 4 -u 3; `,
		"with gaps":       `exec 4< f 6< f 7< f 9< f 12< f 13>> g; `,
		"every second":    `for i in {3..40..2}; do eval "exec $i< f"; done; `,
		"very many":       `for i in {3..150}; do eval "exec $i< f"; done; `,
		"high ones":       `exec 100< f 101>> g 1000< f; `,
		"at the limit":    `ulimit -n 64; exec 62< f 63>> g; `,
		"pipes":           `exec 3< <(sleep 0.1) 4> >(cat > g) 5<> fifo; `,
		"sockets":         `exec 3<> /dev/udp/127.0.0.1/9 8>&3; `,
		"stdin elsewhere": `exec 5<&0 0< f; `,
	}
	for to, redirections := range streams {
		for has, opened := range inherited {
			if !slices.Contains([]string{"pipes", "one file", "all closed"}, to) &&
				!slices.Contains([]string{"nothing", "3 to 5", "high ones"}, has) {
				continue // each with some of the others
			}
			all = append(all, scenario{
				name: fmt.Sprintf("streams %s, inherits %s", to, has),
				shell: "echo 0123456789 > f; mkfifo fifo; " + opened +
					`exec {keep}<> fifo; (exec {keep}>&-; exec "$@" ` + redirections + `)`,
				argv:  []string{"python", "-S", "DATA/fds.py"},
				steps: []step{logged(0, "that is all")},
			})
		}
	}
	return all
}
