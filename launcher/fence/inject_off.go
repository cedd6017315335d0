//go:build !faults

package fence

import "time"

// inject makes a part fail in a program that was built for that, with the tag faults. In every other it does nothing.
func inject(string) {}

// Garble makes what a part has found senseless in a program that was built with the tag faults. In every other it does
// nothing.
func Garble(string, any) {}

// Limit is how long a part may take.
func Limit(limit time.Duration) time.Duration { return limit }
