package memstore

import (
	"bytes"
	"cmp"
	"context"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/store"
)

func (s *memory) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	return s.write(ctx, "put", storekit.CheckRows(rows), func() error {
		if len(rows) > 0 {
			part := s.partition(p)
			for _, r := range rows {
				part.write(string(r.Key), version{value: clone(r.Value), ts: r.Timestamp})
			}
		}
		return nil
	})
}

func (s *memory) Delete(ctx context.Context, p store.Partition, key []byte, ts store.Timestamp) error {
	return s.write(ctx, "delete", cmp.Or(storekit.CheckKey(key), storekit.CheckTimestamp(ts)), func() error {
		s.partition(p).write(string(key), version{ts: ts})
		return nil
	})
}

func (s *memory) Remove(ctx context.Context, p store.Partition, b store.Bounds, ts store.Timestamp) error {
	return s.write(ctx, "remove", cmp.Or(storekit.CheckBounds(b), storekit.CheckTimestamp(ts)), func() error {
		b.Start, b.End = bytes.Clone(b.Start), bytes.Clone(b.End)
		s.partition(p).remove(removal{b, ts})
		return nil
	})
}

func (s *memory) Get(ctx context.Context, p store.Partition, key []byte) (row store.Row, found bool, err error) {
	err = s.read(ctx, "get", storekit.CheckKey(key), func() error {
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

func (s *memory) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (page store.Page, err error) {
	err = s.read(ctx, "slice", storekit.CheckSlice(b, o), func() error {
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
			page.More = len(page.Rows) == o.Limit || size >= storekit.PageBytes(&o)
			return !page.More
		})
		return nil
	})
	return page, err
}

func (s *memory) Partitions(
	ctx context.Context, after store.Partition, limit int,
) (found []store.Partition, err error) {
	err = s.read(ctx, "partitions", storekit.CheckLimit(limit), func() error {
		scan(&s.partitions, address(after), limit, func(key string, part *partition) bool {
			live := false
			part.walk(store.Bounds{}, false, func(_ string, v version) bool {
				live = !v.dead()
				return !live
			})
			if live {
				found = append(found, storekit.PartitionAt(key))
			}
			return live
		})
		return nil
	})
	return found, err
}

// partition returns the partition with the address p. If the store has no such partition, it creates an empty one.
func (s *memory) partition(p store.Partition) *partition {
	part, ok := s.partitions.Get(address(p))
	if !ok {
		part = &partition{}
		s.partitions.Set(address(p), part)
	}
	return part
}

// clone returns a copy of the bytes b. Unlike bytes.Clone, clone never returns nil: a nil b becomes an empty slice.
func clone(b []byte) []byte { return append(make([]byte, 0, len(b)), b...) }

func address(p store.Partition) string { return string(storekit.AppendPartition(nil, p)) }
