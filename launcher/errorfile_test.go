package launcher

import (
	"os"
	"path/filepath"
	"testing"
)

// The forms are those of record_exception in torch/distributed/elastic/multiprocessing/errors/error_handler.py, and of
// ProcessFailure in errors/__init__.py, which takes a plain message too.
func TestParseErrorFile(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       *RankError
	}{
		{"exception", `{"message": {"message": "ValueError: bad", "extraInfo": {"py_callstack": "Traceback ...\nValueError: bad\n", "timestamp": "1"}}}`,
			&RankError{"ValueError: bad", "Traceback ...\nValueError: bad"}},
		{"signal, as the agent completes it",
			`{"message": {"message": "Signal 11", "extraInfo": {"timestamp": 1}, "errorCode": -11}}`,
			&RankError{"Signal 11", ""}},
		{"plain", `{"message": "it broke"}`, &RankError{"it broke", ""}},
		{"no message", `{"message": {"extraInfo": {}}}`, nil},
		{"message is a number", `{"message": 5}`, nil},
		{"callstack is a number", `{"message": {"message": "x", "extraInfo": {"py_callstack": 5}}}`, nil},
		{"empty", ``, nil},
		{"cut off", `{"message": {"message": "Val`, nil},
		{"a list", `[1]`, nil},
	} {
		got := parseErrorFile([]byte(test.text))
		if (got == nil) != (test.want == nil) || got != nil && *got != *test.want {
			t.Errorf("%s: got %+v, want %+v", test.name, got, test.want)
		}
	}
}

func FuzzParseErrorFile(f *testing.F) {
	f.Add([]byte(`{"message": {"message": "a", "extraInfo": {"py_callstack": "b"}}}`))
	f.Add([]byte(`{"message": "a"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if e := parseErrorFile(text); e != nil && e.Message == "" {
			t.Error("an error without a message")
		}
	})
}

// TestWithErrors: only ranks that did not end well are looked up, and whatever lies at the path hurts nobody.
func TestWithErrors(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "error.json")
	if err := os.WriteFile(file, []byte(`{"message": "it broke"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	ranks := withErrors([]RankExit{
		{Known: true, Code: 1, ErrorFile: file}, {ErrorFile: file}, {Known: true, ErrorFile: file},
		{ErrorFile: folder}, {ErrorFile: "/no/such/file"}, {ErrorFile: os.DevNull}, {},
	})
	for i, r := range ranks {
		if want := i < 2; (r.Error != nil) != want {
			t.Errorf("rank %d: error %+v", i, r.Error)
		}
	}
}
