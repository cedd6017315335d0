package shell

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// maxExpression bounds the depth of an arithmetic expression and of variables that name each other.
const maxExpression = 64

var errArithmetic = errors.New("this arithmetic is not followed")

// arithmetic computes $(( )) in 64 bits, as bash does. The error says what is not known.
func (e *evaluator) arithmetic(x syntax.ArithmExpr, depth int) (int64, error) {
	if depth > maxExpression || e.spend(1) {
		return 0, errArithmetic
	}
	switch x := x.(type) {
	case *syntax.Word:
		return e.number(e.text(x), depth)
	case *syntax.ParenArithm:
		return e.arithmetic(x.X, depth+1)
	case *syntax.UnaryArithm:
		if x.Op == syntax.Inc || x.Op == syntax.Dec {
			return e.step(x, depth)
		}
		n, err := e.arithmetic(x.X, depth+1)
		switch {
		case err != nil:
			return 0, err
		case x.Op == syntax.Minus:
			return -n, nil
		case x.Op == syntax.Plus:
			return n, nil
		case x.Op == syntax.Not:
			return truth(n == 0), nil
		}
	case *syntax.BinaryArithm:
		return e.binary(x, depth)
	}
	return 0, errArithmetic
}

// number reads a literal, or the variable that a bare name means; an unset one is an unknown here, although bash takes
// 0.
func (e *evaluator) number(text string, depth int) (int64, error) {
	if why, unknown := Unknown(text); unknown {
		return 0, errors.New(why)
	}
	text = strings.TrimSpace(text)
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && (text == "0" || !strings.HasPrefix(text, "0")) {
		return n, nil // a leading zero means octal
	}
	if depth < maxExpression && !syntax.ValidName(text) && text != "" {
		// let "n = 2", or a variable that holds 2*3
		if x, err := syntax.NewParser().Arithmetic(strings.NewReader(text)); err == nil {
			if _, word := x.(*syntax.Word); !word {
				return e.arithmetic(x, depth+1)
			}
		}
	}
	v := e.lookUp(text)
	if !v.set || len(v.items) == 0 {
		return 0, fmt.Errorf("%q is no number, and no variable of that name is set", text)
	}
	if depth > maxExpression {
		return 0, errArithmetic
	}
	return e.number(v.items[0], depth+1)
}

// step is n++ and its relatives.
func (e *evaluator) step(x *syntax.UnaryArithm, depth int) (int64, error) {
	n, err := e.arithmetic(x.X, depth+1)
	after := n + 1
	if x.Op == syntax.Dec {
		after = n - 1
	}
	if err == nil {
		err = e.store(x.X, after)
	}
	if x.Post {
		return n, err
	}
	return after, err
}

// store assigns to the variable that stands on the left.
func (e *evaluator) store(x syntax.ArithmExpr, n int64) error {
	w, ok := x.(*syntax.Word)
	if !ok || !syntax.ValidName(w.Lit()) {
		return errArithmetic
	}
	e.assign(w.Lit(), []string{strconv.FormatInt(n, 10)}, false)
	return nil
}

// assigning maps n += 1 to its operator; = has none.
func assigning() map[syntax.BinAritOperator]syntax.BinAritOperator {
	return map[syntax.BinAritOperator]syntax.BinAritOperator{
		syntax.Assgn: 0, syntax.AddAssgn: syntax.Add, syntax.SubAssgn: syntax.Sub, syntax.MulAssgn: syntax.Mul,
		syntax.QuoAssgn: syntax.Quo, syntax.RemAssgn: syntax.Rem,
	}
}

// assignment follows n = 1 and n += 1.
func (e *evaluator) assignment(x *syntax.BinaryArithm, op syntax.BinAritOperator, depth int) (int64, error) {
	n, err := e.arithmetic(x.Y, depth+1)
	if err == nil && op != 0 {
		var before int64
		if before, err = e.arithmetic(x.X, depth+1); err == nil {
			n, err = apply(op, before, n)
		}
	}
	if err != nil {
		return 0, err
	}
	return n, e.store(x.X, n)
}

func truth(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

func (e *evaluator) binary(x *syntax.BinaryArithm, depth int) (int64, error) {
	if x.Op == syntax.TernQuest {
		branches, ok := x.Y.(*syntax.BinaryArithm)
		condition, err := e.arithmetic(x.X, depth+1)
		switch {
		case err != nil:
			return 0, err
		case !ok:
			return 0, errArithmetic
		case condition != 0:
			return e.arithmetic(branches.X, depth+1)
		}
		return e.arithmetic(branches.Y, depth+1)
	}
	if op, ok := assigning()[x.Op]; ok {
		return e.assignment(x, op, depth)
	}
	a, err := e.arithmetic(x.X, depth+1)
	if err != nil {
		return 0, err
	}
	b, err := e.arithmetic(x.Y, depth+1)
	if err != nil {
		return 0, err
	}
	return apply(x.Op, a, b)
}

func apply(op syntax.BinAritOperator, a, b int64) (int64, error) {
	if op == syntax.Quo || op == syntax.Rem {
		return divide(op, a, b)
	}
	if compute, ok := operators()[op]; ok {
		return compute(a, b), nil
	}
	return 0, errArithmetic
}

// operators are those that are followed; shifts, bits and powers are not met in launch scripts.
func operators() map[syntax.BinAritOperator]func(a, b int64) int64 {
	return map[syntax.BinAritOperator]func(a, b int64) int64{
		syntax.Add:     func(a, b int64) int64 { return a + b },
		syntax.Sub:     func(a, b int64) int64 { return a - b },
		syntax.Mul:     func(a, b int64) int64 { return a * b },
		syntax.Eql:     func(a, b int64) int64 { return truth(a == b) },
		syntax.Neq:     func(a, b int64) int64 { return truth(a != b) },
		syntax.Lss:     func(a, b int64) int64 { return truth(a < b) },
		syntax.Gtr:     func(a, b int64) int64 { return truth(a > b) },
		syntax.Leq:     func(a, b int64) int64 { return truth(a <= b) },
		syntax.Geq:     func(a, b int64) int64 { return truth(a >= b) },
		syntax.AndArit: func(a, b int64) int64 { return truth(a != 0 && b != 0) },
		syntax.OrArit:  func(a, b int64) int64 { return truth(a != 0 || b != 0) },
		syntax.Comma:   func(_, b int64) int64 { return b },
	}
}

func divide(op syntax.BinAritOperator, a, b int64) (int64, error) {
	switch {
	case b == 0:
		return 0, errors.New("it divides by zero")
	case op == syntax.Rem:
		return a % b, nil
	}
	return a / b, nil
}
