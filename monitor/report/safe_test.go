package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"oomguard/monitor/gpu"
	"oomguard/monitor/oom/snapshot"
)

// documents are one of each kind; every kind that a command prints belongs here.
func documents() []Document {
	return []Document{
		&Announcement{}, &Runs{}, &Checks{}, &DryRun{}, &Estimate{}, &Explain{}, &Why{}, &Devices{}, &Catalogue{},
		&Max{}, &Plan{}, &Postmortem{}, &Run{}, &Snapshot{},
	}
}

// hostile are texts that do something to whoever shows them: a terminal, a log of GitHub or Azure, a web page, a parser
// of XML.
func hostile() []string {
	return []string{
		"m\r::error::X\r::add-mask::Y", "a\n::error::b", "\n\n ::stop-commands::x", "::error file=a::b",
		"\u00a0\u3000::notice::b", "\u200b::error::x", "\ufeff::error::x", "\ufe0f::error::x",
		"a\v::error::b", "a\f::error::b", "a\u0085::error::b", "a\u2028::error::b", "a\u2029::error::b", "x ##[error]y",
		"##vso[task.complete result=Failed;]z", "##teamcity[x]",
		"\x1b[31mred", "\x1b]0;title\x07", "\x1b]8;;http://x\x1b\\link", "\u009b31m", "\u009d0;t\u009c",
		"over\rwritten", "bell\a\b\x7f", "\u202egpj.exe", "a\u2066b\u2069", "nul\x00", "\xff\xfe bad \xc3",
		"]]>", "<script>alert(1)</script>", "--><b>", "\ufffe\uffff", "a\tb", "\t::error::x", "# head",
		"```\n::error::x\n```", "| a | b |", "&#x202e;", "'\"><img>", "plain", "",
	}
}

// filler puts texts into every field of a value, and small numbers, so that each list and each branch of a page is
// there.
type filler struct {
	texts []string
	next  int
}

func (f *filler) text() string {
	f.next++
	return f.texts[f.next%len(f.texts)]
}

func (f *filler) fill(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(f.text())
	case reflect.Bool:
		f.next++
		v.SetBool(f.next%3 != 0)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		f.next++
		v.SetInt(int64(f.next % 6))
	case reflect.Float32, reflect.Float64:
		f.next++
		v.SetFloat(float64(f.next % 6))
	case reflect.Pointer:
		if depth > 12 || v.Type() == reflect.TypeFor[*time.Location]() {
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), depth+1)
	case reflect.Slice:
		if depth > 12 {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 3, 3))
		f.next++
		for i := range 3 {
			f.fill(v.Index(i), depth+1)
		}
	case reflect.Array:
		for i := range v.Len() {
			f.fill(v.Index(i), depth+1)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 2 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.fill(key, depth+1)
			f.fill(value, depth+1)
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			f.next++
			v.Set(reflect.ValueOf(time.Unix(int64(f.next%50), 0)))
			return
		}
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				f.fill(v.Field(i), depth+1)
			}
		}
	case reflect.Interface:
		if v.Type() == reflect.TypeFor[error]() {
			v.Set(reflect.ValueOf(errors.New(f.text())))
		}
	default:
	}
}

// TestHostileText: whatever stands in whatever field of whatever document, no format hands on what acts on its reader.
func TestHostileText(t *testing.T) {
	texts := hostile()
	for shift := 0; shift < len(texts); shift += 3 {
		for i, d := range documents() {
			f := &filler{texts: texts, next: shift}
			f.fill(reflect.ValueOf(d).Elem(), 0)
			tryFormats(t, d, shift%len(documents()) == i)
		}
	}
}

// FuzzHostileText is TestHostileText with random bytes.
func FuzzHostileText(f *testing.F) {
	for i, text := range hostile() {
		f.Add(text, byte(i))
	}
	f.Fuzz(func(t *testing.T, text string, kind byte) {
		all := documents()
		d := all[int(kind)%len(all)]
		fill := &filler{texts: []string{text, "x", text + "\n" + text}, next: int(kind)}
		fill.fill(reflect.ValueOf(d).Elem(), 0)
		tryFormats(t, d, kind%5 == 0)
	})
}

