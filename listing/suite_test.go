package listing_test

import (
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
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

func embedded(t *testing.T, s store.Store, clock *listtest.Clock) *listtest.Env {
	return embeddedWith(t, s, listing.Options{Timestamps: clock})
}

// eager reads ahead wherever it can.
func eager(clock *listtest.Clock) listing.Options {
	return listing.Options{Timestamps: clock, RowsPerRead: 1, ReadAhead: 8, ReadAheadAfter: 1}
}

func embeddedWith(t *testing.T, s store.Store, o listing.Options) *listtest.Env {
	c, err := listing.New(s, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return &listtest.Env{Store: s, Client: c, Maps: mapclient.Of(c), Clock: o.Timestamps.(*listtest.Clock)}
}

func TestOverMemory(t *testing.T) {
	listtest.Run(t, func(t *testing.T, clock *listtest.Clock) *listtest.Env {
		return embedded(t, memstore.New(), clock)
	}, listtest.Options{Steps: race.Fewer(2500), Rounds: race.Fewer(30)})
}

func TestOverPebble(t *testing.T) {
	listtest.Run(t, func(t *testing.T, clock *listtest.Clock) *listtest.Env {
		s, err := pebblestore.Open(t.TempDir(), pebblestore.Options{NoSync: true})
		require.NoError(t, err)
		return embedded(t, s, clock)
	}, listtest.Options{Steps: race.Fewer(800), Rounds: race.Fewer(15)})
}

func TestOverFaults(t *testing.T) {
	listtest.Run(t, func(t *testing.T, clock *listtest.Clock) *listtest.Env {
		s, faults := faultstore.New(memstore.New(), faultstore.Options{
			Seed:  seed.Number(t),
			Rates: faultstore.Rates{Refuse: 0.01, Lose: 0.02, Late: 0.02, Repeat: 0.05, Short: 0.2},
			PerOp: map[faultstore.Op]faultstore.Rates{faultstore.Swap: {Refuse: 0.1, Lose: 0.1, Late: 0.1}},
		})
		faults.Enable(false)
		e := embedded(t, s, clock)
		e.Faults = switchOf(t, faults)
		return e
	}, listtest.Options{Steps: race.Fewer(1500), Rounds: race.Fewer(10)})
}

// switchOf switches faults on or off. The test of interrupted buckets wants to know
// what is so once they are off: the writes of dead processes have landed by then,
// or one of them may create a bucket, or free a name, between two of its looks.
func switchOf(t *testing.T, faults *faultstore.Faults) func(on bool) {
	if !strings.HasSuffix(t.Name(), "/InterruptedBuckets") {
		return faults.Enable
	}
	return func(on bool) {
		faults.Enable(on)
		if !on {
			require.NoError(t, faults.Flush(t.Context()))
		}
	}
}

// TestOverMemoryAhead runs the suite with pages of many reads, several at a time.
func TestOverMemoryAhead(t *testing.T) {
	listtest.Run(t, func(t *testing.T, clock *listtest.Clock) *listtest.Env {
		return embeddedWith(t, &listtest.Morsels{Store: memstore.New(), Rows: 3}, eager(clock))
	}, listtest.Options{Steps: race.Fewer(800), Ranges: 300, Rounds: race.Fewer(5)})
}

// TestOverFaultsAhead: reads that were made ahead fail, and take their time.
func TestOverFaultsAhead(t *testing.T) {
	listtest.Run(t, func(t *testing.T, clock *listtest.Clock) *listtest.Env {
		s, faults := faultstore.New(memstore.New(), faultstore.Options{
			Seed: seed.Number(t), Sleep: wait.Sleep, MaxDelay: time.Second,
			Rates: faultstore.Rates{Refuse: 0.02, Late: 0.02, Repeat: 0.05, Short: 0.2, Delay: 0.2},
			PerOp: map[faultstore.Op]faultstore.Rates{faultstore.Swap: {Refuse: 0.1, Lose: 0.1, Late: 0.1}},
		})
		faults.Enable(false)
		e := embeddedWith(t, &listtest.Morsels{Store: s, Rows: 5}, eager(clock))
		e.Faults = switchOf(t, faults)
		return e
	}, listtest.Options{Steps: race.Fewer(600), Ranges: 200, Rounds: race.Fewer(5), Bubble: true})
}
