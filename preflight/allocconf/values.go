package allocconf

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// checkValue judges one value; nil: PyTorch takes it.
func checkValue(o option, value string, v Version) *Problem {
	switch o.kind {
	case boolean:
		return checkBoolean(o, value, v)
	case backend:
		return checkBackend(o, value)
	case roundup:
		return checkRoundup(o, value)
	case opaque:
		return nil
	case integer, fraction:
		return checkNumber(o, value, v)
	}
	return nil
}

func checkBoolean(o option, value string, v Version) *Problem {
	if value == "True" || value == "False" {
		return nil
	}
	dies := fmt.Sprintf("Expected a single True/False argument for %s", o.key)
	if v.Known && !v.before(2, 9) {
		dies = fmt.Sprintf("Expected 'True' or 'False' at index 2 in ConfigTokenizer but got '%s'", value)
	}
	return &Problem{Fail, o.key, fmt.Sprintf("%s:%s: PyTorch takes only True or False, written so, and dies with %q",
		o.key, value, dies),
		fmt.Sprintf("write %s:True or %s:False", o.key, o.key)}
}

func checkBackend(o option, value string) *Problem {
	if value == "native" || value == "cudaMallocAsync" || value == "hipMallocAsync" {
		return nil
	}
	return &Problem{Fail, o.key, fmt.Sprintf("backend:%s: PyTorch dies with %q", value, o.fails),
		"write backend:native or backend:cudaMallocAsync"}
}

func checkNumber(o option, value string, v Version) *Problem {
	n, err := strconv.ParseFloat(value, 64)
	whole := strings.Trim(value, "0123456789") == ""
	if err != nil || n != n || strings.ContainsAny(value, "xXpP_iI") || o.kind == integer && !whole {
		return &Problem{Fail, o.key, fmt.Sprintf("%s:%s is no %s: PyTorch reads the digits that it can (512MB as "+
			"512, 0.5 as 0, -1 as 2^64 - 1) or dies",
			o.key, value, o.noun()), fmt.Sprintf("write a plain %s", o.noun())}
	}
	least, openLeast := o.least, o.openLeast
	if o.key == "max_split_size_mb" && v.before(2, 1) {
		openLeast = true // older releases compared with > 20
	}
	if n < least || n > o.most || openLeast && n == least || o.openMost && n == o.most {
		return &Problem{Fail, o.key, fmt.Sprintf("%s:%s is out of bounds: PyTorch dies with %q", o.key, value, o.fails),
			"give a value " + o.bounds(openLeast)}
	}
	if o.powerOfTwo && bits.OnesCount64(uint64(n)) != 1 {
		return &Problem{Fail, o.key, fmt.Sprintf("%s:%s: PyTorch dies with \"%s, got %s\"", o.key, value, o.fails,
			value), "give a power of two " + o.bounds(openLeast)}
	}
	return nil
}

func (o option) noun() string {
	if o.kind == integer {
		return "whole number"
	}
	return "decimal number"
}

func (o option) bounds(openLeast bool) string {
	lower, upper := "at least", "and at most"
	if openLeast {
		lower = "above"
	}
	if o.openMost {
		upper = "and below"
	}
	if o.most >= noLimit {
		return fmt.Sprintf("%s %g", lower, o.least)
	}
	return fmt.Sprintf("%s %g %s %g", lower, o.least, upper, o.most)
}

// checkRoundup reads N or [interval:N,...,>:N]: intervals are powers of two in MB, divisions powers of two or, in a
// list, 0.
func checkRoundup(o option, value string) *Problem {
	fail := func(what, dies string) *Problem {
		return &Problem{Fail, o.key, fmt.Sprintf("%s:%s: %s; PyTorch dies with %q", o.key, value, what, dies),
			"write a power of two, or a list such as [256:1,512:2,1024:4,>:8]"}
	}
	if !strings.HasPrefix(value, "[") {
		if !powerOfTwo(value) {
			return fail("the number of divisions is no power of two", o.fails)
		}
		return nil
	}
	for item := range strings.SplitSeq(strings.Trim(value, "[]"), ",") {
		interval, divisions, ok := strings.Cut(item, ":")
		switch {
		case !ok:
			return fail(fmt.Sprintf("%q is not interval:divisions", item),
				"Error parsing CachingAllocator settings, expected :")
		case interval != ">" && !powerOfTwo(interval):
			return fail(fmt.Sprintf("the interval %q is no power of two", interval),
				"For roundups, the intervals have to be power of 2")
		case divisions != "0" && !powerOfTwo(divisions):
			return fail(fmt.Sprintf("the divisions %q are no power of two", divisions), o.fails)
		}
	}
	return nil
}

func powerOfTwo(text string) bool {
	n, err := strconv.ParseUint(text, 10, 64)
	return err == nil && bits.OnesCount64(n) == 1
}

// checkSegments: a larger segment size raises the minimum of the sizes that are compared with it.
func checkSegments(s Settings) *Problem {
	segment, ok := s.Number("large_segment_size_mb")
	if !ok {
		return nil
	}
	for _, key := range []string{"max_split_size_mb", "max_non_split_rounding_mb"} {
		if n, ok := s.Number(key); ok && n < segment {
			return &Problem{Fail, key, fmt.Sprintf("%s:%s is below large_segment_size_mb:%s: PyTorch dies with "+
				"\"CachingAllocator option %s too small, must be >= %s\"",
				key, s[key], s["large_segment_size_mb"], key, s["large_segment_size_mb"]),
				"give at least the segment size"}
		}
	}
	return nil
}
