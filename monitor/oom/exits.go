package oom

import (
	"iter"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// exitRule reads the line of a launcher that tells how a process ended. code turns the captured text into an exit code,
// negative for a signal.
type exitRule struct {
	launcher, word string
	pattern        *regexp.Regexp // captures the code, named groups rank, local and pid where the line has them
	code           func(string) (int, bool)
}

// exitRules: torchrun's texts are those of torch/distributed/elastic/multiprocessing/{api.py,errors/__init__.py}.
func exitRules() []exitRule {
	re := regexp.MustCompile
	return []exitRule{
		{"torchrun", "failed (exitcode: ",
			re(`exitcode: (?P<code>-?\d+)\) local_rank: (?P<local>\d+) \(pid: (?P<pid>\d+)`), plainCode},
		{"torchrun", "exitcode  : ", re(`exitcode  : (?P<code>-?\d+) \(pid: (?P<pid>\d+)`), plainCode},
		{"torchrun", " received by PID ", re(`(?i)signal (?P<code>\d+) \(SIG\w+\) received by PID (?P<pid>\d+)`),
			negativeCode},
		{"deepspeed", "exits with return code", re(`exits with return code = (?P<code>-?\d+)`), plainCode},
		{"accelerate", "died with <Signals.", re(`died with <Signals\.(?P<code>\w+): \d+`), signalCode},
		{"accelerate", "returned non-zero exit status", re(`exit status (?P<code>-?\d+)`), shellCode},
		{"mp.spawn", "terminated with signal SIG", re(`process (?P<rank>\d+) terminated with signal (?P<code>\w+)`),
			signalCode},
		{"mp.spawn", "terminated with the following error",
			re(`Process (?P<rank>\d+) terminated with the following (?P<code>error)`), exceptionCode},
		{"mpirun", "EXIT CODE: ", re(`EXIT CODE: (?P<code>\d+)`), mpichCode},
		{"mpirun", "exited on signal ",
			re(`process rank (?P<rank>\d+) with PID (?P<pid>\d+) .*exited on signal (?P<code>\d+)`), negativeCode},
		{"srun", "srun: error: ", re(`: tasks? (?P<rank>\d+)[^:]*: (?P<code>Killed|Out Of Memory|Bus error|Segmentation fault|Aborted|Terminated)`), wordCode},
		{"kubernetes", "Exit Code:", re(`Exit Code:\s+(?P<code>\d+)`), shellCode},
		{inProse, `xitCode":`, re(`xitCode": ?(?P<code>\d+)`), shellCode},
		// GitLab: Job failed: exit code 137
		{inProse, "exit code ", re(`(?:with|with an?|[Ff]ailed:) exit code (?P<code>-?\d+)`), shellCode},
		{inProse, "exited with code ", re(`exited with code (?P<code>-?\d+)`), shellCode},
		{"horovod", " exit with status code ", re(`Process (?P<rank>\d+) exit with status code (?P<code>\d+)`),
			shellCode},
		{"lightning", "terminated with code ", re(`Child process (?P<pid>\d+) terminated with code (?P<code>-?\d+)`),
			plainCode},
	}
}

// inProse names the rules whose words people also write in sentences.
const inProse = "container"

func plainCode(s string) (int, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil
}

// shellCode: shells, MPI and Kubernetes report a signal as 128 + its number.
func shellCode(s string) (int, bool) {
	n, ok := plainCode(s)
	if n > 128 && n < 128+65 {
		n = 128 - n
	}
	return n, ok
}

// exceptionCode: a process that dies of a Python exception returns 1.
func exceptionCode(string) (int, bool) { return 1, true }

// mpichCode: MPICH prints the bare number of a signal, or 128 + it; 6 to 15 are hardly ever codes of their own.
func mpichCode(s string) (int, bool) {
	n, ok := shellCode(s)
	if n == 6 || n == 7 || n == 9 || n == 11 || n == 15 {
		n = -n
	}
	return n, ok
}

func negativeCode(s string) (int, bool) {
	n, ok := plainCode(s)
	return -n, ok
}

// wordCode: srun names a signal as strsignal does, and a kill for memory by its reason.
func wordCode(name string) (int, bool) {
	n, ok := map[string]syscall.Signal{
		"Killed": syscall.SIGKILL, "Out Of Memory": syscall.SIGKILL, "Bus error": syscall.SIGBUS,
		"Terminated": syscall.SIGTERM, "Segmentation fault": syscall.SIGSEGV, "Aborted": syscall.SIGABRT,
	}[name]
	return -int(n), ok
}

func signalCode(name string) (int, bool) {
	n, ok := map[string]syscall.Signal{
		"SIGKILL": syscall.SIGKILL, "SIGBUS": syscall.SIGBUS, "SIGTERM": syscall.SIGTERM, "SIGSEGV": syscall.SIGSEGV,
		"SIGABRT": syscall.SIGABRT, "SIGINT": syscall.SIGINT, "SIGHUP": syscall.SIGHUP,
	}[name]
	return -int(n), ok
}

var tableRank = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`rank\s*: (\d+) \(local_rank: (\d+)\)`)
})

// tableReach is how many lines above its exit code an entry of torchrun's table begins.
const tableReach = 6

func (r exitRule) read(s *scanner, p place) {
	line := p.segment().string
	m := r.pattern.FindStringSubmatch(line)
	if m == nil || r.launcher == inProse && judge().talk.MatchString(p.lead().string) {
		return
	}
	group := func(name string) string {
		if i := r.pattern.SubexpIndex(name); i >= 0 {
			return m[i]
		}
		return ""
	}
	code, ok := r.code(group("code"))
	if !ok {
		return
	}
	e := Exit{RankDeath: RankDeath{Rank: firstInt([]string{group("rank")}), ExitCode: code},
		LocalRank: firstInt([]string{group("local")}),
		PID:       firstInt([]string{group("pid")}), Launcher: r.launcher, Line: p.line}
	// in the command, as DeepSpeed and torch.distributed.launch print it
	if _, after, ok := strings.Cut(line, "--local_rank="); ok && e.LocalRank < 0 {
		e.LocalRank = firstInt([]string{after[:len(after)-len(strings.TrimLeft(after, "0123456789"))]})
	}
	if strings.HasPrefix(r.word, "exitcode  ") {
		e.readTable(p.behind())
	}
	s.log.addExit(e)
}

// readTable takes rank and root cause from the lines above an entry's exit code.
func (e *Exit) readTable(above iter.Seq[*line]) {
	read := 0
	for l := range above {
		if m := tableRank().FindStringSubmatch(l.string); m != nil && e.Rank < 0 {
			e.Rank, e.LocalRank = firstInt(m[1:2]), firstInt(m[2:3])
		}
		e.Root = e.Root || strings.HasPrefix(l.string, "Root Cause (first observed failure)")
		if read++; read == tableReach || strings.HasPrefix(l.string, "traceback :") ||
			strings.HasPrefix(l.string, "Failures:") {
			return
		}
	}
}
