package launcher

// fates is what happened to whom, in the order in which they were met.
type fates []*fate

type fate struct {
	Survivor
	start uint64
}

// find returns the entry of a process, nil where there is none.
func (f fates) find(q process) *fate {
	for _, known := range f {
		if known.PID == q.pid && known.start == q.start {
			return known
		}
	}
	return nil
}

// of returns the entry of a process, a new one where there is none.
func (f *fates) of(q process, ranks *rankWatch) *fate {
	if known := f.find(q); known != nil {
		return known
	}
	met := &fate{Survivor{PID: q.pid, Name: q.name, Rank: -1, Action: LeftAlone}, q.start}
	if r := ranks.known(q); r != nil {
		met.Rank = r.Rank
	}
	*f = append(*f, met)
	return met
}

func (f fates) list() []Survivor {
	var survivors []Survivor
	for _, known := range f {
		survivors = append(survivors, known.Survivor)
	}
	return survivors
}
