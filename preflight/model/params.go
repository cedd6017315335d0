package model

import (
	"fmt"
	"math/big"
	"regexp"
	"strings"
)

// paramsPattern accepts 7B, 1.3b, 350M, 7e9, 7000000000, 6_738_415_616. Underscores may stand between digits.
var paramsPattern = regexp.MustCompile(`^([0-9]+(?:_[0-9]+)*(?:\.[0-9]+)?(?:[eE]\+?[0-9]{1,3})?)([kKmMbBgGtT]?)$`)

// paramsUnits are powers of ten: models are named in decimal thousands, millions, billions (also written G) and
// trillions.
var paramsUnits = map[string]int64{"": 1, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}

// leastParameters is the smallest number that is meant without a unit.
const leastParameters = 1000

// ParseParams reads a number of parameters as people write it: "7B", "1.3b", "350M", "7e9", "6_738_415_616". A fraction
// that is left after the unit is rounded. Errors repeat the text and give an example.
func ParseParams(text string) (int64, error) {
	match := paramsPattern.FindStringSubmatch(strings.TrimSpace(text))
	if match == nil {
		return 0, fmt.Errorf("%q is not a number of parameters: write 7B, 1.3B, 350M, 7e9 or 6_738_415_616", text)
	}
	number, ok := new(big.Rat).SetString(strings.ReplaceAll(match[1], "_", ""))
	if !ok {
		return 0, fmt.Errorf("%q is not a number of parameters: write 7B, 1.3B, 350M, 7e9 or 6_738_415_616", text)
	}
	if match[2] == "" && number.Sign() > 0 && number.Cmp(big.NewRat(leastParameters, 1)) < 0 {
		return 0, fmt.Errorf("%q parameters are no model: is %[2]sM or %[2]sB meant? write 7B, 1.3B, 350M, 7e9 or "+
			"6_738_415_616", text, match[1])
	}
	number.Mul(number, new(big.Rat).SetInt64(paramsUnits[strings.ToUpper(match[2])]))
	switch {
	case number.Cmp(big.NewRat(1, 1)) < 0:
		return 0, fmt.Errorf("%q is less than one parameter: write 7B, 1.3B, 350M, 7e9 or 6_738_415_616", text)
	case number.Cmp(big.NewRat(maxParameters, 1)) > 0:
		return 0, fmt.Errorf("%q is more than the %d parameters that can be computed with: write 7B, 1.3B, 350M, "+
			"7e9 or 6_738_415_616",
			text, int64(maxParameters))
	}
	half := big.NewRat(1, 2)
	number.Add(number, half)
	return new(big.Int).Quo(number.Num(), number.Denom()).Int64(), nil
}
