package report

import (
	"fmt"
	"html"
	"strings"
	"time"

	"oomguard/monitor"
	"oomguard/monitor/oom"
)

// A chart is one series over time, drawn as an area, with lines and marks; several share the time axis below each
// other.
type chart struct {
	title  string
	top    int64 // the upper end of the scale in bytes, drawn as a line when limit is set
	limit  bool
	points []chartPoint
	lower  bool // points have a second, darker area
	mark   time.Time
}

type chartPoint struct {
	at           time.Time
	upper, lower int64 // negative: unknown
}

// mostCharts bounds a picture: eight GPUs of a node are shown, the tables have all.
const mostCharts = 8

// timelines are the pictures of a run: what the driver saw on each GPU, and what the allocator held inside the rank
// that matters.
func (d Run) timelines(u Units) []Block {
	if d.Recording == nil || d.Refused {
		return nil
	}
	died := deaths(d.Recording)
	var charts []chart
	for _, dev := range d.Recording.Devices {
		if len(dev.Points) < 2 || len(charts) == mostCharts {
			continue
		}
		c := chart{title: fmt.Sprintf("GPU %s: in use (dark: our processes)", dev.Label()), top: dev.TotalBytes,
			limit: true, lower: true, mark: died[-1]}
		for _, p := range dev.Points {
			c.points = append(c.points, chartPoint{p.Time, p.UsedBytes, p.OwnBytes})
		}
		charts = append(charts, c)
	}
	if r := shownRank(d.Recording, d.Postmortem); r != nil {
		kind := "allocated by PyTorch"
		if r.Memory == "rss" {
			kind = "resident host memory"
		}
		c := chart{title: fmt.Sprintf("rank %d, step by step: %s at its peak (dark: held after the step)", r.Rank,
			kind), lower: true, mark: died[r.Rank]}
		for _, s := range r.Course {
			c.points = append(c.points, chartPoint{s.Time, s.PeakBytes, s.HeldBytes})
			c.top = max(c.top, s.PeakBytes)
		}
		charts = append(charts, c)
	}
	if len(charts) == 0 {
		return nil
	}
	return []Block{Heading("Memory over time"), drawCharts(charts, u)}
}

// deaths are the times of out-of-memory exceptions by rank; -1 has the first of all.
func deaths(rec *monitor.Recording) map[int]time.Time {
	at := map[int]time.Time{}
	for _, r := range rec.Ranks {
		if r.Exception == nil || !r.Exception.OOM || r.Exception.Time.IsZero() {
			continue
		}
		at[r.Rank] = r.Exception.Time
		if first, ok := at[-1]; !ok || r.Exception.Time.Before(first) {
			at[-1] = r.Exception.Time
		}
	}
	return at
}

// shownRank is the rank of the post-mortem, or the one with the highest peak; nil: none has a course of at least two
// steps.
func shownRank(rec *monitor.Recording, d *oom.Diagnosis) *monitor.Rank {
	var best *monitor.Rank
	var highest int64 = -1
	ranks := lastAttempt(rec.Ranks)
	for i := range ranks {
		r := &ranks[i]
		if len(r.Course) < 2 {
			continue
		}
		if d != nil && d.Rank == r.Rank {
			return r
		}
		for _, s := range r.Course {
			if s.PeakBytes > highest {
				highest, best = s.PeakBytes, r
			}
		}
	}
	return best
}

// Sizes of a timeline picture in its own units; the page scales it.
const (
	chartWidth  = 720
	chartHeight = 110
	chartLeft   = 80
	chartGap    = 34
)

func drawCharts(charts []chart, u Units) Picture {
	first, last := charts[0].points[0].at, charts[0].points[0].at
	for _, c := range charts {
		for _, p := range c.points {
			if p.at.Before(first) {
				first = p.at
			}
			if p.at.After(last) {
				last = p.at
			}
		}
	}
	span := max(last.Sub(first), time.Millisecond)
	x := func(at time.Time) float64 {
		return chartLeft + chartWidth*min(1, max(0, float64(at.Sub(first))/float64(span)))
	}
	var b, text strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="memory over time">`, chartLeft+chartWidth+10, len(charts)*(chartHeight+chartGap)+24)
	for i, c := range charts {
		c.draw(&b, x, float64(i*(chartHeight+chartGap)+20), u)
		text.WriteString(c.text(first, span, u))
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d">0</text><text x="%d" y="%d" text-anchor="end">%s</text></svg>`, chartLeft,
		len(charts)*(chartHeight+chartGap)+14,
		chartLeft+chartWidth, len(charts)*(chartHeight+chartGap)+14, roundSpan(span))
	fmt.Fprintf(&text, "time from left to right: %s; !: out of memory\n", roundSpan(span))
	return Picture{SVG: b.String(), Text: text.String()}
}

