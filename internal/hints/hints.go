// Package hints stores hints, which are keys of objects in which a cleaner may find something to delete. With hints the
// cleaner need not read all rows of a bucket to find these objects. A hint proves nothing: the cleaner reads the object
// itself. If a hint is lost, the object is found later, when a cleaner reads all rows. An unnecessary hint costs one
// read.
package hints

import (
	"context"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/shard"
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/internal/wire"
	"github.com/evenkeel/evenkeel/store"
)

// Bucket is the bucket ID under which hints are stored. A hint is the key of an object that a cleaner should look at.
// Each partition has the hints that are due in the same 15 minutes, for one group of buckets. No real bucket has this
// ID.
var Bucket = store.BucketID{'e', 'v', 'e', 'n', 'k', 'e', 'e', 'l', ' ', 'h', 'i', 'n', 't', 's', ' ', ' '}

// slot is the length of the intervals of time into which hints are sorted. Hints (keys of objects for a cleaner to look
// at) that are due in the same interval are stored together, and are read once the interval is over.
const slot = 15 * time.Minute

const (
	// writeEvery is how long hints stay in memory before they are written together. Hints are written earlier once
	// their number reaches soon.
	writeEvery = 5 * time.Second
	soon       = 4096
	// mostKeys and mostKeyBytes are the largest number of hints in memory, and the largest length of their keys in
	// bytes. Further hints are dropped.
	mostKeys     = 1 << 17
	mostKeyBytes = 16 << 20
	// mostRowBytes is the size in bytes at which a row takes no further keys. mostBatchRows is the largest number of
	// groups of hints that are written in one call.
	mostRowBytes  = 32 << 10
	mostBatchRows = 64
	// mostWriting is the longest time of a Flush. It is shorter than late, since a Flush chooses the intervals of time
	// for its hints at its beginning. lastWrite is the longest time of the last Flush of a process.
	mostWriting = time.Minute
	lastWrite   = 5 * time.Second

	form = 1
)

// group identifies hints that may be stored in one row. A hint is the key of an object that a cleaner should look at.
// The hints of a group are for objects of one bucket, and are due in the same 15 minutes.
type group struct {
	bucket store.BucketID
	slot   int64
}

// Journal stores hints. A hint is the key of an object in which a cleaner may find something to delete. A Journal
// collects hints in memory, and writes them to the store some seconds later. It is safe for concurrent use.
type Journal struct {
	rows store.Rows
	log  *slog.Logger
	stop context.CancelFunc
	work sync.WaitGroup
	some chan struct{} // signals that there are hints to be written
	full chan struct{} // signals that there are many, to be written at once

	writing sync.Mutex // held by a Flush, so that there is one at a time

	mu          sync.Mutex
	pending     map[group][]string
	keys, bytes int
	counts      Counts
}

// Counts are the numbers of hints since the process began. A hint is the key of an object that a cleaner should look
// at. Written hints are in the store. Dropped hints are lost, because too many hints were in memory.
type Counts struct{ Written, Dropped int64 }

// New returns a Journal, which writes hints into the given rows of a store until Close is called. A hint is the key of
// an object that a cleaner should look at. log gets a line if hints can't be written.
func New(rows store.Rows, log *slog.Logger) *Journal {
	ctx, stop := context.WithCancel(context.Background())
	j := &Journal{
		rows: rows, log: log, stop: stop, some: make(chan struct{}, 1), full: make(chan struct{}, 1),
		pending: map[group][]string{},
	}
	j.work.Go(func() { j.run(ctx) })
	return j
}

// Note adds a hint, which says that a cleaner may find something to delete in the object key of the bucket. The
// parameter `after` is the time from now until then. Note does no I/O, and keeps no reference to key. If too many hints
// are in memory, Note drops the hint.
func (j *Journal) Note(bucket store.BucketID, key []byte, after time.Duration) {
	g := group{bucket, slotOf(time.Now().Add(after))}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.keys >= mostKeys || j.bytes+len(key) > mostKeyBytes {
		j.counts.Dropped++
		return
	}
	if len(j.pending) == 0 {
		wait.Signal(j.some)
	}
	j.pending[g] = append(j.pending[g], string(key))
	j.bytes += len(key)
	if j.keys++; j.keys >= soon {
		wait.Signal(j.full)
	}
}

// Counts returns the numbers of hints that were written to the store, and that were dropped, since the process began.
func (j *Journal) Counts() Counts {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.counts
}

