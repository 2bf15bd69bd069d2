package listing

import (
	"bytes"
	"context"
	"time"

	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/store"
)

// A Mark is a moment in the life of a bucket, which Bucket.Mark returns. A program that copies rows from another system
// into the bucket needs a Mark: Bring may write the rows that the program reads in that system after the moment.
type Mark struct {
	id    store.BucketID
	epoch uint64
	at    store.Timestamp
	taken wait.Instant
	// settled is the time at which the present map of the bucket began, at the latest (clocks may differ). It is 0 if a
	// range moves. first means that the present map is the one with which the bucket was made.
	settled store.Timestamp
	first   bool
}

// At returns the time of the mark, the moment at which Bucket.Mark was called. A write to the bucket is older if it was
// acknowledged before that call, and newer if it begins after the call. The exception is a write in another data
// centre. It is surely newer only if it begins after that data centre was told of the mark, or was asked for a row
// because of the mark.
func (m Mark) At() store.Timestamp { return m.at }

// deletionsKept is a time for which every store surely keeps tombstones, as long as their partition exists. It has a
// large margin.
const deletionsKept = 24 * time.Hour

// Remembers reports whether Bring may write rows that another system had at an earlier time, which is the parameter
// since. Bring may if the bucket still has the tombstones of all deletions from that time on: they hide the rows that
// were deleted meanwhile. The result is true if, since that time or since the bucket was created, whichever is later,
// no range has moved and less than a day has passed.
func (m Mark) Remembers(since store.Timestamp) bool {
	if m.settled == 0 || !m.first && m.settled >= since {
		return false
	}
	return m.at-max(m.settled, since) < store.Timestamp(deletionsKept.Microseconds())
}

// markAge is the time after which Bring refuses a Mark, a moment in the life of a bucket, as too old. It is far less
// than the time for which any store keeps tombstones.
const markAge = 5 * time.Minute

// sinceStart returns the present moment on both clocks of this process: the monotonic clock and the wall clock.
var sinceStart = wait.Instants(nil, nil)

// ErrMoved means that Bring has not written all rows: the map of the bucket has changed since the mark was taken, or
// the mark is too old. Take another mark, read the rows again in the system from which they are copied, and call Bring
// again.
var ErrMoved = store.Errorf(store.Conflict,
	"the bucket's map has changed since the rows were read, or that is long ago")

// Mark returns the present moment in the life of the bucket. A program that copies rows into the bucket takes the Mark
// first, then reads the rows, and calls Bring with the Mark. Mark fails like Put.
func (b *Bucket) Mark(ctx context.Context) (Mark, error) {
	m, err := b.mark(ctx)
	return m, wrap("mark", b.name, err)
}

func (b *Bucket) mark(ctx context.Context) (Mark, error) {
	for {
		h, err := b.acquire(ctx)
		if err != nil {
			return Mark{}, err
		}
		root := h.Root()
		m := Mark{id: root.Bucket, epoch: root.Epoch, taken: sinceStart(), first: root.Epoch == 1}
		if len(root.Batches) == 0 {
			m.settled = store.Timestamp(root.ChangedAt + b.c.maps.MaxClockSkew().Microseconds())
		}
		m.at, err = b.c.stamps.Next(ctx, 1)
		if err == nil {
			err = b.c.stamps.Passed(ctx, m.at)
		}
		valid := h.Valid()
		h.release()
		if err != nil || valid {
			return m, err
		}
	}
}

// Bring copies rows of another system, which the bucket replaces, into the bucket. A row is an entry or, with a nil
// Value, a deletion. The keys of rows ascend, each key once. The rows were read in the other system after the mark m
// was taken, or the other system had them at a time that the mark remembers (Remembers). Rows keep their timestamps,
// except that a timestamp that is missing (0) or above the mark's becomes the mark's.
//
// A program that writes to both systems must write to the other system first, and to the bucket once that write is
// acknowledged. Then the newer of two writes of a key wins, whichever reaches the bucket first.
//
// Bring is neither atomic nor isolated. It fails with ErrMoved, or like Put. After a failure some rows may be written.
// All rows may be brought again, with any mark.
func (b *Bucket) Bring(ctx context.Context, m Mark, rows []store.Row) error {
	// Why the newer write wins: a write to the bucket that is newer than a row read in the other system begins after
	// the mark, and so has a higher timestamp. If it is a delete, it goes to the partition to which Bring writes, as
	// the map has not changed. If the map had changed, a put that is older than a delete could reach a partition that
	// never saw the delete.
	return wrap("bring", b.name, b.bring(ctx, m, rows))
}

func (b *Bucket) bring(ctx context.Context, m Mark, rows []store.Row) error {
	for i := range rows {
		if err := b.checkKey(rows[i].Key); err != nil {
			return err
		}
		if err := b.checkValue(rows[i].Value); err != nil {
			return err
		}
		if i > 0 && bytes.Compare(rows[i-1].Key, rows[i].Key) >= 0 {
			return invalid("the keys do not ascend")
		}
	}
	for len(rows) > 0 {
		n, err := b.bringFirst(ctx, m, rows)
		if err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// bringFirst writes the first of the given rows to the bucket, and returns the number n of rows written. It writes as
// many entries as fit into one batch for one partition. If the first row is a deletion, it writes only that row. m is
// the moment after which the rows were read.
func (b *Bucket) bringFirst(ctx context.Context, m Mark, rows []store.Row) (n int, err error) {
	h, rg, err := b.locate(ctx, rows[0].Key)
	if err != nil {
		return 0, err
	}
	defer func() { err = h.leave(err) }()
	// The lease under which the rows are sent must be one on the map of the mark.
	if root := h.Root(); root.Bucket != m.id || root.Epoch != m.epoch {
		return 0, ErrMoved
	}
	if _, most := sinceStart().Since(m.taken); most > markAge {
		return 0, ErrMoved
	}
	if rows[0].Value == nil {
		return 1, b.c.remove(ctx, h, &rg, rows[0].Key, m.stamp(rows[0].Timestamp))
	}
	size := 0
	for n < len(rows) && n < batchRows && rows[n].Value != nil && rg.Contains(rows[n].Key) {
		size += len(rows[n].Key) + 1 + len(rows[n].Value)
		if n > 0 && size > batchBytes {
			break
		}
		n++
	}
	batch := make([]store.Row, n)
	for i := range batch { // the batch has memory of its own: the write may outlive the call
		r := &rows[i]
		batch[i] = store.Row{Key: bytes.Clone(r.Key), Value: store.EntryCell(r.Value), Timestamp: m.stamp(r.Timestamp)}
	}
	put := func(ctx context.Context, p store.Partition) error { return h.putOwn(ctx, b.c.rows, p, batch...) }
	if err := b.c.write(ctx, h, &rg, batch[0].Key, batch[n-1].Key, m.at, put); err != nil {
		return 0, err
	}
	p := takesWrites(h, &rg)
	for i := range batch {
		b.c.o.Recorder.Put(p, batch[i].Key, len(batch[i].Key)+len(batch[i].Value)-1, batch[i].Timestamp)
	}
	return n, nil
}

// stamp returns the timestamp with which Bring writes a row to the bucket. The parameter ts is the timestamp of the row
// in the other system. The result is ts or the time of the mark, whichever is lower. If ts is missing (0), the result
// is the time of the mark.
func (m Mark) stamp(ts store.Timestamp) store.Timestamp {
	if ts <= 0 {
		return m.at
	}
	return min(ts, m.at)
}
