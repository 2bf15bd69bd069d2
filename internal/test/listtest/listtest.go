// Package listtest tests a listing client by comparing its answers with a sorted slice. The suite runs over every store
// and every form of map client.
package listtest

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// Env is the environment of one test: a client, over an empty store.
type Env struct {
	// Store is the store that the test itself reads and writes, e.g. its mover of ranges.
	Store store.Store
	// Client is the client under test. Maps is the map client that Client uses.
	Client *listing.Client
	Maps   *mapclient.Client
	// Clock is the source of Client's timestamps.
	Clock *Clock
	// Faults turns the faults of Client's store on or off. It is nil if the store has no faults.
	Faults func(on bool)
}

// Options say how long the tests of the suite run, and with how many keys.
type Options struct {
	// Steps is the number of steps of the model test. 0 stands for 2,500.
	Steps int
	// Keys is the number of keys of the model test. 0 stands for 300.
	Keys int
	// Ranges is the number of ranges of the test of emptied ranges. 0 stands for 2,000.
	Ranges int
	// Rounds is the number of rounds of moves in the test with concurrent clients. 0 stands for 30.
	Rounds int
	// Bubble runs each test in virtual time (testing/synctest), for map clients whose waits take time.
	Bubble bool
}

// Run runs the whole suite. The function open returns an Env over an empty store, whose client takes its timestamps
// from clock.
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
