// gotest runs the tests of all packages with go test: with the race detector where a package starts goroutines or
// shares what they use, without it, several times faster, everywhere else. Several runs of go test go on at the same
// time, since most of them wait: the packages with the race detector, those without, and the tests with a real Slurm,
// whose limits are minutes.
//
//	go run .ci/gotest/main.go [flags of go test]
//
// It prints a line a package as go test does, what failed tests have said, and the ten slowest tests. What a test has
// started must end with it: what is left at the end is named and killed, and makes the status 1.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	mark := fmt.Sprintf("GOTEST_RUN=%d-%d", os.Getpid(), time.Now().UnixNano())
	packages, err := list()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(1)
	}
	out := &printer{to: os.Stdout, tests: map[string]*test{}}
	ok := run(groups(packages), os.Args[1:], mark, out)
	out.slowest(10)
	if left := endAll(mark, grace); len(left) > 0 {
		fmt.Printf("FAIL\tprocesses that tests have left behind (killed):\n\t%s\n", strings.Join(left, "\n\t"))
		ok = false
	}
	if !ok {
		os.Exit(1)
	}
}

// A pkg is a package as go list tells of it.
type pkg struct {
	ImportPath, Dir                                           string
	GoFiles, CgoFiles, TestGoFiles, TestImports, XTestImports []string
}

// list is all packages of the module.
func list() ([]pkg, error) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,CgoFiles,TestGoFiles,TestImports,XTestImports",
		"./...").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var all []pkg
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := decoder.Decode(&p); err == io.EOF {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
}

// A group is one run of go test.
type group struct {
	flags, packages []string
}

// groups divides the packages. Those whose tests wait for other programs come first: they take longest.
func groups(packages []pkg) []group {
	// Tests that compare thousands of answers of one process: the race detector sees nothing in them that it does not
	// see in the others, and makes them five times slower.
	const answers = "^(TestGate|TestMutants|TestOneSetOfRemedies)$"
	slices.SortStableFunc(packages, func(a, b pkg) int { return cmp.Compare(b.waits(), a.waits()) })
	plain, race := group{flags: []string{"-p=1"}}, group{flags: []string{"-race", "-skip=^TestSlurm|" + answers}}
	slurm, many := group{flags: []string{"-race", "-run=^TestSlurm"}}, group{flags: []string{"-run=" + answers}}
	for _, p := range packages {
		if !p.concurrent() {
			plain.packages = append(plain.packages, p.ImportPath)
			continue
		}
		race.packages = append(race.packages, p.ImportPath)
		if slices.Contains(p.TestGoFiles, "slurm_test.go") {
			slurm.packages = append(slurm.packages, p.ImportPath)
		}
		if slices.Contains(p.TestGoFiles, "gate_test.go") {
			many.packages = append(many.packages, p.ImportPath)
		}
	}
	return slices.DeleteFunc([]group{slurm, race, many, plain}, func(g group) bool { return len(g.packages) == 0 })
}

// waits is 1 when the package's tests start other programs.
func (p pkg) waits() int {
	if slices.Contains(slices.Concat(p.TestImports, p.XTestImports), "os/exec") {
		return 1
	}
	return 0
}

// concurrent tells whether the package starts goroutines, or has channels, locks or atomics for them. What
// sync.OnceValue guards does not count: it is never written again.
func (p pkg) concurrent() bool {
	for _, name := range slices.Concat(p.GoFiles, p.CgoFiles) {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil || shares(file) { // go test will tell of the error
			return true
		}
	}
	return false
}

func shares(file *ast.File) (found bool) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt, *ast.ChanType:
			found = true
		case *ast.SelectorExpr:
			if from, ok := n.X.(*ast.Ident); ok {
				found = found || from.Name == "atomic" ||
					from.Name == "sync" && slices.Contains([]string{"Mutex", "RWMutex", "WaitGroup", "Map", "Cond"},
						n.Sel.Name)
			}
		}
		return !found
	})
	return found
}

// run runs the groups at the same time and tells whether all went well.
func run(all []group, flags []string, mark string, out *printer) bool {
	var running sync.WaitGroup
	failed := make(chan error, len(all))
	for _, g := range all {
		cmd := exec.Command("go", slices.Concat([]string{"test", "-json"}, g.flags, flags, g.packages)...)
		cmd.Env = append(os.Environ(), mark)
		cmd.Stderr = os.Stderr
		events, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			failed <- err
			continue
		}
		running.Go(func() {
			out.read(events)
			if err := cmd.Wait(); err != nil {
				failed <- err
			}
		})
	}
	running.Wait()
	return len(failed) == 0
}

