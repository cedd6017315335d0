package model

import (
	"strings"
	"testing"
)

func TestParseParams(t *testing.T) {
	for text, want := range map[string]int64{
		"7B": 7e9, "7b": 7e9, "7e9": 7e9, "7E+9": 7e9, "70b": 70e9, "1.3B": 1_300_000_000, "350M": 350e6,
		"7000000000":    7e9,
		"6_738_415_616": 6_738_415_616, " 7B ": 7e9, "0.5b": 5e8, "1.5T": 15e11, "12k": 12_000, "1000": 1000,
		"0.5k": 500, "6.738415616B": 6_738_415_616,
		"1000.5": 1001, "2G": 2e9,
	} {
		if got, err := ParseParams(text); err != nil || got != want {
			t.Errorf("%q: %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "B", "seven", "-7B", "+7B", "0", "0B", "0.0000000001B", "1e19", "1e999",
		"99999999999999999999", "7BB", "7 B",
		"7,000,000", "0x10", "NaN", "inf", "_7", "7__0", "7_", ".5B", "7e-3", "7", "350", "0.5", "999.9", "1e2",
		"7B\x00", "７B"} {
		if got, err := ParseParams(text); err == nil || got != 0 || !strings.Contains(err.Error(), "7B") {
			t.Errorf("%q: %d, %v, want an error with an example", text, got, err)
		}
	}
}

func FuzzParseParams(f *testing.F) {
	for _, seed := range []string{"7B", "6_738_415_616", "7e9", "1.3b", "-1", "1e999"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseParams(text)
		if (err == nil) != (got > 0 && got <= maxParameters) {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	})
}
