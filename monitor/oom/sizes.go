package oom

import (
	"fmt"
	"math"
	"strconv"
)

// sizePattern is a size as c10::CachingDeviceAllocator's format_size prints it (two decimals and a unit, or an integer
// and "bytes"), without white space.
const sizePattern = `([0-9]+(?:\.[0-9]+)?)(bytes|[KMGT]i?B|B)`

// garbageBytes is the least size that cannot be real: unsigned underflow and NVML's "not available" print as 2^64
// bytes, PyTorch refuses requests from 2^60 (1 EiB) on (CUDACachingAllocator.cpp, kOneExabyteAsInt).
const garbageBytes = 1 << 60

// parseSize turns a printed size into bytes; Unknown for garbage.
func parseSize(value, unit string) int64 {
	v, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return Unknown
	}
	b := v * unitBytes(unit)
	if !(b < garbageBytes) {
		return Unknown
	}
	return int64(math.Round(b))
}

// unitBytes: PyTorch's KiB, MiB, GiB are powers of 1024; its old MB and GB are too (it printed them for the same
// numbers).
func unitBytes(unit string) float64 {
	switch unit[0] {
	case 'K':
		return 1 << 10
	case 'M':
		return 1 << 20
	case 'G':
		return 1 << 30
	case 'T':
		return 1 << 40
	}
	return 1
}

// size prints bytes as PyTorch does, so that people find the number again in their log.
func size(b int64) string {
	const kib, mib, gib = 1 << 10, 1 << 20, 1 << 30
	switch {
	case b < 0:
		return "an unknown amount"
	case b <= kib:
		return fmt.Sprintf("%d bytes", b)
	case b <= mib:
		return fmt.Sprintf("%.2f KiB", float64(b)/kib)
	case b <= gib:
		return fmt.Sprintf("%.2f MiB", float64(b)/mib)
	}
	return fmt.Sprintf("%.2f GiB", float64(b)/gib)
}
