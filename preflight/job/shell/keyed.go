package shell

import (
	"slices"

	"mvdan.cc/sh/v3/syntax"
)

// setKeys follows an assignment to an associative array: A[key]=value, or A=([key]=value ...).
func (e *evaluator) setKeys(a *syntax.Assign, v variable) {
	v.keys, v.items = slices.Clone(v.keys), slices.Clone(v.items)
	if a.Array == nil {
		e.vars[a.Name.Value] = v.with(e.key(a.Index), e.text(a.Value), a.Append)
		return
	}
	if !a.Append {
		v.keys, v.items = nil, nil
	}
	for _, item := range a.Array.Elems {
		if item.Index == nil || e.spend(1+len(v.items)/8) {
			e.assign(a.Name.Value, []string{withKind(e.unknown(a.Array, "this array is not followed"), asWords)}, true)
			return
		}
		v = v.with(e.key(item.Index), e.text(item.Value), false)
	}
	e.vars[a.Name.Value] = v
}

// key is an index of an associative array, which is a text.
func (e *evaluator) key(x syntax.ArithmExpr) string {
	switch x := x.(type) {
	case nil:
		return "0"
	case *syntax.Word:
		return e.text(x)
	}
	return source(x)
}

// with is an associative array with one more value.
func (v variable) with(key, value string, add bool) variable {
	v.set, v.array = true, true
	at := slices.Index(v.keys, key)
	switch {
	case at < 0:
		v.keys, v.items = append(v.keys, key), append(v.items, limited(value))
	case add:
		v.items[at] = limited(v.items[at] + value)
	default:
		v.items[at] = limited(value)
	}
	return v
}

// item is the value of a key; ok is false where one of the keys, or this one, is not known.
func (v variable) item(key string) (value string, set, ok bool) {
	for i, k := range append(slices.Clone(v.keys), key) {
		if _, unknown := Unknown(k); unknown {
			return "", false, false
		}
		if i < len(v.keys) && k == key {
			return v.items[i], true, true
		}
	}
	return "", false, true
}
