package python

import (
	"slices"
	"strconv"
)

// Keywords lists a call's keyword arguments, those of **dict included where the file decides them; complete is false when there may
// be others.
func (s Scope) Keywords(c *Call) (list []Keyword, complete bool) {
	complete = !c.Starred
	for _, k := range c.Keywords {
		if k.Name != "" {
			list = append(list, k)
			continue
		}
		inner, whole := s.dictionary(s.Resolve(k.Value, c.Place))
		if k.Value.Kind == Name {
			inner, whole = s.stored(k.Value.Text, c.Place, inner, whole)
		}
		list, complete = append(list, inner...), complete && whole
	}
	return list, complete
}

// dictionary lists the entries of a dict, whose keys must be texts.
func (s Scope) dictionary(dict *Expr) (list []Keyword, complete bool) {
	if dict.Kind == Invoke && dict.Call.Callee == "dict" && len(dict.Call.Args) == 0 {
		return s.Keywords(dict.Call)
	}
	complete = dict.Kind == Dict
	if !complete {
		return nil, false
	}
	for i, key := range dict.Keys {
		name, text := "", false
		if key != nil && key.Kind == Literal {
			name, text = key.Value.(string)
		}
		if !text {
			complete = false
			continue
		}
		list = append(list, Keyword{name, dict.Items[i]})
	}
	return list, complete
}

// stored applies what name["key"] = value put into a dict before a place.
func (s Scope) stored(name string, at Place, list []Keyword, complete bool) ([]Keyword, bool) {
	list = slices.Clone(list)
	for _, a := range s.File.byName[name] {
		if a.Key == nil || a.Scope != at.Scope || a.Line >= at.Line {
			continue
		}
		holds, known := (&resolution{Scope: s}).holds(a.Place, at)
		if known && !holds {
			continue
		}
		key := s.Resolve(a.Key, a.Place)
		text, isText := key.Value.(string)
		if key.Kind != Literal || !isText {
			complete = false
			continue
		}
		value := a.Value
		if !known {
			value = unknown(a.Line, name+"["+strconv.Quote(text)+"] depends on a condition")
		} else if value != nil {
			value = s.Resolve(value, a.Place)
		}
		list = append(slices.DeleteFunc(slices.Clone(list), func(k Keyword) bool { return k.Name == text }), Keyword{text, value})
	}
	return list, complete
}
