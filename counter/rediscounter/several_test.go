package rediscounter

import (
	"context"
	"fmt"
	"strings"
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

func TestConformanceOfACluster(t *testing.T) {
	cluster := redistest.StartCluster(t)
	n := 0
	countertest.Run(t, func(t *testing.T, clock *countertest.Clock) *countertest.Env {
		n++
		o := Options{Addr: cluster.Addr(), Cluster: true, Prefix: fmt.Sprint("test", n), now: clock.Now}
		return &countertest.Env{
			Shared: true,
			Open: func(t *testing.T) counter.Backend {
				b, err := start(o)
				require.NoError(t, err)
				return b
			},
			Crash: func(*testing.T) { cluster.Crash() },
			Lose:  func(*testing.T) { cluster.Lose() },
		}
	})
}

// All keys of a bucket lie in one slot, and those of many buckets on all nodes.
func TestKeysOfABucketLieInOneSlot(t *testing.T) {
	cluster := redistest.StartCluster(t)
	b, err := start(Options{Addr: cluster.Addr(), Cluster: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	ctx := t.Context()
	r := counter.NewRecorder(b, counter.RecorderOptions{Every: -1})
	const buckets, each = 300, 3
	slots := map[int64]bool{}
	for range buckets {
		bucket := store.BucketID(uuid.New())
		mine := map[int64]bool{}
		for range each {
			p := store.Partition{Bucket: bucket, ID: store.PartitionID(uuid.New())}
			r.Put(p, []byte("k"), 10, 1)
			g := b.of(bucket)
			for _, key := range []string{
				g.head(), g.stream(), g.hints(), g.merging(), g.written(), g.summary(p.ID), g.sample(p.ID),
			} {
				slot := b.c.ClusterKeySlot(ctx, key).Val()
				slots[slot], mine[slot] = true, true
			}
		}
		require.Len(t, mine, 1)
	}
	require.Greater(t, len(slots), groups*9/10)
	require.NoError(t, r.Flush(ctx))
	all, _, err := b.Written(ctx, 0)
	require.NoError(t, err)
	require.Len(t, all, buckets*each)
	total, least := 0, 1<<30
	for _, node := range cluster.Nodes {
		c := redis.NewClient(&redis.Options{Addr: node.Addr})
		keys, err := c.Keys(ctx, "{*}:s:*").Result()
		require.NoError(t, err)
		require.NoError(t, c.Close())
		total, least = total+len(keys), min(least, len(keys))
	}
	require.Equal(t, buckets*each, total)
	require.Greater(t, least, total/10, "each of three nodes has a part")
}

// When a sentinel makes the replica the master, counting goes on there. What was recorded
// meanwhile is counted, once.
func TestSentinelFailsOver(t *testing.T) {
	w := redistest.StartWatched(t)
	b, err := start(Options{Addr: w.Sentinel.Addr, Sentinel: w.Name, Timeout: time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	p, ctx := partition(), t.Context()
	require.NoError(t, b.Correct(ctx, p, &counter.Count{Started: time.Now()}))
	r := counter.NewRecorder(b, counter.RecorderOptions{Every: -1, Timeout: time.Second})
	n := int64(0)
	put := func() {
		n++
		r.Put(p, fmt.Appendf(nil, "k%08d", n), 10, store.Timestamp(time.Now().UnixMicro()))
	}
	put()
	require.NoError(t, r.Flush(ctx))
	require.Equal(t, n, puts(t, b, p))
	w.Replicate()
	w.Master.Kill()
	put()
	require.ErrorIs(t, r.Flush(ctx), store.Unavailable)
	require.Eventually(t, func() bool {
		put()
		if r.Flush(ctx) != nil { // of what was to be sent before
			return false
		}
		return r.Flush(ctx) == nil
	}, 30*time.Second, 20*time.Millisecond)
	var all []counter.Stats
	require.Eventually(t, func() bool { // connections to the former master have to end
		all, err = b.Stats(ctx, []store.Partition{p})
		return err == nil
	}, 30*time.Second, 20*time.Millisecond)
	require.Equal(t, n, all[0].Puts)
	require.Equal(t, n, all[0].Rows)
	require.True(t, all[0].Known, "nothing was lost")
	require.NoError(t, r.Close(ctx))
}

func TestURLs(t *testing.T) {
	for text, want := range map[string]Options{
		"redis://h:6379/3":                   {Addr: "h:6379", DB: 3},
		"redis://u:p%2Cw@h:1?prefix=x":       {Addr: "h:1", Username: "u", Password: "p,w", Prefix: "x"},
		"redis://h:6379,i:6380?cluster=true": {Addr: "h:6379,i:6380", Cluster: true},
		"redis://u:pw@h,i:6380/0?cluster=true&prefix=x": {
			Addr: "h:6379,i:6380", Cluster: true, Username: "u", Password: "pw", Prefix: "x",
		},
		"redis://:pw@a:26379,b:26379/2?sentinel=main": {Addr: "a:26379,b:26379", Sentinel: "main", Password: "pw", DB: 2},
		"redis://a:26379?sentinel=main":               {Addr: "a:26379", Sentinel: "main"},
	} {
		got, err := ParseURL(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		_, err = start(got)
		require.NoError(t, err, text)
	}
	o, err := ParseURL("rediss://h:6379,i:6380?cluster=true")
	require.NoError(t, err)
	require.NotNil(t, o.TLS)
	for text, why := range map[string]string{
		"":                                    "no URL of a Redis",
		"http://h":                            "no URL of a Redis",
		"redis://h:6379,i:6379":               "?cluster=true",
		"redis://h:6379/1?cluster=true":       "database 0 only, not 1",
		"redis://h?cluster=yes":               "give cluster=true",
		"redis://h?cluster=true&sentinel=x":   "not both",
		"redis://h?prefix=%7Bx":               "braces",
		"redis://:hunter2@h:6379,i?x=1":       "",
		"redis://:hunter2@h:port,i?cluster=1": "",
		"redis://:hunter2/x@h,i?cluster=true": "",
	} {
		_, err := ParseURL(text)
		require.ErrorIs(t, err, store.InvalidArgument, text)
		require.ErrorContains(t, err, why, text)
		require.False(t, strings.Contains(err.Error(), "hunter2"), "%s: %v", text, err)
	}
}

// A batch must not be divided.
func TestABatchIsOfOneGroup(t *testing.T) {
	b, err := start(Options{Addr: "127.0.0.1:1", Cluster: true})
	require.NoError(t, err)
	batch := &counter.Batch{Client: uuid.New(), Seq: 1}
	for i := range 20 {
		batch.Deltas = append(batch.Deltas, counter.Delta{Partition: store.Partition{Bucket: store.BucketID{byte(i)}}})
	}
	_, err = b.Flush(context.Background(), batch)
	require.ErrorIs(t, err, store.InvalidArgument)
	require.NoError(t, b.Close())
}
