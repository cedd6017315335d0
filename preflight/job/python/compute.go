package python

import (
	"math"
	"strings"
)

// operation computes with literals.
func (r *resolution) operation(e *Expr, at Place) *Expr {
	fail := unknown(e.Line, e.String())
	if strings.HasPrefix(e.Text, ".") {
		return fail
	}
	first := r.resolve(e.Items[0], at)
	truth, known := Truth(first)
	switch e.Text {
	case "if":
		if !known {
			return unknown(e.Line, "depends on "+first.String())
		}
		return r.resolve(e.Items[map[bool]int{true: 1, false: 2}[truth]], at)
	case "not":
		if !known {
			return fail
		}
		return &Expr{Kind: Literal, Line: e.Line, Value: !truth}
	case "and", "or":
		if !known {
			return fail
		}
		if truth == (e.Text == "or") {
			return first
		}
		return r.resolve(e.Items[1], at)
	}
	if len(e.Items) == 2 && (e.Text == "is" || e.Text == "is not") && isThing(first) {
		if second := r.resolve(e.Items[1], at); second.Kind == Literal && second.Value == nil {
			return &Expr{Kind: Literal, Line: e.Line, Value: e.Text == "is not"}
		}
	}
	if first.Kind != Literal {
		return fail
	}
	operands := []any{first.Value}
	if len(e.Items) == 2 {
		second := r.resolve(e.Items[1], at)
		if second.Kind == List && (e.Text == "in" || e.Text == "not in") {
			return contained(first, second, e)
		}
		if second.Kind != Literal {
			return fail
		}
		operands = append(operands, second.Value)
	}
	if value, ok := compute(e.Text, operands); ok {
		return &Expr{Kind: Literal, Line: e.Line, Value: value}
	}
	return fail
}

// isThing reports whether a value is surely not None: a list, a dict, or what a class makes.
func isThing(e *Expr) bool {
	if e.Kind != Invoke {
		return e.Kind == List || e.Kind == Dict
	}
	name := e.Call.Callee[strings.LastIndexByte(e.Call.Callee, '.')+1:]
	return name != "" && name[0] >= 'A' && name[0] <= 'Z'
}

func contained(item, list, e *Expr) *Expr {
	found := false
	for _, each := range list.Items {
		if each.Kind != Literal {
			return unknown(e.Line, e.String())
		}
		found = found || each.Value == item.Value
	}
	return &Expr{Kind: Literal, Line: e.Line, Value: found == (e.Text == "in")}
}

// compute applies an operator to literals; ok is false for what Python would refuse and for what is too large.
func compute(op string, v []any) (any, bool) {
	if len(v) == 2 {
		switch op {
		case "==", "is":
			return equal(v[0], v[1]), true
		case "!=", "is not":
			return !equal(v[0], v[1]), true
		}
		if a, ok := v[0].(string); ok {
			b, ok := v[1].(string)
			if op == "in" && ok {
				return strings.Contains(b, a), true
			}
			return a + b, ok && op == "+" && len(a)+len(b) < 1<<16
		}
	}
	numbers := make([]float64, len(v))
	whole := true
	for i := range v {
		switch n := v[i].(type) {
		case int64:
			numbers[i] = float64(n)
		case float64:
			numbers[i], whole = n, false
		default:
			return nil, false
		}
	}
	if len(v) == 1 {
		return result(map[string]float64{"-": -numbers[0], "+": numbers[0], "~": math.NaN()}[op], whole)
	}
	return arithmetic(op, numbers[0], numbers[1], whole)
}

func equal(a, b any) bool {
	x, isInt := a.(int64)
	y, isFloat := b.(float64)
	return a == b || isInt && isFloat && float64(x) == y
}

func arithmetic(op string, a, b float64, whole bool) (any, bool) {
	switch op {
	case "+":
		return result(a+b, whole)
	case "-":
		return result(a-b, whole)
	case "*":
		return result(a*b, whole)
	case "/":
		return result(a/b, false)
	case "//":
		return result(math.Floor(a/b), whole)
	case "%":
		return result(a-b*math.Floor(a/b), whole)
	case "**":
		return result(math.Pow(a, b), whole && b >= 0)
	case "<<":
		return result(a*math.Pow(2, b), whole && b >= 0)
	case ">>":
		return result(math.Floor(a/math.Pow(2, b)), whole && b >= 0)
	case "<":
		return a < b, true
	case "<=":
		return a <= b, true
	case ">":
		return a > b, true
	case ">=":
		return a >= b, true
	}
	return nil, false
}

// exact is the largest whole number up to which float64 counts one by one.
const exact = 1 << 53

func result(f float64, whole bool) (any, bool) {
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0):
		return nil, false
	case !whole:
		return f, true
	case math.Abs(f) > exact:
		return nil, false
	}
	return int64(f), true
}
