package adopt

import (
	"bytes"
	"context"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/store"
)

// Spool is a source whose rows come in any order, such as the lines of a file. It sorts the rows in a store of its own.
// One goroutine adds all rows; only after that may the spool be read as a Source.
type Spool struct {
	rows      store.Rows
	mostValue int
	at        store.Timestamp
	batch     []store.Row
	held      int
	in        map[string]bool // the keys of batch
}

var spooled store.Partition // the one partition of the spool's store

// NewSpool returns an empty spool, which keeps its rows in the store `rows`; this store must be empty. All rows of the
// spool count as written at the time `at`. A row with a value of more than mostValue bytes is refused.
func NewSpool(rows store.Rows, mostValue int, at store.Timestamp) *Spool {
	return &Spool{rows: rows, mostValue: mostValue, at: at, in: map[string]bool{}}
}

// add adds a row to the spool, which owns the slices key and value from then on. line is the number of the row's line,
// which must be higher in each call. The result fault is empty, or says what is wrong:
//   - BadKey or BadValue: the row is refused.
//   - Collision: an earlier line has the same key, and this row replaces the earlier one.
func (s *Spool) add(ctx context.Context, key, value []byte, line int64) (fault string, err error) {
	switch {
	case storekit.CheckKey(key) != nil:
		return string(BadKey), nil
	case len(value) > s.mostValue:
		return string(BadValue), nil
	}
	_, again, err := s.rows.Get(ctx, spooled, key)
	if err != nil {
		return "", err
	}
	if again || s.in[string(key)] {
		fault = string(Collision)
	}
	s.in[string(key)] = true
	s.batch = append(s.batch, store.Row{Key: key, Value: store.EntryCell(value), Timestamp: store.Timestamp(line)})
	s.held += len(key) + len(value)
	if len(s.batch) >= store.MaxBatchRows/2 || s.held > store.MaxBatchBytes/2 {
		err = s.flush(ctx)
	}
	return fault, err
}

func (s *Spool) flush(ctx context.Context) error {
	err := s.rows.Put(ctx, spooled, s.batch...)
	s.batch, s.held = s.batch[:0], 0
	clear(s.in)
	return err
}

// AsOf returns the time at which all rows of the spool count as written, such as the time at which a file was made.
func (s *Spool) AsOf() store.Timestamp { return s.at }

// Parts returns 1, since the spool is one sorted stream.
func (s *Spool) Parts() int { return 1 }

// Same reports whether two values of rows are equal, byte for byte.
func (s *Spool) Same(a, b []byte) bool { return bytes.Equal(a, b) }

// Page returns at most limit rows in the given interval of keys, as Source says. The rows always have their values.
func (s *Spool) Page(ctx context.Context, _ int, span Span, limit int, _ bool) (out []Row, err error) {
	bounds := store.Bounds{Start: span.From, StartExclusive: span.After, End: span.To}
	for more := true; more && len(out) < limit; {
		page, err := s.rows.Slice(ctx, spooled, bounds, store.SliceOptions{Limit: limit - len(out)})
		if err != nil {
			return nil, err
		}
		for i := range page.Rows {
			out = append(out, s.row(&page.Rows[i]))
		}
		if more = page.More; more {
			bounds.Start, bounds.StartExclusive = out[len(out)-1].Key, true
		}
	}
	return out, nil
}

func (s *Spool) row(r *store.Row) Row { return Row{Key: r.Key, Value: r.Value[1:], Time: s.at} }

// Get returns the row with the given key, as Source says.
func (s *Spool) Get(ctx context.Context, _ int, key []byte) (Row, bool, error) {
	r, found, err := s.rows.Get(ctx, spooled, key)
	if err != nil || !found {
		return Row{}, false, err
	}
	return s.row(&r), true, nil
}
