package report

import (
	"encoding/json"
	"regexp"
	"sync"
)

// Cleaned is a document whose texts were cleaned, in every format.
type Cleaned struct {
	document Document
	clean    func(text string) string
}

// Clean makes the form of a document in which each text is what clean makes of it.
func Clean(d Document, clean func(text string) string) Cleaned { return Cleaned{d, clean} }

// Redact makes the redacted form of a document. hosts and users are names that are known to be of this machine; what
// the document itself gives away is added.
func Redact(d Document, hosts, users []string) (Cleaned, error) {
	text, err := json.Marshal(d)
	if err != nil {
		return Cleaned{}, err
	}
	return Clean(d, newRedactor(hosts, users, jsonTexts(text)...).Text), nil
}

var jsonString = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`"(?:[^"\\]|\\.)*"`) })

// jsonTexts are the strings of a JSON text, and those that stand alone behind the key host.
func jsonTexts(data []byte) []string {
	var texts []string
	key := ""
	for _, quoted := range jsonString().FindAll(data, -1) {
		var s string
		if json.Unmarshal(quoted, &s) != nil {
			continue
		}
		if key == "host" {
			texts = append(texts, "host="+s)
		}
		texts, key = append(texts, s), s
	}
	return texts
}

// MarshalJSON cleans every string; numbers and names of fields stay. In compact JSON a colon follows the names, and
// them alone.
func (d Cleaned) MarshalJSON() ([]byte, error) {
	data, err := json.Marshal(d.document)
	if err != nil {
		return nil, err
	}
	var out []byte
	done := 0
	for _, at := range jsonString().FindAllIndex(data, -1) {
		var s string
		isKey := at[1] < len(data) && data[at[1]] == ':'
		if isKey || json.Unmarshal(data[at[0]:at[1]], &s) != nil {
			continue
		}
		clean, err := json.Marshal(d.clean(s))
		if err != nil {
			return nil, err
		}
		out = append(append(out, data[done:at[0]]...), clean...)
		done = at[1]
	}
	return append(out, data[done:]...), nil
}

// Page cleans every text of the page.
func (d Cleaned) Page(u Units) Page { return d.document.Page(u).mapped(d.clean, d.clean) }

var svgText = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`>[^<]+<`) })

// Suite cleans the verdicts; documents without verdicts have none (Supports says so before).
func (d Cleaned) Suite() Suite {
	judged, ok := d.document.(Judged)
	if !ok {
		return Suite{}
	}
	s := judged.Suite()
	cases := make([]Case, len(s.Cases))
	for i, c := range s.Cases {
		c.ID, c.Title, c.Detail, c.Remedy = d.clean(c.ID), d.clean(c.Title), d.clean(c.Detail), d.clean(c.Remedy)
		cases[i] = c
	}
	return Suite{Name: d.clean(s.Name), Cases: cases}
}
