// Package rediscounter keeps counts in Redis, for any number of clients.
//
// A client appends its batches to a stream. A call of Stats first merges the stream into the
// states: it watches the head, applies the batches of the stream to the states concerned, and
// in one transaction replaces the head and the states and drops the merged part of the stream.
// The transaction fails if another merge changed the head meanwhile. The head has the last
// batch of each client, so a batch that is there twice, or comes again, counts once. Where Stats
// is not called, clients merge the stream when it becomes long.
//
// All keys have one hash tag, so that they are on one node of a Redis cluster.
package rediscounter

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// Options say where Redis is. Addr is required.
type Options struct {
	// Addr is host:port.
	Addr string
	// Username, Password and DB are as for redis-cli.
	Username, Password string
	DB                 int
	// TLS encrypts the connection; nil disables encryption.
	TLS *tls.Config
	// Prefix is the prefix of all keys, default "evenkeel".
	Prefix string
	// Timeout bounds connecting, and each read and write, default 2 s.
	Timeout time.Duration

	now func() time.Time // for tests
}

// ParseURL reads options from redis://user:password@host:port/db, or rediss:// for
// TLS; prefix=NAME may follow as a parameter. It fails with InvalidArgument.
func ParseURL(s string) (Options, error) {
	u, err := url.Parse(s)
	if err != nil {
		// Its message would repeat the password.
		return Options{}, store.Errorf(store.InvalidArgument, "that is no URL: give redis://host:6379/0")
	}
	prefix := u.Query().Get("prefix")
	q := u.Query()
	q.Del("prefix")
	u.RawQuery = q.Encode()
	o, err := redis.ParseURL(u.String())
	if err != nil {
		// Its message may repeat a part of a password that is not escaped.
		return Options{}, store.Errorf(store.InvalidArgument,
			"that is no URL of a Redis: give redis://host:6379/0, with %%2F for a slash in a password")
	}
	if strings.ContainsAny(prefix, "{}") {
		return Options{}, store.Errorf(store.InvalidArgument, "the prefix %q has braces in it", prefix)
	}
	return Options{
		Addr: o.Addr, Username: o.Username, Password: o.Password, DB: o.DB, TLS: o.TLSConfig, Prefix: prefix,
	}, nil
}

// Backend is a counter.Backend in Redis. Several may use the same data.
type Backend struct {
	c      *redis.Client
	o      Options
	closed atomic.Bool
	length atomic.Int64 // of the stream, when last read
	// mergeAt is the length of the stream, in batches, at which clients merge it; at ten
	// times that they append no more.
	mergeAt int64
}

// The client's messages only repeat its errors.
func init() { redis.SetLogger(silent{}) }

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

const (
	field = "b" // of a stream's entry: the batch
	// perMerge is how many batches are merged in one transaction.
	perMerge = 64
	// attempts bounds the attempts at a transaction that conflicts with others.
	attempts = 20
	// perRead is how many states one command reads.
	perRead = 1000
)

