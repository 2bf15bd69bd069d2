package adopt

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/evenkeel/evenkeel/internal/cqltable"
	"github.com/evenkeel/evenkeel/keys"
)

// Mapping turns the rows of a Cassandra table into entries of a bucket, and back. It makes the key of an entry from
// columns of the row's primary key, and the value from other columns. The keys have the order in which Cassandra keeps
// the rows of a partition, so that both sides can be read in the same order.
type Mapping struct {
	partition, clustering []cqltable.Column
	key                   []part // first partition columns, then all clustering columns
	// plain is true if the key is the bytes of its only column. If it is false, the key is a tuple of package keys.
	plain           bool
	desc, tableDesc bool
	values          []string
	value           part // the type of the one column, if not json
	json            bool
}

// part is one element of the key of an entry, with the column of the Cassandra table from which the element is made.
type part struct {
	cqltable.Column
	partition int // index of the partition column that the element is made from, or -1
	desc      bool
}

// NewMapping returns a mapping from the rows of the table with the columns t to entries of a bucket. key names the
// columns of the entry's key; a "-" before a name reverses the order of the column. Without names, the key is made of
// the clustering columns in the table's own order.
//
// values names the columns of the entry's value. A single column of text or blob becomes the value unchanged. Other
// columns become one JSON object. Without names the value is empty. NewMapping fails if the keys would not have the
// order of the rows, or if two rows could have the same key.
func NewMapping(t cqltable.Columns, key, values []string) (*Mapping, error) {
	m := &Mapping{partition: t.Partition, clustering: t.Clustering, values: values}
	if len(t.Clustering) == 0 {
		return nil, fmt.Errorf("the table has no clustering column: its rows have no order within a partition")
	}
	if len(key) == 0 {
		for _, c := range t.Clustering {
			name := c.Name
			if c.Desc {
				name = "-" + name
			}
			key = append(key, name)
		}
	}
	at := 0
	for _, name := range key {
		p := part{partition: -1}
		name, p.desc = strings.CutPrefix(name, "-")
		i := slices.IndexFunc(t.Partition, func(c cqltable.Column) bool { return c.Name == name })
		switch {
		case i >= 0 && at > 0:
			return nil, fmt.Errorf("the key has the partition column %s behind a clustering column: Cassandra keeps rows "+
				"in order within a partition only, so partition columns come first", name)
		case i >= 0:
			p.partition, p.Column = i, t.Partition[i]
		case at < len(t.Clustering) && t.Clustering[at].Name == name:
			p.Column = t.Clustering[at]
			at++
		case slices.ContainsFunc(t.Clustering, func(c cqltable.Column) bool { return c.Name == name }):
			return nil, fmt.Errorf("the key has %s at another place than the table: rows are sorted by the clustering "+
				"columns in their order, %s", name, names(t.Clustering))
		default:
			return nil, fmt.Errorf("%q is no column of the primary key", name)
		}
		if !slices.Contains(sortable, p.Type) {
			return nil, fmt.Errorf("the column %s is of type %s, which Cassandra sorts in another way than keys of bytes; "+
				"possible are %s", name, p.Type, strings.Join(sortable, ", "))
		}
		m.key = append(m.key, p)
	}
	if at < len(t.Clustering) {
		return nil, fmt.Errorf("the key lacks the clustering column %s: rows that differ in it alone would have one key",
			t.Clustering[at].Name)
	}
	clustering := m.key[len(m.key)-at:]
	m.desc, m.tableDesc = clustering[0].desc, clustering[0].Desc
	for _, p := range clustering[1:] {
		if (p.desc == p.Desc) != (m.desc == m.tableDesc) {
			return nil, fmt.Errorf("the table has %s, and Cassandra reads it in that order or in the reverse, not with %s the "+
				"other way round than %s", names(t.Clustering), p.Name, clustering[0].Name)
		}
		if p.desc != m.desc {
			return nil, fmt.Errorf("%s and %s are sorted in different directions: not supported yet", clustering[0].Name, p.Name)
		}
	}
	m.plain = len(m.key) == 1 && !m.desc && slices.Contains([]string{"text", "ascii", "blob"}, m.key[0].Type)
	return m, m.checkValues(t.Others)
}

// Fits returns nil if two tables can be copied into one bucket together. The parameter `other` is the mapping of the
// second table; both mappings must make keys and values of the same form. If they do not, Fits returns an error.
func (m *Mapping) Fits(other *Mapping) error {
	same := m.plain == other.plain && m.json == other.json && len(m.key) == len(other.key)
	for i := 0; same && i < len(m.key); i++ {
		a, b := &m.key[i], &other.key[i]
		same = a.Type == b.Type && a.desc == b.desc && (a.partition < 0) == (b.partition < 0)
	}
	if !same {
		return errors.New("its columns make other keys, or other values, than those of the first table")
	}
	return nil
}

