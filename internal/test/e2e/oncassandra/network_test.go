package oncassandra

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/internal/test/listtest"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
)

const shortLease = 300 * time.Millisecond

// only runs those tests of a suite that find something new over a real node; the
// others would be slow.
func only(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if strings.HasSuffix(t.Name(), "/"+name) {
			return
		}
	}
	t.Skip("slow over a real node, and nothing new there")
}

// TestOverCassandra runs what matters of leases over a real node. Under load the
// mover is another process, with a session of its own.
func TestOverCassandra(t *testing.T) {
	t.Parallel()
	listtest.Run(t, func(t *testing.T, clock *listtest.Clock) *listtest.Env {
		only(t, "Model", "MovesUnderLoad")
		o := harness.Shared(t, &cassandra)
		s := harness.Open(t, o)
		m := harness.Maps(t, s, shortLease)
		require.NoError(t, mapclient.InitClocks(t.Context(), s, harness.Clocks))
		e := &listtest.Env{
			Store: s, Client: harness.Client(t, s, m, listing.Options{Timestamps: clock}), Maps: m, Clock: clock,
		}
		if strings.HasSuffix(t.Name(), "/MovesUnderLoad") {
			other := harness.Open(t, o)
			e.Store, e.Maps = other, harness.Maps(t, other, shortLease)
		}
		return e
	}, listtest.Options{Steps: 120, Keys: 60, Rounds: 2})
}

// TestOverFaultyCassandra has answers of a real node get lost and writes land late
// or twice: what the client makes of that is right by Cassandra's rules too.
func TestOverFaultyCassandra(t *testing.T) {
	t.Parallel()
	listtest.Run(t, func(t *testing.T, clock *listtest.Clock) *listtest.Env {
		only(t, "Model")
		plain := harness.Open(t, harness.Shared(t, &cassandra))
		s, faults := faultstore.New(plain, faultstore.Options{
			Seed:  seed.Number(t),
			Rates: faultstore.Rates{Refuse: 0.01, Lose: 0.02, Late: 0.02, Repeat: 0.05, Short: 0.2},
			PerOp: map[faultstore.Op]faultstore.Rates{
				faultstore.Swap:        {Refuse: 0.1, Lose: 0.1, Late: 0.1},
				faultstore.Read:        {Refuse: 0.1, Lose: 0.1},
				faultstore.Acknowledge: {Refuse: 0.1, Lose: 0.1},
			},
		})
		faults.Enable(false)
		m := harness.Maps(t, s, shortLease)
		require.NoError(t, mapclient.InitClocks(t.Context(), plain, harness.Clocks))
		t.Cleanup(func() {
			c := faults.Counts()
			t.Logf("faults: %+v", c)
			for what, n := range map[string]int{"refused": c.Refused, "lost": c.Lost,
				"landed late or again": c.Landed} {
				require.NotZero(t, n, "no call was %s", what)
			}
		})
		return &listtest.Env{
			Store: plain, Client: harness.Client(t, s, m, listing.Options{Timestamps: clock}), Maps: m, Clock: clock,
			Faults: faults.Enable,
		}
	}, listtest.Options{Steps: 400, Keys: 60})
}
