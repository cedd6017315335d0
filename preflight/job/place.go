package job

// A Place says where the command will run, as far as that decides what a missing file or an unset variable means.
type Place int

// The places. At an Unsaid one the files that the command names are looked for here, and so they are Here, where the
// variables are the command's own as well. Elsewhere is another machine: what is not here may be there.
const (
	Unsaid Place = iota
	Here
	Elsewhere
)
