package report

import (
	"fmt"
	"html"
	"slices"
	"strings"

	"oomguard/monitor/oom/snapshot"
)

// Picture is a drawing: SVG where the format can show one, the text elsewhere.
type Picture struct {
	SVG  string
	Text string
}

func (Picture) block() {}

// componentColours are told apart by people with colour-blindness too (the palette of Okabe and Ito, 2008).
func componentColour(component string) string {
	colours := map[string]string{"parameters": "#0072B2", "gradients": "#E69F00", "optimizer": "#009E73",
		"activations": "#CC79A7", "logits": "#D55E00",
		"temporaries": "#F0E442", "communication": "#56B4E9"}
	if c, ok := colours[component]; ok {
		return c
	}
	return "#999999"
}

// legend draws the names of the components and returns its height.
func legend(b *strings.Builder, y int) {
	x := 0
	for _, c := range snapshot.Components() {
		fmt.Fprintf(b, `<rect x="%d" y="%d" width="12" height="12" fill="%s"/><text x="%d" y="%d">%s</text>`, x, y,
			componentColour(c), x+16, y+11, c)
		x += 30 + 7*len(c)
	}
}

// mapPicture draws each segment as a bar of its parts.
func mapPicture(d snapshot.Device, u Units) Picture {
	const (
		rowHeight, width, top = 16, 720, 26
	)
	largest := d.Maps[0].TotalBytes
	unit := u.For(largest)
	var text, b strings.Builder
	height := top + rowHeight*len(d.Maps) + 4
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="segments of the allocator">`, width+200, height)
	legend(&b, 2)
	for i, m := range d.Maps {
		y := top + rowHeight*i
		// A segment is as wide as it is large, but wide enough to be seen.
		whole := max(40, int(float64(width)*float64(m.TotalBytes)/float64(largest)))
		part := float64(whole) / float64(len(m.Map))
		fmt.Fprintf(&b, `<rect x="0" y="%d" width="%d" height="%d" fill="#eeeeee"/>`, y, whole, rowHeight-3)
		for j := 0; j < len(m.Map); {
			end := j
			for end < len(m.Map) && m.Map[end] == m.Map[j] {
				end++
			}
			if m.Map[j] != snapshot.Unused {
				fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`, part*float64(j), y,
					part*float64(end-j), rowHeight-3, componentColour(componentOf(m.Map[j])))
			}
			j = end
		}
		note := fmt.Sprintf("%s %s, %s free", unit.Format(m.TotalBytes), unit.Name, unit.Format(m.FreeBytes))
		if m.PrivatePool {
			note += ", private pool"
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d">%s</text>`, whole+6, y+11, html.EscapeString(note))
		fmt.Fprintf(&text, "[%s] %s\n", m.Map, note)
	}
	b.WriteString("</svg>")
	text.WriteString("\n" + mapLegend())
	return Picture{SVG: b.String(), Text: text.String()}
}

func componentOf(letter byte) string {
	for _, c := range snapshot.Components() {
		if snapshot.Letter(c) == letter {
			return c
		}
	}
	return ""
}

func mapLegend() string {
	parts := []string{string(rune(snapshot.Unused)) + " free"}
	for _, c := range snapshot.Components() {
		parts = append(parts, string(rune(snapshot.Letter(c)))+" "+c)
	}
	return "each letter is a sixtieth of its segment: " + strings.Join(parts, ", ") + "\n"
}

// timelinePicture draws what was in use over the trace, component upon component; failed allocations are red lines.
func timelinePicture(d snapshot.Device, u Units) Picture {
	const width, height, top, left = 720, 240, 26, 70
	peak := max(d.PeakBytes, 1)
	unit := u.For(peak)
	events := max(1, d.Timeline[len(d.Timeline)-1].Event)
	x := func(m snapshot.Moment) float64 { return left + float64(width)*float64(m.Event)/float64(events) }
	y := func(bytes int64) float64 { return top + height - float64(height)*float64(bytes)/float64(peak) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="memory in use over the trace">`, left+width+10, top+height+24)
	legend(&b, 2)
	below := make([]int64, len(d.Timeline))
	for _, c := range snapshot.Components() {
		var upper, lower []string
		var any int64
		for i, m := range d.Timeline {
			lower = append(lower, fmt.Sprintf("%.1f,%.1f", x(m), y(below[i])))
			below[i] += m.Components[c]
			any = max(any, m.Components[c])
			upper = append(upper, fmt.Sprintf("%.1f,%.1f", x(m), y(below[i])))
		}
		if any == 0 {
			continue
		}
		for _, corner := range slices.Backward(lower) {
			upper = append(upper, corner)
		}
		fmt.Fprintf(&b, `<polygon points="%s" fill="%s"/>`, strings.Join(upper, " "), componentColour(c))
	}
	for _, m := range d.Timeline {
		if m.Failed {
			fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#c00" stroke-width="1.5"/>`, x(m), top,
				x(m), top+height)
		}
	}
	fmt.Fprintf(&b, `<text x="0" y="%d">%s %s</text><text x="0" y="%d">0</text>`, top+10, unit.Format(peak), unit.Name,
		top+height)
	fmt.Fprintf(&b, `<text x="%d" y="%d">recorded events, oldest first; red: an allocation failed</text></svg>`, left,
		top+height+16)
	return Picture{SVG: b.String(), Text: timelineText(d, u)}
}

// timelineText is the same in one row of bars, for terminals.
func timelineText(d snapshot.Device, u Units) string {
	const columns = 60
	var row, failed [columns]rune
	events := max(1, d.Timeline[len(d.Timeline)-1].Event)
	var fullest [columns]int64
	for i := range failed {
		failed[i] = ' '
	}
	for _, m := range d.Timeline {
		i := max(0, min(columns-1, m.Event*columns/events))
		fullest[i] = max(fullest[i], m.AllocatedBytes)
		if m.Failed {
			failed[i] = '!'
		}
	}
	for i, bytes := range fullest {
		if i > 0 && bytes == 0 { // no event fell into this column
			bytes = fullest[i-1]
			fullest[i] = bytes
		}
		row[i] = u.level(bytes, d.PeakBytes)
	}
	return fmt.Sprintf("%s\n%s\n0 to %s; !: an allocation failed\n", string(row[:]), string(failed[:]),
		u.Size(d.PeakBytes))
}
