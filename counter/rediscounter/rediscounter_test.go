package rediscounter

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/test/countertest"
	"github.com/evenkeel/evenkeel/internal/test/redistest"
	"github.com/evenkeel/evenkeel/store"
)

func TestConformance(t *testing.T) {
	server := redistest.Start(t)
	n := 0
	for name, mergeAt := range map[string]int64{"usual": 0, "merged by clients": 20} {
		t.Run(name, func(t *testing.T) {
			countertest.Run(t, func(t *testing.T, clock *countertest.Clock) *countertest.Env {
				n++
				o := Options{Addr: server.Addr, Prefix: fmt.Sprint("test", n), now: clock.Now}
				return &countertest.Env{
					Shared: true,
					Open: func(t *testing.T) counter.Backend {
						b, err := start(o)
						require.NoError(t, err)
						b.mergeAt = cmp.Or(mergeAt, b.mergeAt)
						return b
					},
					Crash: func(*testing.T) {
						server.Kill()
						server.Restart()
					},
					Lose: func(*testing.T) {
						server.Wipe()
						server.Restart()
					},
				}
			})
		})
	}
}

func open(t *testing.T, server *redistest.Server) *backend {
	b, err := start(Options{Addr: server.Addr, Timeout: time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func partition() store.Partition {
	return store.Partition{Bucket: store.BucketID{1}, ID: store.PartitionID(uuid.New())}
}

func puts(t *testing.T, b *backend, p store.Partition) int64 {
	t.Helper()
	all, err := b.Stats(context.Background(), []store.Partition{p})
	require.NoError(t, err)
	return all[0].Puts
}

// A Redis that goes away in the middle of everything, several times: what was
// recorded meanwhile is counted when it is back, all of it, once.
func TestRedisComesAndGoes(t *testing.T) {
	server := redistest.Start(t)
	b, p := open(t, server), partition()
	r := counter.NewRecorder(b, counter.RecorderOptions{Every: 5 * time.Millisecond, Timeout: time.Second})
	n := int64(0)
	record := func(d time.Duration) {
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Millisecond) {
			n++
			r.Put(p, fmt.Appendf(nil, "k%08d", n), 10, store.Timestamp(time.Now().UnixMicro()))
		}
	}
	for range 4 {
		record(50 * time.Millisecond)
		var killer sync.WaitGroup
		killer.Go(server.Kill)
		record(100 * time.Millisecond)
		killer.Wait()
		server.Restart()
	}
	record(50 * time.Millisecond)
	require.Eventually(t, func() bool { return r.Close(context.Background()) == nil }, 20*time.Second,
		10*time.Millisecond)
	require.Positive(t, r.Counts().Failures)
	require.Zero(t, r.Counts().Lost)
	// The client's pool of connections takes a moment to believe it.
	require.Eventually(t, func() bool {
		_, err := b.Stats(context.Background(), nil)
		return err == nil
	}, 20*time.Second, 10*time.Millisecond)
	require.Equal(t, n, puts(t, b, p))
}

// A full Redis refuses; writers do not notice, and nothing is lost.
func TestAFullRedis(t *testing.T) {
	server := redistest.Start(t)
	b, p := open(t, server), partition()
	r := counter.NewRecorder(b, counter.RecorderOptions{Every: -1})
	ctx := context.Background()
	require.NoError(t, b.Correct(ctx, p, &counter.Count{Started: time.Now()}))
	server.MaxMemory(1)
	for i := range 1000 {
		r.Put(p, fmt.Appendf(nil, "k%d", i), 10, store.Timestamp(time.Now().UnixMicro()))
		if i%100 == 0 {
			require.ErrorIs(t, r.Flush(ctx), store.Unavailable)
		}
	}
	require.Equal(t, int64(10), r.Counts().Failures)
	require.ErrorIs(t, b.Correct(ctx, p, &counter.Count{Started: time.Now()}), store.Unavailable)
	server.MaxMemory(0)
	require.NoError(t, r.Close(ctx))
	all, err := b.Stats(ctx, []store.Partition{p})
	require.NoError(t, err)
	require.Equal(t, int64(1000), all[0].Puts)
	require.True(t, all[0].Known)
}

// Data of an older moment, as a backup has it: what is missing since then is
// noticed by the numbers of the batches.
func TestRedisAsItWasBefore(t *testing.T) {
	server := redistest.Start(t)
	b, p := open(t, server), partition()
	ctx := context.Background()
	require.NoError(t, b.Correct(ctx, p, &counter.Count{Started: time.Now()}))
	r := counter.NewRecorder(b, counter.RecorderOptions{Every: -1})
	put := func(k string) {
		r.Put(p, []byte(k), 10, store.Timestamp(time.Now().UnixMicro()))
		require.NoError(t, r.Flush(ctx))
	}
	put("a")
	require.Equal(t, int64(1), puts(t, b, p))
	keys, err := b.c.Keys(ctx, "*").Result()
	require.NoError(t, err)
	dump := map[string]string{}
	for _, k := range keys {
		dump[k] = b.c.Dump(ctx, k).Val()
	}
	put("b")
	require.Equal(t, int64(2), puts(t, b, p))
	require.NoError(t, b.c.FlushAll(ctx).Err())
	for k, v := range dump {
		require.NoError(t, b.c.Restore(ctx, k, 0, v).Err())
	}
	all, err := b.Stats(ctx, []store.Partition{p})
	require.NoError(t, err)
	require.True(t, all[0].Known, "nobody can know yet")
	put("c")
	all, err = b.Stats(ctx, []store.Partition{p})
	require.NoError(t, err)
	require.False(t, all[0].Known)
}

// A head that is lost alone makes everything unknown; an entry that is no batch nothing, and one
// that was a batch only what it had. A newer form is left alone.
func TestDamage(t *testing.T) {
	server := redistest.Start(t)
	b, p := open(t, server), partition()
	ctx := context.Background()
	known := func() bool {
		all, err := b.Stats(ctx, []store.Partition{p})
		require.NoError(t, err)
		return all[0].Known
	}
	g := &b.groups[0]
	for _, damage := range []func(){
		func() { require.NoError(t, b.c.Del(ctx, g.head()).Err()) },
		func() { require.NoError(t, b.c.Set(ctx, g.head(), "\x01nonsense", 0).Err()) },
		func() { require.NoError(t, b.c.Set(ctx, g.summary(p.ID), "\x01nonsense", 0).Err()) },
		func() { require.NoError(t, b.c.Del(ctx, g.sample(p.ID)).Err()) },
	} {
		require.NoError(t, b.Correct(ctx, p, &counter.Count{Started: time.Now()}))
		require.True(t, known())
		damage()
		r := counter.NewRecorder(b, counter.RecorderOptions{Every: -1})
		r.Put(p, []byte("k"), 10, store.Timestamp(time.Now().UnixMicro()))
		require.NoError(t, r.Flush(ctx))
		require.False(t, known())
	}
	nonsense := func() {
		require.NoError(t, b.c.XAdd(ctx, &redis.XAddArgs{Stream: g.stream(), Values: []any{field, "\x01nonsense"}}).Err())
	}
	require.NoError(t, b.Correct(ctx, p, &counter.Count{Started: time.Now()}))
	nonsense()
	require.True(t, known())
	r, q := counter.NewRecorder(b, counter.RecorderOptions{Every: -1}), partition()
	require.NoError(t, b.Correct(ctx, q, &counter.Count{Started: time.Now()}))
	for i, x := range []store.Partition{q, p, q} {
		r.Put(x, []byte("k"), 10, store.Timestamp(time.Now().UnixMicro()))
		require.NoError(t, r.Flush(ctx))
		if i == 1 { // it was a batch
			entries := b.c.XRange(ctx, g.stream(), "-", "+").Val()
			require.NoError(t, b.c.XDel(ctx, g.stream(), entries[len(entries)-1].ID).Err())
			nonsense()
		}
	}
	require.False(t, known())
	all, err := b.Stats(ctx, []store.Partition{q})
	require.NoError(t, err)
	require.True(t, all[0].Known)
	require.NoError(t, b.c.XAdd(ctx, &redis.XAddArgs{Stream: g.stream(), Values: []any{field, "\x09newer"}}).Err())
	_, err = b.Stats(ctx, []store.Partition{p})
	require.ErrorIs(t, err, store.InvalidArgument)
	require.Equal(t, int64(1), b.c.XLen(ctx, b.groups[0].stream()).Val())
}

// beforeTransactions is a hook that is called before each transaction that changes something.
type beforeTransactions func()

func (beforeTransactions) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (beforeTransactions) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (f beforeTransactions) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Name() == "mset" }) {
			f()
		}
		return next(ctx, cmds)
	}
}

