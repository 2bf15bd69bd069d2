package sharding

import (
	"encoding/binary"
	"time"

	"github.com/evenkeel/evenkeel/internal/mapcodec"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// halves, quarter and roll are evenkeel's way of sharding, in three variants: a shard is a partition with one range of
// keys, found by a map of package partmap. At first all ranges have the same size. The variants differ in where the new
// shard is cut off: half of a range, a quarter of a range, or a new range behind all items.
var (
	halves = ranges("ranges, one split in halves",
		"needs a map, and somebody who moves cuts; the two halves stay small until they have grown",
		func(cuts []int, n int) []int { return insert(cuts, n-n/len(cuts)/2) })
	quarter = ranges("ranges, a quarter split off",
		"needs a map, and somebody who moves cuts; a quarter and three quarters are less even than halves",
		func(cuts []int, n int) []int { return insert(cuts, n-n/len(cuts)/4) })
	roll = ranges("ranges, a new one for appends",
		"for items above all that exist: the new shard is empty at first",
		func(cuts []int, n int) []int { return insert(cuts, n) })
)

func insert(cuts []int, at int) []int { return append(cuts[:len(cuts):len(cuts)], at) }

// ranges returns a way of sharding by ranges of keys, which at first have the same size. The function add returns the
// cuts after a shard was added, as indexes of the sorted items. Only the last range is ever cut, without loss of
// generality.
func ranges(name, loses string, add func(cuts []int, items int) []int) Scheme {
	return Scheme{
		Name: name, KeepsOrder: true, Needs: "the map", Loses: loses,
		grow: func(items Items, _ uint64, shards int) (before, after Assign, err error) {
			cuts := make([]int, shards)
			for i := range cuts {
				cuts[i] = i * items.Len() / shards
			}
			if before, err = lookup(items, cuts); err == nil {
				after, err = lookup(items, add(cuts, items.Len()))
			}
			return before, after, err
		},
	}
}

// lookup returns a function that finds the shard of an item in a map with the given cuts, which are indexes of items.
func lookup(items Items, cuts []int) (Assign, error) {
	entries := make([]partmap.Entry, len(cuts))
	for i, at := range cuts {
		if i > 0 {
			entries[i].Start = items.above(at)
		}
		binary.BigEndian.PutUint64(entries[i].Partition[:], uint64(i+1))
	}
	nodes := uint64(0)
	c, err := partmap.New(store.BucketID{1}, 0, entries,
		partmap.Stamp{Now: time.Unix(0, 0), NewNode: func() (id store.NodeID) {
			nodes++
			binary.BigEndian.PutUint64(id[:], nodes)
			return id
		}})
	if err != nil {
		return nil, err
	}
	if c.Next.Height > 0 {
		return nil, store.Errorf(store.InvalidArgument, "%d ranges do not fit into one root: compare fewer shards",
			len(cuts))
	}
	root := c.Next
	starts := mapcodec.NewCuts(len(root.Entries), func(i int) []byte { return root.Entries[i].Start })
	return func(item []byte) int {
		p := root.Entries[starts.Find(item)].Partition
		return int(binary.BigEndian.Uint64(p[:])) - 1
	}, nil
}
