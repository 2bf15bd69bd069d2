// Package listtest holds a listing client to a sorted slice: one suite, run
// over every store and every form of map client.
//
// Every test prints its seed; EVENKEEL_SEED=n runs it again with the same one.
package listtest

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store"
)

// Env is what one test works on: a client of an empty store.
type Env struct {
	// Store is what the test itself (its mover, say) reads and writes.
	Store store.Store
	// Client is under test; Maps is the map client that it uses.
	Client *listing.Client
	Maps   *mapclient.Client
	// Clock is Client's source of timestamps.
	Clock *Clock
	// Faults, if set, switches on or off that Client's store misbehaves.
	Faults func(on bool)
}

// Options scale a run.
type Options struct {
	// Steps of the model test; 0: 2,500.
	Steps int
	// Keys of the model test's universe; 0: 300.
	Keys int
	// Ranges of the test of emptied ranges; 0: 2,000.
	Ranges int
	// Rounds of moves in the concurrent test; 0: 30.
	Rounds int
	// Bubble runs each test in virtual time (testing/synctest), for map clients
	// whose waits take time.
	Bubble bool
}

// Run runs the whole suite; open makes an Env over an empty store, whose client
// takes its timestamps from the clock.
func Run(t *testing.T, open func(t *testing.T, clock *Clock) *Env, o Options) {
	o.Steps, o.Keys = or(o.Steps, 2500), or(o.Keys, 300)
	o.Ranges, o.Rounds = or(o.Ranges, 2000), or(o.Rounds, 30)
	for _, test := range []struct {
		name string
		run  func(t *testing.T, e *Env, r *rand.Rand, o Options)
	}{
		{"Model", model},
		{"ShownStays", shownStays},
		{"AwkwardKeys", awkwardKeys},
		{"EmptiedRanges", emptiedRanges},
		{"Tokens", tokens},
		{"Limits", limits},
		{"Batches", batches},
		{"SplitPoints", splitPoints},
		{"All", all},
		{"Buckets", buckets},
		{"InterruptedBuckets", interruptedBuckets},
		{"BucketRaces", bucketRaces},
		{"MovesUnderLoad", movesUnderLoad},
	} {
		t.Run(test.name, func(t *testing.T) {
			run := func(t *testing.T) {
				r := seed.New(t)
				e := open(t, &Clock{})
				test.run(t, e, r, o)
			}
			if o.Bubble {
				synctest.Test(t, run)
			} else {
				run(t)
			}
		})
	}
}

func or(n, preset int) int {
	if n == 0 {
		return preset
	}
	return n
}
