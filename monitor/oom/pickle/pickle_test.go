package pickle

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// sample is written by the real pickle module in every protocol and must come back the same.
const sample = `
import collections, pickle, sys
shared = ["frame", {"line": 7}]
big = 2**64 - 1
value = {
    "none": None, "true": True, "false": False, "small": 7, "byte": 200, "word": 60000, "negative": -5, "address": 0x7f1234567000,
    "large": 2**62, "minus": -2**62, "huge": big, "float": 1.5, "text": "\u00e4\U0001f600\\ \n'", "long": "x" * 5000, "bytes": b"ab\x00\xff",
    "list": [1, 2, 3], "tuple": (1,), "pair": (1, 2), "triple": (1, 2, 3), "four": (1, 2, 3, 4), "empty": [[], (), {}],
    "shared": [shared, shared], "ordered": collections.OrderedDict(a=1, b=2), "set": {5}, "object": ValueError("no"),
    "many": list(range(3000)), "dict": {str(i): i for i in range(2500)}, "int keys": {1: 2},
}
sys.stdout.buffer.write(pickle.dumps(value, protocol=int(sys.argv[1])))
`

func TestEveryProtocol(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatalf("the pickles of this test are written by Python: %v", err)
	}
	for protocol := range 6 {
		t.Run(fmt.Sprint(protocol), func(t *testing.T) {
			data, err := exec.Command(python, "-c", sample, fmt.Sprint(protocol)).Output()
			if err != nil {
				t.Fatal(err)
			}
			d, err := Load(bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			root := d.Root()
			for key, want := range map[string]string{
				"none": "None", "true": "true", "false": "false", "small": "7", "byte": "200", "word": "60000",
				"negative": "-5",
				"address":  fmt.Sprint(0x7f1234567000), "large": fmt.Sprint(int64(1) << 62),
				"minus": fmt.Sprint(int64(-1) << 62),
				"huge":  "1.8446744073709552e+19", "float": "1.5", "text": "ä😀\\ \n'",
				"long": strings.Repeat("x", 5000),
				"list": "list", "tuple": "tuple",
			} {
				if got := d.Show(d.Get(root, key)); got != want {
					t.Errorf("%s: got %q, want %q", key, got, want)
				}
			}
			for key, want := range map[string]int{"list": 3, "tuple": 1, "pair": 2, "triple": 3, "four": 4,
				"many": 3000, "set": 1} {
				if protocol < 4 && key == "set" { // older protocols call the class with a list, which is dropped
					continue
				}
				if got := len(d.Items(d.Get(root, key))); got != want {
					t.Errorf("%s has %d items, want %d", key, got, want)
				}
			}
			if n, _ := d.Int(d.Items(d.Get(root, "many"))[2999]); n != 2999 {
				t.Errorf("the last of many is %d", n)
			}
			if keys := d.Keys(d.Get(root, "dict")); len(keys) != 2500 || keys[2499] != "2499" {
				t.Errorf("dict has %d keys", len(keys))
			}
			if n, _ := d.Int(d.Get(d.Get(root, "ordered"), "b")); n != 2 && protocol >= 2 {
				t.Error("an OrderedDict is not read as a dictionary")
			}
			shared := d.Items(d.Get(root, "shared"))
			if shared[0] != shared[1] {
				t.Error("a shared list came back as two")
			}
			if object := d.Get(root, "object"); object.Kind() != Object ||
				!strings.HasSuffix(d.Text(object), ".ValueError") {
				t.Errorf("an exception is %v %q", object.Kind(), d.Text(object))
			}
			if d.Get(root, "absent").Kind() != None || d.Get(d.Get(root, "list"), "x").Kind() != None {
				t.Error("absent keys are not None")
			}
		})
	}
}

// A pickle that would run a command when Python loads it is only data here.
func TestNothingRuns(t *testing.T) {
	d, err := Load(strings.NewReader("cos\nsystem\n(S'touch /tmp/oomguard-pickle'\ntR."))
	if err != nil {
		t.Fatal(err)
	}
	if d.Root().Kind() != Object || d.Text(d.Root()) != "os.system" {
		t.Errorf("got %s", d.Show(d.Root()))
	}
}

func TestBrokenPickles(t *testing.T) {
	tests := []struct{ name, data, want string }{
		{"empty", "", "ends in the middle"},
		{"text", "# hello", "no pickle operation"},
		{"cut", "\x80\x04\x8c\x05ab", "ends in the middle"},
		{"a claimed gigabyte", "\x80\x04\x8d\x00\x00\x00\x40\x00\x00\x00\x00ab", "ends in the middle"},
		{"no mark", "\x80\x04Kt.", ""},
		{"unknown object", "\x80\x04h\x05.", "object 5"},
		{"nothing on the stack", ".", "misses its operands"},
		{"odd dictionary", "(K\x01d.", "misses its operands"},
		{"word for a number", "Ix\n.", "no whole number"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Load(strings.NewReader(tt.data))
			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func FuzzLoad(f *testing.F) {
	for _, seed := range []string{"(dp0\nVa\np1\nI1\ns.", "\x80\x04}\x94\x8c\x01a\x94K\x01s.",
		"\x80\x02]q\x00(K\x01K\x02e.", "cos\nsystem\n(tR.", "(lp0\ng0\na."} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Load(bytes.NewReader(data))
		if err != nil {
			return
		}
		root := d.Root()
		_ = d.Show(root)
		_ = d.Keys(root)
		_ = len(d.Items(root))
		_, _ = d.Float(root)
	})
}
