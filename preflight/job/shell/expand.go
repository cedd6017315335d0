package shell

import (
	"regexp"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/pattern"
	"mvdan.cc/sh/v3/syntax"
)

// expansion is the value of one expansion; what cannot be followed is a gap.
func (e *evaluator) expansion(p syntax.WordPart) string {
	switch p := p.(type) {
	case *syntax.ParamExp:
		return e.parameter(p)
	case *syntax.CmdSubst:
		return e.substitution(p)
	case *syntax.ArithmExp:
		n, err := e.arithmetic(p.X, 0)
		if err != nil {
			return e.unknown(p, err.Error())
		}
		return strconv.FormatInt(n, 10)
	}
	return e.unknown(p, "this kind of expansion is not followed")
}

// parameter is the value of $x and ${x...}.
func (e *evaluator) parameter(x *syntax.ParamExp) string {
	if x.Param == nil || x.Names != 0 || x.Width {
		return e.unknown(x, "this kind of expansion is not followed")
	}
	if x.Excl {
		return e.indirect(x)
	}
	value, set, ok := e.value(x)
	if !ok {
		return e.unknown(x, "it changes from run to run")
	}
	if x.Length {
		return e.length(x, value, set)
	}
	if x.Exp != nil {
		if result, done := e.fallback(x, value, set); done {
			return result
		}
	}
	if !set {
		return e.unset(x)
	}
	edited := x.Slice != nil || x.Repl != nil || x.Exp != nil
	if !edited {
		return value
	}
	if why, unknown := Unknown(value); unknown {
		return gap(gapText, source(x), why)
	}
	if result, ok := e.edit(x, value); ok {
		return result
	}
	return e.unknown(x, "this kind of expansion is not followed")
}

// indirect is ${!NAME}: the variable whose name another one holds.
func (e *evaluator) indirect(x *syntax.ParamExp) string {
	plain := *x
	plain.Excl = false
	name, set, ok := e.value(&plain)
	if !ok || !set || !syntax.ValidName(name) || x.Index != nil || name == x.Param.Value {
		return e.unknown(x, "this indirect expansion is not followed")
	}
	plain.Param = &syntax.Lit{ValuePos: x.Param.ValuePos, ValueEnd: x.Param.ValueEnd, Value: name}
	return e.parameter(&plain)
}

// value finds what a parameter holds; ok is false for those that only a running shell knows.
func (e *evaluator) value(x *syntax.ParamExp) (value string, set, ok bool) {
	name := x.Param.Value
	switch name {
	case "@", "*":
		return strings.Join(e.params, " "), len(e.params) > 0, true
	case "#":
		return strconv.Itoa(len(e.params)), true, true
	case "0":
		return e.in.Script, true, true
	case "?":
		return "0", true, true
	case "$", "!", "-", "_", "RANDOM", "SECONDS", "LINENO":
		return "", false, false
	case "PWD":
		return join(e.dir, "."), true, true
	}
	if n, err := strconv.Atoi(name); err == nil {
		if n >= 1 && n <= len(e.params) {
			return e.params[n-1], true, true
		}
		return "", n > 0, true // a parameter that was not given is empty, and that is known
	}
	if name == "BASH_SOURCE" {
		return e.file, true, true
	}
	v := e.lookUp(name)
	index := int64(0)
	switch {
	case !v.set:
		return "", false, true
	case everyItem(x.Index):
		return strings.Join(v.items, " "), true, true
	case v.keyed:
		return v.item(e.key(x.Index))
	case x.Index != nil:
		var err error
		if index, err = e.arithmetic(x.Index, 0); err != nil {
			return "", false, false
		}
	}
	if index < 0 {
		index += int64(len(v.items))
	}
	if index < 0 || index >= int64(len(v.items)) {
		return "", true, true
	}
	return v.items[index], true, true
}

func (e *evaluator) length(x *syntax.ParamExp, value string, set bool) string {
	if x.Param.Value == "@" || x.Param.Value == "*" {
		return strconv.Itoa(len(e.params))
	}
	if everyItem(x.Index) {
		for _, item := range e.lookUp(x.Param.Value).items {
			if why, _ := Unknown(item); Several(item) {
				return gap(gapText, source(x), why)
			}
		}
		return strconv.Itoa(len(e.lookUp(x.Param.Value).items))
	}
	if why, unknown := Unknown(value); unknown {
		return gap(gapText, source(x), why)
	}
	if !set {
		return e.unset(x)
	}
	return strconv.Itoa(len([]rune(value)))
}

