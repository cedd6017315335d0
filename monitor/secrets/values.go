package secrets

import (
	"encoding/base64"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// empty tells a value that is no secret whatever its name is: nothing, yes and no, or a place that a shell or a
// template fills.
func empty(value string) bool {
	v := strings.Trim(value, " \t\r\n\"'`,;")
	switch strings.ToLower(v) {
	case "", "true", "false", "yes", "no", "on", "off", "none", "null", "nil", "auto", "default", "unset", "undefined",
		"required", "optional", "store_true", "0", "1", "-", strings.ToLower(Redacted):
		return true
	}
	for _, r := range []struct{ open, end string }{{"${", "}"}, {"$(", ")"}, {"<", ">"}, {"{{", "}}"}, {"%(", ")s"},
		{"***", ""}, {"os.environ", ""}, {"os.getenv", ""}} {
		if strings.HasPrefix(v, r.open) && strings.HasSuffix(v, r.end) && !strings.Contains(v, ":-") {
			return true
		}
	}
	return v[0] == '$' && !strings.ContainsFunc(v[1:],
		func(r rune) bool { return r != '_' && !unicode.IsUpper(r) && !unicode.IsDigit(r) })
}

// path tells the name of a file from a secret.
func path(v string) bool {
	for _, start := range []string{"/", "./", "../", "~/", "s3://", "gs://", "hdfs://", "file://"} {
		if strings.HasPrefix(v, start) {
			return true
		}
	}
	return false
}

// piece is what stands between the signs of a model's, a run's or a file's name: a word, a number, a word with a
// number.
var piece = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:[a-z]{0,24}|[A-Z]{0,16}|[A-Z]?[a-z]{1,24}|\d{1,20}|[A-Za-z]{2,20}\d{1,6}[A-Za-z]{0,3}|\d{1,6}[A-Za-z]{1,12}|[A-Za-z]?\d{0,4}[A-Za-z]?\d{0,4}|\d{8}[Tt]\d{6}[Zz]?|(?:[A-Z][a-z]{2,}|[A-Z]{2,5}|\d{1,4})+)$`)
})

// worded tells whether a value is made of words and numbers, as names are.
func worded(v string) bool {
	for _, p := range strings.FieldsFunc(v,
		func(r rune) bool { return strings.ContainsRune("-_./:,@ ()[]{}<>|=*#", r) }) {
		if !piece().MatchString(p) {
			return false
		}
	}
	return true
}

// random tells a value, under a name that may be a secret's, that looks like one: long enough, letters and digits, and
// no words.
func random(v string) bool {
	v = strings.Trim(v, "\"'")
	if len(v) < 8 || strings.ContainsAny(v, " \t\n") || path(v) || !utf8.ValidString(v) {
		return false
	}
	letter := strings.ContainsFunc(v, unicode.IsLetter)
	odd := strings.ContainsFunc(v, unicode.IsDigit) || strings.ContainsAny(v, "\"\\!$%^&~+")
	return letter && odd && !worded(v)
}

var (
	// run is a piece of a value without signs but those of base64.
	run = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[A-Za-z0-9+]{20,}`) })
	// word is what random letters seldom make and words are full of.
	word = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[A-Z]?[a-z]{3,}|[A-Z]{4,}|\d{5,}`) })
	hex  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?:[0-9a-f]+|[0-9A-F]+)$`) })
)

// surelyRandom tells a secret whose name says nothing: capital and small letters and digits in one long run, without
// words in it. Hashes of commits and files have small letters only, and stay.
func surelyRandom(v string) bool {
	for _, r := range run().FindAllString(v, -1) {
		if hex().MatchString(r) || entropy(r) < 3.4 {
			continue
		}
		upper, lower, digits := 0, 0, 0
		for _, c := range r {
			switch {
			case unicode.IsUpper(c):
				upper++
			case unicode.IsLower(c):
				lower++
			case unicode.IsDigit(c):
				digits++
			}
		}
		covered := 0
		for _, w := range word().FindAllString(r, -1) {
			covered += len(w)
		}
		if upper > 1 && lower > 1 && digits > 1 && 2*covered < len(r) {
			return !readable(v)
		}
	}
	return false
}

// readable tells base64 of plain text without secrets, as DeepSpeed's --world_info.
func readable(v string) bool {
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.RawURLEncoding, base64.URLEncoding,
		base64.RawStdEncoding} {
		text, err := encoding.DecodeString(v)
		if err == nil && utf8.Valid(text) &&
			!strings.ContainsFunc(string(text), func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' }) {
			return (*Scrubber)(nil).Text(string(text)) == string(text)
		}
	}
	return false
}

// entropy is Shannon's, in bits a character.
func entropy(s string) float64 {
	var count [256]int
	for i := range len(s) {
		count[s[i]]++
	}
	sum := 0.0
	for _, n := range count {
		if n > 0 {
			p := float64(n) / float64(len(s))
			sum -= p * math.Log2(p)
		}
	}
	return sum
}

// judge tells whether the value of a name is a secret.
func judge(name, value string) bool {
	if empty(value) {
		return false
	}
	switch judgeName(name) {
	case none:
		return false
	case weak:
		return random(value)
	case strong:
	}
	file := path(value) && filed(name) && !surelyRandom(value)
	amount := number().MatchString(value) && counted(name)
	return !file && !amount
}

// number is an amount: 4096, 300B, 1e9.
var number = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[\d_,.]+(?:[eE]\d+)?[kKmMgGbBtT]?$`) })

// counted: what has this name is often an amount.
func counted(name string) bool { return slices.Contains(parts(name), "tokens") }

// filed: what has this name is often the name of a file.
func filed(name string) bool {
	if strings.EqualFold(name, "PWD") {
		return true
	}
	for _, p := range parts(name) {
		switch {
		case strings.Contains(p, "credential"), strings.HasPrefix(p, "cookie"), p == "key", p == "keys", p == "cred",
			p == "creds", p == "netrc", p == "auth":
			return true
		}
	}
	return false
}
