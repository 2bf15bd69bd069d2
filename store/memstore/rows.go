package memstore

import (
	"bytes"
	"cmp"
	"context"

	"github.com/evenkeel/evenkeel/store"
)

// Put implements store.Rows.
func (s *Store) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	return s.write(ctx, "put", store.CheckRows(rows), func() error {
		if len(rows) > 0 {
			part := s.partition(p)
			for _, r := range rows {
				part.write(string(r.Key), version{value: clone(r.Value), ts: r.Timestamp})
			}
		}
		return nil
	})
}

// Delete implements store.Rows.
func (s *Store) Delete(ctx context.Context, p store.Partition, key []byte, ts store.Timestamp) error {
	return s.write(ctx, "delete", cmp.Or(store.CheckKey(key), store.CheckTimestamp(ts)), func() error {
		s.partition(p).write(string(key), version{ts: ts})
		return nil
	})
}

// Remove implements store.Rows.
func (s *Store) Remove(ctx context.Context, p store.Partition, b store.Bounds, ts store.Timestamp) error {
	return s.write(ctx, "remove", cmp.Or(store.CheckBounds(b), store.CheckTimestamp(ts)), func() error {
		b.Start, b.End = bytes.Clone(b.Start), bytes.Clone(b.End)
		s.partition(p).remove(removal{b, ts})
		return nil
	})
}

// Get implements store.Rows.
func (s *Store) Get(ctx context.Context, p store.Partition, key []byte) (row store.Row, found bool, err error) {
	err = s.read(ctx, "get", store.CheckKey(key), func() error {
		part, ok := s.partitions.Get(address(p))
		if !ok {
			return nil
		}
		v, ok := part.get(string(key))
		if ok {
			row, found = store.Row{Key: bytes.Clone(key), Value: clone(v.value), Timestamp: v.ts}, true
		}
		return nil
	})
	return row, found, err
}

// Slice implements store.Rows. The rows of the page are copies.
func (s *Store) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (page store.Page, err error) {
	err = s.read(ctx, "slice", store.CheckSlice(b, o), func() error {
		part, ok := s.partitions.Get(address(p))
		if !ok {
			return nil
		}
		size := 0
		part.walk(b, o.Reverse, func(key string, v version) bool {
			if v.dead() {
				return true
			}
			row := store.Row{Key: []byte(key), Value: clone(v.value)}
			if o.Timestamps {
				row.Timestamp = v.ts
			}
			page.Rows = append(page.Rows, row)
			size += len(row.Key) + len(row.Value)
			page.More = len(page.Rows) == o.Limit || size >= o.PageBytes()
			return !page.More
		})
		return nil
	})
	return page, err
}

// Partitions implements store.PartitionLister. Like Cassandra, it omits partitions without a visible row.
func (s *Store) Partitions(ctx context.Context, after store.Partition, limit int) (found []store.Partition, err error) {
	err = s.read(ctx, "partitions", store.CheckLimit(limit), func() error {
		scan(&s.partitions, address(after), limit, func(key string, part *partition) bool {
			live := false
			part.walk(store.Bounds{}, false, func(_ string, v version) bool {
				live = !v.dead()
				return !live
			})
			if live {
				found = append(found, store.PartitionAt(key))
			}
			return live
		})
		return nil
	})
	return found, err
}

// partition returns the partition with the address p. It creates an empty partition if there is none.
func (s *Store) partition(p store.Partition) *partition {
	part, ok := s.partitions.Get(address(p))
	if !ok {
		part = &partition{}
		s.partitions.Set(address(p), part)
	}
	return part
}

// clone returns a copy of the bytes b. Unlike bytes.Clone it never returns nil: a nil b becomes an empty slice.
func clone(b []byte) []byte { return append(make([]byte, 0, len(b)), b...) }

func address(p store.Partition) string { return string(p.AppendTo(nil)) }