// Two backends merge at the same time: what one has read is out of date when it writes.
func TestSeveralMerge(t *testing.T) {
	server := redistest.Start(t)
	a, b, p := open(t, server), open(t, server), partition()
	ctx := context.Background()
	require.NoError(t, a.Correct(ctx, p, &counter.Count{Started: time.Now()}))
	r := counter.NewRecorder(b, counter.RecorderOptions{Every: -1})
	n := int64(0)
	put := func() {
		n++
		r.Put(p, fmt.Appendf(nil, "k%d", n), 10, store.Timestamp(time.Now().UnixMicro()))
		require.NoError(t, r.Flush(ctx))
	}
	put()
	times := 0
	a.c.AddHook(beforeTransactions(func() {
		if times++; times < 4 {
			put()
			require.Equal(t, n, puts(t, b, p))
			put()
		}
	}))
	for range 3 {
		times = 0
		require.Equal(t, int64(1), n%7)
		got := puts(t, a, p)
		require.Equal(t, n, got)
		require.Equal(t, 4, times)
		put()
	}
	require.NoError(t, a.Correct(ctx, p, &counter.Count{Started: time.Now(), Rows: 7}))
	all, err := b.Stats(ctx, []store.Partition{p})
	require.NoError(t, err)
	require.True(t, all[0].Known)
}

// Where nobody merges, clients do, so that the stream stays short.
func TestTheStreamStaysShort(t *testing.T) {
	server := redistest.Start(t)
	b, p := open(t, server), partition()
	b.mergeAt = 50
	ctx := context.Background()
	r := counter.NewRecorder(b, counter.RecorderOptions{Every: -1})
	for i := range 500 {
		r.Put(p, fmt.Appendf(nil, "k%d", i), 10, store.Timestamp(i+1))
		require.NoError(t, r.Flush(ctx))
		require.LessOrEqual(t, b.c.XLen(ctx, b.groups[0].stream()).Val(), int64(51))
	}
	require.Equal(t, int64(500), puts(t, b, p))
}

func TestOpenNeedsAnAddress(t *testing.T) {
	_, err := start(Options{})
	require.ErrorIs(t, err, store.InvalidArgument)
	b, err := start(Options{Addr: "127.0.0.1:1"})
	require.NoError(t, err, "nothing is sent yet")
	_, err = b.Stats(context.Background(), []store.Partition{partition()})
	require.ErrorIs(t, err, store.Unavailable)
	require.NoError(t, b.Close())
}
