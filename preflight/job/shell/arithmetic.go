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

// number reads a literal, or the variable that a bare name means; an unset one is an unknown here, although bash takes 0.
func (e *evaluator) number(text string, depth int) (int64, error) {
	if why, unknown := Unknown(text); unknown {
		return 0, errors.New(why)
	}
	text = strings.TrimSpace(text)
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && (text == "0" || !strings.HasPrefix(text, "0")) {
		return n, nil // a leading zero means octal
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
	a, err := e.arithmetic(x.X, depth+1)
	if err != nil {
		return 0, err
	}
	b, err := e.arithmetic(x.Y, depth+1)
	if err != nil {
		return 0, err
	}
	if x.Op == syntax.Quo || x.Op == syntax.Rem {
		return divide(x.Op, a, b)
	}
	if compute, ok := operators()[x.Op]; ok {
		return compute(a, b), nil
	}
	return 0, errArithmetic
}

// operators are those that are followed; shifts, bits, powers and assignments are not met in launch scripts.
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
