package shell

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// A writer computes what a program writes for its arguments and its input; ok is false where that is not known.
type writer func(e *evaluator, args []string, in *output) (text string, ok bool)

// programs are those that scripts use to make one text of another, and those that count what this machine has. Any
// other is not run, and what it writes is not known.
func programs() map[string]writer {
	return map[string]writer{
		"echo": echo, "printf": printf, "cat": cat,
		"tee":      func(_ *evaluator, _ []string, in *output) (string, bool) { return all(in) },
		"basename": basename, "dirname": dirname, "realpath": realpath, "readlink": realpath,
		"pwd":  func(e *evaluator, _ []string, _ *output) (string, bool) { return join(e.dir, ".") + "\n", true },
		"expr": expr, "bc": bc, "seq": seq, "nproc": nproc, "getconf": nproc, "nvidia-smi": nvidiaSMI, "python": python,
		"python3": python,
		"wc":      wc, "tr": tr, "cut": cut, "head": head, "tail": tail, "awk": awk, "sed": sed,
		"xargs": func(_ *evaluator, args []string, in *output) (string, bool) {
			text, ok := all(in)
			return strings.Join(strings.Fields(text), " ") + "\n", ok && len(args) == 0
		},
	}
}

func all(in *output) (string, bool) { return in.text.String(), in.why == "" }

