package launcher

// Inherit makes the command's inheritance ready: it is called once, at the very start of the program. Signals that this
// process was started with as ignored are ignored again, as far as Go lets them be. It returns the descriptors beyond
// the standard streams that this process was started with. They are for the command (Command.Descriptors) and for
// nobody else: no helper process gets them.
func Inherit() (descriptors []int) {
	keepIgnored()
	return inheritedDescriptors()
}
