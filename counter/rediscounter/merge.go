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
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// mergeForAll merges the stream of a group, one client at a time. Its success is not required.
func (b *Backend) mergeForAll(ctx context.Context, g *group) {
	if mine, err := b.c.SetNX(ctx, g.merging(), 1, 10*time.Second).Result(); err != nil || !mine {
		return
	}
	_ = b.merge(ctx, g)
	b.c.Del(ctx, g.merging())
}

// merge applies all batches of a group's stream to its states.
func (b *Backend) merge(ctx context.Context, g *group) error {
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

// transaction is a change of the states of a group.
type transaction struct {
	*group
	tx   *redis.Tx
	book *counter.Book // with the states that were loaded
	// hints are those that clients have been given about these.
	hints map[store.PartitionID]string
	// touched are the states to be written, and also what else is to be done with them.
	touched []store.PartitionID
	also    func(redis.Pipeliner)
}

// merge applies the first batches of the stream, and returns their number.
func (t *transaction) merge(ctx context.Context) (n int, err error) {
	entries, err := t.tx.XRangeN(ctx, t.stream(), "-", "+", perMerge).Result()
	if err != nil || len(entries) == 0 {
		return 0, err
	}
	ids := make([]string, len(entries))
	batches, came := make([]counter.Batch, 0, len(entries)), make([]int64, 0, len(entries))
	written := map[store.Partition]int64{} // when, by the clock of Redis
	for i, e := range entries {
		ids[i] = e.ID
		body, _ := e.Values[field].(string)
		var batch counter.Batch
		if err := batch.UnmarshalBinary([]byte(body)); err != nil {
			if store.KindOf(err) == store.InvalidArgument {
				return 0, err // from a newer program, which will merge it
			}
			continue // if it was a batch, it is missing before the next one of its client
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

// load reads the states that batches change: their samples only where they need them.
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
			// The backend's clock is not behind what the batch is taken to be.
			if s := t.book.States[d.Partition.ID]; s != nil && seen[d.Partition.ID] && s.Needs(d, time.UnixMilli(came[i])) {
				seen[d.Partition.ID] = false
				whole = append(whole, d.Partition.ID)
			}
		}
	}
	return t.samples(ctx, whole)
}

// pauses are those before a transaction that conflicted with another one is repeated.
var pauses = wait.Backoff{First: time.Millisecond, Most: 64 * time.Millisecond, Jitter: 1}

// change runs one transaction on the head of a group. f gets a book without states, and loads
// those that it changes. If it touches none and has nothing else to do, nothing is written.
func (b *Backend) change(ctx context.Context, g *group, f func(t *transaction) error) error {
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

// openBook decodes a head. Where there is none, or it is damaged, it returns a new book, with a
// random generation, so that states which are older than the loss count as unknown.
func openBook(head *redis.StringCmd) (*counter.Book, error) {
	data, err := head.Bytes()
	if err == nil {
		book, err := counter.OpenBook(data)
		if store.KindOf(err) != store.Corrupt {
			return book, err
		}
	} else if !errors.Is(err, redis.Nil) {
		return nil, err
	}
	book := counter.NewBook()
	book.Generation = 1 + rand.Uint64N(math.MaxUint64/2)
	return book, nil
}

// summaries reads the states of partitions into the book, lean ones. A damaged one counts as
// missing.
func (t *transaction) summaries(ctx context.Context, ids []store.PartitionID) error {
	return t.values(ctx, ids, t.summary, func(id store.PartitionID, value string) error {
		s := counter.NewState()
		if err := s.UnmarshalSummary([]byte(value)); err != nil {
			return newer(err)
		}
		t.book.States[id], t.hints[id] = s, hint(s, id)
		return nil
	})
}

// samples reads the rest of states. Without it they count as missing.
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

// whole reads the states of partitions.
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

// newer returns the error of what a newer program wrote: what is damaged counts as missing.
func newer(err error) error {
	if store.KindOf(err) == store.InvalidArgument {
		return err
	}
	return nil
}

// values reads the values of keys, and calls f for those that exist.
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

// hint is what the hints have about a partition.
func hint(s *counter.State, id store.PartitionID) string {
	h := s.Hint(id)
	return string(append(binary.BigEndian.AppendUint64(nil, h.Below), h.Top...))
}

// write adds the head and the states that were touched to a transaction: of lean ones what there
// is of them, and hints where they have changed.
func (t *transaction) write(ctx context.Context, p redis.Pipeliner) error {
	head, err := t.book.AppendHead(nil)
	if err != nil {
		return err
	}
	values, hints := []any{t.head(), head}, []any{}
	for _, id := range t.touched {
		s, ok := t.book.States[id]
		if !ok { // all its batches had been merged before
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

// writtenFor is how long Redis remembers that a partition was written to.
const writtenFor = time.Hour

// millis returns the time of an entry of a stream, by the clock of Redis; its id begins with it.
func millis(entry string) int64 {
	at, _, _ := strings.Cut(entry, "-")
	ms, _ := strconv.ParseInt(at, 10, 64)
	return ms
}

// note stores when partitions were written to.
func (g *group) note(ctx context.Context, p redis.Pipeliner, written map[store.Partition]int64) {
	if len(written) == 0 {
		return
	}
	members, last := make([]redis.Z, 0, len(written)), int64(0)
	for x, ms := range written {
		members = append(members, redis.Z{Score: float64(ms), Member: string(x.AppendTo(nil))})
		last = max(last, ms)
	}
	p.ZAdd(ctx, g.written(), members...)
	p.ZRemRangeByScore(ctx, g.written(), "-inf", "("+strconv.FormatInt(last-writtenFor.Milliseconds(), 10))
}
