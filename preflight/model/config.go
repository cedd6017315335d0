package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-multierror"

	"oomguard/preflight/pyjson"
)

// Bounds on what a config may ask for. No real model comes near; they keep every product of sizes inside an int64.
const (
	maxSize       = math.MaxInt32 // one dimension: PyTorch's kernels index rows and columns with 32 bits
	maxCount      = 1 << 16       // layers, heads, experts
	maxParameters = 1 << 56       // leaves room for 128 bytes a parameter
)

// config reads values out of a config.json and collects everything that is wrong with them, so that a user sees all of
// it at once. After a problem the readers return harmless values; the caller asks err before it uses any.
type config struct {
	*object
	// nil: the whole file. A nested config reports its problems and assumptions to its parent
	parent       *config
	defaults     map[string]int64 // class defaults of needed sizes; nil: the file must name them
	types        []family         // all rows, for models inside others
	defaultImage int64            // default of image_size; 0: 224
	task         task
	class        string
	problems     *multierror.Error
	assumptions  []string
}

// err is nil, the only problem, or all of them.
func (c *config) err() error {
	if c.problems != nil && len(c.problems.Errors) == 1 {
		return c.problems.Errors[0]
	}
	return c.problems.ErrorOrNil()
}

// add records problems that already name their place, each once although several readers may meet it.
func (c *config) add(problems ...error) {
	if c.parent != nil {
		c.parent.add(problems...)
		return
	}
	for _, problem := range problems {
		if !slices.ContainsFunc(c.problems.WrappedErrors(),
			func(e error) bool { return e.Error() == problem.Error() }) {
			c.problems = multierror.Append(c.problems, problem)
		}
	}
}

// reject records a problem with the value of key, at its place in the file.
func (c *config) reject(key, format string, args ...any) {
	where := c.source
	if m, ok := c.members[key]; ok {
		where = c.place(m.offset)
	}
	c.add(fmt.Errorf("%s: "+format, append([]any{where}, args...)...))
}

func (c *config) assume(format string, args ...any) {
	if c.parent != nil {
		c.parent.assume(format, args...)
		return
	}
	c.assumptions = append(c.assumptions, fmt.Sprintf(format, args...))
}

// section is the config nested under key; nil if it is absent, null or not an object.
func (c *config) section(key string) *config {
	inner, err := c.nested(key)
	if err != nil {
		c.add(err)
	}
	if inner == nil {
		return nil
	}
	return &config{object: inner, parent: c, task: c.task, class: c.class, types: c.types}
}

// sectionOr is section, or an empty config that takes every value from the class defaults.
func (c *config) sectionOr(key string) *config {
	if inner := c.section(key); inner != nil {
		return inner
	}
	return &config{object: &object{source: c.source, file: c.file}, parent: c, task: c.task, class: c.class,
		types: c.types}
}

// find returns the first of names that has a value other than null.
func (c *config) find(names ...string) (name string, text json.RawMessage) {
	for _, name := range names {
		if m, ok := c.members[name]; ok && string(m.text) != "null" {
			return name, m.text
		}
	}
	return "", nil
}

// size is a needed dimension, at least 1. The first name is the one transformers writes; others are accepted aliases
// (attribute_map of the configuration class).
func (c *config) size(names ...string) int64 { return c.needed(maxSize, names) }

// count is a needed number of things (layers, heads), at least 1.
func (c *config) count(names ...string) int64 { return c.needed(maxCount, names) }

func (c *config) needed(limit int64, names []string) int64 {
	name, text := c.find(names...)
	if value, ok := c.defaults[names[0]]; ok && text == nil {
		return value
	}
	if text == nil {
		c.reject(names[0], "needed key %q is missing: take config.json from the model's own directory, or give "+
			"--params for a lower bound",
			names[0])
		return 1
	}
	return c.integer(name, text, 1, limit)
}

// sizeOr and countOr are optional: the class default applies when no name has a value.
func (c *config) sizeOr(absent int64, names ...string) int64 {
	if name, text := c.find(names...); text != nil {
		return c.integer(name, text, 1, maxSize)
	}
	return absent
}

func (c *config) countOr(absent int64, names ...string) int64 {
	if name, text := c.find(names...); text != nil {
		return c.integer(name, text, 1, maxCount)
	}
	return absent
}

// naturalOr is an optional count that may be 0.
func (c *config) naturalOr(absent int64, name string) int64 {
	if name, text := c.find(name); text != nil {
		return c.integer(name, text, 0, maxCount)
	}
	return absent
}

// integer reads a whole number within [low, high]. A float without a fraction (4096.0) is one; a string is not.
func (c *config) integer(name string, text json.RawMessage, low, high int64) int64 {
	var number json.Number
	if k := kind(text); k != "a number" {
		c.reject(name, "%s is %s (%s), want a whole number", name, clip(text), k)
		return low
	}
	if pyjson.IsNumber(string(text)) {
		c.reject(name, "%s is %s, want a whole number", name, text)
		return low
	}
	if err := json.Unmarshal(text, &number); err != nil {
		c.reject(name, "%s: %w", name, err)
		return low
	}
	value, err := wholeNumber(number.String())
	if err != nil || value < low || value > high {
		c.reject(name, "%s is %s, want a whole number from %d to %d: correct it", name, clip(text), low, high)
		return low
	}
	return value
}

