package rediscounter

import (
	"context"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/internal/test/redistest"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

// patient is a backend for preparations, which take as long as they take.
func patient(t *testing.T, server *redistest.Server) *backend {
	t.Helper()
	b, err := start(Options{Addr: server.Addr, Timeout: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// fillWritten notes partitions as written to, as merges do: scores of whole milliseconds, of which some have very many.
func fillWritten(t *testing.T, server *redistest.Server, draw *rand.Rand, n int, newest int64) []store.Partition {
	t.Helper()
	b := patient(t, server)
	all := make([]store.Partition, n)
	const crowd = 3 * perPage // of one score
	for i := 0; i < n; {
		members := make([]redis.Z, 0, 10_000)
		for ; i < n && len(members) < cap(members); i++ {
			all[i] = partition()
			at := newest - int64(draw.IntN(3_000_000))
			if i < crowd {
				at = newest - 1_000_000
			}
			members = append(members,
				redis.Z{Score: float64(at), Member: string(storekit.AppendPartition(nil, all[i]))})
		}
		require.NoError(t, b.c.ZAdd(t.Context(), b.groups[0].written(), members...).Err())
	}
	return all
}

// betweenPages is called after each page that was read.
type betweenPages func()

func (betweenPages) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (betweenPages) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (f betweenPages) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if cmds[0].Name() == "zrangebyscore" {
			f()
		}
		return err
	}
}

// A new leader learns of everything that was written within the hour, however much it is, and whatever is written or
// forgotten meanwhile. No answer is larger than what Redis gives within milliseconds, but for very many of one moment.
func TestWrittenInPages(t *testing.T) {
	server := redistest.Start(t)
	b, other := patient(t, server), patient(t, server)
	draw := seed.New(t)
	newest := time.Now().UnixMilli()
	all := fillWritten(t, server, draw, 300_000, newest)
	g := &b.groups[0]
	gone := map[store.Partition]bool{}
	largest, pages := 0, 0
	b.c.AddHook(betweenPages(func() {
		pages++
		newest++
		var moved []redis.Z
		var dropped []any
		for range 500 {
			p := all[draw.IntN(len(all))]
			member := string(storekit.AppendPartition(nil, p))
			if draw.IntN(2) == 0 && !gone[p] {
				moved = append(moved, redis.Z{Score: float64(newest), Member: member})
			} else {
				gone[p] = true
				dropped = append(dropped, member)
			}
		}
		require.NoError(t, other.c.ZAdd(t.Context(), g.written(), moved...).Err())
		require.NoError(t, other.c.ZRem(t.Context(), g.written(), dropped...).Err())
	}))
	b.c.AddHook(answers{&largest})
	got, mark, err := b.Written(t.Context(), 0)
	require.NoError(t, err)
	seen := map[store.Partition]bool{}
	for _, p := range got {
		seen[p] = true
	}
	for i, p := range all {
		require.True(t, seen[p] || gone[p], "partition %d of %d", i, len(all))
	}
	require.GreaterOrEqual(t, pages, 10)
	require.LessOrEqual(t, largest, 4*perPage, "the crowd of one score takes three pages")
	require.LessOrEqual(t, mark, uint64(newest))
	require.GreaterOrEqual(t, mark, uint64(newest-1))

	again, _, err := b.Written(t.Context(), mark)
	require.NoError(t, err)
	require.Less(t, len(again), 2000, "only what was written since")
}

// More partitions than fit into one command are forgotten.
func TestManyAreForgotten(t *testing.T) {
	b := patient(t, redistest.Start(t))
	r := counter.NewRecorder(b, counter.RecorderOptions{Every: -1})
	all := make([]store.Partition, 2*perRead+1)
	for i := range all {
		all[i] = partition()
		r.Put(all[i], []byte("k"), 1, 1)
	}
	require.NoError(t, r.Flush(t.Context()))
	got, _, err := b.Written(t.Context(), 0)
	require.NoError(t, err)
	require.Len(t, got, len(all))
	require.NoError(t, b.Forget(t.Context(), all...))
	got, _, err = b.Written(t.Context(), 0)
	require.NoError(t, err)
	require.Empty(t, got)
	require.Zero(t, puts(t, b, all[2*perRead]))
}

// answers notes the largest answer to a request for what was written.
type answers struct{ largest *int }

func (answers) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (answers) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (a answers) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, c := range cmds {
			if z, ok := c.(*redis.ZSliceCmd); ok {
				*a.largest = max(*a.largest, len(z.Val()))
			}
		}
		return err
	}
}

// A listing of 10^11 keys has 1,500,000 ranges. make counters-large runs this test, which takes some ten seconds.
func TestWrittenOfVeryMany(t *testing.T) {
	if os.Getenv("EVENKEEL_REDIS_MANY") == "" {
		t.Skip("takes long: make counters-large")
	}
	server := redistest.Start(t)
	all := fillWritten(t, server, seed.New(t), 1_500_000, time.Now().UnixMilli())
	b := open(t, server)
	begun := time.Now()
	got, _, err := b.Written(t.Context(), 0)
	t.Log("read in", time.Since(begun))
	require.NoError(t, err)
	seen := make(map[store.Partition]bool, len(got))
	for _, p := range got {
		seen[p] = true
	}
	require.Len(t, seen, len(all))
}
