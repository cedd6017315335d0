package snapshot

import (
	"cmp"
	"slices"
)

// What can be drawn of a device: how its segments are filled, and what lived over the time of the trace.

// SegmentMap is one segment as a row of letters, each for an equal part of it: the component that holds most of the
// part (Letter), or Unused where nothing does.
type SegmentMap struct {
	TotalBytes       int64  `json:"total_bytes"`
	FreeBytes        int64  `json:"free_bytes"`
	LargestFreeBytes int64  `json:"largest_free_bytes"`
	Stream           int64  `json:"stream"`
	PrivatePool      bool   `json:"private_pool,omitempty"`
	Expandable       bool   `json:"expandable,omitempty"`
	Map              string `json:"map"`
}

// Moment is what was in use at one event of the trace.
type Moment struct {
	Event          int              `json:"event"`
	AllocatedBytes int64            `json:"allocated_bytes"`
	Components     map[string]int64 `json:"components"`
	// an allocation failed within this moment's share of the trace
	Failed bool `json:"failed,omitempty"`
}

const (
	mapWidth    = 60  // letters a segment
	maxSegments = 40  // rows: the largest segments
	maxMoments  = 400 // points over the whole trace
)

// Unused is the letter of memory that nothing uses.
const Unused = '.'

// letters are those of the components, in the order in which they are drawn on each other.
var letters = []struct {
	component string
	letter    byte
}{{"parameters", 'P'}, {"gradients", 'G'}, {"optimizer", 'O'}, {"activations", 'A'}, {"logits", 'L'},
	{"temporaries", 'T'}, {"communication", 'C'}, {unknown, '?'}}

// Components are the names of the components, in the order in which they are drawn on each other.
func Components() []string {
	names := make([]string, len(letters))
	for i, l := range letters {
		names[i] = l.component
	}
	return names
}

// Letter is the letter of a component in a SegmentMap.
func Letter(component string) byte {
	for _, l := range letters {
		if l.component == component {
			return l.letter
		}
	}
	return '?'
}

// segmentMaps draws the largest segments of a device.
func (a *analysis) segmentMaps(of []Segment) []SegmentMap {
	segments := slices.DeleteFunc(slices.Clone(of), func(s Segment) bool { return s.TotalBytes <= 0 })
	slices.SortStableFunc(segments, func(x, y Segment) int {
		return cmp.Or(cmp.Compare(y.TotalBytes, x.TotalBytes), cmp.Compare(x.Address, y.Address))
	})
	var maps []SegmentMap
	for _, s := range segments[:min(len(segments), maxSegments)] {
		maps = append(maps, a.segmentMap(s))
	}
	return maps
}

func (a *analysis) segmentMap(s Segment) SegmentMap {
	m := SegmentMap{TotalBytes: s.TotalBytes, Stream: s.Stream, PrivatePool: s.PrivatePool, Expandable: s.Expandable}
	var use [mapWidth]map[byte]int64
	var offset int64
	for _, b := range s.Blocks {
		letter := byte(Unused)
		if b.State == Inactive {
			m.FreeBytes += b.SizeBytes
			m.LargestFreeBytes = max(m.LargestFreeBytes, b.SizeBytes)
		} else {
			letter = Letter(a.judge(b.Stack).component)
		}
		spread(&use, s.TotalBytes, offset, offset+b.SizeBytes, letter)
		offset += b.SizeBytes
	}
	row := make([]byte, mapWidth)
	for i, parts := range use {
		row[i] = Unused
		var most int64
		for _, letter := range append([]byte{Unused}, lettersOnly()...) {
			if parts[letter] > most {
				most, row[i] = parts[letter], letter
			}
		}
	}
	m.Map = string(row)
	return m
}

func lettersOnly() []byte {
	only := make([]byte, len(letters))
	for i, l := range letters {
		only[i] = l.letter
	}
	return only
}

// spread adds the bytes from start to end of a segment to the parts that they lie in.
func spread(use *[mapWidth]map[byte]int64, total, start, end int64, letter byte) {
	part := func(i int64) int64 { return total/mapWidth*i + total%mapWidth*i/mapWidth } // where part i begins
	for i := range int64(mapWidth) {
		if overlap := min(end, part(i+1)) - max(start, part(i)); overlap > 0 {
			if use[i] == nil {
				use[i] = map[byte]int64{}
			}
			use[i][letter] += overlap
		}
	}
}

// timeline collects moments while the trace is walked backwards: of each share of the trace, the fullest moment.
type timeline struct {
	share   int
	moments []Moment
	sums    map[string]int64
}

func newTimeline(events int, components []ComponentUse) *timeline {
	t := &timeline{share: max(1, (events+maxMoments-1)/maxMoments), sums: map[string]int64{}}
	for _, c := range components {
		t.sums[c.Component] = c.Bytes
	}
	return t
}

// see looks at the moment after event i.
func (t *timeline) see(i int, allocated int64, failed bool) {
	last := len(t.moments) - 1
	if last < 0 || t.moments[last].Event/t.share != i/t.share {
		t.moments = append(t.moments, Moment{AllocatedBytes: -1})
		last++
	}
	m := &t.moments[last]
	m.Failed = m.Failed || failed
	if allocated <= m.AllocatedBytes {
		return
	}
	m.Event, m.AllocatedBytes, m.Components = i, allocated, map[string]int64{}
	for component, bytes := range t.sums {
		if bytes > 0 {
			m.Components[component] = bytes
		}
	}
}