func names(columns []cqltable.Column) string {
	var out []string
	for _, c := range columns {
		out = append(out, c.Name+map[bool]string{false: " ASC", true: " DESC"}[c.Desc])
	}
	return strings.Join(out, ", ")
}

func (m *Mapping) checkValues(others []cqltable.Column) error {
	m.json = len(m.values) > 1
	for _, name := range m.values {
		i := slices.IndexFunc(others, func(c cqltable.Column) bool { return c.Name == name })
		if i < 0 {
			return fmt.Errorf("%q is no column with values", name)
		}
		c := &others[i]
		switch collection, _, found := strings.Cut(c.Type, "<"); {
		case c.Kind == cqltable.Static:
			return fmt.Errorf("the column %s is static: it belongs to the partition, not to its rows", name)
		case c.Type == "counter":
			return fmt.Errorf("the column %s is a counter, which has no write time", name)
		case found && collection != "frozen" && collection != "tuple" && collection != "vector":
			return fmt.Errorf("the column %s is a %s that is not frozen: it has no one write time", name, collection)
		case !slices.Contains([]string{"text", "ascii", "blob"}, c.Type):
			m.json = true
		}
		m.value.Column = *c
	}
	return nil
}

// sortable lists the types of table columns from which keys can be made, such as text and bigint. Keys of these types
// can have the order in which Cassandra sorts the columns.
var sortable = []string{
	"text", "ascii", "blob", "tinyint", "smallint", "int", "bigint", "timestamp", "date", "boolean",
}

// integers are the column types that Cassandra sends as big-endian signed integers, with their lengths in bytes.
var integers = map[string]int{"tinyint": 1, "smallint": 2, "int": 4, "bigint": 8, "timestamp": 8}

func integer(wire []byte) int64 {
	v := int64(int8(wire[0]))
	for _, b := range wire[1:] {
		v = v<<8 | int64(b)
	}
	return v
}

func fromInteger(v int64, length int) ([]byte, bool) {
	all := binary.BigEndian.AppendUint64(nil, uint64(v))
	wire := all[8-length:]
	return wire, integer(wire) == v
}

// element converts a column's value, in the bytes that Cassandra sends, into an element of a key. It fails if the value
// is null (nil), or has a wrong number of bytes for the column's type.
func (p *part) element(wire []byte) (e keys.Element, err error) {
	n, whole := integers[p.Type]
	switch {
	case wire == nil:
		err = fmt.Errorf("the column %s is null", p.Name)
	case p.Type == "timestamp" && len(wire) == n:
		e = keys.Time(time.UnixMilli(integer(wire)))
	case whole && len(wire) == n:
		e = keys.Int(integer(wire))
	case p.Type == "date" && len(wire) == 4:
		e = keys.Int(int64(binary.BigEndian.Uint32(wire)) - dateZero)
	case p.Type == "boolean" && len(wire) == 1:
		e = keys.Bool(wire[0] != 0)
	case p.Type == "text" || p.Type == "ascii":
		e = keys.String(string(wire))
	case p.Type == "blob":
		e = keys.Bytes(wire)
	default:
		err = fmt.Errorf("the column %s of type %s has %d bytes", p.Name, p.Type, len(wire))
	}
	if p.desc {
		e = keys.Desc(e)
	}
	return e, err
}

const dateZero = 1 << 31 // 1970 in a date's unsigned days

// wire reads the next element of a key from r, and converts the element into a column's value in the bytes that
// Cassandra sends. The result ok is false if the column can't have such a value.
func (p *part) wire(r *keys.Reader) (wire []byte, ok bool) {
	switch n, whole := integers[p.Type]; {
	case p.Type == "timestamp":
		micros := r.Int()
		wire, ok = fromInteger(micros/1000, n)
		return wire, ok && micros%1000 == 0
	case whole:
		return fromInteger(r.Int(), n)
	case p.Type == "date":
		v := r.Int() + dateZero
		return binary.BigEndian.AppendUint32(nil, uint32(v)), v >= 0 && v <= math.MaxUint32
	case p.Type == "boolean":
		if r.Bool() {
			return []byte{1}, true
		}
		return []byte{0}, true
	case p.Type == "blob":
		return r.Bytes(), true
	}
	wire = []byte(r.String())
	return wire, p.holds(wire)
}

