package cleaning_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/leader"
	"github.com/evenkeel/evenkeel/internal/rebalance/shard"
	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
)

// registers are those of a process that may be cut off from them.
type registers struct {
	store.Registers
	cut atomic.Bool
}

func (r *registers) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	if r.cut.Load() {
		return store.Errorf(store.Unavailable, "away")
	}
	return r.Registers.Swap(ctx, t, key, old, next)
}

// lead makes another one the leader of a shard for an hour, as if this process's lease had ended unnoticed. shards is
// Holder.Shards.
func (w *world) lead(n, shards int) {
	key := string(leader.Cleaning)
	if n > 0 {
		key = fmt.Sprintf("%s-%d", key, n)
	}
	_, old, err := record.Read(w.t.Context(), w.s, store.Process, key, store.Serial, 1)
	require.NoError(w.t, err)
	text, err := json.Marshal(leader.Holder{
		ID: uuid.New(), Name: "another", Until: time.Now().Add(time.Hour), Lease: time.Hour, Shards: shards,
	})
	require.NoError(w.t, err)
	next := record.Seal(1, record.Next(old), text)
	require.NoError(w.t, w.s.Swap(w.t.Context(), store.Process, []byte(key), old, next))
}

// Two processes clean half of the shards each: each bucket is cleaned by one of them, once in a round. One that dies
// delays its shards only, which the other one takes.
func TestTwoProcessesShareTheBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const buckets = 32
		for i := range buckets - 2 {
			require.NoError(t, w.o.CreateBucket(t.Context(), fmt.Sprintf("bucket-%d", i)))
		}
		var live atomic.Int64
		live.Store(2)
		w.every = 10 * time.Minute
		w.live = func(context.Context) (int, error) { return int(live.Load()), nil }
		a, stopA := w.run(&leader.Options{Name: "a"})
		defer stopA()
		cut := &registers{Registers: w.s}
		w.regs = cut
		b, stopB := w.run(&leader.Options{Name: "b"})
		time.Sleep(time.Hour)
		sa, sb := a.Status(t.Context()), b.Status(t.Context())
		require.Len(t, sa.Shards, shard.Count/2)
		require.Len(t, sb.Shards, shard.Count/2)
		require.NotSubset(t, sa.Shards, sb.Shards)
		for n, holder := range b.Leaders(t.Context()) {
			require.Equal(t, slices.Contains(sa.Shards, n), holder.Name == "a", n)
		}
		require.NotZero(t, sa.Last.Buckets)
		require.NotZero(t, sb.Last.Buckets)
		require.EqualValues(t, buckets, sa.Last.Buckets+sb.Last.Buckets)
		require.Equal(t, burned, w.ranks("photos"))
		require.Equal(t, burned, w.ranks("videos"))

		cut.cut.Store(true) // it can't resign
		stopB()
		time.Sleep(30 * time.Second)
		require.Equal(t, sa.Shards, a.Status(t.Context()).Shards)
		time.Sleep(5 * time.Minute)
		sa = a.Status(t.Context())
		require.Len(t, sa.Shards, shard.Count)
		require.EqualValues(t, buckets, sa.Last.Buckets, "rounds over what it has gained begin soon")
	})
}

// A program that knows no shards cleans all, while it leads.
func TestAProgramThatKnowsNoShardsCleansAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.lead(0, 0)
		c, stop := w.run(&leader.Options{Name: "a"})
		defer stop()
		time.Sleep(50 * time.Minute)
		require.Equal(t, untouched, w.ranks("photos"))
		require.Equal(t, untouched, w.ranks("videos"))
		s := c.Status(t.Context())
		require.False(t, s.Leading)
		require.Equal(t, "another", s.Leader.Name)
		time.Sleep(20 * time.Minute)
		require.Equal(t, burned, w.ranks("photos"))
		require.Equal(t, burned, w.ranks("videos"))
	})
}

// The buckets of a shard that is lost are left at once, in the middle of a round; those of the others are cleaned.
func TestAShardThatIsLostIsLeftAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ctx := newWorld(t), t.Context()
		var err error
		w.o, err = objects.New(w.c, &memoryBlobs{m: map[string][]byte{}}, objects.Options{InlineBytes: -1})
		require.NoError(t, err)
		for i := range 4000 { // before "key"
			_, err := w.o.Bucket("photos", objects.Never).
				Put(ctx, fmt.Appendf(nil, "%04d", i), strings.NewReader("b"), objects.Meta{Size: 1})
			require.NoError(t, err)
		}
		id, err := w.c.BucketID(ctx, "photos")
		require.NoError(t, err)
		w.rate, w.every = 2, time.Hour
		c, stop := w.run(&leader.Options{Name: "a"})
		defer stop()
		time.Sleep(2 * time.Minute)
		require.NotNil(t, c.Status(ctx).Now)
		w.lead(shard.Of(id), shard.Count)
		time.Sleep(time.Minute)
		s := c.Status(ctx)
		require.NotContains(t, s.Shards, shard.Of(id))
		time.Sleep(50 * time.Minute) // without the loss the pass would take 33
		require.Nil(t, c.Status(ctx).Now)
		page, err := w.c.Bucket("photos").List(ctx, listing.Query{Prefix: []byte("key")})
		require.NoError(t, err)
		require.Len(t, page.Items, 2)
		require.Equal(t, untouched, []byte{page.Items[0].Value[0], page.Items[1].Value[0]})
		if shard.Of(id) != 0 {
			require.NotEmpty(t, s.Shards)
		}
	})
}
