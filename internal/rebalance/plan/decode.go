package plan

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// DecodeLayout reads the JSON form of a layout with its limits (see
// docs/planners.md for the format). The error is a Problems that lists all that
// is wrong, by path: fields that nobody knows, values of the wrong kind, and
// what Validate finds. Only where the text is not JSON at all is the rest left
// unread.
func DecodeLayout(data []byte) (Layout, Limits, error) {
	var d decoder
	first := json.RawMessage{}
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&first); err != nil {
		return Layout{}, Limits{}, Problems{{"", notJSON(data, err)}}
	}
	d.encoding(data)
	if rest := bytes.TrimLeft(data[dec.InputOffset():], " \t\r\n"); len(rest) > 0 {
		d.add("%s: something follows the layout: %.20q", place(data, len(data)-len(rest)), rest)
	}

	d.dec = json.NewDecoder(bytes.NewReader(first))
	d.dec.UseNumber()
	var l Layout
	limits := Limits{HorizonS: DefaultHorizonS}
	d.layout(&l, &limits)

	// A value of the wrong kind was left at zero: what Validate would say of that
	// zero is noise, but what it says of everything else is wanted.
	told := map[string]bool{}
	for _, p := range d.problems {
		told[strings.TrimSuffix(p.Path, ".b64")] = true
	}
	for _, p := range Validate(&l, limits) {
		if !within(p.Path, told) {
			d.problems = append(d.problems, p)
		}
	}
	if len(d.problems) > 0 {
		return Layout{}, Limits{}, d.problems
	}
	return l, limits, nil
}