// lines are those of an input.
func lines(in *output) ([]string, bool) {
	text, ok := all(in)
	if text == "" {
		return nil, ok
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n"), ok
}

func unlines(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return strings.Join(list, "\n") + "\n"
}

// onLines is a program that changes each line on its own.
func onLines(in *output, change func(string) string) (string, bool) {
	list, ok := lines(in)
	for i := range list {
		list[i] = change(list[i])
	}
	return unlines(list), ok
}

func echo(_ *evaluator, args []string, _ *output) (string, bool) {
	end, escapes := "\n", false
	for len(args) > 0 && regexp.MustCompile(`^-[neE]+$`).MatchString(args[0]) {
		if strings.Contains(args[0], "n") {
			end = ""
		}
		escapes, args = escapes || strings.Contains(args[0], "e"), args[1:]
	}
	text := strings.Join(args, " ")
	if escapes {
		text = escaped(text)
	}
	return text + end, true
}

// escaped reads the escapes that echo -e, printf and tr share.
func escaped(text string) string {
	return strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\\`, `\`).Replace(text)
}

// printf follows %s, %d and %%; the format is used again while arguments are left.
func printf(_ *evaluator, args []string, _ *output) (string, bool) {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") || regexp.MustCompile(`%[^sd%]`).MatchString(args[0]) {
		return "", false
	}
	format, args := escaped(args[0]), args[1:]
	var out strings.Builder
	for first := true; first || len(args) > 0; first = false {
		left := len(args)
		for i := 0; i < len(format); i++ {
			switch {
			case format[i] != '%' || i+1 == len(format):
				out.WriteByte(format[i])
				continue
			case format[i+1] == '%':
				out.WriteByte('%')
			case len(args) > 0:
				out.WriteString(args[0])
				args = args[1:]
			}
			i++
		}
		if left == len(args) {
			break
		}
	}
	return out.String(), true
}

func cat(e *evaluator, args []string, in *output) (string, bool) {
	if len(args) == 0 {
		return all(in)
	}
	var out strings.Builder
	for _, name := range args {
		text, ok := e.textOf(name)
		if !ok {
			return "", false
		}
		out.WriteString(text)
	}
	return out.String(), true
}

// operands are the words behind a program's options, of which only -- and those named are followed.
func operands(args []string, options ...string) (rest []string, ok bool) {
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		if args[0] != "--" && !slices.Contains(options, args[0]) {
			return nil, false
		}
		args = args[1:]
	}
	return args, true
}

func basename(_ *evaluator, args []string, _ *output) (string, bool) {
	rest, ok := operands(args)
	if !ok || len(rest) == 0 || len(rest) > 2 {
		return "", false
	}
	name := path.Base(rest[0])
	if len(rest) == 2 && name != rest[1] {
		name = strings.TrimSuffix(name, rest[1])
	}
	return name + "\n", true
}

func dirname(_ *evaluator, args []string, _ *output) (string, bool) {
	rest, ok := operands(args)
	if !ok || len(rest) != 1 {
		return "", false
	}
	return path.Dir(rest[0]) + "\n", true
}

func realpath(e *evaluator, args []string, _ *output) (string, bool) {
	rest, ok := operands(args, "-f", "-e", "-m", "-s")
	if !ok || len(rest) != 1 {
		return "", false
	}
	return join(e.dir, rest[0]) + "\n", true
}

// compute is the value of an expression of numbers alone.
func (e *evaluator) compute(text string) (string, bool) {
	if !regexp.MustCompile(`^[0-9+*/%()<>=!&| -]+$`).MatchString(text) {
		return "", false
	}
	x, err := syntax.NewParser().Arithmetic(strings.NewReader(text))
	if err != nil {
		return "", false
	}
	n, err := e.arithmetic(x, 0)
	return strconv.FormatInt(n, 10) + "\n", err == nil
}

func expr(e *evaluator, args []string, _ *output) (string, bool) {
	return e.compute(strings.Join(args, " "))
}

// bc with whole numbers; its scale would give fractions.
func bc(e *evaluator, args []string, in *output) (string, bool) {
	text, ok := all(in)
	fractions := len(args) == 1 && args[0] == "-l" && strings.Contains(text, "/")
	if !ok || fractions || len(args) > 0 && args[0] != "-l" {
		return "", false
	}
	return e.compute(strings.TrimSpace(text))
}

func seq(_ *evaluator, args []string, _ *output) (string, bool) {
	first, step, last := 1, 1, 0
	into := map[int][]*int{1: {&last}, 2: {&first, &last}, 3: {&first, &step, &last}}[len(args)]
	for i, set := range into {
		n, err := strconv.Atoi(args[i])
		if err != nil {
			return "", false
		}
		*set = n
	}
	if into == nil || step == 0 || (last-first)/step > maxRounds*10 {
		return "", false
	}
	var list []string
	for n := first; step > 0 && n <= last || step < 0 && n >= last; n += step {
		list = append(list, strconv.Itoa(n))
	}
	return unlines(list), true
}

// nproc is the number of CPUs; OMP_NUM_THREADS changes what the program says.
func nproc(e *evaluator, args []string, _ *output) (string, bool) {
	asked := len(args) == 0 && !e.lookUp("OMP_NUM_THREADS").set || len(args) == 1 && args[0] == "_NPROCESSORS_ONLN" ||
		len(args) == 1 && args[0] == "--all"
	return strconv.Itoa(e.in.CPUs) + "\n", asked && e.in.CPUs > 0
}

// nvidiaSMI writes one line a GPU where it lists them; only their number is known.
func nvidiaSMI(e *evaluator, args []string, _ *output) (string, bool) {
	line := strings.Join(args, " ")
	listed := line == "-L" || line == "--list-gpus"
	queried := regexp.MustCompile(`^--query-gpu=\S+ --format=csv(,noheader)?(,nounits)?$`).MatchString(line)
	if e.in.GPUs != nil && (listed || queried) {
		count, known := e.in.GPUs("", false)
		e.output.fail(notRun)
		if queried && !strings.Contains(line, "noheader") {
			count++
		}
		if known {
			e.output.lines = count
		}
	}
	return "", false
}

var deviceCount = regexp.MustCompile(`^import torch\s*[;\n]\s*print\(torch\.cuda\.device_count\(\)\)\s*$`)

// python asks torch for the number of GPUs; other programs are not run.
func python(e *evaluator, args []string, _ *output) (string, bool) {
	if len(args) != 2 || args[0] != "-c" || !deviceCount.MatchString(strings.TrimSpace(args[1])) || e.in.GPUs == nil {
		return "", false
	}
	visible := e.lookUp("CUDA_VISIBLE_DEVICES")
	list := e.scalar("CUDA_VISIBLE_DEVICES")
	if _, unknown := Unknown(list); unknown {
		return "", false
	}
	count, known := e.in.GPUs(list, visible.set)
	return strconv.Itoa(count) + "\n", known
}

func wc(e *evaluator, args []string, in *output) (string, bool) {
	if len(args) == 2 {
		from := &output{}
		text, ok := e.textOf(args[1])
		if from.text.WriteString(text); !ok {
			return "", false
		}
		n, ok := wc(e, args[:1], from)
		return strings.TrimSpace(n) + " " + args[1] + "\n", ok
	}
	if len(args) != 1 {
		return "", false
	}
	text, ok := all(in)
	n := 0
	switch args[0] {
	case "-l":
		if !ok && in.lines >= 0 {
			return fmt.Sprintln(in.lines), true
		}
		n = strings.Count(text, "\n")
	case "-w":
		n = len(strings.Fields(text))
	case "-c":
		n = len(text)
	default:
		return "", false
	}
	return fmt.Sprintln(n), ok
}
