package sharding

import (
	"math/bits"
	"strconv"

	"github.com/cespare/xxhash/v2"
)

// Assign is a function that returns the shard of an item, counted from 0. It is safe for concurrent use.
type Assign func(item []byte) int

// Scheme is one way to assign items to shards, e.g. jump consistent hashing.
type Scheme struct {
	Name string `json:"name"`
	// KeepsOrder is true if neighbouring items are on the same shard or on neighbouring shards, so that a sorted page
	// reads one or two shards.
	KeepsOrder bool `json:"keeps_order"`
	// Needs is what a client has to know besides the number of shards, in plain words.
	Needs string `json:"needs"`
	// Loses is what the scheme costs, in plain words.
	Loses string `json:"loses"`
	// grow returns two assignments: one to the given number of shards, and one after a shard was added.
	grow func(items Items, seed uint64, shards int) (before, after Assign, err error)
}

// Schemes returns all compared ways of sharding, each as its users run it. All hash items with xxHash64.
//
// The schemes are implemented here, because the public libraries in Go have had no release for years (jump: 2017,
// rendezvous: 2020), and each scheme takes only ten lines.
func Schemes() []Scheme {
	const noOrder = "order: a sorted page reads every shard; "
	return []Scheme{
		{
			Name: "naive modulo", Needs: "nothing",
			Loses: noOrder + "nearly all items move when a shard is added",
			grow:  byHash(func(h uint64, shards int) int { return int(h % uint64(shards)) }),
		},
		{
			Name: "jump consistent hashing", Needs: "nothing",
			Loses: noOrder + "only the last shard can be removed",
			grow:  byHash(jump),
		},
		{
			Name: "Fibonacci hashing, then modulo", Needs: "nothing",
			Loses: noOrder + "nearly all items move when a shard is added",
			grow:  byHash(func(h uint64, shards int) int { return int(h * fibonacci % uint64(shards)) }),
		},
		{
			Name: "Fibonacci hashing, range reduction", Needs: "nothing",
			Loses: noOrder + "half of the items move, most of them between shards that existed before",
			grow:  byHash(func(h uint64, shards int) int { return reduce(h*fibonacci, shards) }),
		},
		ring(1, "shards differ by as much as they hold on average"),
		ring(100, "shards differ by a tenth"),
		ring(1000, "a table of 1,000 points per shard"),
		{
			Name: "rendezvous hashing", Needs: "the shards' names",
			Loses: noOrder + "an assignment takes as many steps as there are shards",
			grow:  growing(rendezvous),
		},
		halves, quarter, roll,
	}
}

// growing returns a function for Scheme.grow, for a scheme that only needs a seed and the number of shards. The
// function make returns the assignment to a number of shards.
func growing(make func(seed uint64, shards int) Assign) func(Items, uint64, int) (before, after Assign, err error) {
	return func(_ Items, seed uint64, shards int) (before, after Assign, err error) {
		return make(seed, shards), make(seed, shards+1), nil
	}
}

// byHash returns a function for Scheme.grow, for a scheme that only needs the hash of an item and the number of shards.
// The function shard returns the shard for a hash.
func byHash(shard func(hash uint64, shards int) int) func(Items, uint64, int) (before, after Assign, err error) {
	return growing(func(_ uint64, shards int) Assign {
		return func(item []byte) int { return shard(xxhash.Sum64(item), shards) }
	})
}

// fibonacci is 2^64 divided by the golden ratio, as an odd number (Knuth, The Art of Computer Programming, volume 3,
// section 6.4). Multiplication by fibonacci spreads hashes.
const fibonacci = 0x9E3779B97F4A7C15

// reduce maps the 64-bit number x to a number from 0 to n-1, in proportion to the size of x. If n is 2 to the power of
// k, the result equals a shift by 64-k bits.
func reduce(x uint64, n int) int {
	high, _ := bits.Mul64(x, uint64(n))
	return int(high)
}

// jump returns the shard of a hash by jump consistent hashing (Lamping and Veach, "A Fast, Minimal Memory, Consistent
// Hash Algorithm", 2014). A random generator with the hash as its seed draws the numbers of shards at which the item
// jumps to the newest shard.
func jump(hash uint64, shards int) int {
	at, next := int64(-1), int64(0)
	for next < int64(shards) {
		at = next
		hash = hash*2862933555777941757 + 1
		next = int64(float64(at+1) * (float64(1<<31) / float64(hash>>33+1)))
	}
	return int(at)
}

// rendezvous returns an assignment by rendezvous hashing (Thaler and Ravishankar, "Using Name-Based Mappings to
// Increase Hit Rates", 1998). An item belongs to the shard for which the hash of item and shard is highest. Each name
// is hashed only once, and the hashes of item and shard are then mixed.
func rendezvous(seed uint64, shards int) Assign {
	names := make([]uint64, shards)
	for i := range names {
		names[i] = xxhash.Sum64(shardName(seed, i))
	}
	return func(item []byte) int {
		h := xxhash.Sum64(item)
		best, most := 0, uint64(0)
		for i, name := range names {
			if weight := mix(h ^ name); weight >= most {
				best, most = i, weight
			}
		}
		return best
	}
}

// mix returns a number in which each bit depends on every bit of x (the finalizer of MurmurHash3).
func mix(x uint64) uint64 {
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

func shardName(seed uint64, i int) []byte {
	return strconv.AppendInt(append(strconv.AppendUint(nil, seed, 10), "/shard-"...), int64(i), 10)
}