// Open prepares a backend. It sends nothing, so that programs can start while Redis can't be
// reached.
func Open(o Options) (*Backend, error) {
	if o.Addr == "" {
		return nil, store.Errorf(store.InvalidArgument, "the address of Redis is missing: give host:port")
	}
	o.Prefix = cmp.Or(o.Prefix, "evenkeel")
	if o.Timeout <= 0 {
		o.Timeout = 2 * time.Second
	}
	if o.now == nil {
		o.now = time.Now
	}
	c := redis.NewClient(&redis.Options{
		Addr: o.Addr, Username: o.Username, Password: o.Password, DB: o.DB, TLSConfig: o.TLS,
		DialTimeout: o.Timeout, ReadTimeout: o.Timeout, WriteTimeout: o.Timeout, ContextTimeoutEnabled: true,
		// A Recorder retries each second; a merge is repeated as a whole.
		MaxRetries:               -1,
		DialerRetries:            1,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	return &Backend{c: c, o: o, mergeAt: 1000}, nil
}

func (b *Backend) key(name string) string { return "{" + b.o.Prefix + "}:" + name }
func (b *Backend) stream() string         { return b.key("batches") }
func (b *Backend) head() string           { return b.key("head") }
func (b *Backend) hints() string          { return b.key("hints") }
func (b *Backend) merging() string        { return b.key("merging") }
func (b *Backend) written() string        { return b.key("written") }

func (b *Backend) summary(p store.PartitionID) string { return b.key("s:" + string(p[:])) }
func (b *Backend) sample(p store.PartitionID) string  { return b.key("k:" + string(p[:])) }

// Flush implements counter.Backend.
func (b *Backend) Flush(ctx context.Context, batch *counter.Batch) ([]counter.Hint, error) {
	if err := b.ready(); err != nil {
		return nil, err
	}
	if b.length.Load() > 10*b.mergeAt {
		n, err := b.c.XLen(ctx, b.stream()).Result()
		if err != nil {
			return nil, wrap("flush", err)
		}
		if b.length.Store(n); n > 10*b.mergeAt {
			b.mergeForAll(ctx)
			return nil, store.Errorf(store.Unavailable, "%d batches of counts wait in Redis and can't be merged", n)
		}
	}
	body, err := batch.AppendBinary(nil)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(batch.Deltas))
	for i := range batch.Deltas {
		ids[i] = string(batch.Deltas[i].Partition.ID[:])
	}
	pipe := b.c.Pipeline()
	pipe.XAdd(ctx, &redis.XAddArgs{Stream: b.stream(), Values: []any{field, body}})
	length := pipe.XLen(ctx, b.stream())
	var known *redis.SliceCmd
	if len(ids) > 0 {
		known = pipe.HMGet(ctx, b.hints(), ids...)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, wrap("flush", err)
	}
	if b.length.Store(length.Val()); length.Val() > b.mergeAt {
		b.mergeForAll(ctx)
	}
	if known == nil {
		return nil, nil
	}
	hints := make([]counter.Hint, 0, len(ids))
	for i, v := range known.Val() {
		if s, ok := v.(string); ok && len(s) >= 8 {
			hints = append(hints, counter.Hint{
				Partition: batch.Deltas[i].Partition.ID,
				Below:     binary.BigEndian.Uint64([]byte(s[:8])), Top: []byte(s[8:]),
			})
		}
	}
	return hints, nil
}

// mergeForAll merges the stream, one client at a time. Its success is not required.
func (b *Backend) mergeForAll(ctx context.Context) {
	if mine, err := b.c.SetNX(ctx, b.merging(), 1, 10*time.Second).Result(); err != nil || !mine {
		return
	}
	_ = b.merge(ctx)
	b.c.Del(ctx, b.merging())
}

// merge applies all batches of the stream to the states.
func (b *Backend) merge(ctx context.Context) error {
	for {
		var n int
		err := b.change(
			ctx,
			func(tx *redis.Tx, book *counter.Book) (touched []store.PartitionID, also func(redis.Pipeliner), err error) {
				entries, err := tx.XRangeN(ctx, b.stream(), "-", "+", perMerge).Result()
				if n = len(entries); err != nil || n == 0 {
					return nil, nil, err
				}
				batches := make([]counter.Batch, 0, n)
				ids := make([]string, 0, n)
				seen := map[store.PartitionID]bool{}
				written := map[store.Partition]int64{} // when, by the clock of Redis
				for _, e := range entries {
					ids = append(ids, e.ID)
					body, _ := e.Values[field].(string)
					var batch counter.Batch
					if err := batch.UnmarshalBinary([]byte(body)); err != nil {
						if store.KindOf(err) == store.InvalidArgument {
							return nil, nil, err // from a newer program, which will merge it
						}
						// Not a batch: all counts are unknown.
						book.Generation++
						continue
					}
					for i := range batch.Deltas {
						p := batch.Deltas[i].Partition
						if !seen[p.ID] {
							seen[p.ID] = true
							touched = append(touched, p.ID)
						}
						written[p] = millis(e.ID)
					}
					batches = append(batches, batch)
				}
				if err := b.load(ctx, tx, book, touched); err != nil {
					return nil, nil, err
				}
				for i := range batches {
					book.Apply(&batches[i])
				}
				return touched, func(p redis.Pipeliner) {
					p.XDel(ctx, b.stream(), ids...)
					b.note(ctx, p, written)
				}, nil
			},
		)
		if err != nil || n < perMerge {
			return err
		}
	}
}

// pauses are those before a transaction that conflicted with another one is repeated.
var pauses = wait.Backoff{First: time.Millisecond, Most: 64 * time.Millisecond, Jitter: 1}

// change runs one transaction on the head. f gets a book without states, and returns the states
// that it changed and further commands of the transaction. Without either nothing is written.
func (b *Backend) change(
	ctx context.Context, f func(tx *redis.Tx, book *counter.Book) ([]store.PartitionID, func(redis.Pipeliner), error),
) error {
	for i := 0; ; i++ {
		err := b.c.Watch(ctx, func(tx *redis.Tx) error {
			book, err := openBook(tx.Get(ctx, b.head()))
			if err != nil {
				return err
			}
			touched, also, err := f(tx, book)
			if err != nil || len(touched) == 0 && also == nil {
				return err
			}
			_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error { return b.write(ctx, p, book, touched, also) })
			return err
		}, b.head())
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

// load reads the states of partitions into a book. A damaged state counts as missing.
func (b *Backend) load(ctx context.Context, c redis.Cmdable, book *counter.Book, ids []store.PartitionID) error {
	for len(ids) > 0 {
		n := min(len(ids), perRead/2)
		keys := make([]string, 0, 2*n)
		for _, id := range ids[:n] {
			keys = append(keys, b.summary(id), b.sample(id))
		}
		values, err := c.MGet(ctx, keys...).Result()
		if err != nil {
			return err
		}
		for i, id := range ids[:n] {
			summary, ok := values[2*i].(string)
			if !ok {
				continue
			}
			sample, _ := values[2*i+1].(string)
			s := counter.NewState()
			err := s.UnmarshalSummary([]byte(summary))
			if err == nil {
				err = s.UnmarshalSample([]byte(sample))
			}
			switch store.KindOf(err) {
			case store.Other:
				book.States[id] = s
			case store.InvalidArgument:
				return err
			}
		}
		ids = ids[n:]
	}
	return nil
}

// write adds the head and the states of partitions to a transaction.
func (b *Backend) write(
	ctx context.Context, p redis.Pipeliner, book *counter.Book, touched []store.PartitionID, also func(redis.Pipeliner),
) error {
	head, err := book.AppendHead(nil)
	if err != nil {
		return err
	}
	p.Set(ctx, b.head(), head, 0)
	for _, id := range touched {
		s, ok := book.States[id]
		if !ok { // all its batches had been merged before
			continue
		}
		summary, err := s.AppendSummary(nil)
		if err != nil {
			return err
		}
		sample, err := s.AppendSample(nil)
		if err != nil {
			return err
		}
		p.Set(ctx, b.summary(id), summary, 0)
		p.Set(ctx, b.sample(id), sample, 0)
		h := s.Hint(id)
		p.HSet(ctx, b.hints(), string(id[:]), append(binary.BigEndian.AppendUint64(nil, h.Below), h.Top...))
	}
	if also != nil {
		also(p)
	}
	return nil
}

// Stats implements counter.Source. It merges the stream first.
func (b *Backend) Stats(ctx context.Context, partitions []store.Partition) ([]counter.Stats, error) {
	if err := b.ready(); err != nil {
		return nil, err
	}
	if err := b.merge(ctx); err != nil {
		return nil, err
	}
	now := b.o.now()
	all := make([]counter.Stats, 0, len(partitions))
	for len(all) < len(partitions) {
		part := partitions[len(all):min(len(all)+perRead, len(partitions))]
		got, err := b.stats(ctx, part, now)
		if err != nil {
			return nil, err
		}
		all = append(all, got...)
	}
	return all, nil
}

func (b *Backend) stats(ctx context.Context, partitions []store.Partition, now time.Time) ([]counter.Stats, error) {
	keys := make([]string, len(partitions))
	for i, p := range partitions {
		keys[i] = b.summary(p.ID)
	}
	pipe := b.c.TxPipeline() // head and states of one moment
	head, values := pipe.Get(ctx, b.head()), pipe.MGet(ctx, keys...)
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, wrap("stats", err)
	}
	book, err := openBook(head)
	if err != nil {
		return nil, wrap("stats", err)
	}
	for i, p := range partitions {
		if summary, ok := values.Val()[i].(string); ok {
			s := counter.NewState()
			if err := s.UnmarshalSummary([]byte(summary)); err == nil {
				book.States[p.ID] = s
			} else if store.KindOf(err) == store.InvalidArgument {
				return nil, err
			}
		}
	}
	return book.Stats(partitions, now), nil
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
func (b *Backend) note(ctx context.Context, p redis.Pipeliner, written map[store.Partition]int64) {
	if len(written) == 0 {
		return
	}
	members, last := make([]redis.Z, 0, len(written)), int64(0)
	for x, ms := range written {
		members = append(members, redis.Z{Score: float64(ms), Member: string(x.AppendTo(nil))})
		last = max(last, ms)
	}
	p.ZAdd(ctx, b.written(), members...)
	p.ZRemRangeByScore(ctx, b.written(), "-inf", "("+strconv.FormatInt(last-writtenFor.Milliseconds(), 10))
}

// Written implements counter.Backend. Marks are times of the clock of Redis, so each of any
// number of callers gets all partitions of the last hour.
func (b *Backend) Written(ctx context.Context, mark uint64) ([]store.Partition, uint64, error) {
	if err := b.ready(); err != nil {
		return nil, mark, err
	}
	if err := b.merge(ctx); err != nil {
		return nil, mark, err
	}
	// From the mark's own millisecond on: it may not have been over.
	since := &redis.ZRangeBy{Min: strconv.FormatUint(mark, 10), Max: "+inf"}
	got, err := b.c.ZRangeByScoreWithScores(ctx, b.written(), since).Result()
	if err != nil {
		return nil, mark, wrap("read what was written", err)
	}
	out := make([]store.Partition, 0, len(got))
	for _, z := range got {
		name, _ := z.Member.(string)
		if len(name) != store.PartitionBytes {
			continue
		}
		out = append(out, store.PartitionAt(name))
		mark = max(mark, uint64(z.Score))
	}
	return out, mark, nil
}

// Quanta implements counter.Source.
func (b *Backend) Quanta(ctx context.Context, p store.Partition) ([]counter.Quantum, error) {
	if err := b.ready(); err != nil {
		return nil, err
	}
	book := counter.NewBook()
	if err := b.load(ctx, b.c, book, []store.PartitionID{p.ID}); err != nil {
		return nil, wrap("quanta", err)
	}
	if s, ok := book.States[p.ID]; ok {
		return s.Quanta(), nil
	}
	return nil, nil
}

// Correct implements counter.Backend.
func (b *Backend) Correct(ctx context.Context, p store.Partition, c *counter.Count) error {
	if err := b.ready(); err != nil {
		return err
	}
	if err := b.merge(ctx); err != nil { // what was written before the recount
		return err
	}
	return b.change(ctx, func(tx *redis.Tx, book *counter.Book) ([]store.PartitionID, func(redis.Pipeliner), error) {
		ids := []store.PartitionID{p.ID}
		if err := b.load(ctx, tx, book, ids); err != nil {
			return nil, nil, err
		}
		book.State(p).Correct(c, book.Generation)
		return ids, nil, nil
	})
}

// Forget implements counter.Backend.
func (b *Backend) Forget(ctx context.Context, partitions ...store.Partition) error {
	if err := b.ready(); err != nil {
		return err
	}
	if len(partitions) == 0 {
		return nil
	}
	var keys, ids []string
	var members []any
	for _, p := range partitions {
		members = append(members, string(p.AppendTo(nil)))
		keys = append(keys, b.summary(p.ID), b.sample(p.ID))
		ids = append(ids, string(p.ID[:]))
	}
	return b.change(ctx, func(*redis.Tx, *counter.Book) ([]store.PartitionID, func(redis.Pipeliner), error) {
		return nil, func(p redis.Pipeliner) {
			p.Unlink(ctx, keys...)
			p.HDel(ctx, b.hints(), ids...)
			p.ZRem(ctx, b.written(), members...)
		}, nil
	})
}

// Close implements counter.Backend.
func (b *Backend) Close() error {
	if b.closed.Swap(true) {
		return nil
	}
	return b.c.Close()
}

func (b *Backend) ready() error {
	if b.closed.Load() {
		return store.Errorf(store.Unavailable, "the counts are closed")
	}
	return nil
}

// wrap gives an error of Redis its kind: Timeout or, for all others, Unavailable, since they may
// pass or an operator can remove the cause.
func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	kind := store.KindOf(err)
	if kind == store.Other {
		kind = store.Unavailable
		var t interface{ Timeout() bool }
		if errors.As(err, &t) && t.Timeout() {
			kind = store.Timeout
		}
	}
	return &store.Error{Kind: kind, Op: op + " in Redis", Err: err}
}
