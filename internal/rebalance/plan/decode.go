package plan

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// layoutFile is the JSON form of a layout with its limits.
type layoutFile struct {
	Bucket     string      `json:"bucket"`
	Limits     Limits      `json:"limits" layout:"required"`
	Partitions []Partition `json:"partitions" layout:"required"`
}

// DecodeLayout reads the JSON form of a layout with its limits (docs/planners.md has the
// format). The error is a Problems with everything that is wrong, by path: unknown and
// repeated fields, values of the wrong kind, and what Validate finds. If the text is not
// JSON, that is the only problem.
func DecodeLayout(data []byte) (Layout, Limits, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	var first json.RawMessage
	if err := dec.Decode(&first); err != nil {
		return Layout{}, Limits{}, Problems{{"", notJSON(data, err)}}
	}
	var d decoder
	d.encoding(data)
	if rest := bytes.TrimLeft(data[dec.InputOffset():], " \t\r\n"); len(rest) > 0 {
		d.add("%s: something follows the layout: %.20q", place(data, len(data)-len(rest)), rest)
	}
	f := layoutFile{Limits: Limits{HorizonS: DefaultHorizonS}}
	d.dec = json.NewDecoder(bytes.NewReader(first))
	d.dec.UseNumber()
	d.value(d.token(), reflect.ValueOf(&f).Elem())
	if lim := &f.Limits; !d.targetGiven && lim.MaxRows > 0 && lim.MaxRows <= MaxCount {
		lim.TargetRows = DefaultTarget(lim.MaxRows, lim.MinRows)
	}
	// A value of the wrong kind was left at zero. What Validate finds wrong with that zero
	// is noise; what it finds elsewhere is not.
	l, reported := Layout{Bucket: f.Bucket, Partitions: f.Partitions}, map[string]bool{}
	for _, p := range d.problems {
		reported[strings.TrimSuffix(p.Path, ".b64")] = true
	}
	for _, p := range Validate(&l, f.Limits) {
		if !within(p.Path, reported) {
			d.problems = append(d.problems, p)
		}
	}
	if len(d.problems) > 0 {
		return Layout{}, Limits{}, d.problems
	}
	return l, f.Limits, nil
}

// within reports whether a path, or a value that contains it, is among the given ones.
func within(path string, reported map[string]bool) bool {
	for path != "" {
		if reported[path] {
			return true
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return false
}

func notJSON(data []byte, err error) string {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Sprintf("%s: not JSON: %s", place(data, int(syntax.Offset)-1), syntax)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return "the layout is empty"
	}
	return fmt.Sprintf("%s: not JSON: it ends too early", place(data, len(data)))
}

func place(data []byte, offset int) string {
	before := data[:max(0, min(offset, len(data)))]
	return fmt.Sprintf("line %d, byte %d", 1+bytes.Count(before, []byte("\n")), len(before)-bytes.LastIndexByte(before, '\n'))
}

// decoder reads one JSON value into the struct that describes it. It reads token by token,
// because json.Unmarshal stops at the first problem, does not say where it was, and takes
// null, repeated fields and names in any case.
type decoder struct {
	dec         *json.Decoder
	path        []step
	problems    Problems
	targetGiven bool
	known       map[reflect.Type][]field
}

// A step is a field, or an index if the field is empty.
type step struct {
	field string
	index int
}

func (d *decoder) at() string {
	var b strings.Builder
	for _, s := range d.path {
		switch {
		case s.field == "":
			fmt.Fprintf(&b, "[%d]", s.index)
		case b.Len() > 0:
			b.WriteByte('.')
			fallthrough
		default:
			b.WriteString(s.field)
		}
	}
	return b.String()
}

func (d *decoder) add(format string, args ...any) {
	d.problems = append(d.problems, Problem{d.at(), fmt.Sprintf(format, args...)})
}

// encoding finds bytes and escapes that encoding/json would silently replace,
// and so make two different keys equal.
func (d *decoder) encoding(data []byte) {
	const advice = `write such a key as {"b64":"..."}`
	if !utf8.Valid(data) {
		at := 0
		for at < len(data) {
			r, size := utf8.DecodeRune(data[at:])
			if r == utf8.RuneError && size == 1 {
				break
			}
			at += size
		}
		d.add("%s: not UTF-8: %s", place(data, at), advice)
	}
	for i := 0; i+1 < len(data); i++ {
		if data[i] != '\\' {
			continue
		}
		i++ // whatever is escaped, also another backslash
		if half := surrogate(data, i); half != 0 {
			if half == 'h' && i+5 < len(data) && data[i+5] == '\\' && surrogate(data, i+6) == 'l' {
				i += 10
				continue
			}
			d.add("%s: half of a surrogate pair: %s", place(data, i-1), advice)
			return
		}
	}
}

// surrogate reports whether uXXXX at i is a high ('h') or low ('l') surrogate.
func surrogate(data []byte, i int) byte {
	if i+5 > len(data) || data[i] != 'u' {
		return 0
	}
	code, err := strconv.ParseUint(string(data[i+1:i+5]), 16, 16)
	switch {
	case err != nil || code < 0xD800 || code > 0xDFFF:
		return 0
	case code < 0xDC00:
		return 'h'
	}
	return 'l'
}

// token returns the next token; nil stands for null. The text was checked before.
func (d *decoder) token() json.Token {
	t, _ := d.dec.Token()
	return t
}

func kind(t json.Token) string {
	switch t := t.(type) {
	case nil:
		return "null"
	case json.Delim:
		if t == '{' {
			return "an object"
		}
		return "a list"
	case string:
		return "a string"
	case bool:
		return "true or false"
	}
	return "a number"
}

// skip reads the rest of a value whose first token is t.
func (d *decoder) skip(t json.Token) {
	if t == json.Delim('{') || t == json.Delim('[') {
		for d.dec.More() {
			d.skip(d.token())
		}
		d.token()
	}
}

// value reads a value, whose first token is t, into v.
func (d *decoder) value(t json.Token, v reflect.Value) {
	var want string
	var ok bool
	switch to := v.Addr().Interface().(type) {
	case *string:
		want = "a string"
		*to, ok = t.(string)
	case *bool:
		want = "true or false"
		*to, ok = t.(bool)
	case *int64:
		want = "a whole number"
		var n json.Number
		if n, ok = t.(json.Number); ok {
			d.count(n, to)
		}
	case *float64:
		want = "a number"
		var n json.Number
		if n, ok = t.(json.Number); ok {
			d.rate(n, to)
		}
	case *Key:
		want = `a string or {"b64":"..."}`
		var s string
		if s, ok = t.(string); ok {
			*to = Key(s)
		} else if ok = t == json.Delim('{'); ok {
			d.key(to)
		}
	case **Key:
		*to = new(Key)
		d.value(t, reflect.ValueOf(*to).Elem())
		return
	default:
		if want = "an object"; v.Kind() == reflect.Slice {
			want = "a list"
			if ok = t == json.Delim('['); ok {
				d.list(v)
			}
		} else if ok = t == json.Delim('{'); ok {
			d.object(v)
		}
	}
	if !ok {
		d.add("must be %s, is %s", want, kind(t))
		d.skip(t)
	}
}

func (d *decoder) list(v reflect.Value) {
	for i := 0; d.dec.More(); i++ {
		v.Grow(1) // doubles the capacity if it is full
		v.SetLen(i + 1)
		d.path = append(d.path, step{index: i})
		d.value(d.token(), v.Index(i))
		d.path = d.path[:len(d.path)-1]
	}
	d.token()
}

// A field of a struct, by its name in JSON.
type field struct {
	name     string
	required bool
}

func (d *decoder) fields(t reflect.Type) []field {
	if d.known[t] == nil {
		if d.known == nil {
			d.known = map[reflect.Type][]field{}
		}
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			d.known[t] = append(d.known[t], field{name, f.Tag.Get("layout") == "required"})
		}
	}
	return d.known[t]
}