// holds reports whether a text is a valid value of the column: ASCII for the type ascii, any bytes for blob, and UTF-8
// for other types.
func (p *part) holds(text []byte) bool {
	if p.Type == "ascii" {
		return !slices.ContainsFunc(text, func(c byte) bool { return c >= utf8.RuneSelf })
	}
	return p.Type == "blob" || utf8.Valid(text)
}

// Key returns the key of the entry for a table row, given the values of the row's partition and clustering columns in
// the bytes that Cassandra sends. It fails if a column is null or has a wrong length.
func (m *Mapping) Key(partition, clustering [][]byte) ([]byte, error) {
	if m.plain {
		return clustering[0], nil
	}
	elements := make([]keys.Element, len(m.key))
	at := 0
	for i := range m.key {
		p := &m.key[i]
		wire := []byte(nil)
		if p.partition >= 0 {
			wire = partition[p.partition]
		} else {
			wire = clustering[at]
			at++
		}
		var err error
		if elements[i], err = p.element(wire); err != nil {
			return nil, err
		}
	}
	return keys.Of(elements...), nil
}

// prefix returns the bytes with which the keys of all rows of one partition of the table begin. partition has the
// values of the partition columns. The result is empty if no partition column is part of the key.
func (m *Mapping) prefix(partition [][]byte) ([]byte, error) {
	var elements []keys.Element
	for i := range m.key {
		if p := &m.key[i]; p.partition >= 0 {
			e, err := p.element(partition[p.partition])
			if err != nil {
				return nil, err
			}
			elements = append(elements, e)
		}
	}
	return keys.Of(elements...), nil
}

// Clustering returns the values of the clustering columns of a table row. The row has the given key, and lies in the
// partition of the table with these partition columns. The bool is false if no row of the partition can have the key.
func (m *Mapping) Clustering(partition [][]byte, key []byte) ([][]byte, bool) {
	if m.plain {
		return [][]byte{append([]byte{}, key...)}, m.key[0].holds(key)
	}
	r := keys.Read(key)
	var out [][]byte
	for i := range m.key {
		wire, ok := m.key[i].wire(r)
		if !ok {
			return nil, false
		}
		if m.key[i].partition < 0 {
			out = append(out, wire)
		}
	}
	if r.End() != nil {
		return nil, false
	}
	// A key has one valid form only. Elements in the other direction, or of another partition, are refused here.
	again, err := m.Key(partition, out)
	return out, err == nil && bytes.Equal(again, key)
}

// Value returns the value of the entry for a table row. The argument values has the columns of the value: the bytes of
// a single column of text or blob, or else the JSON of each column. A nil column is null.
func (m *Mapping) Value(values [][]byte) []byte {
	if !m.json {
		if len(values) == 0 || values[0] == nil {
			return []byte{}
		}
		return values[0]
	}
	out := []byte{'{'}
	for i, v := range values {
		if i > 0 {
			out = append(out, ',')
		}
		name, _ := json.Marshal(m.values[i]) // a string always has a JSON form
		out = append(append(out, name...), ':')
		if v == nil {
			v = []byte("null")
		}
		out = append(out, v...)
	}
	return append(out, '}')
}

