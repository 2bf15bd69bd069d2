package adopt

import (
	"bytes"
	"context"

	"github.com/evenkeel/evenkeel/store"
)

// Spool is a source that is read once, in any order, and kept sorted in a store until it is adopted. It is filled by
// one goroutine, and then used as a Source.
type Spool struct {
	rows      store.Rows
	mostValue int
	at        store.Timestamp
	batch     []store.Row
	held      int
	in        map[string]bool // the keys of batch
}

var spooled store.Partition // of the spool's store, which has no other

// NewSpool makes a spool in an empty store, of rows that were written at a time. Values have at most mostValue bytes.
func NewSpool(rows store.Rows, mostValue int, at store.Timestamp) *Spool {
	return &Spool{rows: rows, mostValue: mostValue, at: at, in: map[string]bool{}}
}

// add adds a row, which it keeps; line numbers ascend. It returns why the row is refused, if so, or a Collision: then
// the row of the later line counts.
func (s *Spool) add(ctx context.Context, key, value []byte, line int64) (fault string, err error) {
	switch {
	case store.CheckKey(key) != nil:
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

// AsOf is the time of all rows.
func (s *Spool) AsOf() store.Timestamp { return s.at }

// Parts returns 1.
func (s *Spool) Parts() int { return 1 }

// Same compares bytes.
func (s *Spool) Same(a, b []byte) bool { return bytes.Equal(a, b) }

// Page reads rows.
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

// Get reads a row.
func (s *Spool) Get(ctx context.Context, _ int, key []byte) (Row, bool, error) {
	r, found, err := s.rows.Get(ctx, spooled, key)
	if err != nil || !found {
		return Row{}, false, err
	}
	return s.row(&r), true, nil
}