// object reads the fields of an object that has begun.
func (d *decoder) object(v reflect.Value) {
	known := d.fields(v.Type())
	var seen uint64 // a bit for each field
	for d.dec.More() {
		name, _ := d.token().(string)
		t := d.token()
		i := slices.IndexFunc(known, func(f field) bool { return f.name == name })
		d.path = append(d.path, step{field: name})
		switch {
		case name == "":
			d.path[len(d.path)-1].field = `""`
			fallthrough
		case i < 0:
			d.add("unknown field")
			d.skip(t)
		case seen&(1<<i) != 0:
			d.add("is given twice")
			d.skip(t)
		default:
			seen |= 1 << i
			d.targetGiven = d.targetGiven || name == "target_rows"
			d.value(t, v.Field(i))
		}
		d.path = d.path[:len(d.path)-1]
	}
	d.token()
	for i, f := range known {
		if f.required && seen&(1<<i) == 0 {
			d.path = append(d.path, step{field: f.name})
			d.add("is missing")
			d.path = d.path[:len(d.path)-1]
		}
	}
}

func (d *decoder) count(n json.Number, to *int64) {
	v, err := strconv.ParseInt(n.String(), 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) && v < 0:
		d.add("is negative: %.40s", n)
	case errors.Is(err, strconv.ErrRange):
		d.add("is %.40s, more than %d", n, MaxCount)
	case err != nil:
		d.add("must be a whole number without point or exponent, is %.40s", n)
	default:
		*to = v
	}
}

func (d *decoder) rate(n json.Number, to *float64) {
	v, err := n.Float64()
	if err != nil {
		d.add("is %.40s, beyond %g", n, maxRate)
		return
	}
	*to = v
}

// key reads {"b64":"..."}, of which the brace has been read.
func (d *decoder) key(to *Key) {
	var k struct {
		B64 string `json:"b64" layout:"required"`
	}
	before := len(d.problems)
	d.object(reflect.ValueOf(&k).Elem())
	raw, err := base64.StdEncoding.DecodeString(k.B64)
	if err != nil && len(d.problems) == before {
		d.path = append(d.path, step{field: "b64"})
		d.add("not base64: %s", err)
		d.path = d.path[:len(d.path)-1]
	}
	*to = Key(raw)
}