var errNotWhole = errors.New("not a whole number")

func wholeNumber(text string) (int64, error) {
	if value, err := strconv.ParseInt(text, 10, 64); err == nil {
		return value, nil
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil || value != math.Trunc(value) || math.Abs(value) > 1<<53 { // beyond 2^53 a float64 is no exact count
		return 0, errNotWhole
	}
	return int64(value), nil
}

func (c *config) flag(name string, absent bool) bool {
	_, text := c.find(name)
	if text == nil {
		return absent
	}
	value, err := strconv.ParseBool(string(text))
	if err != nil || kind(text) == "a number" {
		c.reject(name, "%s is %s, want true or false", name, clip(text))
	}
	return value
}

func (c *config) text(absent string, names ...string) string {
	name, text := c.find(names...)
	if text == nil {
		return absent
	}
	var value string
	if json.Unmarshal(text, &value) != nil {
		c.reject(name, "%s is %s (%s), want a string", name, clip(text), kind(text))
	}
	return value
}

// probability is a dropout rate.
func (c *config) probability(absent float64, names ...string) float64 {
	name, text := c.find(names...)
	if text == nil {
		return absent
	}
	value, err := floatOf(text)
	if err != nil || value < 0 || value > 1 {
		c.reject(name, "%s is %s, want a probability from 0 to 1", name, clip(text))
		return 0
	}
	return value
}

// positive says whether a number above 0 is set, as for soft caps; absent is the class default when the key is missing.
func (c *config) positive(name string, absent bool) bool {
	m, ok := c.members[name]
	if !ok {
		return absent
	}
	if string(m.text) == "null" {
		return false
	}
	value, err := floatOf(m.text)
	if err != nil {
		c.reject(name, "%s is %s, want a number or null", name, clip(m.text))
	}
	return value > 0
}

// floatOf reads a number as Python does: one may be infinite or none.
func floatOf(text json.RawMessage) (float64, error) {
	if kind(text) != "a number" {
		return 0, errNotNumber
	}
	value, err := strconv.ParseFloat(string(text), 64)
	if math.IsInf(value, 0) { // 1e999
		err = nil
	}
	return value, err
}

var errNotNumber = errors.New("not a number")

// isNull tells a key that is null from one that is absent: some classes treat the two differently.
func (c *config) isNull(name string) bool {
	m, ok := c.members[name]
	return ok && string(m.text) == "null"
}

// labels is the number of classes a classifier tells apart: the length of id2label, else num_labels, else 2
// (PretrainedConfig in transformers/configuration_utils.py).
func (c *config) labels() int64 { return c.labelsOr(2) }

// labelsOr is labels for a configuration class with another default.
func (c *config) labelsOr(absent int64) int64 {
	if !c.task.classifies {
		return 0
	}
	number, text := c.find("num_labels")
	if names := c.section("id2label"); names != nil && (len(names.members) > 0 || text == nil) {
		return int64(len(names.members))
	}
	if text != nil {
		return c.integer(number, text, 0, maxSize) // 0: the class has no head (timm's image encoders)
	}
	return absent
}

// clip shortens a value for an error message.
func clip(text json.RawMessage) string {
	const longest = 40
	s := strings.ToValidUTF8(string(text), "")
	if len(s) > longest {
		s = strings.ToValidUTF8(s[:longest], "") + "..."
	}
	return s
}

// signedOr is an optional whole number that may be negative.
func (c *config) signedOr(absent int64, name string) int64 {
	if name, text := c.find(name); text != nil {
		return c.integer(name, text, -maxSize, maxSize)
	}
	return absent
}

// texts is an optional list of strings.
func (c *config) texts(name string) []string {
	_, text := c.find(name)
	if text == nil {
		return nil
	}
	var values []string
	if err := json.Unmarshal(text, &values); err != nil {
		c.reject(name, "%s is %s, want a list of strings", name, clip(text))
	}
	return values
}

// integers is an optional list of whole numbers.
func (c *config) integers(name string) []int64 {
	_, text := c.find(name)
	if text == nil {
		return nil
	}
	var values []int64
	if err := json.Unmarshal(text, &values); err != nil {
		c.reject(name, "%s is %s, want a list of whole numbers", name, clip(text))
	}
	return values
}

// pair is an optional height and width, written as one number for both or as a list of two.
func (c *config) pair(name string, absent int64) (height, width int64) {
	if _, text := c.find(name); text == nil || kind(text) != "a list" {
		side := c.sizeOr(absent, name)
		return side, side
	}
	if both := c.integers(name); len(both) == 2 && min(both[0], both[1]) >= 1 && max(both[0], both[1]) <= maxSize {
		return both[0], both[1]
	}
	c.reject(name, "%s is %s, want a whole number or a list of two, height and width", name, clip(c.members[name].text))
	return absent, absent
}
