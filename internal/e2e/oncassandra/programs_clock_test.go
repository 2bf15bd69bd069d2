package oncassandra

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/e2e/harness"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store"
)

// TestClockOffOverCassandra: a client whose clock is set wrong is told by a real
// node's clock.
func TestClockOffOverCassandra(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	o := harness.Shared(t, &cassandra)
	s := harness.Open(t, o)
	require.NoError(t, mapclient.InitClocks(ctx, s, 1))

	var off atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(off.Load())) }
	// The node shares this machine's clock; the limit leaves room for a slow answer.
	m, err := mapclient.NewNetwork(s, mapclient.Options{Clocks: 1, Now: now, MaxClockSkew: 10 * time.Second})
	require.NoError(t, err)
	t.Cleanup(m.Close)
	c, err := listing.New(s, m, listing.Options{Now: now})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(ctx, "b"))
	b := c.Bucket("b")
	require.NoError(t, b.Put(ctx, []byte("k"), []byte("v")))
	skew := m.Skew()
	require.Len(t, skew.Servers, 1)
	require.LessOrEqual(t, skew.Ahead.Abs(), skew.Bound, "the node has the same clock: %s", skew)

	for _, d := range []time.Duration{time.Minute, -time.Minute} {
		off.Store(int64(d))
		for _, err := range []error{b.Put(ctx, []byte("k"), []byte("w")), b.Delete(ctx, []byte("k"))} {
			require.ErrorIs(t, err, listing.ErrClockOff)
			require.ErrorIs(t, err, store.Unavailable)
			require.ErrorContains(t, err, o.Hosts[0])
		}
		skew = m.Skew()
		require.LessOrEqual(t, (skew.Ahead - d).Abs(), skew.Bound, "%s", skew)
		e, err := b.Get(ctx, []byte("k"))
		require.NoError(t, err)
		require.Equal(t, "v", string(e.Value))
		off.Store(0)
		require.NoError(t, b.Put(ctx, []byte("k"), []byte("v")))
	}
}
