package report

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"oomguard/monitor"
)

// aCourse is aDeath with samples of its GPU and the steps of rank 0: it loads, trains, keeps a little more in every
// step, and dies.
func aCourse() Run {
	r := aDeath()
	start := r.Started
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	device := &r.Recording.Devices[0]
	rank := &r.Recording.Ranks[0]
	for s := range 90 {
		used := min(int64(s), 20) * gib * 4 / 5
		if s >= 20 {
			used = 50*gib + int64(s-20)*gib*2/5 - int64(s%5)*gib
		}
		device.Points = append(device.Points, monitor.DevicePoint{Time: at(s), UsedBytes: used + gib, OwnBytes: used})
		if s >= 20 && s%2 == 0 {
			rank.Course = append(rank.Course,
				monitor.StepMemory{Step: (s - 20) / 2, Time: at(s), PeakBytes: used, PeakStage: "backward",
					HeldBytes: used / 2})
		}
	}
	rank.Course[len(rank.Course)-1].HeldBytes = -1
	rank.Exception = &monitor.Exception{OOM: true, Time: at(88)}
	return r
}

// TestTimelines: the pictures of a run are valid SVG, show the limit and the death, and have a form for terminals.
func TestTimelines(t *testing.T) {
	blocks := aCourse().timelines(Units{UTF8: true})
	if len(blocks) != 2 {
		t.Fatalf("%d blocks", len(blocks))
	}
	picture, ok := blocks[1].(Picture)
	if !ok {
		t.Fatalf("%T", blocks[1])
	}
	golden(t, "timeline.svg", picture.SVG+"\n")
	golden(t, "timeline.txt", picture.Text)
	dec := xml.NewDecoder(strings.NewReader(picture.SVG))
	for {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"79.00 GiB", "out of memory", "GPU 0: in use", "rank 0, step by step"} {
		if !strings.Contains(picture.SVG, want) {
			t.Errorf("lacks %q", want)
		}
	}
	ascii, ok := aCourse().timelines(Units{})[1].(Picture)
	if !ok || strings.ContainsFunc(ascii.Text, func(r rune) bool { return r > '~' }) {
		t.Errorf("not ASCII: %s", ascii.Text)
	}
}

// TestNoTimeline: without samples and steps there is no empty picture.
func TestNoTimeline(t *testing.T) {
	if blocks := aDeath().timelines(Units{}); len(blocks) != 0 {
		t.Errorf("%+v", blocks)
	}
	refused := aCourse()
	refused.Refused = true
	if blocks := refused.timelines(Units{}); len(blocks) != 0 {
		t.Errorf("refused: %+v", blocks)
	}
}

// TestRunHTML: one file that loads nothing from elsewhere, with the picture and what to do.
func TestRunHTML(t *testing.T) {
	got := write(t, "html", aCourse(), Style{Units: Units{UTF8: true}})
	for _, want := range []string{"<svg", "Memory over time", "Remedies, cheapest first", "checkpointing",
		"Measured and predicted, by stage and rank"} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q", want)
		}
	}
	for _, never := range []string{"<script", `src="`, "@import", "url("} {
		if strings.Contains(got, never) {
			t.Errorf("has %q", never)
		}
	}
}
