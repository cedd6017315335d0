package estimate

import (
	"strconv"
	"strings"
)

// older says that the run uses an earlier release of the package than that; false when its version is not known.
func (s *scenario) older(pkg string, than ...int) bool {
	text, ok := s.job.Versions[pkg]
	if !ok || text == "" {
		return false
	}
	parts := strings.Split(text, ".")
	for i, want := range than {
		if i >= len(parts) {
			return want > 0
		}
		// 0.dev0, 6a1: what follows the digits is a pre-release
		digits := parts[i][:len(parts[i])-len(strings.TrimLeft(parts[i], "0123456789"))]
		got, err := strconv.Atoi(digits)
		if err != nil {
			return false
		}
		if got != want {
			return got < want
		}
	}
	return false
}
