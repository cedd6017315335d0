package job

import (
	"bytes"
	"encoding/json"
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
}

// Offer sets the value unless a stronger source already has.
func (s *Setting[T]) Offer(value T, origin string) {
	if !s.Known {
		s.Value, s.Known, s.Origin = value, true, origin
	}
}

// Unknown records why the value could not be determined, unless it is known or a reason was given before.
func (s *Setting[T]) Unknown(why string) {
	if !s.Known && s.Origin == "" {
		s.Origin = why
	}
}

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

// MarshalJSON writes {"value": ..., "origin": ...}, with a null value when it is unknown and when it is known to be empty (no
// outer wrapper, no reason to fail): the origin tells which.
func (s Setting[T]) MarshalJSON() ([]byte, error) {
	out := settingJSON{Value: json.RawMessage("null"), Origin: s.Origin}
	if s.Known && any(s.Value) != any("") {
		raw, err := json.Marshal(s.Value)
		if err != nil {
			return nil, err
		}
		out.Value = raw
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON wrote; a null value is unknown, except for types whose own zero is null (a nil *LoRA
// with an origin): those keep their meaning because their readers treat unknown and nil alike.
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
	return json.Unmarshal(in.Value, &s.Value)
}

// A fact is a setting of any type, as the code that treats all of them alike sees it.
type fact interface {
	Unknown(why string)
	named(key string) Named
}

func (s *Setting[T]) named(key string) Named {
	n := Named{Key: key, Value: "unknown", Known: s.Known, Origin: s.Origin}
	if s.Known {
		n.Value = valueText(s.Value)
	}
	return n
}
