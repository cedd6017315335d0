package job

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"oomguard/preflight/job/shell"
)

// A Setting is one fact about the job and where it came from. Readers run from the strongest source to the weakest and
// Offer what they find, so the first offer stays.
type Setting[T any] struct {
	Value T
	// Known is false while nothing has determined the value; Value is then meaningless.
	Known bool
	// Origin says where a known value came from ("flag --micro-batch", "ds.json:12", "default of transformers 4.51.3"),
	// or why an unknown one could not be determined.
	Origin string

	each     string // the list, in JSON, where the value differs by node; Value is then the largest
	withheld bool   // a source names it, but not its value: weaker sources do not count
	claims   *claims
}

// Offer sets the value unless a stronger source already has.
func (s *Setting[T]) Offer(value T, origin string) {
	open := !s.Known && !s.withheld
	s.claims.add(valueText(value), origin, open)
	if open {
		s.Value, s.Known, s.Origin = value, true, origin
	}
}

// OfferEach is Offer for a value that differs by node; value stands for all of them where one is needed.
func (s *Setting[T]) OfferEach(value T, each []T, origin string) {
	if raw, err := json.Marshal(each); err == nil && !s.Known && !s.withheld {
		s.Offer(value, origin)
		s.each = string(raw)
	}
}

// Unknown records why the value could not be determined, unless it is known or a reason was given before.
func (s *Setting[T]) Unknown(why string) {
	if !s.Known && s.Origin == "" {
		s.Origin = why
		s.claims.add(unknownValue, why, true)
	}
}

// Withhold records that a source decides the setting by what nobody can see from outside, unless a stronger source has
// given the value: weaker ones and defaults no longer count.
func (s *Setting[T]) Withhold(why string) {
	open := !s.Known && !s.withheld
	s.claims.add(unknownValue, why, open)
	if open {
		s.Origin, s.withheld = why, true
	}
}

// unknownValue is what is shown for a value that nobody knows.
const unknownValue = "unknown"

// ownFlag is how the origin of a value begins that one of oomguard's own flags gave: nothing is stronger.
const ownFlag = "flag --"

// own reports whether one of oomguard's own flags gave the value.
func (s Setting[T]) own() bool { return s.Known && strings.HasPrefix(s.Origin, ownFlag) }

// replace puts another setting in its place, for what is found out later and is truer; never in place of an own flag's.
func (s *Setting[T]) replace(other Setting[T]) {
	if s.own() {
		s.claims.add(other.named("").Value, other.Origin, false)
		return
	}
	s.become(other)
}

// become is replace for what not even an own flag stands against: the setting begins anew.
func (s *Setting[T]) become(other Setting[T]) {
	other.claims = s.claims
	if *s = other; other.Origin != "" {
		s.claims.add(s.named("").Value, s.Origin, true)
	}
}

// drop takes back a value that turns out not to be known.
func (s *Setting[T]) drop(why string) { s.replace(Setting[T]{Origin: why, withheld: true}) }

// Or returns the value, or fallback when it is unknown.
func (s Setting[T]) Or(fallback T) T {
	if s.Known {
		return s.Value
	}
	return fallback
}

type settingJSON struct {
	Value  json.RawMessage `json:"value"`
	Origin string          `json:"origin"`
}

// MarshalJSON writes {"value": ..., "origin": ...}, with a null value when it is unknown and when it is known to be
// empty (no outer wrapper, no reason to fail): the origin tells which. A text that is a JSON object (the words or sizes
// by which a command describes its model instead of naming one) is written as that object, a value that differs by node
// as the list of them.
func (s Setting[T]) MarshalJSON() ([]byte, error) {
	out := settingJSON{Value: json.RawMessage("null"), Origin: s.Origin}
	if text, ok := any(s.Value).(string); ok && s.Known && strings.HasPrefix(text, "{") && json.Valid([]byte(text)) {
		out.Value = json.RawMessage(text)
	} else if s.each != "" {
		out.Value = json.RawMessage(s.each)
	} else if s.Known && any(s.Value) != any("") {
		raw, err := json.Marshal(s.Value)
		if err != nil {
			return nil, err
		}
		out.Value = raw
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON wrote; a null value is unknown, except for types whose own zero is null (a nil
// *LoRA with an origin): those keep their meaning because their readers treat unknown and nil alike.
func (s *Setting[T]) UnmarshalJSON(data []byte) error {
	var in settingJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	s.Origin = in.Origin
	if len(in.Value) == 0 || bytes.Equal(in.Value, []byte("null")) {
		return nil
	}
	s.Known = true
	if text, ok := any(&s.Value).(*string); ok && in.Value[0] == '{' {
		*text = string(in.Value)
		return nil
	}
	if number, ok := any(&s.Value).(*int); ok && in.Value[0] == '[' {
		var each []int
		if err := json.Unmarshal(in.Value, &each); err != nil {
			return err
		}
		for _, n := range each {
			*number = max(*number, n)
		}
		s.each = string(in.Value)
		return nil
	}
	return json.Unmarshal(in.Value, &s.Value)
}

// A fact is a setting of any type, as the code that treats all of them alike sees it.
type fact interface {
	Unknown(why string)
	Withhold(why string)
	drop(why string)
	named(key string) Named
	settle(place string)
	attach(l *ledger)
	told() []Claim
}

// settle ends the reading: a text with a part that a shell script leaves open is unknown, and what the command line
// says stands at a place of that script when place is not empty.
func (s *Setting[T]) settle(place string) {
	if text, ok := any(s.Value).(string); ok && s.Known {
		if why, unknown := shell.Unknown(text); unknown {
			*s = Setting[T]{Origin: why, claims: s.claims}
		}
	}
	if place != "" {
		s.Origin = strings.ReplaceAll(s.Origin, "command line", place)
	}
	s.Origin = shell.Plain(s.Origin)
}

// attach lets a ledger write down what is said about the setting.
func (s *Setting[T]) attach(l *ledger) { s.claims = &claims{ledger: l} }

// told is what was said. The last claim is the setting as it is now, where nobody claimed just that.
func (s *Setting[T]) told() []Claim {
	now := s.named("")
	if s.claims == nil {
		return []Claim{{Value: now.Value, Origin: now.Origin, Used: true}}
	}
	list := slices.Clone(s.claims.list)
	i := slices.IndexFunc(list, func(c Claim) bool { return c.Used })
	if i >= 0 && list[i].Value == now.Value {
		list[i].Origin = now.Origin // as it is shown: with the place in a script
		return list
	}
	for i := range list {
		list[i].Used = false
	}
	return append(list, Claim{Source: sourceDerived, Value: now.Value, Origin: now.Origin, Used: true})
}

func (s *Setting[T]) named(key string) Named {
	n := Named{Key: key, Value: unknownValue, Known: s.Known, Origin: s.Origin}
	if s.Known {
		n.Value = valueText(s.Value)
		if s.each != "" {
			n.Value = s.each
		}
	}
	return n
}

// take offers what another setting says, or its reason for not knowing.
func (s *Setting[T]) take(other Setting[T]) {
	if other.Known {
		s.Offer(other.Value, other.Origin)
	} else {
		s.Unknown(other.Origin)
	}
}