func roundSpan(d time.Duration) string {
	if d >= time.Minute {
		return d.Round(time.Second).String()
	}
	return d.Round(10 * time.Millisecond).String()
}

func (c chart) draw(b *strings.Builder, x func(time.Time) float64, top float64, u Units) {
	scale := float64(max(c.top, 1)) * 1.05 // the limit's line stays inside the frame
	y := func(bytes int64) float64 { return top + chartHeight*(1-min(1, float64(bytes)/scale)) }
	fmt.Fprintf(b, `<text x="%d" y="%.0f">%s</text>`, chartLeft, top-6, html.EscapeString(c.title))
	fmt.Fprintf(b, `<rect x="%d" y="%.1f" width="%d" height="%d" fill="#888888" fill-opacity="0.08"/>`, chartLeft, top,
		chartWidth, chartHeight)
	c.area(b, x, y, func(p chartPoint) int64 { return p.upper }, componentColour("communication"))
	if c.lower {
		c.area(b, x, y, func(p chartPoint) int64 { return p.lower }, componentColour("parameters"))
	}
	if c.limit {
		fmt.Fprintf(b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#888888" stroke-dasharray="5 3"/>`, chartLeft,
			y(c.top), chartLeft+chartWidth, y(c.top))
	}
	if !c.mark.IsZero() {
		fmt.Fprintf(b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#cc0000" stroke-width="1.5"/><text x="%.1f" y="%.0f" text-anchor="end" style="fill:#cc0000">out of memory</text>`,
			x(c.mark), top, x(c.mark), top+chartHeight, max(x(c.mark), chartLeft+chartWidth*0.75), top-6)
	}
	unit := u.For(c.top)
	fmt.Fprintf(b, `<text x="%d" y="%.1f" text-anchor="end">%s %s</text><text x="%d" y="%.1f" text-anchor="end">0</text>`, chartLeft-6, y(c.top)+4, unit.Format(c.top), unit.Name, chartLeft-6, top+chartHeight)
}

func (c chart) area(b *strings.Builder, x func(time.Time) float64, y func(int64) float64, value func(chartPoint) int64,
	colour string) {
	var corners []string
	var first, last time.Time
	for _, p := range c.points {
		if value(p) < 0 {
			continue
		}
		if len(corners) == 0 {
			first = p.at
		}
		last = p.at
		corners = append(corners, fmt.Sprintf("%.1f,%.1f", x(p.at), y(value(p))))
	}
	if len(corners) == 0 {
		return
	}
	corners = append(corners, fmt.Sprintf("%.1f,%.1f", x(last), y(0)), fmt.Sprintf("%.1f,%.1f", x(first), y(0)))
	fmt.Fprintf(b, `<polygon points="%s" fill="%s"/>`, strings.Join(corners, " "), colour)
}

// text is the upper series in one row of bars, for terminals.
func (c chart) text(first time.Time, span time.Duration, u Units) string {
	const columns = 60
	column := func(at time.Time) int {
		return min(columns-1, max(0, int(float64(columns)*float64(at.Sub(first))/float64(span))))
	}
	var highest [columns]int64
	for i := range highest {
		highest[i] = -1
	}
	for _, p := range c.points {
		i := column(p.at)
		highest[i] = max(highest[i], p.upper)
	}
	row := make([]rune, columns)
	var before int64
	for i, bytes := range highest {
		if bytes < 0 { // no point fell into this column: it was as before
			bytes = before
		}
		before = bytes
		row[i] = u.level(bytes, c.top)
	}
	if !c.mark.IsZero() {
		row[column(c.mark)] = '!'
	}
	return fmt.Sprintf("%s\n|%s| top: %s\n", c.title, string(row), u.Size(c.top))
}
