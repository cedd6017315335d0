//go:build !linux

package launcher

// inheritedDescriptors is not known here: the command gets the standard streams alone.
func inheritedDescriptors() []int { return nil }
