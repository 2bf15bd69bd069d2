package layouts

import (
	"context"
	"encoding/binary"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/store"
)

// FixedRows is the default number of rows of a partition in the layout "fixed".
const FixedRows = 100_000

// fixed is a layout that keeps rows in the order of arrival, in partitions of a fixed size: PRIMARY KEY ((bucket, n),
// seq), where n = seq / size. seq is a counter of this process, and continues behind the last row when the process
// starts. A counter that several processes share would cost another write per put.
//
// The position of a key cannot be computed. So no entry can be found by its key, and a key that is put twice is stored
// twice.
type fixed struct {
	table
	size uint64

	mu   sync.Mutex
	next uint64
	open bool // next is known
}

// NewFixed returns a layout that keeps rows in the order of arrival, in partitions of size rows each. If size is zero,
// partitions have FixedRows rows.
func NewFixed(rows store.Rows, bucket store.BucketID, size int) *Fixed {
	if size <= 0 {
		size = FixedRows
	}
	return &Fixed{fixed{table: newTable(rows, bucket), size: uint64(size)}}
}

// Fixed is a layout that keeps rows in the order of arrival. The method Arrivals reads the rows page by page.
type Fixed struct{ fixed }

// take reserves n successive positions for new rows, and returns the first position.
func (f *fixed) take(ctx context.Context, n int) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.open {
		end, err := f.end(ctx)
		if err != nil {
			return 0, err
		}
		f.next, f.open = end, true
	}
	first := f.next
	f.next += uint64(n)
	return first, nil
}

// end returns the position behind the last row. It searches the first partition without rows, first by doubling the
// partition number and then by halving the interval. The partition before has the last row.
func (f *fixed) end(ctx context.Context) (uint64, error) {
	last := func(n uint64) (uint64, bool, error) {
		page, err := f.slice(ctx, numbered(n), store.Bounds{}, 1, true)
		if err != nil || len(page.Rows) == 0 {
			return 0, false, err
		}
		return binary.BigEndian.Uint64(page.Rows[0].Key), true, nil
	}
	full, free := uint64(0), uint64(1) // partitions below full have rows, those from free on have none
	for ; ; full, free = free, free*2 {
		if _, some, err := last(free - 1); err != nil {
			return 0, err
		} else if !some {
			break
		}
	}
	for full+1 < free {
		middle := (full + free) / 2
		if _, some, err := last(middle - 1); err != nil {
			return 0, err
		} else if some {
			full = middle
		} else {
			free = middle
		}
	}
	if full == 0 {
		return 0, nil
	}
	seq, _, err := last(full - 1)
	return seq + 1, err
}

// row returns the row for the entry e at the position seq. The row's key is the position. The row's value holds the key
// and the value of the entry.
func (f *fixed) row(seq uint64, e Entry, ts store.Timestamp) store.Row {
	value := binary.AppendUvarint(make([]byte, 0, 3+len(e.Key)+len(e.Value)), uint64(len(e.Key)))
	value = append(append(value, e.Key...), e.Value...)
	return store.Row{Key: binary.BigEndian.AppendUint64(nil, seq), Value: value, Timestamp: ts}
}

func entryOfFixed(r store.Row) (Entry, error) {
	n, at := binary.Uvarint(r.Value)
	if at <= 0 || uint64(len(r.Value)-at) < n {
		return Entry{}, store.Errorf(store.Corrupt, "the row %x holds no key", r.Key)
	}
	end := at + int(n)
	return Entry{Key: r.Value[at:end:end], Value: r.Value[end:]}, nil
}

// Put appends an entry behind the last row.
func (f *fixed) Put(ctx context.Context, key, value []byte) error {
	return f.Load(ctx, []Entry{{Key: key, Value: value}})
}

// Load appends entries behind the last row.
func (f *fixed) Load(ctx context.Context, entries []Entry) error {
	seq, err := f.take(ctx, len(entries))
	if err != nil {
		return err
	}
	ts, err := f.stamps.Next(ctx, max(len(entries), 1))
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(batchesOnce)
	for i := 0; i < len(entries); {
		p := (seq + uint64(i)) / f.size
		var rows []store.Row
		for size := 0; i < len(entries) && len(rows) < batchRows && size < batchBytes &&
			(seq+uint64(i))/f.size == p; i++ {
			r := f.row(seq+uint64(i), entries[i], ts+store.Timestamp(i))
			rows = append(rows, r)
			size += len(r.Value)
		}
		g.Go(func() error { return f.rows.Put(ctx, f.at(numbered(p)), rows...) })
	}
	return g.Wait()
}

// Get always fails with ErrCannot, as a key could only be found by reading all rows.
func (f *fixed) Get(context.Context, []byte) ([]byte, bool, error) {
	return nil, false, cannot("find a key: its place is not computed from it")
}

// List always fails with ErrCannot, as the rows are in the order of arrival and not in the order of keys.
func (f *fixed) List(context.Context, Query) ([]Item, error) {
	return nil, cannot("list keys in order: Arrivals has them as they came")
}

// Partition always fails with ErrCannot, as the partition of a key could only be found by reading all rows.
func (f *fixed) Partition(context.Context, []byte) (string, error) {
	return "", cannot("tell where a key is")
}

// Arrivals returns up to limit entries in the order of arrival, from the position seq on (0 is the first). next is the
// position at which the next page begins. Fewer than limit entries mean that the page is the last one.
func (f *fixed) Arrivals(ctx context.Context, seq uint64, limit int) (entries []Entry, next uint64, err error) {
	for len(entries) < limit {
		n := seq / f.size
		page, err := f.slice(ctx, numbered(n), store.Bounds{Start: binary.BigEndian.AppendUint64(nil, seq)},
			limit-len(entries), false)
		if err != nil {
			return nil, 0, err
		}
		for _, r := range page.Rows {
			e, err := entryOfFixed(r)
			if err != nil {
				return nil, 0, err
			}
			entries = append(entries, e)
			seq = binary.BigEndian.Uint64(r.Key) + 1
		}
		if page.More {
			continue
		}
		if seq/f.size == n { // not to its end: the last one
			end, err := f.partitions(ctx)
			if err != nil || n+1 >= end {
				return entries, seq, err
			}
			seq = (n + 1) * f.size // a writer that failed left a gap
		}
	}
	return entries, seq, nil
}

// partitions returns the number of partitions that have rows.
func (f *fixed) partitions(ctx context.Context) (uint64, error) {
	end, err := f.end(ctx)
	return (end + f.size - 1) / f.size, err
}

// Scan reads all entries partition by partition, and calls `each` with every page. readers is the number of partitions
// that are read at the same time.
func (f *fixed) Scan(ctx context.Context, readers int, each func([]Entry) error) error {
	n, err := f.partitions(ctx)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(readers, 1))
	for i := range n {
		g.Go(func() error {
			return f.through(ctx, numbered(i), store.Bounds{}, func(rows []Entry) error {
				entries := make([]Entry, len(rows))
				for k, r := range rows {
					e, err := entryOfFixed(store.Row{Key: r.Key, Value: r.Value})
					if err != nil {
						return err
					}
					entries[k] = e
				}
				return each(entries)
			})
		})
	}
	return g.Wait()
}
