package gpu

import (
	"math"
	"testing"
)

func TestParseMemory(t *testing.T) {
	for text, want := range map[string]int64{
		"48GiB": 48 << 30, "80GB": 80e9, "81559MiB": 81559 << 20, "81559 mib": 81559 << 20, " 1.5 TiB ": 3 << 39,
		"512KiB":  512 << 10,
		"79.1GiB": 84932978278, // 79.1 x 2^30 = 84932978278.4
		"1048576": 1 << 20, "1024B": 1024, "0.5gb": 5e8, "9223372036854775807": math.MaxInt64,
	} {
		if got, err := ParseMemory(text); err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "GiB", "80", "1024", "0.5", "48G", "48 gigs", "-1GiB", "0", "0GiB", "0.1",
		"1.2.3GiB", ".", "1e3", "0x10", "inf", "NaN", "+5GB", "9223372036854775808", "9999999TiB", "48GiB GiB",
		"\xff"} {
		if got, err := ParseMemory(text); err == nil {
			t.Errorf("%q is taken for %d bytes", text, got)
		}
	}
}

func FuzzParseMemory(f *testing.F) {
	for _, seed := range []string{"48GiB", "80GB", "1.5 tib", "12", "", ".", "9223372036854775807", "8388608TiB", "K",
		"ſ", "1\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseMemory(text)
		if (err == nil) != (got > 0) {
			t.Errorf("%q gives %d and %v", text, got, err)
		}
	})
}
