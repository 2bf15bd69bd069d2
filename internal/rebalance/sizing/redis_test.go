package sizing

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/counter/rediscounter"
	"github.com/evenkeel/evenkeel/internal/test/redistest"
	"github.com/evenkeel/evenkeel/store"
)

// TestMemoryOfARangeInRedis measures what a range takes whose sample is full.
func TestMemoryOfARangeInRedis(t *testing.T) {
	t.Parallel()
	const ranges, rows = 150, 1000
	server := redistest.Start(t)
	to, err := rediscounter.Open(rediscounter.Options{Addr: server.Addr, Timeout: time.Minute})
	require.NoError(t, err)
	defer to.Close()
	c := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer c.Close()
	used := func() (n int64) {
		text, err := c.Info(t.Context(), "memory").Result()
		require.NoError(t, err)
		for line := range strings.Lines(text) {
			if v, ok := strings.CutPrefix(strings.TrimSpace(line), "used_memory:"); ok {
				n, err = strconv.ParseInt(v, 10, 64)
				require.NoError(t, err)
			}
		}
		return n
	}
	before := used()
	r := counter.NewRecorder(to, counter.RecorderOptions{Every: -1})
	var all []store.Partition
	for range ranges {
		p := store.Partition{Bucket: store.BucketID{1}, ID: store.PartitionID(uuid.New())}
		all = append(all, p)
		for k := range rows {
			key := fmt.Appendf(nil, "tenant-%08d/2026/11/26/object-%08d", 7, k)
			r.Put(p, key, 100, store.Timestamp(time.Now().UnixMicro()))
		}
	}
	require.NoError(t, r.Flush(context.WithoutCancel(t.Context())))
	_, err = to.Stats(t.Context(), all) // merges
	require.NoError(t, err)
	each := float64(used()-before) / ranges
	t.Logf("%.0f bytes a range", each)
	require.InEpsilon(t, redisBytes, each, 0.2)
}
