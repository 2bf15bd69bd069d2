package leader

import (
	"bytes"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/internal/rebalance/shard"
)

// sighting is what a process knows about the leader of one shard (a group of buckets): who leads, or for how long no
// process has led.
type sighting struct {
	// holder is the id of the leader. If the id is zero, no process leads the shard, and free is how long the shard has
	// been without a leader.
	holder uuid.UUID
	free   time.Duration
}

// spread decides which shards (groups of buckets) a candidate takes, and whether it gives up a shard:
//   - It takes free shards at once, up to an equal share.
//   - It takes further shards once they have been free for the time `patience`. Candidates with fewer shards come
//     first.
//   - It gives up a shard only if no shard is free, it has the most shards, and another candidate has at least two
//     fewer. Of several candidates with the most shards, the one with the lowest id gives up a shard.
//
// The argument seen describes all shards, me is the candidate's id, and live is the number of live candidates,
// including this one.
func spread(
	seen *[shard.Count]sighting, me uuid.UUID, live int, patience time.Duration, r *rand.Rand,
) (take []int, give bool) {
	held := map[uuid.UUID]int{me: 0}
	var free, left []int
	for n, s := range seen {
		switch {
		case s.holder != uuid.Nil:
			held[s.holder]++
		default:
			free = append(free, n)
			if s.free >= patience {
				left = append(left, n)
			}
		}
	}
	live = max(live, len(held))
	if len(free) > 0 {
		want := upwards(shard.Count, live) - held[me]
		if want <= 0 {
			free, want = left, upwards(len(left), len(held))
		}
		r.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
		return free[:min(want, len(free))], false
	}
	least, most := held[me], me
	if live > len(held) {
		least = 0
	}
	for id, n := range held {
		least = min(least, n)
		if n > held[most] || n == held[most] && bytes.Compare(id[:], most[:]) < 0 {
			most = id
		}
	}
	return nil, most == me && held[me] >= least+2
}

// upwards returns the quotient of n and `by`, rounded up to a whole number.
func upwards(n, by int) int { return (n + by - 1) / by }
