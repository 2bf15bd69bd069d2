package listing

import (
	"bytes"
	"context"
	"time"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/store"
)

// markAge is the time for which a Mark may be used: Bring refuses an older one. Bring relies on tombstones that were
// there when the Mark was taken, and every store keeps tombstones for much longer.
const markAge = 5 * time.Minute

// sinceStart returns the present moment on both clocks of this process: the monotonic clock and the wall clock.
var sinceStart = wait.Instants(nil, nil)

// Mark returns the present moment in the life of the bucket. Bring needs it to copy rows from another system into the
// bucket: first call Mark, then read the rows, then call Bring. Mark fails like Put.
func (b bucketDoor) Mark(ctx context.Context) (door.Mark, error) {
	m, err := b.mark(ctx)
	return m, wrap("mark", b.name, err)
}

func (b *Bucket) mark(ctx context.Context) (door.Mark, error) {
	for {
		h, err := b.acquire(ctx)
		if err != nil {
			return door.Mark{}, err
		}
		root := h.Root()
		m := door.Mark{Bucket: root.Bucket, Epoch: root.Epoch, Taken: sinceStart(), First: root.Epoch == 1}
		if len(root.Batches) == 0 {
			m.Settled = store.Timestamp(root.ChangedAt + b.c.maps.MaxClockSkew().Microseconds())
		}
		m.Stamp, err = b.c.stamps.Next(ctx, 1)
		if err == nil {
			err = b.c.stamps.Passed(ctx, m.Stamp)
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
func (b bucketDoor) Bring(ctx context.Context, m door.Mark, rows []store.Row) error {
	// Why the newer write wins: a write to the bucket that is newer than a row read in the other system begins after
	// the mark, and so has a higher timestamp. If it is a delete, it goes to the partition to which Bring writes, as
	// the map has not changed. If the map had changed, a put that is older than a delete could reach a partition that
	// never saw the delete.
	return wrap("bring", b.name, b.bring(ctx, m, rows))
}

func (b *Bucket) bring(ctx context.Context, m door.Mark, rows []store.Row) error {
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
func (b *Bucket) bringFirst(ctx context.Context, m door.Mark, rows []store.Row) (n int, err error) {
	h, rg, err := b.locate(ctx, rows[0].Key)
	if err != nil {
		return 0, err
	}
	defer func() { err = h.leave(err) }()
	// The lease under which the rows are sent must be one on the map of the mark.
	if root := h.Root(); root.Bucket != m.Bucket || root.Epoch != m.Epoch {
		return 0, door.ErrMoved
	}
	if _, most := sinceStart().Since(m.Taken); most > markAge {
		return 0, door.ErrMoved
	}
	if rows[0].Value == nil {
		return 1, b.c.remove(ctx, h, &rg, rows[0].Key, stampOf(m, rows[0].Timestamp))
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
		ts := stampOf(m, r.Timestamp)
		batch[i] = store.Row{Key: bytes.Clone(r.Key), Value: store.EntryCell(r.Value), Timestamp: ts}
	}
	put := func(ctx context.Context, p store.Partition) error { return h.putOwn(ctx, b.c.rows, p, batch...) }
	if err := b.c.write(ctx, h, &rg, batch[0].Key, batch[n-1].Key, m.Stamp, put); err != nil {
		return 0, err
	}
	p := takesWrites(h, &rg)
	for i := range batch {
		b.c.o.Recorder.Put(p, batch[i].Key, len(batch[i].Key)+len(batch[i].Value)-1, batch[i].Timestamp)
	}
	return n, nil
}

// stampOf returns the timestamp with which Bring writes a row to the bucket. The parameter ts is the timestamp of the
// row in the other system. The result is ts or the time of the mark, whichever is lower. If ts is missing (0), the
// result is the time of the mark.
func stampOf(m door.Mark, ts store.Timestamp) store.Timestamp {
	if ts <= 0 {
		return m.Stamp
	}
	return min(ts, m.Stamp)
}
