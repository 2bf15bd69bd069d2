package listing

import (
	"bytes"
	"context"
	"time"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// Mark is a moment of a bucket, from which rows of another place may be read to be brought here. See Bring.
type Mark struct {
	id    store.BucketID
	epoch uint64
	at    store.Timestamp
	taken wait.Instant
	// settled is when the map's last change began, if nothing moves; first says that it was the making of the bucket.
	settled store.Timestamp
	first   bool
}

// At is the time of the mark. All writes to the bucket that were acknowledged before the call of Mark are older, all
// that begin after it are newer; in another data centre, all that begin after something there was told of the mark, or
// asked for a row because of it.
func (m Mark) At() store.Timestamp { return m.at }

// deletionsKept is how long every store remembers deletions in a partition that stays, with a large margin.
const deletionsKept = 24 * time.Hour

// Remembers reports whether all that was deleted in the bucket since a time hides older rows that are brought with the
// mark: for rows that were read before it. So it is if no range has moved since that time, or since the bucket was
// made, and this is less than a day ago: then the deletions are in the partitions to which Bring writes.
func (m Mark) Remembers(since store.Timestamp) bool {
	if m.settled == 0 || !m.first && m.settled >= since {
		return false
	}
	return m.at-max(m.settled, since) < store.Timestamp(deletionsKept.Microseconds())
}

// markAge is how long a mark may be used: far below the time for which any store remembers deletions.
const markAge = 5 * time.Minute

var sinceStart = wait.Instants(nil, nil)

// ErrMoved means that rows were not brought, as the bucket's map has changed since the mark, or the mark is too old:
// take another one, read the other place again, and bring that.
var ErrMoved = store.Errorf(store.Conflict,
	"the bucket's map has changed since the rows were read, or that is long ago")

// Mark returns the present moment. It fails like Put.
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

// Bring writes rows that were read at another place after the mark was taken, or written there before a time that the
// mark remembers: entries with their own timestamps, and
// deletions (a nil Value). A timestamp that is missing (0) or above the mark's becomes the mark's. Keys ascend, each
// once.
//
// The other place is the older one: whoever writes to both writes there first, and here when that is acknowledged. Then
// a write here that is newer than what was read there begins after the mark: it has a higher timestamp, and a delete
// goes to the partition to which this call writes, as the map has not changed. So the newer one wins, whatever comes
// first. With a map that has changed, a put that is older than a delete could reach a partition that never saw it.
//
// The call is neither atomic nor isolated. It fails with ErrMoved, or like Put; then some rows may be written. All may
// be brought again, with any mark.
func (b *Bucket) Bring(ctx context.Context, m Mark, rows []store.Row) error {
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

// bringFirst brings as many of the first rows as fit in one batch for one partition: entries, or a deletion.
func (b *Bucket) bringFirst(ctx context.Context, m Mark, rows []store.Row) (n int, err error) {
	h, rg, err := b.locate(ctx, rows[0].Key)
	if err != nil {
		return 0, err
	}
	defer func() { err = h.leave(err) }()
	// The lease under which the write is sent is one on the map of the mark.
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
	for i := range batch { // of memory of its own, as the write may outlive the call
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

// stamp is the timestamp of a row that was written at another place at ts.
func (m Mark) stamp(ts store.Timestamp) store.Timestamp {
	if ts <= 0 {
		return m.at
	}
	return min(ts, m.at)
}