func (j *Journal) run(ctx context.Context) {
	failed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-j.some:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(writeEvery):
		case <-j.full:
		}
		err := j.Flush(ctx)
		if err != nil && !failed && ctx.Err() == nil {
			j.log.Warn("hints for the cleaner can't be written; they are kept for a while", "error", err)
		}
		if failed = err != nil; failed {
			wait.Signal(j.some)
			_ = wait.Sleep(ctx, writeEvery)
		}
	}
}

// Close ends the journal. It first tries for some seconds to write the hints that are still in memory.
func (j *Journal) Close() {
	j.stop()
	j.work.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), lastWrite)
	defer cancel()
	if err := j.Flush(ctx); err != nil {
		j.log.Info("hints for the cleaner are lost; a round over all rows will find the objects", "error", err)
	}
}

// Flush writes all hints that were added by Note before the call, and returns once the hints are stored. If Flush
// fails, the hints that were not written stay in memory.
func (j *Journal) Flush(ctx context.Context) error {
	j.writing.Lock()
	defer j.writing.Unlock()
	j.mu.Lock()
	pending := j.pending
	j.pending = map[group][]string{}
	j.mu.Unlock()
	batches := map[store.Partition][]group{}
	now := time.Now()
	for g := range pending {
		// A hint that could not be written for a while goes into the present slot, since readers are done with older
		// slots.
		p := partition(shard.Of(g.bucket), max(g.slot, slotOf(now)))
		batches[p] = append(batches[p], g)
	}
	ctx, cancel := context.WithTimeout(storekit.MakingRoom(ctx), mostWriting) // cleaning makes room, and needs hints
	defer cancel()
	var first error
	for p, groups := range batches {
		for part := range slices.Chunk(groups, mostBatchRows) {
			if first == nil {
				first = j.write(ctx, p, part, pending, now)
			}
			j.written(part, pending, first == nil)
		}
	}
	return first
}

// write writes the hints of the given groups into the partition p, as rows. A hint is the key of an object that a
// cleaner should look at. pending has the hints of each group. The parameter `now` is the time of the write.
func (j *Journal) write(
	ctx context.Context, p store.Partition, groups []group, pending map[group][]string, now time.Time,
) error {
	var rows []store.Row
	size := 0
	put := func() (err error) {
		if len(rows) > 0 {
			err = j.rows.Put(ctx, p, rows...)
		}
		rows, size = rows[:0], 0
		return err
	}
	for _, g := range groups {
		keys := slices.Clone(pending[g])
		slices.Sort(keys)
		for keys = slices.Compact(keys); len(keys) > 0; {
			var value []byte
			value, keys = encode(g.bucket, keys)
			key := binary.BigEndian.AppendUint64(nil, uint64(now.UnixMicro())) //nolint:gosec // positive
			key = binary.BigEndian.AppendUint64(key, rand.Uint64())
			rows = append(rows, store.Row{Key: key, Value: value, Timestamp: store.Timestamp(now.UnixMicro())})
			if size += len(value); size >= mostRowBytes {
				if err := put(); err != nil {
					return err
				}
			}
		}
	}
	return put()
}

// written ends the writing of the hints of the given groups. If ok is true, the hints are stored: written counts them,
// and frees their room in memory. If ok is false, it puts the hints back to be written later. A hint is the key of an
// object; pending has the hints of each group.
func (j *Journal) written(groups []group, pending map[group][]string, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, g := range groups {
		keys := pending[g]
		if !ok {
			j.pending[g] = append(j.pending[g], keys...)
			continue
		}
		j.keys -= len(keys)
		for _, key := range keys {
			j.bytes -= len(key)
		}
		j.counts.Written += int64(len(keys))
	}
}

func slotOf(at time.Time) int64 { return at.UnixMicro() / slot.Microseconds() }

// partition returns the partition in which hints are stored. A hint is the key of an object that a cleaner should look
// at. slot is the number of the interval of 15 minutes in which the hints are due. n is the number of the shard, one of
// the groups into which buckets are divided.
func partition(n int, slot int64) store.Partition {
	p := store.Partition{Bucket: Bucket}
	p.ID[0] = byte(n)
	binary.BigEndian.PutUint64(p.ID[8:], uint64(slot)) //nolint:gosec // positive
	return p
}