// columnsOf splits the value of an entry into the columns of a table row; it is the inverse of Value. A null column is
// nil. It fails if the value does not fit the columns, e.g. if a member of the JSON object is missing.
func (m *Mapping) columnsOf(value []byte) ([][]byte, error) {
	switch {
	case m.json:
	case len(m.values) == 0 && len(value) > 0:
		return nil, fmt.Errorf("it has one, and --value names no column for it")
	case len(m.values) == 0:
		return nil, nil
	case !m.value.holds(value):
		return nil, fmt.Errorf("the column %s is of type %s", m.value.Name, m.value.Type)
	default:
		return [][]byte{append([]byte{}, value...)}, nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(value, &members); err != nil {
		return nil, fmt.Errorf("it is no object of JSON: %w", err)
	}
	out := make([][]byte, len(m.values))
	for i, name := range m.values {
		text, found := members[name]
		if !found {
			return nil, fmt.Errorf("it has no member %q", name)
		}
		delete(members, name)
		if string(text) != "null" {
			out[i] = text
		}
	}
	for name := range members {
		return nil, fmt.Errorf("its member %q is none of the columns of --value", name)
	}
	return out, nil
}

// same reports whether two values of entries stand for the same columns of a table row. JSON objects are compared by
// their content, as the same object can be written in several ways.
func (m *Mapping) same(a, b []byte) bool {
	if !m.json || bytes.Equal(a, b) {
		return bytes.Equal(a, b)
	}
	x, err := decoded(a)
	y, err2 := decoded(b)
	return err == nil && err2 == nil && reflect.DeepEqual(x, y)
}

func decoded(text []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err = d.Decode(&v); err == nil && d.More() {
		err = errors.New("more than one value")
	}
	return v, err
}

// Partitions returns the partitions of the table that the given texts name, each as the values of its partition
// columns. A text such as "room=7,shard=0..15" has a value for each partition column. A range of integers or dates,
// such as 0..15, stands for each value in the range, so that the text names several partitions.
func (m *Mapping) Partitions(texts ...string) (out [][][]byte, err error) {
	for _, text := range texts {
		given := map[string]string{}
		for _, one := range strings.Split(text, ",") {
			name, value, found := strings.Cut(one, "=")
			if _, twice := given[name]; !found || twice {
				return nil, fmt.Errorf("%q: a partition is COLUMN=VALUE, for each partition column one, with commas between", text)
			}
			given[name] = value
		}
		product := [][][]byte{nil}
		for _, c := range m.partition {
			value, found := given[c.Name]
			if !found {
				return nil, fmt.Errorf("%q lacks the partition column %s", text, c.Name)
			}
			delete(given, c.Name)
			wires, err := wiresOf(c, value)
			if err != nil {
				return nil, err
			}
			var next [][][]byte
			for _, p := range product {
				for _, w := range wires {
					next = append(next, append(slices.Clone(p), w))
				}
			}
			if product = next; len(product) > mostPartitions {
				return nil, fmt.Errorf("%q names more than %d partitions", text, mostPartitions)
			}
		}
		for name := range given {
			return nil, fmt.Errorf("%q is no partition column: there are %s", name, names(m.partition))
		}
		out = append(out, product...)
	}
	return out, nil
}

const mostPartitions = 100_000

// rangeOf returns all values of a range such as "0..15", or the one value in a text without "..". read parses a value,
// and wire converts it into the bytes that Cassandra expects.
func rangeOf(text string, read func(string) (int64, error), wire func(int64) []byte) (out [][]byte, err error) {
	low, high, found := strings.Cut(text, "..")
	first, err := read(low)
	last := first
	if err == nil && found {
		last, err = read(high)
	}
	if err == nil && (last < first || last-first >= mostPartitions || last-first < 0) {
		err = fmt.Errorf("a range goes upwards, over at most %d values", mostPartitions)
	}
	if err != nil {
		return nil, err
	}
	for v := first; ; v++ {
		if out = append(out, wire(v)); v == last {
			return out, nil
		}
	}
}

// wiresOf returns the values of the partition column c that a text names, in the bytes that Cassandra expects. The text
// is one value, or a range of integers or dates such as 0..15.
func wiresOf(c cqltable.Column, text string) ([][]byte, error) {
	bad := func(err error) error { return fmt.Errorf("%q is no value of %s, a %s: %w", text, c.Name, c.Type, err) }
	n, whole := integers[c.Type]
	switch {
	case c.Type == "timestamp":
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return nil, bad(err)
		}
		wire, _ := fromInteger(at.UnixMilli(), n)
		return [][]byte{wire}, nil
	case c.Type == "date":
		out, err := rangeOf(text, func(text string) (int64, error) {
			at, err := time.Parse(time.DateOnly, text)
			const day = 24 * 60 * 60
			return at.Unix()/day + dateZero, err
		}, func(v int64) []byte { return binary.BigEndian.AppendUint32(nil, uint32(v)) })
		if err != nil {
			return nil, bad(err)
		}
		return out, nil
	case whole:
		out, err := rangeOf(text, func(text string) (int64, error) { return strconv.ParseInt(text, 10, 8*n) },
			func(v int64) []byte { wire, _ := fromInteger(v, n); return wire })
		if err != nil {
			return nil, bad(err)
		}
		return out, nil
	case c.Type == "boolean":
		v, err := strconv.ParseBool(text)
		if err != nil {
			return nil, bad(err)
		}
		return [][]byte{{map[bool]byte{true: 1}[v]}}, nil
	case c.Type == "text" || c.Type == "ascii":
		return [][]byte{[]byte(text)}, nil
	case c.Type == "blob", c.Type == "uuid", c.Type == "timeuuid":
		digits := strings.TrimPrefix(text, "0x")
		if c.Type != "blob" {
			digits = strings.ReplaceAll(text, "-", "")
		}
		wire, err := hex.DecodeString(digits)
		if err != nil || c.Type != "blob" && len(wire) != 16 {
			return nil, bad(fmt.Errorf("hexadecimal digits are expected"))
		}
		return [][]byte{wire}, nil
	}
	return nil, fmt.Errorf("the partition column %s is of type %s, which is not supported", c.Name, c.Type)
}
