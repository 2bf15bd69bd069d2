package record

import (
	"context"
	"iter"

	"github.com/evenkeel/evenkeel/store"
)

// Acknowledge makes sure that every later read of a record at the level Local, in any data centre, finds the newest
// record or a later one. It returns that newest record, which has the given key in table t of the store s. If s does
// not implement store.Acknowledger, Acknowledge reads the record at the level Serial.
func Acknowledge(ctx context.Context, s store.Registers, t store.Table, key []byte) (store.Record, error) {
	if a, ok := s.(store.Acknowledger); ok {
		return a.Acknowledge(ctx, t, key)
	}
	return s.Read(ctx, t, key, store.Serial)
}

// Scanner is a store that can list the keys of its registers. (A register is a record that changes only by
// compare-and-swap.) KeyPages needs no other method of a store. The method Scan is that of store.Registers.
type Scanner interface {
	Scan(ctx context.Context, t store.Table, after []byte, limit int) ([][]byte, error)
}

// KeyPages returns an iterator over the keys of all registers (records that change only by compare-and-swap) in table
// t. The iterator yields pages of up to 1000 keys. If a page can't be read, the iterator yields the error instead. If
// the loop goes on after an error, and ctx has not ended, the iterator reads the same page again.
func KeyPages(ctx context.Context, s Scanner, t store.Table) iter.Seq2[[][]byte, error] {
	const page = 1000
	return func(yield func([][]byte, error) bool) {
		var after []byte
		for {
			keys, err := s.Scan(ctx, t, after, page)
			if err == nil && len(keys) == 0 || !yield(keys, err) || err != nil && ctx.Err() != nil {
				return
			}
			if err == nil {
				after = keys[len(keys)-1]
			}
		}
	}
}
