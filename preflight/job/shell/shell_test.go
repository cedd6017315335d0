package shell

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func read(t testing.TB, text string, in Input) []Command {
	t.Helper()
	if in.Name == "" {
		in.Name = "run.sh"
	}
	if in.Getenv == nil {
		in.Getenv = func(name string) (string, bool) { return "/home/me", name == "HOME" }
	}
	script, err := Read([]byte(text), in)
	if err != nil {
		t.Fatal(err)
	}
	return script.Commands
}

// shown writes a word with its gaps marked.
func shown(words []string) string {
	var out []string
	for _, w := range words {
		if _, unknown := Unknown(w); unknown {
			w = "<" + Plain(w) + ">"
		}
		out = append(out, w)
	}
	return strings.Join(out, "|")
}

// knownScripts end with a command whose words bash itself knows too: TestAgainstBash asks it.
func knownScripts() map[string]string {
	return map[string]string{
		"words and quotes":  "cmd a 'b c' \"d e\" f\\ g $'x' \"\"",
		"line continuation": "cmd a \\\n  b \\\n  c",
		"assignments":       "A=1; B=$A$A; C=\"$A $B\"; cmd $A ${B} \"$C\" $C",
		"defaults":          "N=; cmd ${NPROC:-8} ${N:-4} ${N-5}x ${M=7} $M \"${Q:-a b}\" ${R:+no} ${M:+yes}",
		"arrays": "ARGS=(--a 1 \"b c\"); ARGS+=(--d); cmd \"${ARGS[@]}\" ${ARGS[0]} ${#ARGS[@]} " +
			"\"${ARGS[*]}\"",
		"array without quotes": "ARGS=(--a \"b c\"); cmd ${ARGS[@]} x${ARGS[@]}y",
		"empty array":          "ARGS=(); cmd \"${ARGS[@]}\" end",
		"array of arrays":      "A=(--a 1); B=(--b 2); ALL=(\"${A[@]}\" \"${B[@]}\" --c); cmd \"${ALL[@]}\"",
		"arithmetic": "N=4; M=$((N*8)); cmd $M $((M/N-1)) $(( (1+2)*3 )) $((N>2 ? 10 : 20)) $((-N)) " +
			"$((7%4)) $(($M == 32 && 1))",
		"append":              "A=x; A+=y; A+=\" z\"; cmd $A \"$A\"",
		"export and declare":  "export A=1 B=\"2 3\"; declare -i C=3; readonly D=4; cmd $A \"$B\" $C $D",
		"positional":          "set -- one \"two three\"; cmd \"$@\" $1 \"$2\" $# ${3:-none}; ",
		"shift":               "set -- one two three; shift; cmd \"$@\"",
		"function":            "run() { cmd --name \"$1\" \"${@}\"; }; run a \"b c\"",
		"cutting":             "P=/data/models/llama.tar.gz; cmd ${P##*/} ${P%/*} ${P%%.*} ${P#*/} ${P%.gz}",
		"replacing":           "P=a-b-c; cmd ${P/-/_} ${P//-/_} ${P^^} ${P:2} ${P:2:1} ${P: -1} ${#P}",
		"and":                 "true && cmd a && true",
		"block and subshell":  "A=1; { A=2; }; (A=3); cmd $A",
		"eval":                "A='--x 1'; eval \"cmd $A\"",
		"words of a variable": "CMD='cmd --a 1'; $CMD --b",
		"pipes":               "cmd a 2>&1 | cat",
		"nested defaults":     "A=1; cmd ${X:-${Y:-$A}}",
		"one in braces":       "cmd {token} a{b}c",
		"brackets in text":    "cmd '{\"a\": 1}' \"[x]\" a=b",
		"prefix":              "A=1 cmd $((1+1))",
		"own folder": "D=$(cd -- \"$(dirname -- \"/dev/b.sh\")\" >/dev/null 2>&1 ; pwd -P); E=$(cd /dev " +
			"&& pwd); cmd $D $E",
		"text folder":       "D=$(dirname /a/b/c.sh); cmd $D $(basename /x/y) $(echo a b)",
		"exported default":  ": ${PORT:=29500}; cmd $PORT",
		"unset":             "A=1; unset A; cmd ${A:-gone}",
		"read a text":       "N=2; read -r -d '' A <<EOF\nx.train \\\n  --n $N \\\n  --m 3\nEOF\ncmd $A",
		"read a plain text": "read -r -d '' A <<'EOF'\nx $N y\nEOF\nread B <<< 'one'; cmd \"$A\" $B; ",
		"here document":     "cmd a <<EOF\ntext $A\nEOF\n",
		"comment":           "# cmd no\ncmd yes # no",
		"if": "A=fp8; B=(); if [[ \"$A\" == \"fp8\" ]]; then B+=(\"--fp8 hybrid\" --x); fi; cmd " +
			"${B[@]}",
		"else": "N=2; if [ $N -gt 2 ]; then A=1; elif [ $N -eq 2 ]; then A=2; else A=3; fi; cmd $A",
		"unset in a test": "if [ -z \"$WANDB\" ] && [ ! -n \"${HF_TOKEN}\" ]; then A=1; fi; [[ -v X ]] || " +
			"B=2; cmd $A $B",
		"tests": "if [[ (a == b || -z \"\") && ! x != x && 3 -ge 2 ]]; then cmd yes; else cmd no; fi",
		"patterns": "M=llama-3-8b; if [[ $M == llama* ]]; then A=1; fi; if [[ $M != *\"70*\" && $M == " +
			"*8? ]]; then B=2; fi; cmd $A $B",
		"case": "S=8B; case ${S} in \"800M\") A=1;; 8?|9B) A=2;; *) exit 1;; esac; cmd $A",
		"chain of tests": "A=1; [ $A = 2 ] && B=no; [ $A = 1 ] && B=yes; [ -n \"$C\" ] || C=3; [ $A = 1 ] && " +
			"[ $B = no ] || D=4; cmd $B $C $D",
		"arithmetic test": "N=8; if (( N % 8 == 0 )); then cmd even; else cmd odd; fi",
		"arguments in a while": "set -- --tp 2 --x rest; while [[ $# -gt 0 ]]; do case $1 in --tp) TP=$2; shift " +
			"2;; --x) X=1; shift;; *) break;; esac; done; cmd $TP $X $1",
		"continue and until": "L=; set -- a b c; until [ $# = 0 ]; do W=$1; shift; [ $W = b ] && continue; " +
			"L=$L$W; done; cmd $L",
		"return":                "f() { if [ $1 = a ]; then A=1; return; fi; A=2; }; f a; cmd $A; f b; cmd $A",
		"brackets in an array":  "A=(--freq [0]*3+[1]*58 [x]); cmd ${A[@]}",
		"shift by two":          "set -- a b c; shift 2; shift 5; cmd $1",
		"getopts without words": "N=4; while getopts n: o; do N=$OPTARG; done; cmd $N",
		"tilde":                 "cmd ~/x a~b \"~\"",
		"output of a function": "f() { if [ $1 = a ]; then echo 16; else echo 1; fi; }; g() { local x; x=$(f $1); " +
			"echo \"$x\"; }; cmd $(f a) $(g b)",
		"local": "N=2; f() { local N=16 M=3; N=17; O=4; }; f; cmd $N ${M-none} $O; g() { local " +
			"N=$N; cmd $N; }; g",
		"expr and bc": "A=`expr 16 / 2`; cmd $A $(expr $A \\* 3 + 1) $((A * $(echo 3)))",
		"counting": "L=0,1,2; cmd $(echo $L | tr ',' '\\n' | wc -l) $(wc -w <<< 'a b') $(echo \"$L\" | " +
			"awk -F',' '{print NF}') $(tr , ' ' <<< $L | wc -w)",
		"cutting text": "cmd $(echo 2048,4096 | cut -d, -f2) $(echo a/b/c | cut -d/ -f2-) $(printf '%s\\n' " +
			"a b c | head -n 2 | tail -1) $(echo a-b-a | sed 's/a/x/g')",
		"sequences": "cmd $(seq 3) $(seq 2 4) $(seq 1 2 5) {1..3} a{b,c}d",
		"either":    "M=x; cmd $([ $M = x ] && echo 1 || echo 2) $([[ $M == y ]] && echo 1 || echo 2)",
		"names": "cmd $(basename /a/b.sh .sh) $(basename -- a/b) $(dirname $(dirname /a/b/c)) $(cd " +
			"/dev && pwd)",
		"echo and printf": "cmd $(echo -n a b) $(printf '%s-%d' x 3) \"$(echo -e 'a\\nb')\"",
		"loops": "N=0; for i in $(seq 1 4); do N=$((N + 1)); L=\"$L $i\"; done; for ((k = 0; k < 3; " +
			"k++)); do M=$k; done; cmd $N $L $M $k $i",
		"broken loops": "for i in 1 2 3; do if [ $i = 2 ]; then break; fi; N=$i; done; for j in; do N=9; " +
			"done; cmd $N $i ${j-none}",
		"let": "i=1; let \"n = 2 * 4\"; ((i++)); ((b = i * 2, b += 1)); cmd $n $i $b $((i--)) $i " +
			"$((++i))",
		"associative arrays": "declare -A B=( [\"small\"]=16 [large]=2 ); B[huge]=1; S=large; cmd ${B[$S]} " +
			"\"${B[huge]}\" ${B[none]-no} ${#B[@]}",
		"indirect":        "B_x=4; V=B_x; cmd ${!V}",
		"parts of a list": "set -- a b c d; A=(1 2 3); cmd ${@:2} ${@:2:1} \"${A[@]:1}\" ${A[@]: -1} ${A[-1]}",
		"expressions": "M=Qwen-7B; if [[ $M =~ ^[A-Z].*(7|8)B$ ]]; then A=1; fi; [[ $M =~ ^[0-9]+$ ]] || " +
			"B=2; cmd $A $B",
		"read": "read -r A B C <<< '2 8 x y'; IFS=, read -ra D <<< 0,1,2; IFS=: read E F <<< " +
			"a:b:c; cmd $A $B \"$C\" ${#D[@]} ${D[2]} $E $F",
		"mapfile": "mapfile -t A <<< $'a b\\nc'; readarray -t B < <(echo x; echo y); cmd ${#A[@]} ${B[1]}",
		"getopts": "set -- -b 8 -vg2 rest; while getopts 'b:g:v' o; do case $o in b) B=$OPTARG;; g) " +
			"G=$OPTARG;; v) V=1;; esac; done; shift $((OPTIND - 1)); cmd $B $G $V $1",
		"unset for extra words": "A='cmd a $B'; eval \"cmd a \\$X b\"; cmd $X c \"$X\"",
	}
}