// within says whether a path, or a value that contains it, is among those told.
func within(path string, told map[string]bool) bool {
	for path != "" {
		if told[path] {
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

// decoder walks the tokens of one JSON value and remembers its path, because
// encoding/json stops at the first problem and does not say where it was.
type decoder struct {
	dec      *json.Decoder
	path     []step
	problems Problems
}

// A step is a field, or an index where the field is empty.
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

// surrogate says whether uXXXX at i is a high ('h') or low ('l') surrogate.
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

// token returns the next token. The text was checked before, so that there is
// one; nil stands for null and for what cannot happen.
func (d *decoder) token() json.Token {
	t, err := d.dec.Token()
	if err != nil {
		return nil
	}
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

// wrong reports a value of the wrong kind, whose first token is t, and skips it.
func (d *decoder) wrong(t json.Token, want string) {
	d.add("must be %s, is %s", want, kind(t))
	d.skip(t)
}

func (d *decoder) skip(t json.Token) {
	depth := 0
	for {
		if delim, ok := t.(json.Delim); ok {
			if delim == '{' || delim == '[' {
				depth++
			} else {
				depth--
			}
		}
		if depth == 0 {
			return
		}
		var err error
		if t, err = d.dec.Token(); err != nil {
			return
		}
	}
}

// object reads an object whose first token is t: field reads the value of a
// field that it knows, or returns false without reading.
func (d *decoder) object(t json.Token, required []string, field func(name string) bool) {
	if t != json.Delim('{') {
		d.wrong(t, "an object")
		return
	}
	var seen []string
	for d.dec.More() {
		name, _ := d.token().(string)
		d.path = append(d.path, step{field: name})
		if name == "" {
			d.path[len(d.path)-1].field = `""`
		}
		twice := false
		for _, s := range seen {
			twice = twice || s == name
		}
		switch {
		case twice:
			d.add("is given twice")
			d.skip(d.token())
		case field(name):
			seen = append(seen, name)
		default:
			d.add("unknown field")
			d.skip(d.token())
		}
		d.path = d.path[:len(d.path)-1]
	}
	d.token()
	for _, r := range required {
		missing := true
		for _, s := range seen {
			missing = missing && s != r
		}
		if missing {
			d.path = append(d.path, step{field: r})
			d.add("is missing")
			d.path = d.path[:len(d.path)-1]
		}
	}
}

func (d *decoder) list(element func()) {
	t := d.token()
	if t != json.Delim('[') {
		d.wrong(t, "a list")
		return
	}
	for i := 0; d.dec.More(); i++ {
		d.path = append(d.path, step{index: i})
		element()
		d.path = d.path[:len(d.path)-1]
	}
	d.token()
}

func (d *decoder) text(into *string) bool {
	t := d.token()
	s, ok := t.(string)
	if !ok {
		d.wrong(t, "a string")
	}
	*into = s
	return true
}

func (d *decoder) boolean(into *bool) bool {
	t := d.token()
	b, ok := t.(bool)
	if !ok {
		d.wrong(t, "true or false")
	}
	*into = b
	return true
}

func (d *decoder) count(into *int64) bool {
	t := d.token()
	n, ok := t.(json.Number)
	if !ok {
		d.wrong(t, "a whole number")
		return true
	}
	v, err := strconv.ParseInt(n.String(), 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) && v < 0:
		d.add("is negative: %.40s", n)
	case errors.Is(err, strconv.ErrRange):
		d.add("is %.40s, more than %d", n, MaxCount)
	case err != nil:
		d.add("must be a whole number without point or exponent, is %.40s", n)
	default:
		*into = v
	}
	return true
}

func (d *decoder) rate(into *float64) bool {
	t := d.token()
	n, ok := t.(json.Number)
	if !ok {
		d.wrong(t, "a number")
		return true
	}
	v, err := n.Float64()
	if err != nil {
		d.add("is %.40s, beyond %g", n, maxRate)
	} else {
		*into = v
	}
	return true
}

func (d *decoder) key(into *Key) bool {
	t := d.token()
	if s, ok := t.(string); ok {
		*into = Key(s)
		return true
	}
	if t != json.Delim('{') {
		d.wrong(t, `a string or {"b64":"..."}`)
		return true
	}
	d.object(t, []string{"b64"}, func(name string) bool {
		if name != "b64" {
			return false
		}
		var text string
		before := len(d.problems)
		d.text(&text)
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil && len(d.problems) == before {
			d.add("not base64: %s", err)
		}
		*into = Key(raw)
		return true
	})
	return true
}

func (d *decoder) layout(l *Layout, limits *Limits) {
	d.object(d.token(), []string{"limits", "partitions"}, func(name string) bool {
		switch name {
		case "bucket":
			return d.text(&l.Bucket)
		case "limits":
			d.limits(limits)
		case "nodes":
			d.list(func() {
				l.Nodes = append(l.Nodes, Node{})
				d.node(&l.Nodes[len(l.Nodes)-1])
			})
		case "partitions":
			d.list(func() {
				l.Partitions = append(l.Partitions, Partition{})
				d.partition(&l.Partitions[len(l.Partitions)-1])
			})
		default:
			return false
		}
		return true
	})
}

func (d *decoder) limits(l *Limits) {
	target := false
	d.object(d.token(), []string{"max_rows"}, func(name string) bool {
		switch name {
		case "max_rows":
			return d.count(&l.MaxRows)
		case "min_rows":
			return d.count(&l.MinRows)
		case "target_rows":
			target = true
			return d.count(&l.TargetRows)
		case "max_writes_per_s":
			return d.rate(&l.MaxWritesPerS)
		case "horizon_s":
			return d.rate(&l.HorizonS)
		}
		return false
	})
	if !target && l.MaxRows > 0 && l.MaxRows <= MaxCount {
		l.TargetRows = DefaultTarget(l.MaxRows, l.MinRows)
	}
}

func (d *decoder) node(n *Node) {
	d.object(d.token(), []string{"name"}, func(name string) bool {
		switch name {
		case "name":
			return d.text(&n.Name)
		case "writes_per_s":
			return d.rate(&n.WritesPerS)
		}
		return false
	})
}

func (d *decoder) partition(p *Partition) {
	d.object(d.token(), []string{"id", "start"}, func(name string) bool {
		switch name {
		case "id":
			return d.text(&p.ID)
		case "start":
			return d.key(&p.Start)
		case "end":
			p.End = new(Key)
			return d.key(p.End)
		case "quanta":
			d.list(func() {
				var q Quantum
				d.object(d.token(), []string{"key", "rows"}, func(name string) bool {
					switch name {
					case "key":
						return d.key(&q.Key)
					case "rows":
						return d.count(&q.Rows)
					}
					return false
				})
				p.Quanta = append(p.Quanta, q)
			})
		case "pinned":
			return d.boolean(&p.Pinned)
		case "writes_per_s":
			return d.rate(&p.WritesPerS)
		case "growth_rows_per_s":
			return d.rate(&p.GrowthRowsPerS)
		case "node":
			return d.text(&p.Node)
		default:
			return false
		}
		return true
	})
}
