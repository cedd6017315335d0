package gpu

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// memoryUnits are the units of ParseMemory in bytes. A bare K, M, G or T is missing on purpose: it means 1000 to some
// tools and 1024 to others.
func memoryUnits() map[string]int64 {
	return map[string]int64{
		"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
		"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
		"b": 1, "": 1,
	}
}

// leastBytes is the smallest amount that is meant without a unit: 1 MiB.
const leastBytes = 1 << 20

// ParseMemory reads an amount of memory: 48GiB (2^30), 80GB (10^9), 81559MiB, 79.1 GiB, or plain bytes; letter case
// does not matter. The error says what was read and what is accepted; zero, negative and larger than 2^63-1 bytes are
// errors.
func ParseMemory(text string) (int64, error) {
	trimmed := strings.ToLower(strings.TrimSpace(text))
	end := strings.IndexFunc(trimmed, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if end < 0 {
		end = len(trimmed)
	}
	number, suffix := trimmed[:end], strings.TrimSpace(trimmed[end:])
	unit, known := memoryUnits()[suffix]
	if !known {
		return 0, fmt.Errorf("%q is not an amount of memory: write it like 48GiB (2^30 bytes), 80GB (10^9 bytes) or "+
			"81559MiB", text)
	}
	bytes, err := scale(text, number, unit)
	if err == nil && suffix == "" && bytes < leastBytes {
		return 0, fmt.Errorf("%q is an amount of memory only with its unit: write %sGiB or %sMiB", text, number, number)
	}
	return bytes, err
}

func scale(text, number string, unit int64) (int64, error) {
	if whole, err := strconv.ParseInt(number, 10, 64); err == nil && whole > 0 && whole <= math.MaxInt64/unit {
		return whole * unit, nil
	}
	value, err := strconv.ParseFloat(number, 64)
	bytes := math.Round(value * float64(unit))
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q does not begin with a number: write it like 48GiB, 80GB or 81559MiB", text)
	case bytes < 1:
		return 0, fmt.Errorf("%q is no memory at all: the amount must be positive", text)
	case bytes >= math.MaxInt64:
		return 0, fmt.Errorf("%q is more than can be counted: write it like 48GiB, 80GB or 81559MiB", text)
	}
	return int64(bytes), nil
}