// TestAgainstBash compares each script with what bash makes of it.
func TestAgainstBash(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal("no bash on this machine: install it")
	}
	for name, script := range knownScripts() {
		t.Run(name, func(t *testing.T) {
			run := exec.Command(bash, "-c", "cmd() { printf '[%s]' \"$@\"; }\n"+script)
			run.Env = []string{"HOME=/home/me", "PATH=" + os.Getenv("PATH")}
			want, err := run.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, want)
			}
			got := ""
			for _, c := range read(t, script, Input{}) {
				if c.Words[0] != "cmd" {
					continue
				}
				for _, w := range c.Words[1:] {
					if text, vanishes, _ := Empty(w); !vanishes {
						got += "[" + text + "]"
					}
				}
			}
			if got != string(want) {
				t.Errorf("got %q, bash has %q", got, want)
			}
		})
	}
}

// What only running could tell is a gap with its reason.
func TestUnknown(t *testing.T) {
	for _, tt := range []struct{ script, words, why string }{
		{"cmd --n $N", "cmd|--n|<$N>", "$N is not known: it is set neither in the script nor in the environment " +
			"(run.sh:1)"},
		{"\ncmd --n=$(nvidia-smi -L | wc -l)", "cmd|<--n=$(nvidia-smi -L | wc -l)>",
			"$(nvidia-smi -L | wc -l) is not known: it is the output of a command, and nothing is run (run.sh:2)"},
		{"A=`nproc`; B=$A; cmd x$B", "cmd|<x$(nproc)>", "output of a command"},
		{"N=$(nproc); cmd $((N*2))", "cmd|<$((N * 2))>", "$(nproc) is not known"},
		{"cmd $((UNSET+1))", "cmd|<$((UNSET + 1))>", `"UNSET" is no number`},
		{"cmd $((1/0))", "cmd|<$((1 / 0))>", "divides by zero"},
		{"if [ -f x ]; then A=1; fi; cmd $A", "cmd|<$A>", "$A is not known: it is set in the if of run.sh:1"},
		{"for i in 1 2; do cmd $i; done", "cmd|<$i>", "it changes in the loop of run.sh:1"},
		{"for i in 1; do cmd $i; done", "cmd|1", ""},
		{"while ! curl x; do A=1; done; cmd $A", "cmd|<$A>", "the loop of"},
		{"case $(nproc) in a) A=1;; *) A=2;; esac; cmd $A", "cmd|<$A>", "the case of"},
		{"A=1; if [ -f x ]; then A=1; fi; cmd $A", "cmd|1", ""},
		{"A=0; if [ -f x ]; then A=1; elif [ 1 = 1 ]; then A=1; fi; cmd $A", "cmd|1", ""},
		{"A=0; if [ ! -d x ]; then A=2; exit 1; fi; cmd $A", "cmd|0", ""},
		{"A=(--a); if [ -f x ]; then A+=(--b); fi; cmd ${A[@]} --c", "cmd|--a|<$A>|--c", "the if of run.sh:1"},
		{"A='--a 1'; if [ -f x ]; then A=\"$A --b\"; fi; cmd $A", "cmd|--a|1|<$A>", "the if of run.sh:1"},
		{"A=0; [ -f x ] && A=1; cmd $A", "cmd|<$A>", "what follows &&"},
		{"source gone.sh; if [ -n \"$X\" ]; then A=1; fi; cmd $A", "cmd|<$A>", "the if of"},
		{"while [ $# -lt 9 ]; do A=1; done; cmd $A", "cmd|<$A>", "the loop of"},
		{"while true; do A=1; if [ -f x ]; then break; fi; done; cmd $A", "cmd|<$A>", "the loop of"},
		{"read A; cmd $A", "cmd|<$A>", "it is read while the script runs"},
		{"cmd {1..1000000}", "cmd|<{1..1000000}>", "this brace expansion is not followed"},
		{"cmd ${!A}", "cmd|<${!A}>", "indirect"},
		{"M=([4]=1); cmd ${M[@]}", "cmd|<...>", "an array with indexes is not followed"},
		{"cmd <(ls)", "cmd|<<(ls)>", "this kind of expansion is not followed"},
		{"cmd $RANDOM", "cmd|<$RANDOM>", "changes from run to run"},
		{"cmd ${A:?need A}", "cmd|<${A:?need A}>", "it must be set, and is not"},
		{"cmd ${A%.*}", "cmd|<${A%.*}>", "set neither"},
		{"A=1; ((A<<=B)); cmd $A", "cmd|<A>", "it is computed"},
		{"eval \"cmd a $N\"", "cmd|a|<$N>", "$N is not known"},
		{"source env.sh; cmd $X", "cmd|<$X>", "set neither"},
	} {
		commands := read(t, tt.script, Input{})
		last := commands[len(commands)-1]
		if got := shown(last.Words); got != tt.words {
			t.Errorf("%s: %s, want %s", tt.script, got, tt.words)
		}
		why := ""
		for _, w := range last.Words {
			if found, unknown := Unknown(w); unknown {
				why = found
			}
		}
		if tt.why == "" && why != "" || !strings.Contains(why, tt.why) {
			t.Errorf("%s: %q, want %q", tt.script, why, tt.why)
		}
	}
}

