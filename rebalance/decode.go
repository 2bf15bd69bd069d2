package rebalance

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// layoutFile is the JSON form of a layout (a bucket's partitions with their sizes) and of the limits for its plans.
type layoutFile struct {
	Bucket     string      `json:"bucket"`
	Limits     Limits      `json:"limits" layout:"required"`
	Partitions []Partition `json:"partitions" layout:"required"`
}

// DecodeLayout reads a layout (a bucket's partitions with their sizes) and its limits from JSON; docs/planners.md has
// the format. If it fails, the error is a Problems, which lists all faults with their places: unknown, missing and
// repeated fields, values of the wrong kind, and faults that Validate finds. If the text is not JSON, or not UTF-8,
// this is the only fault in the list.
func DecodeLayout(data []byte) (Layout, Limits, error) {
	d := decoder{dec: jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowDuplicateNames(true))}
	f := layoutFile{Limits: Limits{HorizonS: defaultHorizonS}}
	if err := d.value(reflect.ValueOf(&f).Elem()); err != nil {
		return Layout{}, Limits{}, Problems{notJSON(data, err)}
	}
	if rest := bytes.TrimLeft(data[d.dec.InputOffset():], " \t\r\n"); len(rest) > 0 {
		d.problems = append(d.problems, Problem{Text: fmt.Sprintf("%s: something follows the layout: %.20q",
			place(data, len(data)-len(rest)), rest)})
	}
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