// encode returns the value of a row of hints for objects of one bucket. keys are the keys of the objects, in ascending
// order; rest has those for which the row has no more room. The value consists of a version of the format, the bucket,
// and the keys. Each key is encoded as the number of first bytes that it shares with the previous key, and its other
// bytes.
func encode(bucket store.BucketID, keys []string) (value []byte, rest []string) {
	value = append(store.EntryCell([]byte{form}), bucket[:]...)
	last := ""
	for i, key := range keys {
		if len(value) >= mostRowBytes {
			return value, keys[i:]
		}
		same := 0
		for same < min(len(last), len(key)) && last[same] == key[same] {
			same++
		}
		value = wire.AppendString(binary.AppendUvarint(value, uint64(same)), key[same:])
		last = key
	}
	return value, nil
}

// decode returns the bucket and the keys of the objects in a row of hints. The result ok is false if the row has
// another form than encode writes, e.g. that of a newer program.
func decode(cell []byte) (bucket store.BucketID, keys []string, ok bool) {
	value, _, err := store.EntryValue(cell)
	if err != nil || len(value) <= len(bucket) || value[0] != form {
		return bucket, nil, false
	}
	d := wire.Shortest{Of: value[1+copy(bucket[:], value[1:]):]}
	last := ""
	for len(d.Rest()) > 0 {
		same := d.Uint()
		rest := d.String(store.MaxKeyBytes)
		if d.Bad || same > uint64(len(last)) {
			return bucket, nil, false
		}
		last = last[:same] + rest
		keys = append(keys, last)
	}
	return bucket, keys, true
}

// Row is a row of hints that Due has read: a bucket, and the keys of objects in the bucket that a cleaner should look
// at.
type Row struct {
	Bucket store.BucketID
	Keys   []string // ascending

	in  store.Partition
	key []byte
	at  store.Timestamp
}

// Position says how far a reader has read the hints for one shard, which is one of the groups into which buckets are
// divided. The zero Position is before the first hint.
type Position struct {
	Slot  int64  `json:"slot"`
	after []byte // the last key of a row that was read in the slot
}

// Time returns the time up to which a reader at this position has read all hints.
func (p Position) Time() time.Time { return time.UnixMicro(p.Slot * slot.Microseconds()) }

const (
	// oldest is how long before now a reader of hints begins if the position of the last reader is not known. It is
	// longer than the time from adding a hint until the hint is due.
	oldest = 20 * 24 * time.Hour
	// late is how long after the end of an interval of time hints may still be written for this interval. It is longer
	// than a Flush takes, and longer than the difference between the clocks of processes.
	late = 5 * time.Minute
)

// Due returns rows of hints for a cleaner: those that are due and come after the position from. It also returns the
// position after these rows, for the next call. If there are no rows, no more hints are due. Rows in a form that this
// program does not know are skipped. The other parameters are:
//   - n: the number of the shard, which is a group of buckets
//   - most: the number of keys after which Due ends. It also ends after mostKeyBytes bytes of keys. The last row may
//     exceed these limits.
//
// If from is in the future, a clock was wrong, and Due begins again at the oldest hints. Due reads through a quorum of
// each data centre, and fails like Rows.Slice while a data centre is away.
func (j *Journal) Due(ctx context.Context, n int, from Position, most int) (rows []Row, _ Position, err error) {
	now, all := time.Now(), storekit.Everywhere(j.rows)
	if first := slotOf(now.Add(-oldest)); from.Slot < first || from.Slot > slotOf(now)+1 {
		from = Position{Slot: first}
	}
	size := 0
	for keys := 0; keys < most && size < mostKeyBytes && from.Slot < slotOf(now.Add(-late)); {
		p := partition(n, from.Slot)
		b := store.Bounds{Start: from.after, StartExclusive: true}
		page, err := all.Slice(ctx, p, b, store.SliceOptions{Limit: 100, Timestamps: true})
		if err != nil {
			return nil, from, store.Wrap("read hints for the cleaner", err)
		}
		for _, r := range page.Rows {
			from.after = slices.Clone(r.Key)
			if bucket, list, ok := decode(r.Value); ok {
				rows = append(rows, Row{Bucket: bucket, Keys: list, in: p, key: from.after, at: r.Timestamp})
				keys += len(list)
				for _, key := range list {
					size += len(key)
				}
			}
			if keys >= most || size >= mostKeyBytes { // as stored, keys take far less
				return rows, from, nil
			}
		}
		if !page.More {
			from = Position{Slot: from.Slot + 1}
		}
	}
	return rows, from, nil
}

// Forget deletes a row of hints that Due has returned, once a cleaner has looked at the objects whose keys are in the
// row. It deletes no other row.
func (j *Journal) Forget(ctx context.Context, r *Row) error {
	return store.Wrap("delete a hint for the cleaner",
		storekit.Everywhere(j.rows).Delete(storekit.MakingRoom(ctx), r.in, r.key, r.at))
}