// TestCleanReachesEveryText: what takes secrets and names out of a document sees every text that a format shows.
func TestCleanReachesEveryText(t *testing.T) {
	for _, d := range documents() {
		(&filler{texts: []string{"SECRET", "SECRET\nSECRET"}}).fill(reflect.ValueOf(d).Elem(), 0)
		clean := Clean(d, func(text string) string { return strings.ReplaceAll(text, "SECRET", "x") })
		for _, format := range Formats() {
			if Supports(format, d) != nil || format == "json" { // in JSON the names of fields stay
				continue
			}
			if got := write(t, format, clean, Style{}); strings.Contains(got, "SECRET") {
				at := strings.Index(got, "SECRET")
				t.Errorf("%T in %s: %s", d, format, got[max(0, at-100):at+6])
			}
		}
	}
}

func tryFormats(t *testing.T, d Document, redacted bool) {
	t.Helper()
	both := []Document{d}
	if redacted {
		other, err := Redact(d, nil, nil)
		if err != nil {
			t.Fatalf("%T: %v", d, err)
		}
		both = append(both, other)
	}
	for _, d := range both {
		for _, format := range Formats() {
			var b bytes.Buffer
			err := Write(&b, format, d, Style{Units: Units{UTF8: true}})
			if errors.Is(err, ErrFormat) {
				continue
			}
			if err != nil {
				t.Fatalf("%T in %s: %v", d, format, err)
			}
			if found := harm(b.Bytes(), format); found != "" {
				t.Fatalf("%T in %s: %s", d, format, found)
			}
		}
	}
}

// ours are the workflow commands that the format github writes.
var ours = regexp.MustCompile(`^::(error|warning|notice) title=[^:,\r\n]*::`)

// harm says what in a text acts on its reader; "" nothing does. It knows nothing of how the text was made.
func harm(text []byte, format string) string {
	if !utf8.Valid(text) {
		return "no UTF-8"
	}
	for _, r := range string(text) {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)) {
			return "a character that is no text: " + strings.ToUpper(string([]rune{r})) + " in " +
				around(string(text), r)
		}
	}
	for line := range strings.Lines(string(text)) {
		bare := strings.TrimLeftFunc(line,
			func(r rune) bool { return !unicode.IsGraphic(r) || unicode.IsSpace(r) || unicode.IsMark(r) })
		if isOurs := format == "github" && ours.MatchString(line); strings.HasPrefix(bare, "::") && !isOurs {
			return "a workflow command: " + line
		}
		for _, old := range []string{"##[", "##vso[", "##teamcity["} {
			if strings.Contains(line, old) {
				return "an old workflow command: " + line
			}
		}
	}
	switch format {
	case "json":
		if !json.Valid(text) {
			return "no JSON"
		}
	case "junit":
		for dec := xml.NewDecoder(bytes.NewReader(text)); ; {
			if _, err := dec.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return "no XML: " + err.Error()
			}
		}
	case "html":
		if strings.Contains(string(text), "<script") || strings.Contains(string(text), "<img") {
			return "markup from outside"
		}
	}
	return ""
}

func around(text string, r rune) string {
	i := strings.IndexRune(text, r)
	return strings.ToValidUTF8(text[max(0, i-60):min(len(text), i+60)], "?")
}

// TestNewlinesInCells: a cell, a heading and a paragraph stay one line, and the newline is shown; an item of a list has
// its lines below it.
func TestNewlinesInCells(t *testing.T) {
	d := Devices{Snapshot: gpu.Snapshot{Devices: []gpu.Device{{Name: "H100\n  0  forged", Note: "x"}}}}
	for format, lines := range map[string]int{"text": 3, "markdown": 5} {
		if got := write(t, format, d, Style{}); strings.Count(got, "\n") != lines {
			t.Errorf("%s:\n%s", format, got)
		}
	}
	missing := Run{Missing: []string{"2 errors occurred:\n\t* one\n\t* two\n"}}
	if got := write(t, "text", missing, Style{}); !strings.Contains(got,
		"- 2 errors occurred:\n   * one\n   * two\nrun folder: ") {
		t.Errorf("%s", got)
	}
	run := Run{Command: []string{"torchrun", "a\nb", "\x1b[2J", "\u202ex", "\xff", "it's"}, Exit: nil}
	if got := write(t, "text", run, Style{}); !strings.Contains(got,
		`command: torchrun $'a\nb' $'\x1b[2J' $'\u202ex' $'\xff' 'it'\''s'`+"\n") {
		t.Errorf("%s", got)
	}
	if got := write(t, "text", Snapshot{snapshot.Report{File: "a\nb"}}, Style{}); !strings.HasPrefix(got,
		"Memory snapshot a\\nb\n") {
		t.Errorf("%s", got)
	}
}
