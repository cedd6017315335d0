package job

import (
	"slices"
	"strconv"
	"strings"
)

// numbers are the leading numeric parts of a version: 2.10.0+cu126 -> 2, 10, 0. A suffix of a part (2.9.0a0) ends the
// list.
func numbers(version string) []int {
	var parts []int
	public, _, _ := strings.Cut(version, "+")
	for part := range strings.SplitSeq(public, ".") {
		digits := part
		if i := strings.IndexFunc(part, func(c rune) bool { return c < '0' || c > '9' }); i >= 0 {
			digits = part[:i]
		}
		n, err := strconv.Atoi(digits)
		if err != nil {
			break
		}
		parts = append(parts, n)
		if digits != part {
			break
		}
	}
	return parts
}

// AtLeast compares the version of a package of the job's interpreter with a release ("0.20"); known is false when there
// is none to compare.
func (j *Job) AtLeast(name, release string) (yes, known bool) {
	if j == nil {
		return false, false
	}
	have := numbers(j.Versions[name])
	if len(have) == 0 {
		return false, false
	}
	return slices.Compare(have, numbers(release)) >= 0, true
}
