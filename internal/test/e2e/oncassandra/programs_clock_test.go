package oncassandra

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/listing"
)

// TestCommonTimeOfARealNode: a client whose wall clock is set at will writes with the
// time of the node.
func TestCommonTimeOfARealNode(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	o := harness.Shared(t, &cassandra)
	s := harness.Open(t, o)
	require.NoError(t, mapclient.InitClocks(ctx, s, 1))

	var off atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(off.Load())) }
	// The limit leaves room for slow answers of a busy machine.
	m, err := mapclient.NewNetwork(s, mapclient.Options{Clocks: 1, Now: now, MaxClockSkew: 10 * time.Second})
	require.NoError(t, err)
	t.Cleanup(m.Close)
	c, err := listing.New(mapclient.With(s, m), listing.Options{Now: now})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(ctx, "b"))
	b := c.Bucket("b")
	for i, d := range []time.Duration{0, time.Hour, -time.Hour, 20 * time.Second, 0} {
		off.Store(int64(d))
		require.NoError(t, b.Put(ctx, []byte("k"), []byte{byte(i)}))
		e, err := b.Get(ctx, []byte("k"))
		require.NoError(t, err)
		require.Equal(t, []byte{byte(i)}, e.Value)
		// The node shares this machine's clock: the true time is between the bounds.
		at, err := m.Time().Next(ctx, 1)
		require.NoError(t, err)
		require.NoError(t, m.Time().Passed(ctx, at))
		status := m.Time().Status()
		require.Len(t, status.Servers, 1)
		require.Contains(t, status.Servers[0].Address, o.Hosts[0])
		require.True(t, status.Servers[0].Near)
		require.LessOrEqual(t, (status.Servers[0].Ahead + d).Abs(), status.Servers[0].Bound+time.Millisecond, "%+v",
			status)
	}
}