// within reports whether a fault of the JSON value at path need not be reported, since it follows from a fault that is
// reported already. It is true if `reported` has the path itself, or the path of a value around it, e.g. limits for
// limits.max_rows.
func within(path string, reported map[string]bool) bool {
	for path != "" {
		if reported[path] {
			return true
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return false
}

func notJSON(data []byte, err error) Problem {
	if errors.Is(err, io.EOF) {
		return Problem{Text: "the layout is empty"}
	}
	e, _ := errors.AsType[*jsontext.SyntacticError](err)
	if e == nil {
		return Problem{Text: err.Error()}
	}
	at := place(data, int(e.ByteOffset))
	switch text := e.Err.Error(); {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return Problem{Text: at + ": not JSON: it ends too early"}
	case strings.Contains(text, "UTF-8") || strings.Contains(text, "surrogate"):
		return Problem{dotted(e.JSONPointer), at + ": " + text + `: write such a key as {"b64":"..."}`}
	default:
		return Problem{Text: at + ": not JSON: " + text}
	}
}

func place(data []byte, offset int) string {
	before := data[:max(0, min(offset, len(data)))]
	line, column := 1+bytes.Count(before, []byte("\n")), len(before)-bytes.LastIndexByte(before, '\n')
	return fmt.Sprintf("line %d, byte %d", line, column)
}

// dotted returns the JSON pointer p, such as /partitions/3/id, in the form that messages use: partitions[3].id.
func dotted(p jsontext.Pointer) string {
	var b strings.Builder
	for t := range p.Tokens() {
		if _, err := strconv.ParseUint(t, 10, 32); err == nil {
			fmt.Fprintf(&b, "[%s]", t)
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		if t == "" {
			t = `""`
		}
		b.WriteString(t)
	}
	return b.String()
}

// decoder reads a JSON value into a struct, and collects all problems of the value. It reads token by token, because
// json.Unmarshal stops at the first value of the wrong kind. Its methods return an error only if the text is not JSON.
type decoder struct {
	dec         *jsontext.Decoder
	problems    Problems
	targetGiven bool
}

// add records a problem with the JSON value, or the field name, that was read last. The arguments format and args make
// the text, as for fmt.Sprintf.
func (d *decoder) add(format string, args ...any) {
	d.problems = append(d.problems, Problem{dotted(d.dec.StackPointer()), fmt.Sprintf(format, args...)})
}

// kinds names the kinds of JSON values, such as a list or a number, in words for error messages.
var kinds = map[jsontext.Kind]string{
	'{': "an object", '[': "a list", '"': "a string", '0': "a number", 't': "true or false", 'f': "true or false",
	'n': "null",
}

// value reads one JSON value into v. A value of the wrong kind is skipped and recorded as a problem.
func (d *decoder) value(v reflect.Value) error {
	got := d.dec.PeekKind()
	is := func(want ...jsontext.Kind) bool { return slices.Contains(want, got) }
	var want string
	switch to := v.Addr().Interface().(type) {
	case *string:
		if want = "a string"; is('"') {
			return d.scalar(func(s string) { *to = s })
		}
	case *bool:
		if want = "true or false"; is('t', 'f') {
			return d.scalar(func(string) { *to = got == 't' })
		}
	case *int64:
		if want = "a whole number"; is('0') {
			return d.scalar(func(s string) { d.count(s, to) })
		}
	case *float64:
		if want = "a number"; is('0') {
			return d.scalar(func(s string) { d.rate(s, to) })
		}
	case *Key:
		if want = `a string or {"b64":"..."}`; is('"') {
			return d.scalar(func(s string) { *to = Key(s) })
		} else if is('{') {
			return d.key(to)
		}
	case **Key:
		*to = new(Key)
		return d.value(reflect.ValueOf(*to).Elem())
	default:
		if v.Kind() == reflect.Slice {
			if want = "a list"; is('[') {
				return d.list(v)
			}
		} else if want = "an object"; is('{') {
			return d.object(v)
		}
	}
	err := d.dec.SkipValue()
	if err == nil {
		d.add("must be %s, is %s", want, kinds[got])
	}
	return err
}

// scalar reads a JSON value that is neither a list nor an object, such as a number, and calls set with its text.
func (d *decoder) scalar(set func(string)) error {
	t, err := d.dec.ReadToken()
	if err == nil {
		set(t.String())
	}
	return err
}

func (d *decoder) list(v reflect.Value) error {
	_, err := d.dec.ReadToken()
	for i := 0; err == nil && d.dec.PeekKind() != ']'; i++ {
		v.Grow(1) // doubles the capacity if it is full
		v.SetLen(i + 1)
		err = d.value(v.Index(i))
	}
	if err == nil {
		_, err = d.dec.ReadToken()
	}
	return err
}

// object reads a JSON object into the struct v, field by field. It records unknown, repeated and missing fields as
// problems.
func (d *decoder) object(v reflect.Value) error {
	_, err := d.dec.ReadToken()
	var seen uint64 // a bit for each field
	for err == nil && d.dec.PeekKind() != '}' {
		var name jsontext.Token
		if name, err = d.dec.ReadToken(); err != nil {
			break
		}
		i := 0
		for i < v.NumField() && fieldName(v.Type().Field(i)) != name.String() {
			i++
		}
		switch {
		case i == v.NumField():
			d.add("unknown field")
			err = d.dec.SkipValue()
		case seen&(1<<i) != 0:
			d.add("is given twice")
			err = d.dec.SkipValue()
		default:
			seen |= 1 << i
			d.targetGiven = d.targetGiven || name.String() == "target_rows"
			err = d.value(v.Field(i))
		}
	}
	if err == nil {
		_, err = d.dec.ReadToken()
	}
	for i := 0; err == nil && i < v.NumField(); i++ {
		if f := v.Type().Field(i); f.Tag.Get("layout") == "required" && seen&(1<<i) == 0 {
			at := d.dec.StackPointer().AppendToken(fieldName(f))
			d.problems = append(d.problems, Problem{dotted(at), "is missing"})
		}
	}
	return err
}

func fieldName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

func (d *decoder) count(n string, to *int64) {
	v, err := strconv.ParseInt(n, 10, 64)
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

func (d *decoder) rate(n string, to *float64) {
	v, err := strconv.ParseFloat(n, 64)
	if err != nil {
		d.add("is %.40s, beyond %g", n, maxRate)
		return
	}
	*to = v
}

// key reads a key in the form {"b64":"..."}, which is for keys that are not UTF-8, and stores it in to.
func (d *decoder) key(to *Key) error {
	var k struct {
		B64 string `json:"b64" layout:"required"`
	}
	before := len(d.problems)
	err := d.object(reflect.ValueOf(&k).Elem())
	raw, not := base64.StdEncoding.DecodeString(k.B64)
	if err == nil && not != nil && len(d.problems) == before {
		at := dotted(d.dec.StackPointer().AppendToken("b64"))
		d.problems = append(d.problems, Problem{at, "not base64: " + not.Error()})
	}
	*to = Key(raw)
	return err
}