// fallback follows ${x:-word} and its relatives; done is false for operators that edit the value. A given parameter
// that is empty counts as unset for the forms with a colon.
func (e *evaluator) fallback(x *syntax.ParamExp, value string, set bool) (result string, done bool) {
	if empty := value != "" && without(value) == ""; empty && e.in.Here && set {
		value = ""
	}
	positional := len(x.Param.Value) > 0 && x.Param.Value[0] >= '1' && x.Param.Value[0] <= '9'
	present := set && (!positional || value != "")
	op := x.Exp.Op
	if plain, colon := emptyCounts()[op]; colon {
		op, present = plain, present && value != ""
	}
	switch {
	case op == syntax.AlternateUnset && present:
		return e.text(x.Exp.Word), true
	case op == syntax.AlternateUnset:
		return "", true
	case op != syntax.DefaultUnset && op != syntax.AssignUnset && op != syntax.ErrorUnset:
		return "", false
	case present:
		return value, true
	case op == syntax.ErrorUnset:
		return e.unknown(x, "it must be set, and is not"), true
	}
	word := e.text(x.Exp.Word)
	if op == syntax.AssignUnset {
		e.assign(x.Param.Value, []string{word}, false)
	}
	return word, true
}

// emptyCounts maps the operators with a colon, for which an empty value counts as none, to those without.
func emptyCounts() map[syntax.ParExpOperator]syntax.ParExpOperator {
	return map[syntax.ParExpOperator]syntax.ParExpOperator{
		syntax.DefaultUnsetOrNull: syntax.DefaultUnset, syntax.AssignUnsetOrNull: syntax.AssignUnset,
		syntax.ErrorUnsetOrNull: syntax.ErrorUnset, syntax.AlternateUnsetOrNull: syntax.AlternateUnset,
	}
}

// edit applies a slice, a replacement, or an operator that cuts or changes case.
func (e *evaluator) edit(x *syntax.ParamExp, value string) (string, bool) {
	switch {
	case x.Slice != nil:
		return e.slice(x, value)
	case x.Repl != nil:
		expr, ok := compile(e.text(x.Repl.Orig), 0, "", "")
		if !ok {
			return "", false
		}
		with := e.text(x.Repl.With)
		if x.Repl.All {
			return expr.ReplaceAllLiteralString(value, with), true
		}
		if at := expr.FindStringIndex(value); at != nil {
			return value[:at[0]] + with + value[at[1]:], true
		}
		return value, true
	}
	switch op := x.Exp.Op; op {
	case syntax.UpperAll:
		return strings.ToUpper(value), true
	case syntax.LowerAll:
		return strings.ToLower(value), true
	case syntax.RemSmallPrefix, syntax.RemLargePrefix:
		mode := map[bool]pattern.Mode{true: pattern.Shortest}[op == syntax.RemSmallPrefix]
		expr, ok := compile(e.text(x.Exp.Word), mode, "^", "")
		if !ok {
			return "", false
		}
		return value[len(expr.FindString(value)):], true
	case syntax.RemSmallSuffix, syntax.RemLargeSuffix:
		// A leading group that is as long, or as short, as possible leaves the shortest, or the longest, suffix.
		head := map[bool]string{true: "^(.*)", false: "^(.*?)"}[op == syntax.RemSmallSuffix]
		expr, ok := compile(e.text(x.Exp.Word), 0, "(?s)"+head, "$")
		if !ok {
			return "", false
		}
		if at := expr.FindStringSubmatchIndex(value); at != nil {
			return value[:at[3]], true
		}
		return value, true
	default:
		return "", false
	}
}

func compile(glob string, mode pattern.Mode, before, after string) (*regexp.Regexp, bool) {
	if _, unknown := Unknown(glob); unknown || len(glob) > 1000 {
		return nil, false
	}
	text, err := pattern.Regexp(glob, mode)
	if err != nil {
		return nil, false
	}
	expr, err := regexp.Compile(before + "(?:" + text + ")" + after)
	return expr, err == nil
}

// slice is ${x:offset:length}.
func (e *evaluator) slice(x *syntax.ParamExp, value string) (string, bool) {
	runes := []rune(value)
	size := int64(len(runes))
	offset, err := e.arithmetic(x.Slice.Offset, 0)
	if err != nil || everyItem(x.Index) {
		return "", false
	}
	if offset < 0 {
		offset += size
	}
	end := size
	if x.Slice.Length != nil {
		length, err := e.arithmetic(x.Slice.Length, 0)
		if err != nil {
			return "", false
		}
		if length < 0 {
			end = size + length
		} else if length < size { // not offset+length, which may overflow
			end = min(size, offset+length)
		}
	}
	if offset < 0 || offset > size || end < offset {
		return "", true
	}
	return string(runes[offset:end]), true
}
