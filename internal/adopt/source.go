package adopt

import (
	"bytes"
	"context"

	"github.com/evenkeel/evenkeel/internal/cqltable"
	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/store"
)

// Source is a set of rows of another store, to be copied into a bucket. It has one or more parts, such as the
// partitions of a table, with the numbers from 0. Each part is a stream of rows, sorted by key. A Source is safe for
// concurrent use.
type Source interface {
	Parts() int
	// Page returns at most limit rows of a part within the interval s, in ascending order of keys. If it returns fewer
	// rows than limit, the interval has no more rows. If values is false, only the keys are set.
	Page(ctx context.Context, part int, s Span, limit int, values bool) ([]Row, error)
	// Get returns the row of a part with the given key. The bool is false if the part has no such row.
	Get(ctx context.Context, part int, key []byte) (Row, bool, error)
	// Same reports whether two values mean the same to the source, e.g. equal JSON with other spaces.
	Same(a, b []byte) bool
}

// Row is one row of another store, in the form in which it is to be copied into a bucket.
type Row struct {
	Key, Value []byte
	// Time is the time at which the row was written in the source; 0 if the time is unknown.
	Time store.Timestamp
	// Refused is the reason why the row cannot be copied; empty if it can.
	Refused Refusal
}

// Refusal is the reason, as a text for people, why a row cannot be copied: from another store into a bucket, or from
// the bucket back to that store. An empty Refusal means that it can.
type Refusal string

// These are the reasons why a row of another store cannot be copied into a bucket.
const (
	Expires  Refusal = "it has a TTL, and entries do not expire"
	BadKey   Refusal = "its key is empty or too long"
	BadValue Refusal = "its value is too long"
)

// Span is an interval of keys: From <= key < To, or From < key < To if After is true. If From or To is nil, the
// interval has no bound on that side. A bound that is not nil must be a key that a row can have.
type Span struct {
	From, To []byte
	After    bool
}

// table is a Target made of some partitions of a Cassandra table: rows can be read from it and written back to it. Each
// partition is one part of the Target.
type table struct {
	m          *Mapping
	partitions [][][]byte
	prefixes   [][]byte
	t          cqltable.Rows
	mostValue  int
}

// FromTable returns a Target made of the given partitions of a Cassandra table, from which rows are read and to which
// they are written back. The mapping m converts between table rows and entries. A row with a value of more than
// mostValue bytes is refused, so it is not copied.
func FromTable(t cqltable.Rows, m *Mapping, partitions [][][]byte, mostValue int) (Target, error) {
	s := &table{m: m, partitions: partitions, t: t, mostValue: mostValue}
	for _, p := range partitions {
		prefix, err := m.prefix(p)
		if err != nil {
			return nil, err
		}
		s.prefixes = append(s.prefixes, prefix)
	}
	return s, nil
}

func (t *table) Parts() int { return len(t.partitions) }

func (t *table) query(part, limit int, values bool) cqltable.Query {
	q := cqltable.Query{
		Partition: t.partitions[part], Desc: t.m.desc, TableDesc: t.m.tableDesc, AsJSON: t.m.json, Limit: limit,
	}
	if values {
		q.Values = t.m.values
	}
	return q
}

func (t *table) Page(ctx context.Context, part int, s Span, limit int, values bool) ([]Row, error) {
	q, prefix := t.query(part, limit, values), t.prefixes[part]
	// bound returns the clustering columns of a bound of the span. side is below or above 0 if the bound lies below or
	// above all keys of this partition.
	var err error
	bound := func(key []byte) (columns [][]byte, side int) {
		if key == nil {
			return nil, 0
		}
		if !bytes.HasPrefix(key, prefix) {
			return nil, bytes.Compare(key, prefix)
		}
		columns, ok := t.m.Clustering(t.partitions[part], key)
		if !ok { // the read would go on without the bound
			err = store.Errorf(store.InvalidArgument, "the bound %s is no key of a row", keytext.Key(key))
		}
		return columns, 0
	}
	var side int
	if q.From, side = bound(s.From); side > 0 {
		return nil, nil
	}
	if q.To, side = bound(s.To); side < 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	q.FromExclusive = s.After
	return t.rows(ctx, part, q)
}

func (t *table) rows(ctx context.Context, part int, q cqltable.Query) ([]Row, error) {
	got, err := t.t.Read(ctx, q)
	if store.KindOf(err) == store.InvalidArgument { // the mapping worked when the adoption began
		err = store.Errorf(store.InvalidArgument, "the table seems to have been changed or dropped meanwhile; what has been "+
			"copied stays: begin again with --key and --value as the table is now: %w", err)
	}
	if err != nil {
		return nil, err
	}
	rows := make([]Row, len(got))
	for i := range got {
		from, to := &got[i], &rows[i]
		if to.Key, err = t.m.Key(t.partitions[part], from.Clustering); err != nil {
			return nil, err
		}
		to.Value, to.Time = t.m.Value(from.Values), from.WriteTime
		switch {
		case from.Expires:
			to.Refused = Expires
		case storekit.CheckKey(to.Key) != nil:
			to.Refused = BadKey
		case len(to.Value) > t.mostValue:
			to.Refused = BadValue
		}
	}
	return rows, nil
}

func (t *table) Get(ctx context.Context, part int, key []byte) (Row, bool, error) {
	columns, ok := t.m.Clustering(t.partitions[part], key)
	if !ok {
		return Row{}, false, nil
	}
	q := t.query(part, 1, true)
	q.From, q.To, q.ToInclusive = columns, columns, true
	rows, err := t.rows(ctx, part, q)
	if err != nil || len(rows) == 0 || !bytes.Equal(rows[0].Key, key) {
		return Row{}, false, err
	}
	return rows[0], true, nil
}

func (t *table) Same(a, b []byte) bool { return t.m.same(a, b) }

func (t *table) Home(key []byte) (part int, why Refusal) {
	part, why = -1, NoRow
	for i, prefix := range t.prefixes {
		if !bytes.HasPrefix(key, prefix) {
			continue
		}
		if _, ok := t.m.Clustering(t.partitions[i], key); !ok {
			continue
		}
		if part >= 0 {
			return -1, NoHome
		}
		part, why = i, ""
	}
	return part, why
}

func (t *table) Takes(_, value []byte) Refusal {
	if _, err := t.m.columnsOf(value); err != nil {
		return NoValues + ": " + Refusal(err.Error())
	}
	return ""
}

func (t *table) Write(ctx context.Context, part int, rows []store.Row) error {
	changes := make([]cqltable.Change, len(rows))
	for i := range rows {
		c := &changes[i]
		c.At, c.Delete = rows[i].Timestamp, rows[i].Value == nil
		var ok bool
		if c.Clustering, ok = t.m.Clustering(t.partitions[part], rows[i].Key); !ok {
			return store.Errorf(store.InvalidArgument, "%s is no key of a row", keytext.Key(rows[i].Key))
		}
		if !c.Delete {
			var err error
			if c.Values, err = t.m.columnsOf(rows[i].Value); err != nil {
				return store.Errorf(store.InvalidArgument, "%w", err)
			}
		}
	}
	return t.t.Write(ctx, t.partitions[part], t.m.values, t.m.json, changes)
}
