package listing_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/internal/test/listtest"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// networked makes an Env whose client has leases that hold for a time; s is what
// the client sees of the store, plain what the mover does. With another, the mover
// is another process, with a map client of its own: the listing client learns of
// its swaps from the map clocks alone.
func networked(t *testing.T, s, plain store.Store, clock *listtest.Clock, another bool) *listtest.Env {
	return networkedWith(t, s, plain, listing.Options{Timestamps: clock}, another)
}

func networkedWith(t *testing.T, s, plain store.Store, o listing.Options, another bool) *listtest.Env {
	require.NoError(t, mapclient.InitClocks(t.Context(), plain, 4))
	open := func(s store.Store) *mapclient.Client {
		m, err := mapclient.NewNetwork(s, mapclient.Options{Clocks: 4})
		require.NoError(t, err)
		t.Cleanup(m.Close)
		return m
	}
	m := open(s)
	c, err := listing.New(mapclient.With(s, m), o)
	require.NoError(t, err)
	e := &listtest.Env{Store: plain, Client: c, Maps: m, Clock: o.Timestamps.(*listtest.Clock)}
	if another {
		e.Maps = open(plain)
	}
	return e
}

// TestOverNetworkLeases runs the suite with leases by time. Where moves go on under
// load the mover is another process and calls take their time.
func TestOverNetworkLeases(t *testing.T) {
	listtest.Run(t, func(t *testing.T, clock *listtest.Clock) *listtest.Env {
		plain := memstore.New()
		if !strings.HasSuffix(t.Name(), "/MovesUnderLoad") {
			return networked(t, plain, plain, clock, false)
		}
		slow, _ := faultstore.New(plain, faultstore.Options{
			Seed: seed.Number(t), Rates: faultstore.Rates{Delay: 0.2}, Sleep: wait.Sleep,
			MaxDelay: 200 * time.Millisecond,
		})
		return networked(t, slow, plain, clock, true)
	}, listtest.Options{Steps: race.Fewer(800), Ranges: 600, Rounds: race.Fewer(10), Bubble: true})
}

// TestOverNetworkLeasesAndFaults has answers take up to a lease, so that leases
// run out under operations, and polls be refused and lost.
func TestOverNetworkLeasesAndFaults(t *testing.T) {
	listtest.Run(t, func(t *testing.T, clock *listtest.Clock) *listtest.Env {
		plain := memstore.New()
		s, faults := faultstore.New(plain, faultstore.Options{
			Seed: seed.Number(t), Sleep: wait.Sleep, MaxDelay: mapclient.DefaultLease,
			Rates: faultstore.Rates{Refuse: 0.01, Lose: 0.02, Late: 0.02, Repeat: 0.05, Short: 0.2, Delay: 0.05},
			PerOp: map[faultstore.Op]faultstore.Rates{
				faultstore.Swap:        {Refuse: 0.1, Lose: 0.1, Late: 0.1},
				faultstore.Read:        {Refuse: 0.1, Lose: 0.1, Delay: 0.1},
				faultstore.Acknowledge: {Refuse: 0.1, Lose: 0.1, Delay: 0.1},
			},
		})
		faults.Enable(false)
		e := networked(t, s, plain, clock, false)
		e.Faults = switchOf(t, faults)
		return e
	}, listtest.Options{Steps: race.Fewer(500), Ranges: 200, Rounds: race.Fewer(5), Bubble: true})
}

// TestNetworkLeasesThatEnd lets leases run out while calls are on their way and
// another process moves ranges.
func TestNetworkLeasesThatEnd(t *testing.T) {
	over := func() { time.Sleep(mapclient.DefaultLease + time.Second) }
	for name, test := range map[string]struct {
		rows    int // of each read
		options func(*listtest.Clock) listing.Options
		steps   int
	}{
		"Whole": {0, func(clock *listtest.Clock) listing.Options { return listing.Options{Timestamps: clock} }, 400},
		"OneByOne": {3, func(clock *listtest.Clock) listing.Options {
			return listing.Options{Timestamps: clock, ReadAhead: 1}
		}, race.Fewer(1000)},
		"Ahead": {3, eager, race.Fewer(1000)},
	} {
		inBubble(t, name, func(t *testing.T) {
			var s store.Store = memstore.New()
			if test.rows > 0 {
				s = &listtest.Morsels{Store: s, Rows: test.rows}
			}
			hooked := &listtest.Hooked{Store: s}
			e := networkedWith(t, hooked, hooked.Store, test.options(&listtest.Clock{}), true)
			listtest.RunLeases(t, e, hooked, over, listtest.Options{Steps: test.steps})
		})
	}
}

// clocked is a store whose servers have clocks, as a store has that processes share.
type clocked struct{ memstore.Store }

func (clocked) Servers(context.Context) ([]store.Server, error) { return nil, nil }

func (clocked) Time(context.Context, string) (time.Time, error) { return time.Now(), nil }

// A client of one process would not know of the leases of other processes, and write where rows no longer are.
func TestNewRefusesAStoreThatProcessesShare(t *testing.T) {
	_, err := listing.New(clocked{memstore.New()}, listing.Options{})
	require.Equal(t, store.InvalidArgument, store.KindOf(err))
	require.ErrorContains(t, err, "evenkeel.OpenCassandra")
}
