// Package rediscounter keeps counts in Redis, for any number of clients.
//
// A client appends its batches to a stream. A call of Stats first merges the stream into the states, in one
// transaction. The transaction watches the head and applies the batches of the stream to their states. Then it replaces
// the head and the states, and drops the merged part of the stream. It fails if another merge changed the head
// meanwhile. The head has the number of the last batch of each client, so a batch that is in the stream twice, or comes
// again, counts once. If Stats is not called, clients merge the stream when it becomes long.
//
// Redis is one server, a master that sentinels watch, or a Redis Cluster. In a cluster the buckets are divided into
// groups. Each group has its own head, stream and states, whose keys share one hash tag, so that they are in one slot.
// The groups are spread over the nodes. Without a cluster there is one group.
package rediscounter

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/countbook"
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/store"
)

// Options say where Redis is and how to connect to it, for a Backend that keeps counts in Redis. Addr is required.
type Options struct {
	// Addr is the address of Redis, host:port. With Cluster or Sentinel it may be several addresses, separated by
	// commas: of some nodes of the cluster, or of the sentinels.
	Addr string
	// Cluster is true if Redis is a Redis Cluster. Sentinel is the name of the master that the sentinels at Addr watch;
	// empty means that there are no sentinels. Only one of the two may be set.
	Cluster  bool
	Sentinel string
	// Username, Password and DB are the same as for redis-cli. A cluster has DB 0 only. Sentinels are asked without a
	// password.
	Username, Password string
	DB                 int
	// TLS configures encryption of the connection; nil disables encryption.
	TLS *tls.Config
	// Prefix is the prefix of all Redis keys, "evenkeel" by default. It must not have braces.
	Prefix string
	// Timeout is the time limit of connecting, of each read and of each write; 2 s by default.
	Timeout time.Duration

	now func() time.Time // for tests
}

// backend is a counter.Backend that keeps its counts in Redis.
type backend struct {
	c      redis.UniversalClient
	o      Options
	closed atomic.Bool
	groups []group
	// mergeAt is the length of a Redis stream, in batches of counts, at which clients merge the stream. At more than
	// ten times this length flushes fail with Unavailable.
	mergeAt int64
	resting resting
}

// group is a group of buckets. The Redis keys of its counts have a common prefix (tag), so that one node of a cluster
// has them all.
type group struct {
	tag    string
	length atomic.Int64 // batches in the stream, when last read
	// thinned is the position, in the Redis list of written partitions, up to which the counts of quiet partitions have
	// been made smaller. Only the holder of resting.turn may use it.
	thinned place
}

// groups is the number of groups into which the buckets are divided in a Redis Cluster. The groups distribute the
// counts over the nodes of the cluster. The number is part of the stored format and must not change.
const groups = 64

// init switches off the log of the Redis client library. Its messages only repeat the errors that the library returns.
func init() { redis.SetLogger(silent{}) }

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

const (
	field = "b" // of a stream's entry: the field with the batch
	// perMerge is the maximum number of batches of counts that one transaction merges.
	perMerge = 64
	// attempts is the largest number of attempts at a Redis transaction that conflicts with others. Then the change
	// fails with Unavailable.
	attempts = 20
	// perRead is the maximum number of partitions whose counts one command reads or drops.
	perRead = 1000
)

