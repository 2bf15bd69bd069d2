package rediscounter

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/countbook"
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/store"
)

// mergeForAll adds the batches of counts that wait in the Redis stream of the group g to the counts. It does nothing if
// another client is doing this just now. It ignores errors, since a later call merges the stream.
func (b *backend) mergeForAll(ctx context.Context, g *group) {
	if mine, err := b.c.SetNX(ctx, g.merging(), 1, 10*time.Second).Result(); err != nil || !mine {
		return
	}
	_ = b.merge(ctx, g)
	b.c.Del(ctx, g.merging())
}

// merge adds all batches of counts that wait in the Redis stream of the group g to the counts of the group's
// partitions.
func (b *backend) merge(ctx context.Context, g *group) error {
	for n := perMerge; n == perMerge; {
		err := b.change(ctx, g, func(t *transaction) (err error) {
			n, err = t.merge(ctx)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// transaction is one change of the counts of a group of buckets, made by one Redis transaction.
type transaction struct {
	*group
	tx   *redis.Tx
	book *countbook.Book // the states that were loaded
	// hints has, for each partition whose counts were loaded, the hint (see function hint) that clients get at present.
	hints map[store.PartitionID]string
	// touched lists the partitions whose counts are to be written. also, if not nil, adds more commands to the
	// transaction that writes the counts.
	touched []store.PartitionID
	also    func(redis.Pipeliner)
}

// merge adds the first batches of counts in the Redis stream, at most perMerge, to the counts of their partitions. It
// returns the number of these batches; 0 means that the stream is empty.
func (t *transaction) merge(ctx context.Context) (n int, err error) {
	entries, err := t.tx.XRangeN(ctx, t.stream(), "-", "+", perMerge).Result()
	if err != nil || len(entries) == 0 {
		return 0, err
	}
	ids := make([]string, len(entries))
	batches, came := make([]counter.Batch, 0, len(entries)), make([]int64, 0, len(entries))
	written := map[store.Partition]int64{} // Unix milliseconds, by the clock of Redis
	for i, e := range entries {
		ids[i] = e.ID
		body, _ := e.Values[field].(string)
		var batch counter.Batch
		if err := batch.UnmarshalBinary([]byte(body)); err != nil {
			if store.KindOf(err) == store.InvalidArgument {
				return 0, err // a newer program wrote the batch, and will merge it
			}
			continue // a damaged batch counts as missing when its client's next batch comes
		}
		for k := range batch.Deltas {
			written[batch.Deltas[k].Partition] = millis(e.ID)
		}
		batches, came = append(batches, batch), append(came, millis(e.ID))
	}
	if err := t.load(ctx, batches, came); err != nil {
		return 0, err
	}
	for i := range batches {
		t.book.Apply(&batches[i], time.UnixMilli(came[i]))
	}
	t.also = func(p redis.Pipeliner) {
		p.XDel(ctx, t.stream(), ids...)
		t.note(ctx, p, written)
	}
	return len(entries), nil
}

// load reads from Redis the counts of the partitions that the given batches change. The sample of keys of a partition
// is read only if a batch changes the sample. `came` has the time at which each batch arrived, in Unix milliseconds.
func (t *transaction) load(ctx context.Context, batches []counter.Batch, came []int64) error {
	seen := map[store.PartitionID]bool{}
	for _, id := range t.book.Needs(batches) {
		if !seen[id] {
			seen[id] = true
			t.touched = append(t.touched, id)
		}
	}
	if err := t.summaries(ctx, t.touched); err != nil {
		return err
	}
	var whole []store.PartitionID
	for i := range batches {
		for k := range batches[i].Deltas {
			d := &batches[i].Deltas[k]
			// Apply takes no batch to be newer than the time at which the batch came, so this time is late enough.
			if s := t.book.States[d.Partition.ID]; s != nil && seen[d.Partition.ID] && s.Needs(d, time.UnixMilli(came[i])) {
				seen[d.Partition.ID] = false
				whole = append(whole, d.Partition.ID)
			}
		}
	}
	return t.samples(ctx, whole)
}

// pauses are the pauses before a Redis transaction that conflicted with another is tried again: from 1 ms, doubled with
// each conflict, to 64 ms, and random.
var pauses = wait.Backoff{First: time.Millisecond, Most: 64 * time.Millisecond, Jitter: 1}

// change runs one transaction on the counts of the group g, and repeats it after a conflict with another transaction.
// At each attempt it calls the function f with a book that has no counts of partitions. f loads the counts that it
// needs, changes them, and lists the changed partitions as touched. If f lists no partitions and adds no other
// commands, nothing is written.
func (b *backend) change(ctx context.Context, g *group, f func(t *transaction) error) error {
	for i := 0; ; i++ {
		err := b.c.Watch(ctx, func(tx *redis.Tx) error {
			book, err := openBook(tx.Get(ctx, g.head()))
			if err != nil {
				return err
			}
			t := &transaction{group: g, tx: tx, book: book, hints: map[store.PartitionID]string{}}
			if err := f(t); err != nil || len(t.touched) == 0 && t.also == nil {
				return err
			}
			_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error { return t.write(ctx, p) })
			return err
		}, g.head())
		if !errors.Is(err, redis.TxFailedErr) {
			return wrap("change the counts", err)
		}
		if i == attempts {
			return store.Errorf(store.Unavailable, "the transaction conflicted with others %d times: try again", attempts)
		}
		if err := pauses.Sleep(ctx, i+1); err != nil {
			return store.Wrap("change the counts", err)
		}
	}
}

// openBook decodes the head of the counts: everything but the counts of partitions. If the head is missing or damaged,
// the result is a new book. Its generation is random, so that estimates from before the loss are not trusted (Known is
// false).
func openBook(head *redis.StringCmd) (*countbook.Book, error) {
	data, err := head.Bytes()
	if err == nil {
		book, err := countbook.OpenBook(data)
		if store.KindOf(err) != store.Corrupt {
			return book, err
		}
	} else if !errors.Is(err, redis.Nil) {
		return nil, err
	}
	book := countbook.NewBook()
	book.Generation = 1 + rand.Uint64N(math.MaxUint64/2)
	return book, nil
}

// summaries reads the counts of the partitions with the given ids from Redis into the book, without their samples of
// keys. A partition whose counts are missing or damaged in Redis stays missing in the book.
func (t *transaction) summaries(ctx context.Context, ids []store.PartitionID) error {
	return t.values(ctx, ids, t.summary, func(id store.PartitionID, value string) error {
		s := countbook.NewState()
		if err := s.UnmarshalSummary([]byte(value)); err != nil {
			return newer(err)
		}
		t.book.States[id], t.hints[id] = s, hint(s, id)
		return nil
	})
}

// samples reads from Redis the samples of keys for partitions whose counts are in the book without them. If a sample is
// missing or damaged, all counts of the partition are dropped from the book.
func (t *transaction) samples(ctx context.Context, ids []store.PartitionID) error {
	err := t.values(ctx, ids, t.sample, func(id store.PartitionID, value string) error {
		return newer(t.book.States[id].UnmarshalSample([]byte(value)))
	})
	for _, id := range ids {
		if t.book.States[id].Lean() {
			delete(t.book.States, id)
		}
	}
	return err
}

// whole reads all counts of the partitions with the given ids from Redis into the book, including their samples of
// keys.
func (t *transaction) whole(ctx context.Context, ids ...store.PartitionID) error {
	if err := t.summaries(ctx, ids); err != nil {
		return err
	}
	there := make([]store.PartitionID, 0, len(ids))
	for _, id := range ids {
		if t.book.States[id] != nil {
			there = append(there, id)
		}
	}
	return t.samples(ctx, there)
}

// newer decides whether the error of decoding a value from Redis is an error for the caller. It returns err if a newer
// program wrote the value, which must not be overwritten. It returns nil for a damaged value, which the caller treats
// as missing.
func newer(err error) error {
	if store.KindOf(err) == store.InvalidArgument {
		return err
	}
	return nil
}

// values reads one value from Redis for each id of a partition, and calls f with each value that exists. The function
// `key` returns the Redis key for an id.
func (t *transaction) values(
	ctx context.Context, ids []store.PartitionID, key func(store.PartitionID) string,
	f func(id store.PartitionID, value string) error,
) error {
	for len(ids) > 0 {
		n := min(len(ids), perRead)
		keys := make([]string, n)
		for i, id := range ids[:n] {
			keys[i] = key(id)
		}
		values, err := t.tx.MGet(ctx, keys...).Result()
		if err != nil {
			return err
		}
		for i, id := range ids[:n] {
			if value, ok := values[i].(string); ok {
				if err := f(id, value); err != nil {
					return err
				}
			}
		}
		ids = ids[n:]
	}
	return nil
}

// hint encodes what clients are told about the partition with the given id, for a Redis hash: the limit of its sample
// of keys (8 bytes), followed by its highest key. s has the counts of the partition.
func hint(s *countbook.State, id store.PartitionID) string {
	h := s.Hint(id)
	return string(append(binary.BigEndian.AppendUint64(nil, h.Below), h.Top...))
}

// write adds commands to the Redis transaction p that store the changed counts of partitions and the head (everything
// but the counts of partitions). Counts that were read without their sample of keys are stored without it. Hints for
// clients are stored if they have changed.
func (t *transaction) write(ctx context.Context, p redis.Pipeliner) error {
	head, err := t.book.AppendHead(nil)
	if err != nil {
		return err
	}
	values, hints := []any{t.head(), head}, []any{}
	for _, id := range t.touched {
		s, ok := t.book.States[id]
		if !ok { // the state's batches were all merged before
			continue
		}
		summary, err := s.AppendSummary(nil)
		if err != nil {
			return err
		}
		values = append(values, t.summary(id), summary)
		if !s.Lean() {
			sample, err := s.AppendSample(nil)
			if err != nil {
				return err
			}
			values = append(values, t.sample(id), sample)
		}
		if h := hint(s, id); h != t.hints[id] {
			hints = append(hints, string(id[:]), h)
		}
	}
	p.MSet(ctx, values...)
	if len(hints) > 0 {
		p.HSet(ctx, t.group.hints(), hints...)
	}
	if t.also != nil {
		t.also(p)
	}
	return nil
}

// writtenFor is how long Redis remembers that a partition was written to, for the method Written.
const writtenFor = time.Hour

// millis returns the time at which an entry was added to a Redis stream, in Unix milliseconds by the clock of Redis.
// entry is the id of the entry, e.g. "1700000000000-0"; it begins with this time.
func millis(entry string) int64 {
	at, _, _ := strings.Cut(entry, "-")
	ms, _ := strconv.ParseInt(at, 10, 64)
	return ms
}

// note adds commands to the Redis transaction p that record when partitions were written to. `written` has these times,
// in Unix milliseconds. Records older than writtenFor (an hour) are dropped.
func (g *group) note(ctx context.Context, p redis.Pipeliner, written map[store.Partition]int64) {
	if len(written) == 0 {
		return
	}
	members, last := make([]redis.Z, 0, len(written)), int64(0)
	for x, ms := range written {
		members = append(members, redis.Z{Score: float64(ms), Member: string(storekit.AppendPartition(nil, x))})
		last = max(last, ms)
	}
	p.ZAdd(ctx, g.written(), members...)
	p.ZRemRangeByScore(ctx, g.written(), "-inf", "("+strconv.FormatInt(last-writtenFor.Milliseconds(), 10))
}
