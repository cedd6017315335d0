package monitor

import "strconv"

// Merge makes one recording of those of a run's nodes, by the nodes' names. What several nodes miss is said of each.
func Merge(nodes []string, recordings []*Recording) *Recording {
	merged := &Recording{}
	for i, rec := range recordings {
		if rec == nil {
			continue
		}
		for _, r := range rec.Ranks {
			r.Node = nodes[i]
			merged.Ranks = append(merged.Ranks, r)
		}
		for _, d := range rec.Devices {
			d.Node = nodes[i]
			merged.Devices = append(merged.Devices, d)
		}
		for _, m := range rec.Missing {
			merged.Missing = append(merged.Missing, "node "+nodes[i]+": "+m)
		}
		merged.LastSeen = later(merged.LastSeen, rec.LastSeen)
	}
	merged.finish()
	return merged
}

// Label is the device's number, with its node's name in a run of several nodes.
func (d DeviceRecord) Label() string {
	if d.Node == "" {
		return strconv.Itoa(d.Index)
	}
	return d.Node + ":" + strconv.Itoa(d.Index)
}
