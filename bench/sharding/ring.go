package sharding

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strconv"

	"github.com/cespare/xxhash/v2"
)

// ring returns the way of sharding by consistent hashing (Karger and others, "Consistent Hashing and Random Trees",
// 1997). Each shard has `replicas` points on a circle of hashes, and an item belongs to the shard of the next point.
// also is a further disadvantage for the table.
func ring(replicas int, also string) Scheme {
	name := fmt.Sprintf("consistent hashing, %d replicas", replicas)
	if replicas == 1 {
		name = "consistent hashing, 1 replica"
	}
	return Scheme{
		Name: name, Needs: "the shards' names",
		Loses: "order: a sorted page reads every shard; " + also,
		grow: growing(func(seed uint64, shards int) Assign {
			points := ringPoints(seed, shards, replicas)
			return func(item []byte) int {
				h := xxhash.Sum64(item)
				i := sort.Search(len(points), func(i int) bool { return points[i].at >= h })
				if i == len(points) {
					i = 0
				}
				return points[i].shard
			}
		}),
	}
}

type point struct {
	at    uint64
	shard int
}

// ringPoints returns the points of all shards on the circle of hashes, sorted by hash.
func ringPoints(seed uint64, shards, replicas int) []point {
	points := make([]point, 0, shards*replicas)
	for shard := range shards {
		name := append(shardName(seed, shard), '#')
		for r := range replicas {
			at := xxhash.Sum64(strconv.AppendInt(name[:len(name):len(name)], int64(r), 10))
			points = append(points, point{at, shard})
		}
	}
	slices.SortFunc(points, func(a, b point) int { return cmp.Compare(a.at, b.at) })
	return points
}
