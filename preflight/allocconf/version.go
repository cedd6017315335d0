package allocconf

import (
	"fmt"
	"strconv"
	"strings"
)

// Version is a release of PyTorch; the zero value is an unknown one.
type Version struct {
	Major, Minor, Patch int
	Known               bool
}

// parseVersion reads torch.__version__ ("2.6.0+cu124", "2.12.0.dev20260101"); anything else is the unknown version.
func parseVersion(text string) Version {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "+")
	parts := strings.SplitN(text, ".", 4)
	if len(parts) < 2 {
		return Version{}
	}
	var v Version
	for i, field := range []*int{&v.Major, &v.Minor, &v.Patch} {
		if i >= len(parts) {
			break
		}
		digits := parts[i][:len(parts[i])-len(strings.TrimLeft(parts[i], "0123456789"))]
		n, err := strconv.Atoi(digits)
		if err != nil && i < 2 {
			return Version{}
		}
		*field = n
	}
	v.Known = true
	return v
}

// String is the release as people write it.
func (v Version) String() string {
	if !v.Known {
		return "unknown"
	}
	return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch)
}

// before tells whether v is known to be older than major.minor.
func (v Version) before(major, minor int) bool {
	return v.Known && (v.Major < major || v.Major == major && v.Minor < minor)
}

// is tells whether v is known to be a release of major.minor.
func (v Version) is(major, minor int) bool { return v.Known && v.Major == major && v.Minor == minor }