func TestSeveral(t *testing.T) {
	words := read(t, `cmd $A "$B" --n=$C $D`, Input{})[0].Words
	for i, want := range []bool{false, true, false, false, true} {
		if Several(words[i]) != want {
			t.Errorf("word %d: %t", i, !want)
		}
	}
}

// A text that the script writes into a file is kept, unless a branch writes it that may not run.
func TestWritten(t *testing.T) {
	for _, tt := range []struct{ script, path, want string }{
		{"N=2\ncat > \"$D/c.json\" <<EOF\n{\"n\": $N}\nEOF\n", "/w/c.json", "{\"n\": 2}\n"},
		{"cat <<'EOF' >c.json\n$N\nEOF\n", "/w/c.json", "$N\n"},
		{"cd sub; tee c.json <<EOF >/dev/null\nx\nEOF\n", "/w/sub/c.json", "x\n"},
		{"if [ 1 = 1 ]; then cat > c <<EOF\na\nEOF\nelse cat > c <<EOF\nb\nEOF\nfi", "/w/c", "a\n"},
		{"if [ -f x ]; then cat > c <<EOF\na\nEOF\nfi", "/w/c", "<c>"},
		{"cat >> c <<EOF\na\nEOF\n", "/w/c", "<c>"},
		{"cat a > c", "/w/c", "<c>"},
		{"python make.py > c", "/w/c", "<c>"},
		{"sed -i s/a/b/ c", "/w/c", "<c>"},
		{"cp a c", "/w/c", "<c>"},
		{"python make.py 2> c", "/w/c", ""},
	} {
		script, err := Read([]byte(tt.script),
			Input{Name: "run.sh", Dir: "/w", Getenv: func(name string) (string, bool) { return "/w", name == "D" }})
		if err != nil {
			t.Fatal(err)
		}
		got := script.Written[tt.path]
		if _, unknown := Unknown(got); unknown {
			got = shown([]string{got})
		}
		if got != tt.want {
			t.Errorf("%q: %q, want %q (%v)", tt.script, got, tt.want, script.Written)
		}
	}
}

