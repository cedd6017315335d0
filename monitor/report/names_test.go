package report

import (
	"encoding"
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// TestJSONNames: every name in the JSON of every document is in the schemas' style, and a document names its schema.
func TestJSONNames(t *testing.T) {
	snake := regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	seen := map[reflect.Type]bool{}
	var walk func(path string, typ reflect.Type)
	walk = func(path string, typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice || typ.Kind() == reflect.Map ||
			typ.Kind() == reflect.Array {
			typ = typ.Elem()
		}
		own := typ.Implements(reflect.TypeFor[json.Marshaler]()) ||
			typ.Implements(reflect.TypeFor[encoding.TextMarshaler]())
		if typ.Kind() != reflect.Struct || seen[typ] || own {
			return
		}
		seen[typ] = true
		for i := range typ.NumField() {
			f := typ.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !f.IsExported() && !f.Anonymous || name == "-" {
				continue
			}
			if (name != "" || !f.Anonymous) && !snake.MatchString(name) {
				t.Errorf("%s.%s is %q in JSON", path, f.Name, name)
			}
			walk(path+"."+f.Name, f.Type)
		}
	}
	for _, d := range documents() {
		if _, ok := d.(*Announcement); ok { // is never JSON
			continue
		}
		walk(reflect.TypeOf(d).Elem().Name(), reflect.TypeOf(d))
		(&filler{texts: []string{"x"}}).fill(reflect.ValueOf(d).Elem(), 0)
		if text := write(t, "json", d, Style{}); !strings.Contains(text, `"schema":`) {
			t.Errorf("%T has no schema:\n%.300s", d, text)
		}
	}
}
