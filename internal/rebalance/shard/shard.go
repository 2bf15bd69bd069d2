// Package shard divides the buckets of a shared store among processes. Each bucket belongs to one of 16 shards (Count).
// Each shard has one process at a time that moves the ranges of its buckets, and one process at a time that cleans its
// buckets.
package shard

import (
	"math/bits"

	"github.com/evenkeel/evenkeel/store"
)

// Count is the number of shards, which are groups of buckets. All processes of a store must use the same number, so the
// number is a constant.
const Count = 16

// Of returns the number of the shard (group of buckets) to which the bucket with the given id belongs, from 0 to 15.
// The number is the second hexadecimal digit of the id. Ids are random, so all shards get about the same number of
// buckets.
func Of(id store.BucketID) int { return int(id[0]) % Count }

// Set is a set of shards, which are groups of buckets: bit n is 1 if shard n is in the set. A process holds leases for
// the shards of a Set, for example.
type Set uint16

// All is the set of all 16 shards (groups of buckets), for a process that handles all buckets of a store.
const All Set = 1<<Count - 1

// Only returns the set with shard n as its only element. n is from 0 to 15.
func Only(n int) Set { return 1 << n }

// Has reports whether shard n, from 0 to 15, is in the set.
func (s Set) Has(n int) bool { return s&Only(n) != 0 }

// Bucket reports whether the bucket with the given id belongs to a shard (group of buckets) in the set.
func (s Set) Bucket(id store.BucketID) bool { return s.Has(Of(id)) }

// Len returns the number of shards (groups of buckets) in the set, from 0 to 16.
func (s Set) Len() int { return bits.OnesCount16(uint16(s)) }

// List returns the numbers of the shards in the set, in ascending order. The result is empty, and not nil, for an empty
// set.
func (s Set) List() []int {
	list := []int{}
	for n := range Count {
		if s.Has(n) {
			list = append(list, n)
		}
	}
	return list
}