func TestCommands(t *testing.T) {
	script := `#!/bin/bash
#SBATCH --nodes=2   # two of them
#SBATCH -n "16"
export A=1
B=2
cd "$(dirname "$0")/sub"
C=3 torchrun train.py || echo failed
if [ -e "$X" ]; then python a.py; fi
if [ -n "$X" ]; then python b.py; fi
exit 0
never
`
	var lines []Directive
	commands := read(t, script, Input{Script: "jobs/run.sh", Dir: "/w", Begin: func(l []Directive) { lines = l }})
	if len(lines) != 2 || !slices.Equal(lines[0].Words, []string{"--nodes=2"}) ||
		!slices.Equal(lines[1].Words, []string{"-n", "16"}) || lines[1].Line != 3 {
		t.Errorf("directives %+v", lines)
	}
	var got []string
	for _, c := range commands {
		got = append(got, fmt.Sprintf("%s %s dir=%s A=%s B=%s C=%s %s", c.Origin(), c.Words[0], c.Dir, c.Env["A"],
			c.Env["B"], c.Env["C"], c.Branch))
	}
	want := []string{
		"run.sh:7 torchrun dir=/w/jobs/sub A=1 B= C=3 ",
		"run.sh:7 echo dir=/w/jobs/sub A=1 B= C= in what follows || in run.sh:7",
		"run.sh:8 python dir=/w/jobs/sub A=1 B= C= in the if of run.sh:8",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestSource(t *testing.T) {
	open := func(path string) ([]byte, error) {
		if filepath.Base(path) != "env.sh" {
			return nil, os.ErrNotExist
		}
		return []byte("export N=8\nsource deeper.sh\nM=$N"), nil
	}
	commands := read(t, "source ./env.sh\n. gone.sh\ncmd $N $M", Input{Open: open})
	if got := shown(commands[0].Words); got != "cmd|8|8" {
		t.Error(got)
	}
}

func TestBadScripts(t *testing.T) {
	for text, want := range map[string]string{
		"cmd 'open":                    "run.sh:1:5: reached EOF without closing quote '; correct the script",
		"if true; then\ncmd":           "run.sh:1:",
		"a\x00b":                       "run.sh:1: holds a NUL byte",
		strings.Repeat("# x\n", 40000): "more than the 64 KiB",
	} {
		if _, err := Read([]byte(text), Input{Name: "run.sh"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
	}
}

// Scripts that would grow without end, or lead the parser deep, end with an answer.
func TestBounds(t *testing.T) {
	double := "A=xxxxxxxxxxxxxxxx\n" + strings.Repeat("A=$A$A\n", 60) + "cmd $A"
	if commands := read(t, double, Input{}); len(commands) != 1 {
		t.Errorf("%d commands", len(commands))
	}
	for name, text := range map[string]string{
		"arrays":    "A=(1 2 3 4)\n" + strings.Repeat("A=(\"${A[@]}\" \"${A[@]}\")\n", 60) + "cmd \"${A[@]}\"",
		"recursion": "f() { f; f; cmd; }; f",
		"eval":      "A='eval \"$A\"'; eval \"$A\"; cmd",
		"names":     "A=B; B=A; cmd $((A))",
		"deep":      strings.Repeat("$(", maxBytes/2-1),
		"ifs":       strings.Repeat("if ", maxBytes/3-1),
		"not":       strings.Repeat("! ", maxBytes/2-1),
		"groups":    "cmd $((" + strings.Repeat("(", maxBytes-20),
		"branches":  strings.Repeat("if a; then A=1; else\n", 3000) + strings.Repeat("fi\n", 3000),
	} {
		script, err := Read([]byte(text), Input{Name: "run.sh"})
		if err == nil && len(script.Commands) > 100_000 {
			t.Errorf("%s: %d commands", name, len(script.Commands))
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, script := range knownScripts() {
		f.Add(script)
	}
	for _, text := range []string{
		"if a; then b; elif c; then d; else e; fi", "for i in {1..3}; do echo $i; done", "a() { a; }; a",
		"cat <<'E'\nx\nE", "x=$(<f)",
		"echo ${a[@]:1:2} ${a[-1]} ${!a@} ${a@Q}", "((a=1,b+=2))", "[[ a =~ b ]] && c", "#SBATCH -N 2\nsrun x",
		"cmd $'\\x00' \"${x//a/}\"",
		"echo ${x: 1 : -1} ${x/#a/b}", "select a in b; do c; done", "coproc x { y; }", "a=([0]=1 [2]=3)",
		"export -p A=1 $B", "trap 'x' EXIT",
		"\x000\x00", "cmd $(f | tr a b | wc -l)", "for ((i=0;i<3;i++)); do x=$i; done",
		"while getopts a:b x; do y=$x; done", "IFS=, read -ra A <<< $B",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		in := Input{Name: "run.sh", Args: []string{"a", "b c"},
			Open: func(string) ([]byte, error) { return []byte(text), nil }}
		script, err := Read([]byte(text), in)
		if (script == nil) == (err == nil) {
			t.Fatal("neither a script nor an error, or both")
		}
		if err != nil {
			return
		}
		for _, c := range script.Commands {
			for _, w := range c.Words {
				if _, unknown := Unknown(w); !unknown && bytes.IndexByte([]byte(w), 0) >= 0 {
					t.Fatalf("%q holds NUL outside a gap", w)
				}
				if strings.Contains(Plain(w), "\x00") {
					t.Fatalf("%q", Plain(w))
				}
			}
		}
	})
}

// ~name is what whoever reads the script knows of that user, and stays as it is for one that nobody knows.
func TestHomesOfOthers(t *testing.T) {
	home := func(user string) string { return map[string]string{"ann": "/home/ann"}[user] }
	for in, want := range map[*Input]string{{Home: home}: "/home/ann/x ~bob/x", {}: "~ann/x ~bob/x"} {
		if got := strings.Join(read(t, "cmd ~ann/x ~bob/x", *in)[0].Words[1:], " "); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