// Open returns a backend that keeps counts in the Redis that the options o describe. Several backends, also in several
// processes, may use the same data. Open does not connect, so that programs can start while Redis can't be reached. It
// fails with InvalidArgument if the options are wrong.
func Open(o Options) (counter.Backend, error) {
	b, err := start(o)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// start returns the backend of Open.
func start(o Options) (*backend, error) {
	if o.Addr == "" {
		return nil, store.Errorf(store.InvalidArgument, "the address of Redis is missing: give host:port")
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	o.Prefix = cmp.Or(o.Prefix, "evenkeel")
	if o.Timeout <= 0 {
		o.Timeout = 2 * time.Second
	}
	if o.now == nil {
		o.now = time.Now
	}
	c := redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: strings.Split(o.Addr, ","), IsClusterMode: o.Cluster, MasterName: o.Sentinel,
		Username: o.Username, Password: o.Password, DB: o.DB, TLSConfig: o.TLS,
		DialTimeout: o.Timeout, ReadTimeout: o.Timeout, WriteTimeout: o.Timeout, ContextTimeoutEnabled: true,
		// A Recorder retries each second; a merge is repeated as a whole.
		MaxRetries:               -1,
		DialerRetries:            1,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	b := &backend{c: c, o: o, mergeAt: 1000, groups: make([]group, 1)}
	b.groups[0].tag = "{" + o.Prefix + "}:"
	if o.Cluster {
		b.groups = make([]group, groups)
		for i := range b.groups {
			b.groups[i].tag = fmt.Sprintf("{%s:%d}:", o.Prefix, i)
		}
	}
	return b, nil
}

// check returns an InvalidArgument error if the options contradict each other or if the prefix has braces; else nil.
func (o *Options) check() error {
	several := strings.Contains(o.Addr, ",")
	switch {
	case o.Cluster && o.Sentinel != "":
		return store.Errorf(store.InvalidArgument, "a Redis is a cluster or has sentinels, not both")
	case o.Cluster && o.DB != 0:
		return store.Errorf(store.InvalidArgument, "a Redis Cluster has database 0 only, not %d", o.DB)
	case several && !o.Cluster && o.Sentinel == "":
		return store.Errorf(store.InvalidArgument,
			"several addresses of Redis: say whether they are nodes of a cluster (?cluster=true) or sentinels (?sentinel=NAME)")
	case strings.ContainsAny(o.Prefix, "{}"):
		return store.Errorf(store.InvalidArgument, "the prefix %q has braces in it", o.Prefix)
	}
	return nil
}

// Group returns the number of the group to which the bucket with the given id belongs; a hash of the id decides.
// Without a Redis Cluster the only group is 0. It implements counter.Grouper.
func (b *backend) Group(id store.BucketID) int {
	return int(xxhash.Sum64(id[:]) % uint64(len(b.groups)))
}

// of returns the group of buckets to which the bucket with the given id belongs. The counts of one group are on one
// node of a Redis Cluster.
func (b *backend) of(id store.BucketID) *group { return &b.groups[b.Group(id)] }

func (g *group) stream() string  { return g.tag + "batches" }
func (g *group) head() string    { return g.tag + "head" }
func (g *group) hints() string   { return g.tag + "hints" }
func (g *group) merging() string { return g.tag + "merging" }
func (g *group) written() string { return g.tag + "written" }

func (g *group) summary(p store.PartitionID) string { return g.tag + "s:" + string(p[:]) }
func (g *group) sample(p store.PartitionID) string  { return g.tag + "k:" + string(p[:]) }

// Flush appends a client's batch of counts to a Redis stream, from which the batch is merged later. The result has one
// Hint (which keys to sample) for each known partition of the batch. All partitions of the batch must belong to the
// same group of buckets, or else Flush fails with InvalidArgument. It implements counter.Backend.
func (b *backend) Flush(ctx context.Context, batch *counter.Batch) ([]counter.Hint, error) {
	if err := b.ready(); err != nil {
		return nil, err
	}
	g := &b.groups[0]
	ids := make([]string, len(batch.Deltas))
	for i := range batch.Deltas {
		p := &batch.Deltas[i].Partition
		ids[i] = string(p.ID[:])
		if at := b.of(p.Bucket); i == 0 {
			g = at
		} else if at != g {
			return nil, store.Errorf(store.InvalidArgument, "a batch has partitions of several groups of buckets")
		}
	}
	if g.length.Load() > 10*b.mergeAt {
		n, err := b.c.XLen(ctx, g.stream()).Result()
		if err != nil {
			return nil, wrap("flush", err)
		}
		if g.length.Store(n); n > 10*b.mergeAt {
			b.mergeForAll(ctx, g)
			return nil, store.Errorf(store.Unavailable, "%d batches of counts wait in Redis and can't be merged", n)
		}
	}
	body, err := batch.AppendBinary(nil)
	if err != nil {
		return nil, err
	}
	pipe := b.c.Pipeline()
	pipe.XAdd(ctx, &redis.XAddArgs{Stream: g.stream(), Values: []any{field, body}})
	length := pipe.XLen(ctx, g.stream())
	var known *redis.SliceCmd
	if len(ids) > 0 {
		known = pipe.HMGet(ctx, g.hints(), ids...)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, wrap("flush", err)
	}
	if g.length.Store(length.Val()); length.Val() > b.mergeAt {
		b.mergeForAll(ctx, g)
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

// Stats returns the estimates for the given partitions, in the same order. Batches of counts may still wait in the
// streams of Redis, so Stats first merges the streams of these partitions' groups. It implements counter.Source.
func (b *backend) Stats(ctx context.Context, partitions []store.Partition) ([]counter.Stats, error) {
	if err := b.ready(); err != nil {
		return nil, err
	}
	of := map[*group][]int{} // for each group, the indexes of its partitions
	for i := range partitions {
		g := b.of(partitions[i].Bucket)
		of[g] = append(of[g], i)
	}
	if len(of) == 0 {
		of[&b.groups[0]] = nil // merge one group all the same, to find out whether Redis answers
	}
	all, now := make([]counter.Stats, len(partitions)), b.o.now()
	for g, places := range of {
		if err := b.merge(ctx, g); err != nil {
			return nil, err
		}
		for len(places) > 0 {
			n := min(len(places), perRead)
			part := make([]store.Partition, n)
			for i, at := range places[:n] {
				part[i] = partitions[at]
			}
			got, err := b.stats(ctx, g, part, now)
			if err != nil {
				return nil, err
			}
			for i, at := range places[:n] {
				all[at] = got[i]
			}
			places = places[n:]
		}
	}
	return all, nil
}

func (b *backend) stats(
	ctx context.Context, g *group, partitions []store.Partition, now time.Time,
) ([]counter.Stats, error) {
	keys := make([]string, len(partitions))
	for i, p := range partitions {
		keys[i] = g.summary(p.ID)
	}
	pipe := b.c.TxPipeline() // reads the head and the states as of one moment
	head, values := pipe.Get(ctx, g.head()), pipe.MGet(ctx, keys...)
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, wrap("stats", err)
	}
	book, err := openBook(head)
	if err != nil {
		return nil, wrap("stats", err)
	}
	for i, p := range partitions {
		if summary, ok := values.Val()[i].(string); ok {
			s := countbook.NewState()
			if err := s.UnmarshalSummary([]byte(summary)); err == nil {
				book.States[p.ID] = s
			} else if newer(err) != nil {
				return nil, err
			}
		}
	}
	return book.Stats(partitions, now), nil
}

// apart is the largest allowed difference between the clocks of the nodes of a Redis Cluster. The method Written
// compares times of these clocks.
const apart = 10 * time.Second

// Written returns the partitions that were written to since mark, and the mark for the next call. A mark is a time by
// the clock of Redis: 0, or the result of an earlier call. Any number of callers may use Written, and each gets all
// partitions of the last hour. It implements counter.Backend.
func (b *backend) Written(ctx context.Context, mark uint64) ([]store.Partition, uint64, error) {
	if err := b.ready(); err != nil {
		return nil, mark, err
	}
	lengths := make([]*redis.IntCmd, len(b.groups))
	_, err := b.c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range b.groups {
			lengths[i] = p.XLen(ctx, b.groups[i].stream())
		}
		return nil
	})
	if err != nil {
		return nil, mark, wrap("read what was written", err)
	}
	for i, n := range lengths {
		if n.Val() > 0 {
			if err := b.merge(ctx, &b.groups[i]); err != nil {
				return nil, mark, err
			}
		}
	}
	since := mark // includes the mark's own millisecond, in which more writes may have come
	if len(b.groups) > 1 {
		since -= min(since, uint64(apart.Milliseconds()))
	}
	pages := make([]page, len(b.groups))
	for i := range pages {
		pages[i] = page{group: &b.groups[i], from: since}
	}
	var out []store.Partition
	for len(pages) > 0 {
		if err := b.read(ctx, pages); err != nil {
			return nil, mark, wrap("read what was written", err)
		}
		rest := pages[:0]
		for _, p := range pages {
			members := p.got.Val()
			for _, z := range members {
				name, _ := z.Member.(string)
				if len(name) == storekit.PartitionBytes {
					out = append(out, storekit.PartitionAt(name))
					mark = max(mark, uint64(z.Score))
				}
			}
			if len(members) == p.most {
				rest = append(rest, p.next(uint64(members[p.most-1].Score)))
			}
		}
		pages = rest
	}
	b.thin(ctx) // a failure only costs memory, and the next call tries again
	return out, mark, nil
}

// page is one read from the Redis sorted set of written partitions of a group of buckets. The scores are the times of
// the last writes. A page begins at a score. A write that comes meanwhile gets a higher score, so no page misses it.
type page struct {
	*group
	from uint64
	most int // maximum number of members; 0: a share of perPage
	got  *redis.ZSliceCmd
}

// perPage is the number of members that one round trip reads from the Redis sorted sets of all groups together. Redis
// answers such a read within milliseconds.
const perPage = 10_000

// next returns the page of a Redis sorted set that follows the full page p. The parameter last is the score of the last
// member of p. The next page begins with this score again, since more members may have it. If all members of p have the
// same score, the next page is twice as large, until it has all of them.
func (p page) next(last uint64) page {
	// Members come and go, so it would be wrong to skip a number of members.
	if last > p.from {
		return page{group: p.group, from: last}
	}
	return page{group: p.group, from: p.from, most: 2 * p.most}
}

// read reads the given pages of Redis sorted sets, each of a different group of buckets, in one round trip. The field
// got of each page gets the result.
func (b *backend) read(ctx context.Context, pages []page) error {
	_, err := b.c.Pipelined(ctx, func(to redis.Pipeliner) error {
		for i := range pages {
			p := &pages[i]
			if p.most == 0 {
				p.most = max(1, perPage/len(pages))
			}
			p.got = to.ZRangeByScoreWithScores(ctx, p.written(), &redis.ZRangeBy{
				Min: strconv.FormatUint(p.from, 10), Max: "+inf", Count: int64(p.most),
			})
		}
		return nil
	})
	return err
}

// Quanta estimates how the rows of the partition p are distributed over intervals of keys, from the counts in Redis. It
// returns nil if nothing is known of the partition. It implements counter.Source.
func (b *backend) Quanta(ctx context.Context, p store.Partition) ([]counter.Quantum, error) {
	if err := b.ready(); err != nil {
		return nil, err
	}
	g := b.of(p.Bucket)
	values, err := b.c.MGet(ctx, g.summary(p.ID), g.sample(p.ID)).Result()
	if err != nil {
		return nil, wrap("quanta", err)
	}
	summary, ok := values[0].(string)
	if !ok {
		return nil, nil
	}
	sample, _ := values[1].(string)
	s := countbook.NewState()
	if err = s.UnmarshalSummary([]byte(summary)); err == nil {
		err = s.UnmarshalSample([]byte(sample))
	}
	if err != nil {
		return nil, newer(err) // a damaged value counts as unknown
	}
	return s.Quanta(), nil
}

// Correct replaces the estimate for the partition p in Redis by the result c of a recount, after merging all batches of
// counts that wait. It implements counter.Backend.
func (b *backend) Correct(ctx context.Context, p store.Partition, c *counter.Count) error {
	if err := b.ready(); err != nil {
		return err
	}
	g := b.of(p.Bucket)
	if err := b.merge(ctx, g); err != nil { // merge the writes from before the recount
		return err
	}
	return b.change(ctx, g, func(t *transaction) error {
		if err := t.whole(ctx, p.ID); err != nil {
			return err
		}
		t.touched = append(t.touched, p.ID)
		s := t.book.State(p)
		s.Correct(c, t.book.Generation)
		return t.restsLater(ctx, p, s)
	})
}

// Forget deletes the counts of partitions that no longer exist from Redis. It implements counter.Backend.
func (b *backend) Forget(ctx context.Context, partitions ...store.Partition) error {
	if err := b.ready(); err != nil {
		return err
	}
	of := map[*group][]store.Partition{}
	for _, p := range partitions {
		g := b.of(p.Bucket)
		of[g] = append(of[g], p)
	}
	for g, all := range of {
		for gone := range slices.Chunk(all, perRead) {
			if err := b.forget(ctx, g, gone); err != nil {
				return err
			}
		}
	}
	return nil
}

// forget deletes the counts of the partitions in `gone`, which must all be of the group g, in one Redis transaction.
func (b *backend) forget(ctx context.Context, g *group, gone []store.Partition) error {
	var keys, ids []string
	var members []any
	for _, p := range gone {
		members = append(members, string(storekit.AppendPartition(nil, p)))
		keys = append(keys, g.summary(p.ID), g.sample(p.ID))
		ids = append(ids, string(p.ID[:]))
	}
	return b.change(ctx, g, func(t *transaction) error {
		t.also = func(p redis.Pipeliner) {
			p.Unlink(ctx, keys...)
			p.HDel(ctx, g.hints(), ids...)
			p.ZRem(ctx, g.written(), members...)
		}
		return nil
	})
}

// Close closes the connections to Redis. The counts stay. Later calls of other methods fail with Unavailable. It
// implements counter.Backend.
func (b *backend) Close() error {
	if b.closed.Swap(true) {
		return nil
	}
	return b.c.Close()
}

func (b *backend) ready() error {
	if b.closed.Load() {
		return store.Errorf(store.Unavailable, "the counts are closed")
	}
	return nil
}

// wrap returns an error of Redis with the name op of the failed operation and a kind. The kind is Timeout for a
// timeout, and Unavailable for every other error. An error that has a kind keeps it. wrap returns nil if err is nil.
func wrap(op string, err error) error {
	// Unavailable means that the error may pass, or that an operator can remove its cause.
	if err == nil {
		return nil
	}
	if store.KindOf(err) == store.Other {
		kind := store.Unavailable
		var t interface{ Timeout() bool }
		if errors.As(err, &t) && t.Timeout() {
			kind = store.Timeout
		}
		err = store.Errorf(kind, "%w", err)
	}
	return store.Wrap(op+" in Redis", err)
}
