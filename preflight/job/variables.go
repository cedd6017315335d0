package job

import (
	"fmt"
	"oomguard/preflight/job/shell"
)

// variable reads a variable as the command will see it, with its origin; the zero value when it is unset or empty.
func (r *reader) variable(name string) sourced {
	if set, ok := r.env[name]; ok {
		return set
	}
	if value := r.src.Getenv(name); value != "" && !r.sealed {
		return sourced{value, "environment " + name}
	}
	return sourced{}
}

// note adds a remark to the origin of the script.
func (r *reader) note(text string) { r.notes = append(r.notes, text) }

// count reads a number of an option; 0 when there is none. What is not a number is recorded, what is not known is
// handed to set.
func (r *reader) count(o sourced, set *Setting[int]) int {
	if o.text == "" {
		return 0
	}
	if why, unknown := shell.Unknown(o.text); unknown {
		set.Withhold(why)
		return 0
	}
	n, err := pythonInt(o.text)
	if err != nil || n < 1 {
		err := fmt.Errorf("%s is %q: need a whole number from 1", o.origin, o.text)
		r.unread(err)
		set.Withhold(err.Error())
		return 0
	}
	return n
}

func (r *reader) setenv(name, value string) { r.setenvFrom(name, value, "environment "+name) }

// setenvFrom sets a variable as the command will see it, and says where the value came from.
func (r *reader) setenvFrom(name, value, origin string) {
	if r.env == nil {
		r.env = map[string]sourced{}
	}
	r.env[name] = sourced{value, origin}
}