// An event is one of go test -json (go doc test2json).
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds
}

// A test is a test, or a package as a whole.
type test struct {
	name, said string
	seconds    float64
	ended, sub bool // sub: it has subtests, which are named for themselves
}

// A printer writes what is worth reading of the events of several runs of go test.
type printer struct {
	mu    sync.Mutex
	to    io.Writer
	tests map[string]*test
}

// read takes events to their end. Lines that are none are shown as they are.
func (p *printer) read(events io.Reader) {
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		p.mu.Lock()
		var e event
		if json.Unmarshal(line, &e) == nil {
			p.take(e)
		} else {
			_, _ = p.to.Write(line)
		}
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// take notes an event. A package's line is told at its end, and before it what its failed tests have said.
func (p *printer) take(e event) {
	name := strings.TrimSuffix(e.Package+" "+e.Test, " ")
	t := p.tests[name]
	if t == nil {
		t = &test{name: name}
		p.tests[name] = t
		if i := strings.LastIndexByte(e.Test, '/'); i > 0 && p.tests[e.Package+" "+e.Test[:i]] != nil {
			p.tests[e.Package+" "+e.Test[:i]].sub = true
		}
	}
	switch e.Action {
	case "build-output":
		fmt.Fprint(p.to, e.Output)
	case "output":
		// nothing is left out in silence
		if strings.Contains(e.Output, "NOT RUN") || strings.Contains(e.Output, "NOT run") {
			fmt.Fprint(p.to, e.Output)
		}
		t.said += e.Output
	case "pass", "skip":
		t.seconds, t.ended = t.seconds+e.Elapsed, true
		if e.Test == "" {
			fmt.Fprint(p.to, lastLine(t.said))
		}
		t.said = ""
	case "fail":
		t.seconds, t.ended = t.seconds+e.Elapsed, true
		if e.Test != "" {
			fmt.Fprintf(p.to, "%s: %s", e.Package, t.said)
			t.said = ""
			return
		}
		for _, unfinished := range p.tests { // it hung, or ended the whole package
			if strings.HasPrefix(unfinished.name, e.Package+" ") && !unfinished.ended {
				fmt.Fprint(p.to, unfinished.said)
			}
		}
		fmt.Fprint(p.to, t.said)
		t.said = ""
	}
}

// lastLine is a package's own line: ok, or that there is nothing to test.
func lastLine(said string) string {
	lines := slices.Collect(strings.Lines(said))
	if len(lines) == 0 {
		return ""
	}
	return lines[len(lines)-1]
}

// slowest prints the tests that took longest, without those that have subtests.
func (p *printer) slowest(n int) {
	var all []*test
	for _, t := range p.tests {
		if strings.Contains(t.name, " ") && !t.sub && t.seconds > 0 {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b *test) int {
		return cmp.Or(cmp.Compare(b.seconds, a.seconds), cmp.Compare(a.name, b.name))
	})
	fmt.Fprintln(p.to, "slowest tests:")
	for _, t := range all[:min(n, len(all))] {
		fmt.Fprintf(p.to, "%7.1f s  %s\n", t.seconds, t.name)
	}
}

// grace is the time in which what tests have just told to end may end.
const grace = 10 * time.Second

// endAll kills what has the mark in its environment and does not end by itself within the grace, and tells what that
// was.
func endAll(mark string, grace time.Duration) (left []string) {
	const tick = 100 * time.Millisecond
	for range grace / tick {
		if len(marked(mark)) == 0 {
			return nil
		}
		time.Sleep(tick)
	}
	for _, pid := range marked(mark) {
		words, _ := os.ReadFile(fmt.Sprint("/proc/", pid, "/cmdline"))
		left = append(left, fmt.Sprintf("%d %s", pid, bytes.ReplaceAll(words, []byte{0}, []byte{' '})))
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return left
}

// marked are the living processes with a variable in their environment, but for go's own (telemetry).
func marked(variable string) (found []int) {
	paths, _ := filepath.Glob("/proc/[0-9]*/environ") // nothing where there is no /proc
	for _, path := range paths {
		environment, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(append([]byte{0}, environment...), []byte("\x00"+variable+"\x00")) {
			continue
		}
		name, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "comm"))
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && pid != os.Getpid() &&
			string(name) != "go\n" {
			found = append(found, pid)
		}
	}
	return found
}
